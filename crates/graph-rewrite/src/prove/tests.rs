//! What is proven holds: every index of a confined plan is evaluated at every point, for plans as they are lowered and for
//! plans whose files were changed.

use super::region::{Extent, Region};
use super::*;
use crate::plan::{Binding, Body, HostSlot, Place as Memory, ShapeValues};
use crate::{lower, optimize};
use proptest::prelude::*;
use rewire_graph::pointwise::{BinaryOp, Expr, UnaryOp};
use rewire_graph::{DType, Dim, Ragged, Scalar, Scope, Tensor};
use serde_json::{Value, json};
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;

const F32: DType = DType::F32;

/// Jagged operators within one another, a product, a norm and attention.
fn stored() -> &'static Plan {
    static STORED: OnceLock<Plan> = OnceLock::new();
    STORED.get_or_init(|| {
        let scope = Scope::new();
        let batch = scope.size("samples");
        let [a, b] = ["a", "b"].map(|name| scope.lengths(name, &batch));
        let rows =
            |name: &str, rows: &Ragged, width: usize| scope.input(name, F32, &[rows.total.clone(), width.into()]);
        let (x, y) = (rows("x", &a, 6), rows("y", &b, 6));
        let ids = scope.input("ids", DType::I64, std::slice::from_ref(&a.total));
        let (both, all) = x.jagged_concat(&a, &y, &b);
        let tail = both.jagged_tail(&all, &a);
        let looked_up = scope.parameter("table", F32, &[7.into(), 6.into()]).gather(&ids);
        let h = (&tail + &looked_up).matmul(&scope.parameter("w", F32, &[6.into(), 8.into()]));
        let heads = h.softmax(1).reshape(&[a.total.clone(), 2.into(), 4.into()]);
        let causal = a.row_index(&a, 2).ge(&a.key_index(&a, 2));
        let zero = scope.scalar(F32, 0.0);
        let weights = causal.select(&heads.scores(&heads, &a, &a).silu(), &zero);
        let attended = weights.weighted_sum(&heads, &a, &a).reshape(&[a.total.clone(), 8.into()]);
        let sums: Tensor = both.jagged_sum(&all).jagged_broadcast(&a);
        let joined = scope.concat(&[&attended, &sums], 1);
        let graph = scope.finish(&[("joined", joined), ("padded", y.jagged_softmax(&b))]).unwrap();
        lower(&optimize(graph).unwrap().0).unwrap()
    })
}

/// One run of a plan's kernels.
struct Run<'a> {
    step: &'a Step,
    values: &'a ShapeValues,
    seed: u64,
}

/// A load or store that was evaluated outside of its tensor.
#[derive(Debug, PartialEq)]
struct Outside {
    step: String,
    expression: u32,
    index: Vec<i64>,
}

