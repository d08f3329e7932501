//! CPU kernels: multithreaded on the caller's pool, vectorised, jagged, and fused as on a GPU.
//!
//! Results depend neither on the number of threads nor on other samples of the batch.

mod affine;
mod arch;
mod border;
mod branch;
mod chain;
mod compile;
mod coords;
mod custom;
mod error;
mod execute;
mod f16;
mod fusion;
mod integers;
mod interval;
mod joined;
mod kept;
mod lanes;
mod lines;
mod load;
mod machine;
mod map;
mod masks;
mod matmul;
mod memory;
mod microkernels;
mod operand;
mod pairs;
mod panel;
mod parted;
mod passes;
mod philox;
mod product;
mod program;
mod quantized;
mod random;
pub mod rates;
mod recurrence;
mod reduce;
mod reductions;
mod rows;
mod run;
mod scratch;
mod segmented_reduce;
mod slide;
mod small;
mod softmax;
mod spread;
mod step;
mod storage;
mod store;
mod stream;
mod taps;
mod tasks;
#[cfg(test)]
mod tests;
mod totals;
mod user_code;
mod vectors;
mod visible;
mod weights;
mod window;

pub use arch::Arch;
pub use error::CpuError;
pub use kept::KeptBytes;
pub use memory::Memory;
pub use memory::padded_bytes;
pub use operand::Operand;
pub use tasks::for_each;

use kept::Kept;
use operand::Env;
use rewire_graph::Symbol;
use rewire_graph_rewrite::bound;
use rewire_graph_rewrite::plan::Computation;
use std::fmt;
use std::sync::Arc;

/// A kernel compiled for the CPU, for every batch size.
#[derive(Clone)]
pub struct Compiled {
    computation: Computation,
    compiled: Arc<dyn Scheduled>,
    kept: Arc<Kept>,
}

/// A kernel with its schedule.
trait Scheduled: Send + Sync {
    /// Runs the kernel on the threads of the caller's pool.
    fn run(&self, env: &Env<'_>, outputs: &mut [&mut Memory]) -> Result<(), CpuError>;
}

/// A schedule, bound to its nest, that compiles for the CPU.
trait Compile {
    /// Compiles the nest.
    fn compile(&self) -> Result<Arc<dyn Scheduled>, CpuError>;
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("computation", &self.computation).finish_non_exhaustive()
    }
}

impl Compiled {
    /// Compiles a kernel.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`] if the kernel's expressions do not fit together.
    pub fn new(computation: &Computation) -> Result<Self, CpuError> {
        if let Some(written) = computation.unwritable() {
            let reason = format!("it writes {}, which kernels only read", written.dtype);
            return Err(CpuError::Unsupported { kernel: "storing", reason });
        }
        let compiled = match computation {
            Computation::Nest(nest) => match border::compile(nest)? {
                Some(compiled) => compiled,
                None => bound!(nest, schedule => schedule.compile())?,
            },
            Computation::Custom(own) => Arc::new(custom::CompiledCustom::new(own)?),
        };
        Ok(Self { computation: computation.clone(), compiled, kept: Arc::default() })
    }

    /// Runs the kernel on the threads of the current [`ThreadPool`](crate::parallel::ThreadPool).
    ///
    /// `operands` are in the order of the body's operands. `outputs` are allocated with their shapes;
    /// [`Output::target`](rewire_graph_rewrite::plan::Output::target) indexes them. `symbol` returns the sizes of this run.
    ///
    /// # Errors
    /// If an operand or output is missing or differs from its declared type or shape, or a size has no value: nothing is
    /// written then. If user code fails or panics: the content of the outputs is unspecified then.
    pub fn run(
        &self,
        operands: &[Operand<'_>],
        outputs: &mut [&mut Memory],
        symbol: &(dyn Fn(Symbol) -> Option<i64> + Sync),
    ) -> Result<(), CpuError> {
        let env = Env::bind(self.computation.body(), operands, symbol, &self.kept)?;
        store::check(&self.computation.written(), outputs, &env)?;
        user_code::caught(|| self.compiled.run(&env, outputs))
    }
    /// Host memory that the kernel keeps between runs.
    pub fn kept(&self) -> KeptBytes {
        self.kept.bytes()
    }

    /// Frees idle memory kept between runs. The next run allocates it again.
    pub fn trim(&self) {
        self.kept.trim();
    }
}
