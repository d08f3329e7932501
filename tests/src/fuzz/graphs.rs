//! Random graphs at random sizes, with inputs that may be hostile. Every kernel computes what the interpreter computes, and
//! rejects what it rejects.

use crate::backend::{Tensors, gpu, oracle, run, session};
use crate::build::build;
use crate::case::GraphCase;
use crate::compare::{Tolerance, differences};
use crate::noise::Noise;
use crate::program::{Instruction, KINDS, Program};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::Kernel;

const WIDTHS: [usize; 8] = [1, 2, 3, 6, 8, 25, 50, 130];

/// Numbers that are invalid as sizes, offsets and lengths, and some that are valid.
const NUMBERS: [i64; 12] = [-1, 0, 1, 2, 5, 63, 1 << 31, 1 << 32, (1 << 32) + 1, 1 << 62, i64::MAX, i64::MIN];

/// Bytes that each make a choice.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Selects an entry of a list.
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[usize::from(self.next()) % list.len()]
    }
}

fn program(bytes: &mut Bytes<'_>) -> Program {
    let (width, rows, offsets) = (bytes.of(&WIDTHS), bytes.of(&[0, 1, 2, 5, 33]), bytes.next() % 2 == 1);
    let seed = u64::from(bytes.next());
    let samples = bytes.next() % 5;
    let lengths = (0..samples).map(|_| (bytes.next() % 75, bytes.next() % 40)).collect();
    let outputs = (0..bytes.next() % 4).map(|_| bytes.next()).collect();
    let steps = bytes.next() % 12 + 1;
    let instruction = |_| Instruction { kind: bytes.of(KINDS), a: bytes.next(), b: bytes.next(), c: bytes.next() };
    let instructions = (0..steps).map(instruction).collect();
    Program { instructions, outputs, width, lengths, rows, offsets, seed }
}

/// Changes entries of integer inputs. Returns true if there was one.
fn change(bytes: &mut Bytes<'_>, inputs: &mut Tensors) -> bool {
    let mut names: Vec<String> =
        inputs.iter().filter(|(_, t)| t.dtype() == DType::I64 && !t.is_empty()).map(|(name, _)| name.clone()).collect();
    names.sort();
    let changes = bytes.next() % 3;
    if names.is_empty() {
        return false;
    }
    for _ in 0..changes {
        let name = &names[usize::from(bytes.next()) % names.len()];
        let Some(tensor) = inputs.get_mut(name) else { continue };
        let mut values = tensor.to_i64();
        let at = usize::from(bytes.next()) % values.len();
        values[at] = bytes.of(&NUMBERS);
        if let Ok(changed) = HostTensor::i64(tensor.shape().to_vec(), &values) {
            *tensor = changed;
        }
    }
    changes > 0
}

/// Compares a kernel with the interpreter on a case.
fn hold(case: &GraphCase, kernel: Kernel, hostile: bool) -> Result<(), String> {
    let Some(mut session) = session(&case.graph, &case.parameters, kernel)? else { return Ok(()) };
    let actual = run(&mut session, &case.inputs);
    match (oracle(&case.graph, &case.inputs, &case.parameters), actual) {
        (Ok(expected), Ok(actual)) => match differences(&actual, &expected, Tolerance::SINGLE) {
            found if found.is_empty() => Ok(()),
            found => Err(format!("{kernel}: {}", found.join("\n"))),
        },
        (Err(_), Err(_)) if hostile => Ok(()),
        (Ok(_), Err(error)) => Err(format!("{kernel} refuses what the interpreter computes: {error}")),
        (Err(error), Ok(_)) => Err(format!("{kernel} computes what the interpreter refuses: {error}")),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Runs the graph that the bytes encode, on the CPU and, if there is one, on an adapter.
pub(super) fn run_graph(data: &[u8]) {
    let mut bytes = Bytes(data);
    let program = program(&mut bytes);
    let mut case = build(&program).unwrap_or_else(|error| panic!("{error}\n{program:?}"));
    let hostile = change(&mut bytes, &mut case.inputs);
    for kernel in [Kernel::Cpu, Kernel::Wgpu] {
        if kernel == Kernel::Cpu || gpu().is_some() {
            hold(&case, kernel, hostile).unwrap_or_else(|error| panic!("{error}\n{program:?}\n{}", case.graph.text()));
        }
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let bytes = |seed| {
        let mut noise = Noise::new(seed, "graph");
        (0..96).map(|_| noise.bits() as u8).collect()
    };
    (0..60).map(bytes).collect()
}