impl Run<'_> {
    fn body(&self) -> &Body {
        self.step.kernel.body()
    }

    fn dim(&self, dim: &Dim) -> Option<i64> {
        dim.evaluate(|symbol| self.values.symbols.get(&symbol).copied()).map(|n| n as i64)
    }

    fn vector(&self, operand: u16) -> &[i64] {
        match self.step.reads.get(usize::from(operand)) {
            Some(Binding::Host(HostSlot(slot))) => &self.values.slots[*slot as usize],
            _ => &[],
        }
    }

    /// Evaluates the loops until one reads or writes where it must not.
    fn evaluate(&self) -> Result<(), Outside> {
        for region in Region::of(&self.step.kernel) {
            self.points(&region, &mut vec![])?;
        }
        Ok(())
    }

    fn points(&self, region: &Region<'_>, point: &mut Vec<i64>) -> Result<(), Outside> {
        let Some(extent) = region.coords.get(point.len()) else {
            let values = region.roots.iter().map(|&root| self.at(root, point)).collect::<Result<Vec<_>, _>>()?;
            let Some((_, output)) = region.output else { return Ok(()) };
            let within = |(at, dim): (&i64, &Dim)| (0..self.dim(dim).unwrap_or(0)).contains(at);
            return match values.iter().zip(&output.shape).all(within) {
                true => Ok(()),
                false => Err(Outside { step: self.step.name.clone(), expression: output.value.0, index: values }),
            };
        };
        let (first, end) = match extent {
            Extent::Dim(dim) | Extent::Depth(dim) => (0, self.dim(dim).unwrap_or(0)),
            Extent::Part(first, last, _) => (*first as i64, *last as i64 + 1),
            Extent::Ragged(offsets) => {
                let offsets = self.vector(*offsets);
                let entry = |n: i64| offsets.get(n as usize).copied().unwrap_or(0);
                (0, entry(point[0] + 1) - entry(point[0]))
            }
        };
        // The first and last points of a loop, which has the more of them the deeper it is.
        for coord in (first..end).filter(|&coord| coord < first + 9 || coord > end - 3) {
            point.push(coord);
            self.points(region, point)?;
            point.pop();
        }
        Ok(())
    }

    fn chance(&self, what: impl Hash) -> i64 {
        let mut hasher = DefaultHasher::new();
        (self.seed, what).hash(&mut hasher);
        (hasher.finish() >> 20) as i64
    }

    fn at(&self, id: ExprId, point: &[i64]) -> Result<i64, Outside> {
        let dag = &self.body().dag;
        let of = |id: ExprId| self.at(id, point);
        let word = |value: i64| if dag.scalar(id) == Scalar::I32 { i64::from(value as i32) } else { value };
        Ok(match dag.expr(id) {
            &Expr::Int(_, value) => value,
            &Expr::Bool(value) => value.into(),
            &Expr::Coord(axis) => point.get(usize::from(axis)).copied().unwrap_or(0),
            &Expr::Size(position) => self.dim(&self.body().sizes[usize::from(position)]).unwrap_or(0),
            Expr::Load { operand, index } => {
                let index = index.iter().map(|&id| of(id)).collect::<Result<Vec<_>, _>>()?;
                let declared = &self.body().operands[usize::from(*operand)];
                let within = |(at, dim): (&i64, &Dim)| (0..self.dim(dim).unwrap_or(0)).contains(at);
                if !index.iter().zip(&declared.shape).all(within) {
                    return Err(Outside { step: self.step.name.clone(), expression: id.0, index });
                }
                match declared.place {
                    Memory::Host => {
                        word(self.vector(*operand).get(*index.first().unwrap_or(&0) as usize).copied().unwrap_or(0))
                    }
                    _ => word(self.chance((operand, index)) % 40 - 20),
                }
            }
            &Expr::Sample { offsets, row } => {
                let (row, offsets) = (of(row)?, self.vector(offsets));
                let (mut low, mut high) = (0, offsets.len() as i64 - 2);
                while low < high {
                    let middle = (low + high + 1) >> 1;
                    if offsets[middle as usize] <= row { low = middle } else { high = middle - 1 }
                }
                low
            }
            &Expr::Select(condition, a, b) => of(if of(condition)? != 0 { a } else { b })?,
            &Expr::Unary(UnaryOp::Not, a) => 1 - of(a)?,
            &Expr::Unary(UnaryOp::Neg, a) if dag.scalar(id) != Scalar::F32 => word(-of(a)?),
            &Expr::Binary(op, a, b) if dag.scalar(a) != Scalar::F32 => {
                let (x, y) = (of(a)?, of(b)?);
                if op == BinaryOp::Pow { 1 } else { word(op.evaluate_int(dag.scalar(a), x, y)) }
            }
            &Expr::Cast(to, a) if dag.scalar(a) != Scalar::F32 => {
                let value = of(a)?;
                if to == Scalar::Bool { i64::from(value != 0) } else { word(value) }
            }
            expr => {
                let read = expr.operands().into_iter().map(of).collect::<Result<Vec<_>, _>>()?;
                let any = self.chance((id.0, read));
                if dag.scalar(id) == Scalar::Bool { any & 1 } else { any % 60 - 30 }
            }
        })
    }
}

/// Runs the shape program of a plan; `None` where it refuses the lengths.
fn sizes(plan: &Plan, lengths: [&[i64]; 2]) -> Option<ShapeValues> {
    let total = |name: &str| if name == "y" { lengths[1].iter().sum::<i64>() } else { lengths[0].iter().sum() };
    let host = plan.host_inputs.iter().map(|input| (input, lengths[usize::from(input.name == "b")].to_vec()));
    let extent = |name: &str, axis: usize| match name {
        "a" | "b" => Some(lengths[0].len()),
        _ if axis == 0 => usize::try_from(total(name)).ok(),
        _ => Some(6),
    };
    plan.shapes.run(host, extent).ok()
}

fn check(plan: &Plan, values: &ShapeValues, seed: u64) -> Result<(), Outside> {
    let steps = plan.load.iter().chain(&plan.steps);
    steps.into_iter().try_for_each(|step| Run { step, values, seed }.evaluate())
}

