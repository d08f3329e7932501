//! Pair reductions: on cooperative matrices if the target supports them and the operands are f16, else with
//! multiply-adds.

mod cooperative;
mod plain;
mod suited;
mod tile;

use super::coords::Coords;
use super::device_function::{Combine, Element, Four, elements, float, function};
use super::expr::Code;
use super::frame::{PairGrid, PairTemplate};
use super::interval::Pair;
use super::module::Module;
use super::store::store_all_four;
use super::template::Template;
use super::value::WgslValue;
use super::{EmitError, ParsedKernel, Scheduled};
use crate::checked::{cooperative, tile_of};
use minijinja::Value as Variable;
use rewire_graph::pointwise::{Expr, ExprId};
use rewire_graph::{Arrange, Dim, Scalar};
use rewire_graph_rewrite::device::{Extension, PairReductionTile, Target, Tile, Tuning};
use rewire_graph_rewrite::plan::Output;
use rewire_graph_rewrite::schedule::{Bound, PairReduction, PairSum};
use tile::CooperativeTile;

/// The tile of a pair reduction with cooperative matrices; `None` for multiply-adds.
fn cooperative_tile(
    kernel: &Bound<'_, PairReduction>,
    target: &Target,
    tuning: &Tuning,
) -> Result<Option<CooperativeTile>, EmitError> {
    cooperative(tuning, || match tuning.tile {
        None => CooperativeTile::new(kernel, target, None),
        Some(Tile::MatrixPairReduction(tile)) => CooperativeTile::new(kernel, target, Some(tile)),
        Some(_) => Ok(None),
    })
}

impl Scheduled for Bound<'_, PairReduction> {
    fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let kernel = Emitter { kernel: self, statistics: self.sums().filter(|sum| sum.element.is_none()).collect() };
        match cooperative_tile(self, module.target, tuning)? {
            Some(tile) => kernel.cooperative(&tile, module),
            None => {
                let pick = |tile| if let Tile::PairReduction(tile) = tile { Some(tile) } else { None };
                kernel.plain(module, tile_of(tuning, "pairs", pick)?)
            }
        }
    }

    fn takes(&self, tile: &Tile) -> bool {
        matches!(tile, Tile::PairReduction(_) | Tile::MatrixPairReduction(_))
    }

    fn tiles(&self, target: &Target, base: &Tuning) -> Vec<Tile> {
        if base.matrices == Some(true) {
            let tiles = tile::tiles(target.matrix, self.attention().is_some());
            return tiles.into_iter().map(Tile::MatrixPairReduction).collect();
        }
        [1, 2, 4, 8].map(|rows_per_thread| Tile::PairReduction(PairReductionTile { rows_per_thread })).into()
    }

    fn suited(&self, base: &Tuning, target: &Target, size: &dyn Fn(&Dim) -> Option<u64>) -> Option<Tile> {
        self.attention().and_then(|_| suited::suited(self, base, target, size))
    }

    fn is_cooperative(&self, target: &Target, tuning: &Tuning) -> bool {
        matches!(cooperative_tile(self, target, tuning), Ok(Some(_)))
    }
}

/// A kernel, with its sums that have one value per row (statistics).
struct Emitter<'k> {
    kernel: &'k Bound<'k, PairReduction>,
    statistics: Vec<&'k PairSum>,
}

