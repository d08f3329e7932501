//! Emits WGSL and SPIR-V: a pure function of a kernel, a target and a tuning.
//!
//! ```
//! use rewire_graph::{DType, Scope};
//! use rewire_graph_rewrite::device::{Target, Tuning};
//! use rewire_graph_rewrite::{lower, optimize};
//!
//! let scope = Scope::new();
//! let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
//! let graph = scope.finish(&[("y", x.silu())])?;
//! let plan = lower(&optimize(graph)?.0)?;
//! let kernel = rewire_emit::emit(&plan.steps[0].computation, &Target::BASELINE, &Tuning::default())?;
//! assert!(kernel.wgsl.contains("@compute"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod access;
mod call;
mod candidates;
mod check;
mod checked;
mod coords;
mod custom;
mod device_function;
mod error;
mod expr;
mod frame;
mod function;
mod interval;
mod map;
pub mod mapping;
mod matmul;
mod module;
mod names;
mod pairs;
mod reduce;
mod registers;
mod required;
mod segmented_reduce;
#[cfg(feature = "spirv")]
mod spirv;
mod staged_rows;
mod storage;
mod store;
mod template;
mod validate;
mod value;

pub use candidates::{candidates, families, of_family, suited};
pub use error::EmitError;

use module::Module;
use rewire_graph::Dim;
use rewire_graph_rewrite::bound;
use rewire_graph_rewrite::device::{
    BindingChunks, EmittedKernel, Target, Tile, Tuning, dequantized, with_shallow_choices,
};
use rewire_graph_rewrite::plan::{Computation, ScheduledNest};

/// The version of the emitter: a hash of its source and templates.
pub const EMITTER: &str = env!("REWIRE_EMITTER");

/// A kernel with its parsed shader.
#[derive(Clone, Debug)]
pub struct ParsedKernel {
    /// The kernel.
    pub kernel: EmittedKernel,
    /// The shader as parsed by naga, so that devices need not parse it again.
    pub module: naga::Module,
}

impl ParsedKernel {
    /// Parses the shader of a kernel.
    ///
    /// # Errors
    /// [`EmitError::Shader`] if it is not valid WGSL.
    pub fn parse(kernel: EmittedKernel) -> Result<Self, EmitError> {
        let module = validate::parse(&kernel.wgsl).map_err(|(line, reason)| EmitError::Shader { line, reason })?;
        Ok(Self { kernel, module })
    }

    /// Workgroup memory in bytes.
    pub fn workgroup_bytes(&self) -> u64 {
        validate::workgroup_bytes(&self.module)
    }

    /// True if it uses cooperative matrices.
    pub fn multiplies_matrices(&self) -> bool {
        self.module.types.iter().any(|(_, ty)| matches!(ty.inner, naga::TypeInner::CooperativeMatrix { .. }))
    }
}

/// Emits the validated shader of `kernel` for `target`. Tensors of symbolic size must fit in one binding each.
///
/// # Errors
/// [`EmitError`] if the kernel is invalid or exceeds a limit of the target.
pub fn emit(computation: &Computation, target: &Target, tuning: &Tuning) -> Result<EmittedKernel, EmitError> {
    Ok(emit_with_windows(computation, target, tuning, &BindingChunks::of_constants(computation, target))?.kernel)
}

/// [`emit`] for tensors that may exceed a binding: loads and stores select the chunk.
///
/// # Errors
/// As [`emit`], and [`EmitError::Limit`] if there are more chunks than a kernel may bind.
pub fn emit_with_windows(
    computation: &Computation,
    target: &Target,
    tuning: &Tuning,
    windows: &BindingChunks,
) -> Result<ParsedKernel, EmitError> {
    check::check(computation)?;
    computation.check_loop()?;
    validate::limit("storage buffers", windows.most().into(), target.storage_buffers)?;
    let (computation, bound) = dequantized(computation, target);
    let computation = with_shallow_choices(computation)?;
    let module = Module::new(computation.body(), target, windows);
    let parsed = match computation.as_ref() {
        Computation::Nest(kernel) => scheduled(kernel, |schedule| schedule.emit(module, tuning))?,
        Computation::Custom(own) => return custom::emit(own, module),
    };
    Ok(ParsedKernel { kernel: parsed.kernel.with_dequantized(bound), ..parsed })
}

/// Emission of the nests of a schedule.
trait Scheduled {
    /// Emits the shader.
    fn emit(&self, module: Module, tuning: &Tuning) -> Result<ParsedKernel, EmitError>;

    /// True if kernels of the schedule have this type of tile.
    fn takes(&self, tile: &Tile) -> bool;

    /// Tiles worth measuring in addition to the default tile. `base` sets no tile.
    fn tiles(&self, target: &Target, base: &Tuning) -> Vec<Tile>;

    /// The tile for known sizes; `None` for the default tile. `base` sets no tile.
    fn suited(&self, _base: &Tuning, _target: &Target, _size: &dyn Fn(&Dim) -> Option<u64>) -> Option<Tile> {
        None
    }

    /// True if the shader uses cooperative matrices.
    fn is_cooperative(&self, _target: &Target, _tuning: &Tuning) -> bool {
        false
    }
}

fn scheduled<T>(kernel: &ScheduledNest, call: impl FnOnce(&dyn Scheduled) -> T) -> T {
    bound!(kernel, schedule => call(&schedule))
}
