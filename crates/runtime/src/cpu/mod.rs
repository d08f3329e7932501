//! Kernels on the CPU: multi-threaded on the current rayon pool, vectorised, jagged, fused like on a GPU.
//!
//! A result depends neither on the number of threads nor on who shares the batch.

mod attention;
mod branch;
mod chain;
mod compile;
mod coords;
mod custom;
mod error;
mod execute;
mod fusion;
mod interval;
mod lanes;
mod load;
mod machine;
mod map;
mod matmul;
mod memory;
mod operand;
mod own;
mod panel;
mod passes;
mod philox;
mod product;
mod program;
mod random;
mod reduce;
mod reductions;
mod run;
mod scratch;
mod step;
mod storage;
mod store;
mod stream;
mod tasks;
#[cfg(test)]
mod tests;
mod totals;
mod vectors;

pub use error::CpuError;
pub use memory::Memory;
pub(crate) use memory::padded_bytes;
pub use operand::Operand;

use operand::Env;
use rewire_graph::Symbol;
use rewire_graph_rewrite::lower::Refusal;
use rewire_graph_rewrite::plan::{Kernel, Nest};
use rewire_graph_rewrite::schedule::Schedule;

/// A kernel compiled for the CPU; serves every batch size.
#[derive(Clone, Debug)]
pub struct Compiled {
    body: rewire_graph_rewrite::plan::Body,
    compiled: Scheduled,
}

#[derive(Clone, Debug)]
enum Scheduled {
    Map(Box<map::CompiledMap>),
    Reduction(Box<reduce::CompiledReduce>),
    Product(Box<matmul::CompiledMatmul>),
    Attention(Box<attention::CompiledAttention>),
    Custom(Box<custom::CompiledCustom>),
}

impl Scheduled {
    fn new(nest: &Nest) -> Result<Self, CpuError> {
        let unsupported = |reason: Refusal| CpuError::Unsupported { kernel: "nest", reason: reason.to_string() };
        Ok(match Schedule::of(nest).map_err(unsupported)? {
            Schedule::Map(kernel) => Self::Map(Box::new(map::CompiledMap::new(&kernel)?)),
            Schedule::Reduction(kernel) => Self::Reduction(Box::new(reduce::CompiledReduce::new(&kernel)?)),
            Schedule::Product(kernel) => Self::Product(Box::new(matmul::CompiledMatmul::new(&kernel)?)),
            Schedule::Attention(kernel) => Self::Attention(Box::new(attention::CompiledAttention::new(&kernel)?)),
            Schedule::Pairs(_) | Schedule::Fold(_) => {
                return Err(CpuError::Unsupported { kernel: "nest", reason: "no kernel".to_owned() });
            }
        })
    }
}

impl Compiled {
    /// Compiles a kernel.
    ///
    /// # Errors
    /// [`CpuError::Unsupported`] if the kernel's expressions do not fit together.
    pub fn new(kernel: &Kernel) -> Result<Self, CpuError> {
        if let Some(written) = kernel.unwritable() {
            let reason = format!("it writes {}, which kernels only read", written.dtype);
            return Err(CpuError::Unsupported { kernel: "storing", reason });
        }
        let compiled = match kernel {
            Kernel::Nest(nest) => Scheduled::new(nest)?,
            Kernel::Custom(kernel) => Scheduled::Custom(Box::new(custom::CompiledCustom::new(kernel)?)),
        };
        Ok(Self { body: kernel.body().clone(), compiled })
    }

    /// Runs the kernel on the current rayon pool.
    ///
    /// `operands` are in the order of the body's operands, `outputs` are the tensors that
    /// [`Output::target`](rewire_graph_rewrite::plan::Output::target) counts, allocated with their shapes;
    /// `symbol` gives the sizes of this run.
    ///
    /// # Errors
    /// If an operand or output is missing or has another type or shape than declared, or a size has no value:
    /// nothing is written then. If code of a user's own fails or panics: what the outputs hold is unspecified then.
    pub fn run(
        &self,
        operands: &[Operand<'_>],
        outputs: &mut [&mut Memory],
        symbol: &dyn Fn(Symbol) -> Option<i64>,
    ) -> Result<(), CpuError> {
        let env = Env::bind(&self.body, operands, symbol)?;
        own::caught(|| match &self.compiled {
            Scheduled::Map(kernel) => kernel.run(&env, outputs, symbol),
            Scheduled::Reduction(kernel) => kernel.run(&env, outputs, symbol),
            Scheduled::Product(kernel) => kernel.run(&env, outputs, symbol),
            Scheduled::Attention(kernel) => kernel.run(&env, outputs, symbol),
            Scheduled::Custom(kernel) => kernel.run(&env, outputs, symbol),
        })
    }
}