/// A template for pairs with its variables.
struct Tiling {
    template: &'static Template,
    threads: u32,
    /// Rows per workgroup.
    rows: u32,
    /// The extension, missing from WGSL, that the template uses.
    extension: Option<Extension>,
    variables: Vec<(&'static str, Variable)>,
}

impl Emitter<'_> {
    fn frame(&self) -> PairGrid<'_> {
        let kernel = self.kernel;
        PairGrid {
            samples: &kernel.samples,
            heads: kernel.heads,
            head: kernel.head,
            pair: Pair { row: kernel.owner, key: kernel.other },
            rows: &kernel.owners,
            keys: &kernel.others,
            mask: kernel.mask,
        }
    }

    /// True if a weight reads memory at an index that depends on the row or the other row. A mask may restrict these
    /// indices.
    fn reads_pairs(&self) -> bool {
        let pair = 1u32 << self.kernel.owner | 1 << self.kernel.other;
        let dag = &self.kernel.nest.body.dag;
        let weights: Vec<ExprId> = self.kernel.sums().map(|sum| sum.weight).collect();
        let reads = |id: &ExprId| matches!(dag.expr(*id), Expr::Load { .. } | Expr::Sample { .. } | Expr::Call { .. });
        dag.reachable(&weights).iter().any(|id| reads(id) && dag.coords(*id) & pair != 0)
    }

    /// The weight of an excluded pair, or its score if weights are a softmax, in WGSL.
    fn hidden(&self, sum: &PairSum) -> String {
        if self.kernel.softmax { "LOWEST".to_owned() } else { Combine(sum.op).identity() }
    }

    /// Renders a template with the device functions for pairs and for the epilogue, and with the common variables.
    fn fill(
        &self,
        module: Module,
        tiling: Tiling,
        functions: impl FnOnce(&mut Module) -> Result<String, EmitError>,
    ) -> Result<ParsedKernel, EmitError> {
        let Tiling { template, threads, rows, extension, variables } = tiling;
        let frame = self.frame();
        let variant = PairTemplate { template, threads, rows, roots: self.roots(), extension, variables };
        frame.fill(module, variant, functions)
    }

    /// The expressions that the device functions for pairs evaluate.
    fn roots(&self) -> Vec<ExprId> {
        let factors = self.kernel.dots.iter().flat_map(|dot| [dot.owner, dot.other]);
        let sums = self.kernel.sums().flat_map(|sum| [Some(sum.weight), sum.element.map(|element| element.value)]);
        factors.chain(sums.flatten()).chain(self.kernel.mask).collect()
    }

    /// The column axes of outputs, with their widths.
    fn columns(&self) -> Vec<(u8, usize)> {
        let mut columns: Vec<u8> =
            self.kernel.nest.outputs.iter().filter_map(|output| self.kernel.column_of(output)).collect();
        columns.arrange();
        columns.dedup();
        columns.into_iter().map(|column| (column, self.kernel.width(column).unwrap_or(1))).collect()
    }

    /// The sums whose elements have this column axis.
    fn weighted(&self, column: u8) -> impl Iterator<Item = &PairSum> {
        self.kernel.sums().filter(move |sum| sum.element.is_some_and(|element| element.column == column))
    }

    fn outputs(&self, column: Option<u8>) -> impl Iterator<Item = &Output> {
        self.kernel.nest.outputs.iter().filter(move |output| self.kernel.column_of(output) == column)
    }

    /// The dot products among the values in the bit mask `read`.
    fn products(&self, read: u32) -> Vec<u8> {
        self.kernel.dots.iter().map(|dot| dot.value).filter(|value| read >> value & 1 == 1).collect()
    }

    /// A bit mask of the values that the weights of some sums read.
    fn read(&self, sums: &[PairSum]) -> u32 {
        sums.iter().fold(0, |bits, sum| bits | self.kernel.nest.body.dag.values(sum.weight))
    }

    /// The device function that returns four elements `root` of the row at `coords`, along `axis`.
    fn row(
        &self,
        module: &mut Module,
        (name, coords): (String, &Coords),
        (axis, width): (u8, usize),
        (root, element): (ExprId, Element),
    ) -> Result<String, EmitError> {
        let four = Four { coords, axis, extent: &Dim::from(width) };
        elements(&name, module, &four, (&[], ""), (root, element, ""))
    }

    /// The device function of a pass that returns the weights of a row's pairs with four other rows, times `gain` of
    /// the sum. Its argument `kept` masks the included pairs.
    fn weigh(
        &self,
        module: &mut Module,
        pair: &Coords,
        (number, pass): (usize, &[PairSum]),
        gain: impl Fn(&PairSum) -> f32,
    ) -> Result<String, EmitError> {
        let read = self.read(pass);
        let mut more = ", kept: vec4<bool>".to_owned();
        let mut values = vec![];
        for value in self.products(read) {
            more += &format!(", product{value}: vec4<f32>");
            values.push((value, WgslValue::Vector(format!("product{value}"))));
        }
        for (value, parameter, known) in self.statistics(read) {
            more += &parameter;
            values.push((value, known));
        }
        let mut code = Code::four(module, self.kernel.other, pair, &values, Some("kept"));
        if let Some(mask) = self.kernel.mask {
            code.learn(mask, WgslValue::Vector("kept".to_owned()));
        }
        let (mut members, mut weights) = (vec![], vec![]);
        for sum in pass {
            float(module, "the weight of a pair", sum.weight)?;
            let weight = code.eval_one(module, sum.weight)?.vector(Scalar::F32);
            let weight = match gain(sum) {
                1.0 => weight,
                gain => format!("{weight} * {gain:?}f"),
            };
            let identity = self.hidden(sum);
            members.push(format!("    of{}: vec4<f32>,\n", sum.value));
            weights.push(format!("select(vec4<f32>({identity}), {weight}, kept)"));
        }
        let ty = format!("Weights{number}");
        code.line(&format!("return {ty}({});", weights.join(", ")));
        let weigh = function(&format!("weigh{number}"), pair, &more, &ty, &code.take());
        Ok(format!("struct {ty} {{\n{}}}\n\n{weigh}", members.concat()))
    }

    /// The statistics of a row among the values in the bit mask `read`, with their parameters of a device function.
    fn statistics(&self, read: u32) -> Vec<(u8, String, WgslValue)> {
        let read = self.statistics.iter().map(|sum| sum.value).filter(|value| read >> value & 1 == 1);
        let statistic = |value| {
            let name = format!("statistic{value}");
            (value, format!(", {name}: f32"), WgslValue::Uniform(name))
        };
        read.map(statistic).collect()
    }

    /// The device function that writes four columns of a row.
    fn finish(&self, module: &mut Module, coords: &Coords, (column, width): (u8, usize)) -> Result<String, EmitError> {
        let (mut more, mut values) = (String::new(), vec![]);
        for sum in self.weighted(column) {
            more += &format!(", sum{}: vec4<f32>", sum.value);
            values.push((sum.value, WgslValue::Vector(format!("sum{}", sum.value))));
        }
        for (value, parameter, known) in self.statistics(u32::MAX) {
            more += &parameter;
            values.push((value, known));
        }
        let extent = Dim::from(width);
        let four = Four { coords, axis: column, extent: &extent };
        let mut code = four.code(module, &values);
        let outputs: Vec<Output> = self.outputs(Some(column)).cloned().collect();
        store_all_four(&mut code, module, (column, "d", &extent), &outputs)?;
        Ok(function(&format!("finish{column}"), coords, &more, "", &code.take()))
    }
}
