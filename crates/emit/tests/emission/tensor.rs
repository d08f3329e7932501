use rewire_graph::{DType, Dim, HostTensor, Number, Symbol};
use std::collections::HashMap;

/// An element that no loop stores.
pub const NEVER: Number = Number::Float(f64::NAN);

/// A dense tensor without padding.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub dtype: DType,
    pub shape: Vec<usize>,
    pub data: Vec<Number>,
}

impl Tensor {
    pub fn ints(dtype: DType, data: &[i64]) -> Self {
        Self { dtype, shape: vec![data.len()], data: data.iter().map(|&x| Number::Integer(x)).collect() }
    }

    pub fn at(&self, index: &[i64]) -> Number {
        assert_eq!(index.len(), self.shape.len());
        let mut at = 0;
        for (&i, &n) in index.iter().zip(&self.shape) {
            assert!(i >= 0 && (i as usize) < n, "load at {index:?} of {:?}", self.shape);
            at = at * n + i as usize;
        }
        self.data[at]
    }

    /// The tensor in the memory layout of kernels, with junk or zeros as the padding of rows.
    pub fn padded_bytes(&self, junk: bool) -> Vec<u8> {
        let format = self.dtype.format();
        let mut bytes =
            vec![if junk { 0x71 } else { 0 }; format.bytes(format.elements(&self.shape).unwrap() as u64) as usize];
        format.to_kernels(&self.shape, self.host().bytes(), &mut bytes);
        bytes.resize(bytes.len().max(16).next_multiple_of(16), 0);
        bytes
    }

    /// The tensor rounded to its type.
    pub fn stored(self) -> Self {
        Self::of_host(self.dtype, self.host())
    }

    fn host(&self) -> HostTensor {
        let (dtype, shape) = (self.dtype, self.shape.clone());
        let numbers = self.data.iter();
        match dtype {
            DType::I64 => HostTensor::i64(shape, &numbers.map(|number| number.integer()).collect::<Vec<_>>()),
            DType::I32 | DType::U32 => {
                let bytes = numbers.flat_map(|number| (number.integer() as i32).to_le_bytes()).collect();
                HostTensor::from_bytes(dtype, shape, bytes)
            }
            _ => HostTensor::from_f64(dtype, shape, &numbers.map(|number| number.float()).collect::<Vec<_>>()),
        }
        .unwrap()
    }

    pub fn from_padded(dtype: DType, shape: Vec<usize>, bytes: &[u8]) -> Self {
        let mut host = vec![];
        dtype.format().to_host(&shape, bytes, &mut host);
        Self::of_host(dtype, HostTensor::from_bytes(dtype, shape, host).unwrap())
    }

    /// The numbers of a host tensor; `U32` elements are reinterpreted as `I32`.
    fn of_host(dtype: DType, host: HostTensor) -> Self {
        let shape = host.shape().to_vec();
        let data = match dtype.is_float() {
            true => host.to_f64().into_iter().map(Number::Float).collect(),
            false if dtype == DType::I64 => host.to_i64().into_iter().map(Number::Integer).collect(),
            false => host.to_i64().into_iter().map(|x| Number::Integer((x as i32).into())).collect(),
        };
        Self { dtype, shape, data }
    }
}

pub fn extent(dim: &Dim, symbols: &HashMap<Symbol, i64>) -> usize {
    dim.evaluate(|s| symbols.get(&s).copied()).unwrap()
}
