//! Sums over pairs of the rows of two ragged axes.

use super::coords::Coords;
use super::expr::Code;
use super::frame::{Frame, Variant};
use super::hook::{Combine, Element, Four, elements, float, function};
use super::interval::Pair;
use super::module::Module;
use super::store::{store_all_four, store_point};
use super::template::{Template, template};
use super::value::Emitted;
use super::{EmitError, ParsedKernel, Scheduled, Target, Tuning};
use crate::plan::Output;
use crate::schedule::{PairSum, Pairs};
use minijinja::Value as Variable;
use rewire_graph::pointwise::ExprId;
use rewire_graph::{Dim, Scalar};

static TEMPLATE: Template = template!("pairs.wgsl");

const THREADS: u32 = 128;
const THREAD_ROWS: u32 = 16;
/// Others of a tile.
const OTHERS: u32 = 32;
/// Columns that are staged at once.
const CHUNK: usize = 32;
/// Groups of four in a row of a staged tile, or of weights, padding included.
const PITCH: u32 = 9;
/// Sums of a thread, in groups of four, that fit its registers beside products.
const MOST_SUMS: usize = 16;

impl Scheduled for Pairs<'_> {
    /// Emits sums over pairs.
    fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError> {
        let each = rows_per_thread(self, module.target, tuning)?;
        let kernel = Emitter { kernel: self, statistics: self.sums().filter(|sum| sum.element.is_none()).collect() };
        let variant = Variant {
            template: &TEMPLATE,
            threads: THREADS,
            rows: each * THREAD_ROWS,
            roots: kernel.roots(),
            variables: kernel.variables(each),
        };
        kernel.frame().fill(module, variant, |module| kernel.hooks(module))
    }

    fn candidates(&self, _: &Target, _: &Tuning) -> Vec<Tuning> {
        [1, 2, 4].map(|rows| Tuning { rows_per_thread: Some(rows), ..Tuning::default() }).into()
    }
}

/// Owners of a thread.
fn rows_per_thread(kernel: &Pairs<'_>, target: &Target, tuning: &Tuning) -> Result<u32, EmitError> {
    let sums: usize = kernel.sums().filter_map(|sum| sum.element).map(|element| element.width.div_ceil(CHUNK)).sum();
    let statistics = kernel.sums().count() as u32;
    let bytes = |each: u32| 16 * PITCH * (each * THREAD_ROWS + OTHERS) + 4 * each * THREAD_ROWS * statistics + 256;
    let fits = |each: &u32| *each as usize * sums <= MOST_SUMS && bytes(*each) <= target.workgroup_bytes;
    // Software drivers take long to compile, and hold no tile in registers.
    let choices: &[u32] = if target.software { &[2, 1] } else { &[4, 2, 1] };
    let suited = choices.iter().copied().find(fits).unwrap_or(1);
    match tuning.rows_per_thread.unwrap_or(suited) {
        each @ 1..=4 => Ok(each),
        got => Err(EmitError::Tuning { parameter: "rows_per_thread", expected: "1 to 4".to_owned(), got }),
    }
}

/// A kernel with those of its sums that have a value an owner.
struct Emitter<'k> {
    kernel: &'k Pairs<'k>,
    statistics: Vec<&'k PairSum>,
}

