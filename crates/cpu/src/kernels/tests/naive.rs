//! Evaluates expressions of a kernel at one point.

use super::Data;
use rewire_graph::pointwise::{self, Dag, ExprId};
use rewire_graph::{HostTensor, Number, Scalar};

pub(super) struct Point<'a> {
    pub dag: &'a Dag,
    pub data: &'a [Data],
    pub coords: &'a [i64],
    pub values: &'a [f64],
}

impl Point<'_> {
    pub(super) fn evaluate(&self, id: ExprId) -> Number {
        pointwise::Point::evaluate(self, self.dag, id)
    }
}

impl pointwise::Point for Point<'_> {
    fn coord(&self, axis: u8) -> i64 {
        self.coords[usize::from(axis)]
    }

    fn size(&self, _: u16) -> i64 {
        0
    }

    fn accumulated(&self, position: u8) -> Number {
        Number::Float(self.values[usize::from(position)])
    }

    fn load(&self, operand: u16, index: &[i64], scalar: Scalar) -> Number {
        let (tensor, shape) = match &self.data[usize::from(operand)] {
            Data::Host(values) => return Number::Integer(values[index[0] as usize]),
            Data::Device(tensor) => (tensor, tensor.shape()),
        };
        let mut at = 0;
        for (&i, &n) in index.iter().zip(shape) {
            assert!((0..n as i64).contains(&i), "index {index:?} of shape {shape:?}");
            at = at * n + i as usize;
        }
        let size = tensor.bytes().len() / tensor.len();
        let bytes = tensor.bytes()[at * size..][..size].to_vec();
        let element = HostTensor::from_bytes(tensor.dtype(), vec![], bytes).unwrap();
        match scalar {
            Scalar::F32 => Number::Float(element.to_f64()[0]),
            _ => Number::Integer(scalar.wrap(element.to_i64()[0])),
        }
    }

    fn sample(&self, offsets: u16, row: i64) -> i64 {
        let Data::Host(offsets) = &self.data[usize::from(offsets)] else { panic!("offsets are on the host") };
        (0..offsets.len()).rev().find(|&b| offsets[b] <= row).unwrap_or(0) as i64
    }
}
