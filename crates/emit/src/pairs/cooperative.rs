use super::tile::{CooperativeTile, Other};
use super::{Emitter, Tiling};
use crate::coords::Coords;
use crate::device_function::{Element, float, function};
use crate::expr::Code;
use crate::module::Module;
use crate::staged_rows::StagedRows;
use crate::template::{Template, template};
use crate::value::WgslValue;
use crate::{EmitError, ParsedKernel};
use minijinja::Value as Variable;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph_rewrite::device::Extension;
use rewire_graph_rewrite::schedule::PairSum;

static TEMPLATE: Template = template!("pairs_cooperative.wgsl");

/// The power of two nearest to the product of the constant factors of a sum's weights. Without it, the weights fit in
/// f16.
fn scale(dag: &Dag, weight: ExprId) -> f32 {
    let (mut factors, mut product) = (vec![weight], 1.0f32);
    while let Some(factor) = factors.pop() {
        match *dag.expr(factor) {
            Expr::Float(bits) => product *= f32::from_bits(bits),
            Expr::Binary(BinaryOp::Mul, a, b) => factors.extend([a, b]),
            Expr::Select(_, a, hidden) if *dag.expr(hidden) == Expr::Float(0) => factors.push(a),
            _ => {}
        }
    }
    let exponent = product.abs().log2().round();
    if exponent.is_finite() { exponent.clamp(-64.0, 64.0).exp2() } else { 1.0 }
}