impl Emitter<'_> {
    fn frame(&self) -> Frame<'_> {
        let kernel = self.kernel;
        Frame {
            samples: std::slice::from_ref(kernel.samples),
            heads: kernel.heads,
            head: Some(kernel.head),
            pair: Pair { row: kernel.owner, key: kernel.other },
            rows: kernel.owners,
            keys: kernel.others,
            mask: kernel.mask,
        }
    }

    /// What hooks of pairs evaluate.
    fn roots(&self) -> Vec<ExprId> {
        let factors = self.kernel.dots.iter().flat_map(|dot| [dot.owner, dot.other]);
        let sums = self.kernel.sums().flat_map(|sum| [Some(sum.weight), sum.element.map(|element| element.value)]);
        factors.chain(sums.flatten()).chain(self.kernel.mask).collect()
    }

    fn variables(&self, each: u32) -> Vec<(&'static str, Variable)> {
        let dag = &self.kernel.nest.body.dag;
        let chunks = |width: usize| Variable::from(width.div_ceil(CHUNK).max(1));
        let pass = |pass: &Vec<PairSum>| {
            let read = pass.iter().fold(0, |bits, sum| bits | dag.values(sum.weight));
            let dots = self.kernel.dots.iter().filter(|dot| read >> dot.value & 1 == 1);
            let dots = dots.map(|dot| Variable::from_pairs([("value", usize::from(dot.value)), ("width", dot.width)]));
            Variable::from_pairs([
                ("dots", dots.collect::<Vec<_>>()),
                ("sums", pass.iter().map(|sum| self.sum(sum)).collect()),
            ])
        };
        let columns = self.columns().into_iter().map(|(column, width)| {
            let sums = self.weighted(column).map(|sum| Variable::from(sum.value)).collect::<Vec<_>>();
            Variable::from_pairs([
                ("axis", column.into()),
                ("width", width.into()),
                ("chunks", chunks(width)),
                ("sums", sums.into()),
            ])
        });
        let statistics = self.statistics.iter().map(|sum| {
            let identity = Combine(sum.op).identity();
            Variable::from_pairs([("value", Variable::from(sum.value)), ("identity", identity.into())])
        });
        vec![
            ("rows_per_thread", each.into()),
            ("pitch", PITCH.into()),
            ("passes", self.kernel.passes.iter().map(pass).collect::<Vec<_>>().into()),
            ("columns", columns.collect::<Vec<_>>().into()),
            ("statistics", statistics.collect::<Vec<_>>().into()),
            ("rowwise", self.outputs(None).next().is_some().into()),
        ]
    }

    fn sum(&self, sum: &PairSum) -> Variable {
        let combine = Combine(sum.op);
        let read = self.kernel.nest.body.dag.values(sum.weight);
        let is_read = |value: &u8| read >> *value & 1 == 1;
        let dots = self.kernel.dots.iter().map(|dot| dot.value).filter(is_read);
        let products: Vec<String> = dots.map(|value| format!("product{value}")).collect();
        let reads: Vec<u8> = self.statistics.iter().map(|sum| sum.value).filter(is_read).collect();
        let width = sum.element.map_or(0, |element| element.width);
        Variable::from_pairs([
            ("value", Variable::from(sum.value)),
            ("identity", combine.identity().into()),
            ("products", products.into()),
            ("reads", reads.into()),
            ("width", width.into()),
            ("chunks", width.div_ceil(CHUNK).into()),
            ("join", combine.join("total", &combine.total("weights")).into()),
        ])
    }

    /// The axes of columns of outputs, with their widths.
    fn columns(&self) -> Vec<(u8, usize)> {
        let mut columns: Vec<u8> =
            self.kernel.nest.outputs.iter().filter_map(|output| self.kernel.column_of(output)).collect();
        columns.sort_unstable();
        columns.dedup();
        columns.into_iter().map(|column| (column, self.kernel.width(column).unwrap_or(1))).collect()
    }

    /// The sums that have these columns.
    fn weighted(&self, column: u8) -> impl Iterator<Item = &PairSum> {
        self.kernel.sums().filter(move |sum| sum.element.is_some_and(|element| element.column == column))
    }

    fn outputs(&self, column: Option<u8>) -> impl Iterator<Item = &Output> {
        self.kernel.nest.outputs.iter().filter(move |output| self.kernel.column_of(output) == column)
    }

    fn hooks(&self, module: &mut Module) -> Result<String, EmitError> {
        let kernel = self.kernel;
        let entry = self.frame().entry(module);
        let (owner, other) = ((kernel.owner, "i"), (kernel.other, "j"));
        let row = |row: (u8, &str), column: u8| entry.clone().with(row.0, row.1).with(column, "d");
        let mut text = String::new();
        let factor = |module: &mut Module, name: String, coords: Coords, (axis, width): (u8, usize), root| {
            let four = Four { coords: &coords, axis, extent: &Dim::from(width) };
            elements(&name, module, &four, (&[], ""), (root, Element::Float, ""))
        };
        for dot in &kernel.dots {
            let (value, column) = (dot.value, (dot.depth, dot.width));
            text += &factor(module, format!("owner{value}"), row(owner, dot.depth), column, dot.owner)?;
            text += &factor(module, format!("other{value}"), row(other, dot.depth), column, dot.other)?;
        }
        let pair = entry.clone().with(owner.0, owner.1).with(other.0, other.1);
        for sum in kernel.sums() {
            text += &self.weigh(module, &pair, sum)?;
            if let Some(element) = sum.element {
                let (name, column) = (format!("element{}", sum.value), (element.column, element.width));
                text += &factor(module, name, row(other, element.column), column, element.value)?;
            }
        }
        for (column, width) in self.columns() {
            text += &self.finish(module, &row(owner, column), (column, width))?;
        }
        Ok(text + &self.finish_rows(module, &entry.with(owner.0, owner.1))?)
    }

    /// The hook that weighs an owner's pairs with four others, of which those `inside` exist.
    fn weigh(&self, module: &mut Module, pair: &Coords, sum: &PairSum) -> Result<String, EmitError> {
        float(module, "the weight of a pair", sum.weight)?;
        let read = module.body.dag.values(sum.weight);
        let dots = self.kernel.dots.iter().filter(|dot| read >> dot.value & 1 == 1).map(|dot| dot.value);
        let mut more = ", inside: vec4<bool>".to_owned();
        let mut values = vec![];
        for value in dots {
            more += &format!(", product{value}: vec4<f32>");
            values.push((value, Emitted::Vector(format!("product{value}"))));
        }
        for (value, parameter, known) in self.statistics(read) {
            more += &parameter;
            values.push((value, known));
        }
        let mut code = Code::four(module, self.kernel.other, pair, &values, Some("inside"));
        let weight = code.eval_one(module, sum.weight)?.vector(Scalar::F32);
        let identity = Combine(sum.op).identity();
        code.line(&format!("return select(vec4<f32>({identity}), {weight}, inside);"));
        Ok(function(&format!("weigh{}", sum.value), pair, &more, "vec4<f32>", &code.take()))
    }

    /// Those of `read` values that an owner has, with the parameter of a hook for each.
    fn statistics(&self, read: u32) -> Vec<(u8, String, Emitted)> {
        let read = self.statistics.iter().map(|sum| sum.value).filter(|value| read >> value & 1 == 1);
        let statistic = |value| {
            let name = format!("statistic{value}");
            (value, format!(", {name}: f32"), Emitted::Uniform(name))
        };
        read.map(statistic).collect()
    }

    /// The hook that writes four columns of an owner.
    fn finish(&self, module: &mut Module, coords: &Coords, (column, width): (u8, usize)) -> Result<String, EmitError> {
        let (mut more, mut values) = (String::new(), vec![]);
        for sum in self.weighted(column) {
            more += &format!(", sum{}: vec4<f32>", sum.value);
            values.push((sum.value, Emitted::Vector(format!("sum{}", sum.value))));
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

    /// The hook that writes what has no columns; empty where there is nothing.
    fn finish_rows(&self, module: &mut Module, coords: &Coords) -> Result<String, EmitError> {
        let statistics = self.statistics(u32::MAX);
        let values: Vec<(u8, Emitted)> = statistics.iter().map(|(value, _, known)| (*value, known.clone())).collect();
        let mut code = Code::point(coords, &values);
        self.outputs(None).try_for_each(|output| store_point(&mut code, module, output))?;
        let text = code.take();
        let more: String = statistics.into_iter().map(|(_, parameter, _)| parameter).collect();
        Ok(if text.is_empty() { text } else { function("finish_row", coords, &more, "", &text) })
    }
}
