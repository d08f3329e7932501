//! Operators move elements as they declare.

use rewire_graph::op::ViewProps;
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};
use rewire_tests::backend::{Tensors, oracle};

const F32: DType = DType::F32;

/// Inputs whose elements are all different.
struct Model {
    scope: Scope,
    inputs: Tensors,
    /// The elements of every input, in order.
    elements: Vec<Vec<f64>>,
}

impl Model {
    fn floats(&mut self, name: &str, shape: &[Dim], extents: &[usize]) -> Tensor {
        let first = self.elements.concat().len();
        let count: usize = extents.iter().product();
        let elements: Vec<f64> = (first..first + count).map(|n| n as f64).collect();
        self.inputs.insert(name.to_owned(), HostTensor::from_f64(F32, extents.to_vec(), &elements).unwrap());
        self.elements.push(elements);
        self.scope.input(name, F32, shape)
    }

    fn constant(&mut self, name: &str, extents: &[usize]) -> Tensor {
        let shape: Vec<Dim> = extents.iter().map(|&n| n.into()).collect();
        self.floats(name, &shape, extents)
    }

    fn lengths(&mut self, name: &str, lengths: &[i64]) -> Ragged {
        self.inputs.insert(name.to_owned(), HostTensor::lengths(lengths));
        self.scope.lengths(name, &self.scope.size("batch"))
    }

    /// Rows `[total, 2]` of a division.
    fn rows(&mut self, name: &str, lengths: &[i64]) -> (Tensor, Ragged) {
        let rows = self.lengths(&format!("{name} lengths"), lengths);
        let total = lengths.iter().sum::<i64>() as usize;
        (self.floats(name, &[rows.total.clone(), 2.into()], &[total, 2]), rows)
    }
}

/// The declaration of a traced operator, and its actual effect.
fn seen(trace: fn(&mut Model) -> Tensor) -> (Option<ViewProps>, ViewProps) {
    let mut model = Model { scope: Scope::new(), inputs: Tensors::new(), elements: vec![] };
    let y = trace(&mut model);
    let graph = model.scope.finish(&[("y", y)]).unwrap();
    let declared = graph.node(graph.outputs()[0].1.node).unwrap().op.movement();
    let result = oracle(&graph, &model.inputs, &Tensors::new()).unwrap()["y"].to_f64();
    let all = model.elements.concat();
    assert!(result.iter().all(|element| all.contains(element)), "{}", graph.text());
    let firsts = |operand: &[f64]| {
        let mut firsts: Vec<f64> = vec![];
        for &element in result.iter().filter(|element| operand.contains(element)) {
            if !firsts.contains(&element) {
                firsts.push(element);
            }
        }
        firsts
    };
    let count: usize = model.elements.iter().map(|operand| firsts(operand).len()).sum();
    let did = ViewProps {
        is_ordered: model.elements.iter().all(|operand| firsts(operand).is_sorted()),
        is_complete: count == all.len(),
        is_unique: count == result.len(),
    };
    (declared, did)
}

/// Checks that an operator declares the property that holds in all of these cases.
fn hold(cases: &[fn(&mut Model) -> Tensor]) {
    let seen: Vec<_> = cases.iter().map(|&case| seen(case)).collect();
    let all = |holds: fn(&ViewProps) -> bool| seen.iter().all(|(_, did)| holds(did));
    let did = ViewProps {
        is_ordered: all(|did| did.is_ordered),
        is_complete: all(|did| did.is_complete),
        is_unique: all(|did| did.is_unique),
    };
    for (declared, _) in &seen {
        assert_eq!(*declared, Some(did));
    }
}

#[test]
fn changes_of_shape() {
    hold(&[|m| m.constant("x", &[4, 6]).reshape(&[2.into(), 12.into()])]);
    hold(&[|m| m.constant("x", &[4, 6]).permute(&[0, 1])]);
    hold(&[|m| m.constant("x", &[4, 6]).transpose(0, 1)]);
    hold(&[|m| m.constant("x", &[2, 3, 4]).permute(&[2, 0, 1])]);
    hold(&[|m| m.constant("x", &[4, 6]).flip(1), |m| m.constant("x", &[4, 3]).flip(0)]);
    hold(&[|m| m.constant("x", &[4, 6]).slice(1, 2, 3), |m| m.constant("x", &[4, 6]).slice(0, 1, 3)]);
    hold(&[
        |m| m.constant("x", &[1, 6]).broadcast(&[3.into(), 6.into()]),
        |m| m.constant("x", &[4, 1]).broadcast(&[2.into(), 4.into(), 3.into()]),
    ]);
    hold(&[
        |m| {
            let (a, b) = (m.constant("a", &[3, 2]), m.constant("b", &[3, 4]));
            m.scope.concat(&[&a, &b], 1)
        },
        |m| {
            let (a, b) = (m.constant("a", &[3, 2]), m.constant("b", &[1, 2]));
            m.scope.concat(&[&b, &a], 0)
        },
    ]);
}

#[test]
fn rows_of_tables() {
    hold(&[|m| {
        let index = HostTensor::from_f64(DType::I32, vec![4], &[3.0, 0.0, 3.0, 1.0]).unwrap();
        m.constant("table", &[5, 2]).gather(&m.scope.constant(index))
    }]);
}

#[test]
fn rows_of_samples() {
    hold(&[|m| {
        let (a, b) = (m.rows("a", &[3, 0, 2]), m.rows("b", &[1, 4, 0]));
        a.0.jagged_concat(&a.1, &b.0, &b.1).0
    }]);
    hold(&[|m| {
        let (x, rows) = m.rows("x", &[3, 0, 5]);
        x.jagged_tail(&rows, &m.lengths("kept", &[1, 0, 4]))
    }]);
    hold(&[|m| {
        let rows = m.lengths("rows", &[3, 0, 2]);
        m.floats("x", &[rows.batch.clone(), 2.into()], &[3, 2]).jagged_broadcast(&rows)
    }]);
}