impl Emitter<'_> {
    /// Emits a pair reduction with cooperative matrices.
    pub(super) fn cooperative(&self, tile: &CooperativeTile, module: Module) -> Result<ParsedKernel, EmitError> {
        // Software drivers run a subgroup in lockstep and treat its barriers as workgroup barriers, so all subgroups
        // must take the same branch.
        let branch_barrier = if module.target.software { "" } else { "subgroupBarrier();" };
        let variables = vec![
            ("in_registers", tile.in_registers.into()),
            ("t", Variable::from_pairs(self.tile_variables(tile, branch_barrier))),
        ];
        let extension = tile.in_registers.then_some(Extension::Elements);
        let tiling = Tiling { template: &TEMPLATE, threads: tile.threads(), rows: tile.rows, extension, variables };
        self.fill(module, tiling, |module| self.cooperative_hooks(tile, module))
    }

    /// The template variables of the tile.
    fn tile_variables(&self, tile: &CooperativeTile, branch_barrier: &str) -> Vec<(&'static str, Variable)> {
        let others = self.staged(tile);
        let ahead = if tile.products_ahead { tile.depths.len() } else { others.len() };
        let (early, late) = others.split_at(ahead);
        let sums = (0..).zip(self.kernel.sums()).map(|(position, sum)| self.sum_variable(tile, position, sum));
        let stage_groups = tile.size * tile.part_keys() / 4;
        let element_items = |each: u32| (tile.size * tile.size / each).div_ceil(tile.smallest);
        vec![
            ("size", tile.size.into()),
            ("subgroup", tile.subgroup.into()),
            ("smallest", tile.smallest.into()),
            ("varying", tile.varying().into()),
            ("held_rows", tile.held_rows().into()),
            ("stages", tile.stages().into()),
            ("subgroups", tile.subgroups().into()),
            ("threads", tile.threads().into()),
            ("rows", tile.rows.into()),
            ("row_matrices", tile.row_matrices.into()),
            ("keys", tile.keys.into()),
            ("split", tile.split.into()),
            ("part_keys", tile.part_keys().into()),
            ("together", tile.together.into()),
            ("in_registers", tile.in_registers.into()),
            ("softmax", tile.softmax.into()),
            ("guarded", self.reads_pairs().into()),
            ("branch_barrier", branch_barrier.into()),
            ("buffer_length", tile.buffer_length().into()),
            ("weight_pitch", CooperativeTile::pitch(tile.keys).into()),
            ("weight_length", tile.weights_length().into()),
            ("tile_length", tile.tile_length().into()),
            ("stage_pitch", tile.stage_pitch().into()),
            ("stage_length", tile.stage_length().into()),
            ("stage_items", stage_groups.div_ceil(tile.smallest).into()),
            ("element_items", element_items(4).into()),
            ("elements_held", element_items(1).into()),
            ("result_matrices", tile.result_matrices().into()),
            ("early", early.to_vec().into()),
            ("late", late.to_vec().into()),
            ("dots", self.dot_variables(tile).into()),
            ("sums", sums.collect::<Vec<_>>().into()),
            ("columns", self.column_variables(tile).into()),
        ]
    }

    /// The template variables of the staged tensors of the other rows.
    fn staged(&self, tile: &CooperativeTile) -> Vec<Variable> {
        let staged = |(number, other): (usize, &Other)| {
            let staged = StagedRows {
                name: &format!("other{number}"),
                rows: tile.keys,
                width: other.width,
                depth: tile.whole(other.width),
                pitch: tile.pitch_of(other.width),
                base: tile.base(number),
                threads: tile.threads(),
                side_by_side: self.kernel.attention().is_some(),
            };
            staged.variable()
        };
        tile.others.iter().enumerate().map(staged).collect()
    }

    /// The start of a tensor of the other rows in the memory of tiles, for a dot product or a sum.
    fn base(&self, tile: &CooperativeTile, other: &Other, of_sum: bool) -> u32 {
        let number = tile.place(&self.kernel.nest.body.dag, other, of_sum);
        debug_assert!(number.is_some(), "the others are those of products and sums");
        tile.base(number.unwrap_or(0))
    }

    fn dot_variables(&self, tile: &CooperativeTile) -> Vec<Variable> {
        let dots = self.kernel.dots.iter().zip(&tile.depths).map(|(dot, &depth)| {
            let chunk = tile.chunk(depth);
            let other = Other { root: dot.other, axis: dot.depth, width: dot.width };
            Variable::from_pairs([
                ("value", Variable::from(dot.value)),
                ("width", dot.width.into()),
                ("depth", depth.into()),
                ("chunk", chunk.into()),
                ("pitch", CooperativeTile::pitch(chunk).into()),
                ("items", (tile.rows * chunk / 4).div_ceil(tile.threads()).into()),
                ("base", self.base(tile, &other, false).into()),
                ("tile_pitch", tile.pitch_of(dot.width).into()),
            ])
        });
        dots.collect()
    }

    fn sum_variable(&self, tile: &CooperativeTile, position: u32, sum: &PairSum) -> Variable {
        let element = sum.element.map(|element| {
            let other = Other { root: element.value, axis: element.column, width: element.width };
            (self.base(tile, &other, true), element.width)
        });
        let (base, width) = element.unwrap_or((0, 0));
        let scale = self.gain(sum).recip();
        Variable::from_pairs([
            ("value", Variable::from(sum.value)),
            ("matrices", tile.matrices(width).into()),
            ("base", (position * tile.weight_length()).into()),
            ("tile_base", base.into()),
            ("tile_pitch", tile.pitch_of(width).into()),
            ("scale", if scale == 1.0 { String::new() } else { format!(" * {scale:?}f") }.into()),
        ])
    }

    fn column_variables(&self, tile: &CooperativeTile) -> Vec<Variable> {
        let columns = self.columns().into_iter().map(|(axis, width)| {
            let sums: Vec<Variable> = self.weighted(axis).map(|sum| self.sum_variable(tile, 0, sum)).collect();
            Variable::from_pairs([
                ("axis", Variable::from(axis)),
                ("width", width.into()),
                ("matrices", tile.matrices(width).into()),
                ("sums", sums.into()),
            ])
        });
        columns.collect()
    }

    /// The factor by which the weights of a sum are multiplied to fit in f16.
    fn gain(&self, sum: &PairSum) -> f32 {
        if self.kernel.attention().is_some() {
            return 1.0;
        }
        scale(&self.kernel.nest.body.dag, sum.weight).recip()
    }

    /// The device function that computes the weight of a pair for a sum.
    fn weigh_one(&self, module: &mut Module, pair: &Coords, sum: &PairSum) -> Result<String, EmitError> {
        let products = self.products(u32::MAX).into_iter().map(|value| (value, format!("product{value}")));
        let products: Vec<(u8, String)> = products.collect();
        let values: Vec<_> = products.iter().map(|(value, name)| (*value, WgslValue::Uniform(name.clone()))).collect();
        let mut code = Code::point(pair, &values);
        code.restrict("kept".to_owned());
        if let Some(mask) = self.kernel.mask {
            code.learn(mask, WgslValue::Uniform("kept".to_owned()));
        }
        float(module, "the weight of a pair", sum.weight)?;
        let weight = code.eval_one(module, sum.weight)?.first();
        let scaled = match self.gain(sum) {
            1.0 => weight,
            gain => format!("{weight} * {gain:?}f"),
        };
        code.line(&format!("return select({}, {scaled}, kept);", self.hidden(sum)));
        let more: String = products.iter().map(|(_, name)| format!(", {name}: f32")).collect();
        Ok(function(&format!("weigh{}", sum.value), pair, &format!(", kept: bool{more}"), "f32", &code.take()))
    }

    fn cooperative_hooks(&self, tile: &CooperativeTile, module: &mut Module) -> Result<String, EmitError> {
        let kernel = self.kernel;
        let entry = self.frame().entry(module);
        let row = |row: (u8, &str), column: u8| entry.clone().with(row.0, row.1).with(column, "d");
        let (owner, other) = ((kernel.owner, "i"), (kernel.other, "j"));
        let mut text = String::new();
        for dot in &kernel.dots {
            let name = (format!("owner{}", dot.value), &row(owner, dot.depth));
            text += &self.row(module, name, (dot.depth, dot.width), (dot.owner, Element::Half))?;
        }
        for (number, staged) in tile.others.iter().enumerate() {
            let name = (format!("other{number}"), &row(other, staged.axis));
            text += &self.row(module, name, (staged.axis, staged.width), (staged.root, Element::Half))?;
        }
        let pair = entry.clone().with(owner.0, owner.1).with(other.0, other.1);
        match tile.in_registers {
            true => {
                text += &self.frame().keep_one(module, &pair)?;
                for sum in kernel.sums() {
                    text += &self.weigh_one(module, &pair, sum)?;
                }
            }
            false => {
                text += &self.frame().keep(module, &pair)?;
                for (number, pass) in kernel.passes.iter().enumerate() {
                    text += &self.weigh(module, &pair, (number, pass), |sum| self.gain(sum))?;
                }
            }
        }
        for (column, width) in self.columns() {
            text += &self.finish(module, &row(owner, column), (column, width))?;
        }
        Ok(text)
    }
}
