//! Compares kernels with plain f64 loops.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attention;
mod matmul;
mod naive;
mod parts;
mod pointwise;
mod reduce;
mod segmented_reduce;
mod windows;

use super::{Compiled, Memory, Operand};
use crate::parallel::{ThreadPool, ThreadPoolOptions};
use rewire_graph::pointwise::Dag;
use rewire_graph::{DType, Dim, HostTensor, Symbol};
use rewire_graph_rewrite::plan::{self, Body, Computation, MemorySpace};

/// An operand of a test.
#[derive(Clone, Debug)]
pub(super) enum Data {
    Device(HostTensor),
    Host(Vec<i64>),
}

/// Symbols of all tests: `Symbol(n)` is entry `n`.
pub(super) type Symbols = Vec<i64>;

pub(super) fn symbol(n: u32) -> Dim {
    Dim::symbol(Symbol(n))
}

pub(super) fn device(dtype: DType, shape: Vec<Dim>) -> plan::Operand {
    plan::Operand { dtype, shape, space: MemorySpace::Device }
}

pub(super) fn host(shape: Vec<Dim>) -> plan::Operand {
    plan::Operand { dtype: DType::I32, shape, space: MemorySpace::Host }
}

pub(super) fn body(dag: Dag, operands: Vec<plan::Operand>) -> Body {
    Body { dag, operands, sizes: vec![] }
}

/// Values in `-1..1` that depend on the position and the seed.
pub(super) fn noise(n: usize, seed: u32) -> Vec<f32> {
    (0..n as u32)
        .map(|i| ((i.wrapping_mul(0x9E37_79B9) ^ seed.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35) >> 8) as f32)
        .map(|x| x / 8_388_608.0 - 1.0)
        .collect()
}

pub(super) fn tensor(dtype: DType, shape: &[usize], seed: u32) -> HostTensor {
    let values: Vec<f64> = noise(shape.iter().product(), seed).into_iter().map(f64::from).collect();
    HostTensor::from_f64(dtype, shape.to_vec(), &values).unwrap()
}

/// The elements of an operand.
pub(super) fn floats(data: &Data) -> Vec<f64> {
    match data {
        Data::Device(tensor) => tensor.to_f64(),
        Data::Host(values) => values.iter().map(|&v| v as f64).collect(),
    }
}

/// Runs a kernel. Outputs are initialised with NaN, which reveals unwritten elements.
pub(super) fn run(kernel: &Computation, data: &[Data], symbols: &Symbols) -> Vec<HostTensor> {
    run_compiled(&Compiled::new(kernel).unwrap(), kernel, data, symbols)
}

/// [`run`] for a compiled kernel, which may have run before.
pub(super) fn run_compiled(
    compiled: &Compiled,
    kernel: &Computation,
    data: &[Data],
    symbols: &Symbols,
) -> Vec<HostTensor> {
    let value = |symbol: Symbol| symbols.get(symbol.0 as usize).copied();
    let memories: Vec<Option<Memory>> = data
        .iter()
        .map(|data| match data {
            Data::Device(tensor) => Some(poisoned(tensor)),
            Data::Host(_) => None,
        })
        .collect();
    let operands: Vec<Operand<'_>> = data
        .iter()
        .zip(&memories)
        .map(|(data, memory)| match (data, memory) {
            (Data::Host(values), _) => Operand::Host(values),
            (_, Some(memory)) => Operand::Tensor(memory),
            _ => unreachable!(),
        })
        .collect();
    let mut outputs: Vec<Memory> = vec![];
    for output in kernel.outputs() {
        if usize::from(output.target) == outputs.len() {
            let shape: Vec<usize> = output.shape.iter().map(|dim| dim.evaluate(value).unwrap()).collect();
            let count = shape.iter().product::<usize>();
            outputs.push(poisoned(&HostTensor::from_f64(output.dtype, shape, &vec![f64::NAN; count]).unwrap()));
        }
    }
    compiled.run(&operands, &mut outputs.iter_mut().collect::<Vec<_>>(), &value).unwrap();
    outputs.iter().map(|output| output.to_host().unwrap()).collect()
}

/// Memory whose padding is NaN.
fn poisoned(tensor: &HostTensor) -> Memory {
    let shape = tensor.shape();
    let mut memory = Memory::new(tensor.dtype(), shape).unwrap();
    if let Some((&width, outer)) = shape.split_last() {
        let padded: Vec<usize> = outer.iter().copied().chain([width.next_multiple_of(4)]).collect();
        let count: usize = padded.iter().product();
        memory.reset(tensor.dtype(), &padded).unwrap();
        memory.write(HostTensor::from_f64(tensor.dtype(), padded, &vec![f64::NAN; count]).unwrap().bytes()).unwrap();
        memory.reset(tensor.dtype(), shape).unwrap();
    }
    memory.write(tensor.bytes()).unwrap();
    memory
}

/// Asserts that two tensors differ by at most `tolerance` of the largest expected magnitude.
pub(super) fn assert_close(actual: &HostTensor, expected: &[f64], tolerance: f64) {
    let actual = actual.to_f64();
    assert_eq!(actual.len(), expected.len());
    let scale = expected.iter().fold(1e-30f64, |max, x| max.max(x.abs()));
    for (n, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() <= tolerance * scale, "element {n}: {a} instead of {e}");
    }
}

/// A pool with `threads` threads.
pub(super) fn pool(threads: usize) -> ThreadPool {
    ThreadPool::new(ThreadPoolOptions { threads: Some(threads), ..ThreadPoolOptions::default() }).unwrap()
}

/// Runs with one thread and with four and asserts equal bits.
pub(super) fn run_on_any_threads(kernel: &Computation, data: &[Data], symbols: &Symbols) -> Vec<HostTensor> {
    let on = |threads: usize| pool(threads).install(|| run(kernel, data, symbols));
    let (one, four) = (on(1), on(4));
    for (a, b) in one.iter().zip(&four) {
        assert_eq!(a.bytes(), b.bytes(), "the number of threads changed the result");
    }
    one
}
