//! Kernels on the CPU: there are none without the feature `cpu`.

mod error;

pub use error::CpuError;

use rewire_graph::{DType, HostTensor, Symbol};
use rewire_graph_rewrite::plan::Computation;

/// Vector instructions that kernels compute with: there are none.
#[derive(Clone, Copy, Debug)]
pub enum Arch {}

/// A kernel compiled for the CPU: there is none.
#[derive(Clone, Debug)]
pub enum Compiled {}

/// The memory of a tensor that kernels on the CPU read and write: there is none.
#[derive(Clone, Debug)]
pub enum Memory {}

/// What a kernel reads.
#[derive(Clone, Copy, Debug)]
pub enum Operand<'a> {
    /// A tensor.
    Tensor(&'a Memory),
    /// A vector or scalar (one entry) of the shape program.
    Host(&'a [i64]),
}

fn absent() -> CpuError {
    CpuError::Unsupported { kernel: "nest", reason: "the feature `cpu` is not built in".to_owned() }
}

/// Bytes of the memory of a tensor.
pub fn padded_bytes(_: DType, _: &[usize]) -> u64 {
    0
}

/// Runs tasks one after the other.
pub fn for_each<T, S>(
    tasks: Vec<T>,
    state: impl Fn() -> Result<S, CpuError>,
    run: impl Fn(&mut S, T) -> Result<(), CpuError>,
) -> Result<(), CpuError> {
    let mut state = state()?;
    tasks.into_iter().try_for_each(|task| run(&mut state, task))
}

impl Arch {
    /// None.
    pub fn all() -> &'static [Self] {
        &[]
    }

    /// A short name.
    pub fn name(self) -> &'static str {
        match self {}
    }

    /// Makes kernels of this process compute with these instructions.
    pub fn select(self) {
        match self {}
    }
}

/// Bytes of host memory that kernels keep from run to run: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptBytes {
    /// Weights that were copied for products.
    pub packed: u64,
    /// Registers that no run uses.
    pub scratch: u64,
}

impl Compiled {
    /// Host memory that it keeps.
    pub fn kept(&self) -> KeptBytes {
        match *self {}
    }

    /// Frees the memory that it keeps.
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

    /// Makes room for another tensor.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn reset(&mut self, _: DType, _: &[usize]) -> Result<(), CpuError> {
        match *self {}
    }

    /// Takes the bytes of a tensor.
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

    /// Bytes as kernels see them.
    pub fn bytes_at(&self, _: usize, _: usize) -> &[u8] {
        match *self {}
    }

    /// Replaces bytes as kernels see them.
    ///
    /// # Errors
    /// None: there is no memory.
    pub fn write_at(&mut self, _: usize, _: &[u8]) -> Result<(), CpuError> {
        match *self {}
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> u64 {
        match *self {}
    }

    /// Numbers the content.
    pub fn with_known_content(self) -> Self {
        match self {}
    }

    /// Takes rows of a table.
    pub fn copy_rows(&mut self, _: &HostTensor, _: &Self) -> Result<(), CpuError> {
        match *self {}
    }

    /// The memory of a tensor of the host, shared: none.
    pub fn shared_with(_: &HostTensor) -> Option<Self> {
        None
    }
}