/// The numbers of a stored plan's kernels, by JSON pointer.
fn numbers(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| numbers(item, &format!("{at}/{n}"), found))
        }
        Value::Object(entries) => entries.iter().for_each(|(key, item)| numbers(item, &format!("{at}/{key}"), found)),
        Value::Number(_) if at.starts_with("/steps") || at.contains("entries") => found.push(at.to_owned()),
        _ => {}
    }
}

fn lengths() -> impl Strategy<Value = (Vec<i64>, Vec<i64>)> {
    prop::collection::vec((0i64..5, 0i64..5), 0..4).prop_map(|pairs| pairs.into_iter().unzip())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_lowered_is_proven_and_stays_within((a, b) in lengths(), seed: u64) {
        let mut plan = stored().clone();
        prop_assert_eq!(confine(&mut plan), Ok(vec![]));
        prop_assert_eq!(&plan, stored());
        let values = sizes(&plan, [&a, &b]).unwrap();
        prop_assert_eq!(check(&plan, &values, seed), Ok(()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_plans_stay_within_once_confined(
        changes in prop::collection::vec((any::<usize>(), -2i64..12), 1..4),
        (a, b) in lengths(),
        seed: u64,
    ) {
        let mut value = json!(stored());
        let mut found = vec![];
        numbers(&value, "", &mut found);
        for (place, number) in changes {
            *value.pointer_mut(&found[place % found.len()]).unwrap() = json!(number);
        }
        let Ok(mut plan) = serde_json::from_value::<Plan>(value) else { return Ok(()) };
        if plan.steps.iter().any(|step| !is_sound(step)) || confine(&mut plan).is_err() {
            return Ok(());
        }
        let Some(values) = sizes(&plan, [&a, &b]) else { return Ok(()) };
        if fits(&plan, &values) {
            prop_assert_eq!(check(&plan, &values, seed), Ok(()));
        }
    }
}

/// What loading a plan checks of a step, as far as its loops go.
fn is_sound(step: &Step) -> bool {
    let body = step.kernel.body();
    let operands = &body.operands;
    let refers = body.dag.ids().all(|id| match body.dag.expr(id) {
        Expr::Load { operand, index } => {
            operands.get(usize::from(*operand)).is_some_and(|operand| operand.shape.len() == index.len())
        }
        Expr::Sample { offsets, .. } => operands.get(usize::from(*offsets)).is_some_and(|o| o.shape.len() == 1),
        Expr::Size(position) => usize::from(*position) < body.sizes.len(),
        _ => true,
    });
    let roots = Region::of(&step.kernel).into_iter().flat_map(|region| region.roots);
    let has_roots = roots.into_iter().all(|root| (root.0 as usize) < body.dag.len());
    let ragged = Region::of(&step.kernel).into_iter().flat_map(|region| region.coords).all(|extent| match extent {
        Extent::Ragged(offsets) => operands.get(usize::from(offsets)).is_some_and(|o| o.place == Memory::Host),
        _ => true,
    });
    step.reads.len() == operands.len() && refers && has_roots && ragged
}

/// What a run checks of host vectors and sizes.
fn fits(plan: &Plan, values: &ShapeValues) -> bool {
    let dim = |dim: &Dim| dim.evaluate(|symbol| values.symbols.get(&symbol).copied()).filter(|&n| n < 1 << 20);
    plan.steps.iter().all(|step| {
        let body = step.kernel.body();
        let written = step.kernel.written();
        let read = body.operands.iter().map(|operand| operand.shape.as_slice());
        let shapes = read.chain(written.iter().map(|written| written.shape));
        let sized = shapes.flatten().chain(&body.sizes).all(|size| dim(size).is_some());
        let vectors = step.reads.iter().zip(&body.operands).all(|(read, operand)| match read {
            Binding::Host(slot) => {
                let entries = values.slots.get(slot.0 as usize).map_or(0, Vec::len);
                operand.place == Memory::Host && operand.shape.first().map_or(Some(1), dim) == Some(entries)
            }
            Binding::Buffer(_) => operand.place != Memory::Host,
        });
        let samples = Region::of(&step.kernel).into_iter().all(|region| {
            let ragged = region.coords.iter().filter_map(|extent| match extent {
                Extent::Ragged(offsets) => body.operands.get(usize::from(*offsets)),
                _ => None,
            });
            let count = match region.coords.first() {
                Some(Extent::Dim(count)) => dim(count),
                _ => None,
            };
            ragged
                .into_iter()
                .all(|offsets| count.is_some() && offsets.shape.first().and_then(dim) == count.map(|count| count + 1))
        });
        sized && vectors && samples
    })
}
