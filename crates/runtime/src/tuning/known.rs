use super::{Bucket, symbols};
use crate::hash::hash;
use rewire_graph::Symbol;
use rewire_graph_rewrite::device::Tuning;
use rewire_graph_rewrite::plan::Computation;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The measured tunings of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelTunings {
    /// Cooperative matrices or multiply-adds. Since they sum in different orders, the choice is the same for all sizes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matrices: Option<bool>,
    /// By size bucket.
    pub sizes: BTreeMap<Bucket, Tuning>,
}

impl KernelTunings {
    /// Adds a tuning, and drops those with another order of sums.
    pub fn insert(&mut self, bucket: Bucket, tuning: Tuning) {
        if self.matrices != tuning.matrices {
            self.sizes.clear();
        }
        self.matrices = tuning.matrices;
        self.sizes.insert(bucket, tuning);
    }

    /// The tunings measured here, and the others for other sizes.
    pub fn below(mut self, measured: &Self) -> Self {
        for (bucket, tuning) in &measured.sizes {
            self.insert(bucket.clone(), *tuning);
        }
        self
    }

    /// The tunings that sum in the same order as the kernel's other tunings of the same family.
    pub fn in_order(mut self) -> Self {
        self.sizes.retain(|_, tuning| tuning.keeps_order());
        self
    }

    /// The tuning for some sizes, unless it sums in a different order than the tunings of other sizes.
    pub fn get(&self, bucket: &Bucket) -> Option<Tuning> {
        self.sizes.get(bucket).copied().filter(|tuning| tuning.matrices == self.matrices)
    }
}

/// The identity of kernels on disk: a hash of the whole kernel, including all attributes. Kernels of different plans
/// are the same if they differ only in symbol numbers, taken in the order of [`symbols`]. `None` if a kernel cannot be
/// serialised.
pub(crate) fn identity(computation: &Computation) -> Option<String> {
    let mut value = serde_json::to_value(computation).ok()?;
    number(&mut value, &mut symbols(computation));
    let text = serde_json::to_vec(&value).ok()?;
    Some(format!("{:032x}", hash(&text)))
}

/// Renumbers the symbols of all sizes by their positions in `order`, to which new ones are added.
fn number(value: &mut Value, order: &mut Vec<Symbol>) {
    match value {
        Value::Object(fields) => {
            let is_size = fields.len() == 2 && fields.contains_key("constant");
            match fields.get_mut("terms") {
                Some(Value::Object(terms)) if is_size => *terms = numbered(terms, order),
                _ => fields.values_mut().for_each(|value| number(value, order)),
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| number(value, order)),
        _ => {}
    }
}

fn numbered(terms: &Map<String, Value>, order: &mut Vec<Symbol>) -> Map<String, Value> {
    let mut all = BTreeMap::new();
    for (name, factor) in terms {
        let Ok(symbol) = name.parse().map(Symbol) else { return terms.clone() };
        let known = order.iter().position(|other| *other == symbol);
        all.insert(known.unwrap_or(order.len()), factor.clone());
        if known.is_none() {
            order.push(symbol);
        }
    }
    all.into_iter().map(|(position, factor)| (position.to_string(), factor)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::pointwise::UnaryOp;
    use rewire_graph::{DType, Dim, Scope};
    use rewire_graph_rewrite::device::{PairReductionTile, Tile};
    use rewire_graph_rewrite::plan::{self, Body, MemorySpace, Operand};
    use rewire_graph_rewrite::{lower, optimize};
    use std::collections::BTreeSet;

    /// A kernel that reads `[a]` and `[b]`.
    fn reads(a: u32, b: u32) -> Computation {
        let operand = |symbol| Operand {
            dtype: DType::F32,
            shape: vec![Dim::symbol(Symbol(symbol)) * 2 + 1.into()],
            space: MemorySpace::Device,
        };
        let body = Body { operands: vec![operand(a), operand(b)], ..Body::default() };
        let extents = vec![Dim::symbol(Symbol(a)) + Dim::symbol(Symbol(b))];
        Computation::of(plan::Nest::map(body, extents, vec![])).unwrap()
    }

    #[test]
    fn numbers_of_symbols_do_not_tell_kernels_apart() {
        assert_eq!(identity(&reads(3, 7)), identity(&reads(0, 1)));
        assert_eq!(identity(&reads(7, 3)), identity(&reads(0, 1)));
        assert_eq!(identity(&reads(5, 5)), identity(&reads(0, 0)));
        assert_ne!(identity(&reads(0, 0)), identity(&reads(0, 1)));
        let size =
            |kernel: &Computation| Bucket::new(&symbols(kernel), |symbol| Some(if symbol.0 == 7 { 64 } else { 8 }));
        assert_eq!((size(&reads(7, 3)).to_string(), size(&reads(3, 7)).to_string()), ("64x8".into(), "8x64".into()));
    }

    #[test]
    fn all_that_a_kernel_is_emitted_from_tells_it_apart() {
        let scope = Scope::new();
        let x = scope.input("x", DType::F32, (scope.size("rows"), 8));
        let y = x.matmul(&scope.parameter("weight", DType::F32, [8, 6])).silu();
        let plan = lower(&optimize(scope.finish(&[("y", y)]).unwrap()).unwrap().0).unwrap();
        let kernel = &plan.steps[0].computation;
        let edits: [fn(&mut plan::Nest); 8] = [
            |nest| nest.body.operands[0].dtype = DType::F16,
            |nest| nest.body.operands[1].space = MemorySpace::Device,
            |nest| nest.body.operands[1].shape[0] = 9.into(),
            |nest| nest.axes[2].extent = plan::Extent::Dense(9.into()),
            |nest| nest.accumulations[0].dtype = DType::F16,
            |nest| nest.outputs[0].dtype = DType::F16,
            |nest| nest.outputs[0].columns = Some((0, 4)),
            |nest| nest.outputs[0].value = nest.body.dag.unary(UnaryOp::Neg, nest.outputs[0].value),
        ];
        let mut known = BTreeSet::from([identity(kernel)]);
        for (number, edit) in edits.into_iter().enumerate() {
            let mut other = kernel.clone();
            let Computation::Nest(own) = &mut other else { panic!("{other:?}") };
            own.edit(edit).unwrap();
            assert!(known.insert(identity(&other)), "edit {number}");
        }
    }

    #[test]
    fn orders_of_sums_do_not_mix() {
        let bucket = |rows| Bucket::new(&[Symbol(0)], |_| Some(rows));
        let tuning = |rows_per_thread, matrices| {
            let tile = Some(Tile::PairReduction(PairReductionTile { rows_per_thread }));
            Tuning { tile, matrices: Some(matrices), ..Tuning::default() }
        };
        let mut known = KernelTunings::default();
        known.insert(bucket(64), tuning(64, true));
        known.insert(bucket(128), tuning(128, true));
        assert_eq!(known.get(&bucket(64)), Some(tuning(64, true)));
        known.insert(bucket(256), tuning(32, false));
        assert_eq!((known.matrices, known.get(&bucket(64))), (Some(false), None));
        known.sizes.insert(bucket(64), tuning(64, true));
        assert_eq!(known.get(&bucket(64)), None);
    }
}
