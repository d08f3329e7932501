//! Stubs of CPU kernels, for builds without the feature `cpu`.

mod error;

pub use error::CpuError;

use crate::RowOverlay;
use rewire_graph::{DType, HostTensor, Symbol};
use rewire_graph_rewrite::plan::Computation;

/// An instruction set of kernels; never exists without the feature `cpu`.
#[derive(Clone, Copy, Debug)]
pub enum Arch {}

/// A kernel compiled for the CPU; never exists without the feature `cpu`.
#[derive(Clone, Debug)]
pub enum Compiled {}

/// The memory of a tensor for kernels on the CPU; never exists without the feature `cpu`.
#[derive(Clone, Debug)]
pub enum Memory {}

/// The binding of a kernel's operand.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Memory),
    /// A host vector or scalar (one entry).
    Host(&'a [i64]),
}

fn absent() -> CpuError {
    CpuError::Unsupported { kernel: "nest", reason: "the feature `cpu` is not built in".to_owned() }
}

/// Bytes of a tensor with padding.
pub fn padded_bytes(_: DType, _: &[usize]) -> u64 {
    0
}

/// Runs tasks one after another.
pub fn for_each<T, S>(
    tasks: Vec<T>,
    state: impl Fn() -> Result<S, CpuError>,
    run: impl Fn(&mut S, T) -> Result<(), CpuError>,
) -> Result<(), CpuError> {
    let mut state = state()?;
    tasks.into_iter().try_for_each(|task| run(&mut state, task))
}

impl Arch {
    /// Empty.
    pub fn all() -> &'static [Self] {
        &[]
    }

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {}
    }

    /// Makes kernels of this process use this instruction set.
    pub fn select(self) {
        match self {}
    }
}

/// Host memory that kernels keep between runs: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Repacked weights for matmuls.
    pub packed: u64,
    /// Registers that no run uses.
    pub scratch: u64,
}

impl Compiled {
    /// Host memory that the kernel keeps between runs.
    pub fn kept(&self) -> KeptBytes {
        match *self {}
    }

    /// Frees the memory that the kernel keeps.
    pub fn trim(&self) {
        match *self {}
    }

    /// Compiles a kernel.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`], always.
    pub fn new(_: &Computation) -> Result<Self, CpuError> {
        Err(absent())
    }

    /// Runs the kernel.
    ///
    /// # Errors
    /// None: there is no kernel.
    pub fn run(
        &self,
        _: &[Operand<'_>],
        _: &mut [&mut Memory],
        _: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        match *self {}
    }
}

impl Memory {
    /// Memory for a tensor.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`], always.
    pub fn new(_: DType, _: &[usize]) -> Result<Self, CpuError> {
        Err(absent())
    }

    /// A copy of a tensor.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`], always.
    pub fn from_host(_: &HostTensor) -> Result<Self, CpuError> {
        Err(absent())
    }

    /// Reallocates for another tensor.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn reset(&mut self, _: DType, _: &[usize]) -> Result<(), CpuError> {
        match *self {}
    }

    /// Writes the bytes of a tensor.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn write(&mut self, _: &[u8]) -> Result<(), CpuError> {
        match *self {}
    }

    /// A copy on the host.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn to_host(&self) -> Result<HostTensor, CpuError> {
        match *self {}
    }

    /// Logical shape.
    pub fn shape(&self) -> &[usize] {
        match *self {}
    }

    /// A range of bytes in kernel layout.
    pub fn bytes_at(&self, _: usize, _: usize) -> &[u8] {
        match *self {}
    }

    /// Replaces a range of bytes in kernel layout.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn write_at(&mut self, _: usize, _: &[u8]) -> Result<(), CpuError> {
        match *self {}
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        match *self {}
    }

    /// Assigns an identity to the content.
    pub fn know_content(&mut self) {
        match *self {}
    }

    /// As [`Memory::know_content`], by value.
    pub fn with_known_content(self) -> Self {
        match self {}
    }

    /// Copies rows of a table.
    pub fn copy_rows(&mut self, _: &HostTensor, _: &dyn RowOverlay, _: &Self) -> Result<(), CpuError> {
        match *self {}
    }

    /// Replaces rows of a matrix.
    pub fn write_rows(&mut self, _: &[u32], _: &[u8]) -> Result<(), CpuError> {
        match *self {}
    }

    /// The shared memory of a host tensor; always `None`.
    pub fn shared_with(_: &HostTensor) -> Option<Self> {
        None
    }
}
