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
use rewire_graph_rewrite::plan::Kernel;

/// A kernel compiled for the CPU; serves every batch size.
#[derive(Clone, Debug)]
pub struct Compiled {
    body: rewire_graph_rewrite::plan::Body,
    family: Family,
}

#[derive(Clone, Debug)]
enum Family {
    Map(Box<map::CompiledMap>),
    Reduce(Box<reduce::CompiledReduce>),
    Matmul(Box<matmul::CompiledMatmul>),
    Attention(Box<attention::CompiledAttention>),
    Custom(Box<custom::CompiledCustom>),
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
        let family = match kernel {
            Kernel::Map(kernel) => Family::Map(Box::new(map::CompiledMap::new(kernel)?)),
            Kernel::Reduce(kernel) => Family::Reduce(Box::new(reduce::CompiledReduce::new(kernel)?)),
            Kernel::Matmul(kernel) => Family::Matmul(Box::new(matmul::CompiledMatmul::new(kernel)?)),
            Kernel::Attention(kernel) => Family::Attention(Box::new(attention::CompiledAttention::new(kernel)?)),
            Kernel::Custom(kernel) => Family::Custom(Box::new(custom::CompiledCustom::new(kernel)?)),
        };
        Ok(Self { body: kernel.body().clone(), family })
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
        own::caught(|| match &self.family {
            Family::Map(kernel) => kernel.run(&env, outputs, symbol),
            Family::Reduce(kernel) => kernel.run(&env, outputs, symbol),
            Family::Matmul(kernel) => kernel.run(&env, outputs, symbol),
            Family::Attention(kernel) => kernel.run(&env, outputs, symbol),
            Family::Custom(kernel) => kernel.run(&env, outputs, symbol),
        })
    }
}
