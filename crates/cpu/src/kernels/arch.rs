//! Instruction sets of kernels.

use super::microkernels;
use gemm_common::Parallelism;
#[cfg(not(target_arch = "wasm32"))]
use pulp::Scalar;
#[cfg(target_arch = "aarch64")]
use pulp::aarch64::Neon;
#[cfg(target_arch = "wasm32")]
use pulp::wasm::Simd128;
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
use pulp::x86::{V2, V3, V4};
use pulp::{Simd, WithSimd};
use std::any::TypeId;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use strum::IntoStaticStr;

/// A vector instruction set of this processor.
///
/// Kernels use the widest one by default. Other instruction sets may change the last bits of results.
#[derive(Clone, Copy, Debug)]
pub struct Arch(Set);

#[derive(Clone, Copy, Debug, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
enum Set {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    Avx512(V4),
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    Avx2(V3),
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    Sse4(V2),
    #[cfg(target_arch = "aarch64")]
    Neon(Neon),
    #[cfg(target_arch = "wasm32")]
    Simd128(Simd128),
    /// The instructions that the compiler target includes.
    #[cfg(not(target_arch = "wasm32"))]
    Baseline,
}

impl Set {
    /// The baseline instructions of the processor family.
    #[cfg(not(target_arch = "wasm32"))]
    const EVERYWHERE: Self = Self::Baseline;
    // SAFETY: a module with such instructions runs nowhere without them, and this one has them.
    #[cfg(target_arch = "wasm32")]
    const EVERYWHERE: Self = Self::Simd128(unsafe { Simd128::new_unchecked() });
}

/// The widest first.
static ALL: LazyLock<Vec<Arch>> = LazyLock::new(|| {
    let mut all = vec![];
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    {
        all.extend(V4::try_new().map(Set::Avx512));
        all.extend(V3::try_new().map(Set::Avx2));
        all.extend(V2::try_new().filter(|_| cfg!(feature = "sse4")).map(Set::Sse4));
    }
    #[cfg(target_arch = "aarch64")]
    all.extend(Neon::try_new().map(Set::Neon));
    all.push(Set::EVERYWHERE);
    all.into_iter().map(Arch).collect()
});

static CHOSEN: AtomicUsize = AtomicUsize::new(0);

/// The signature of the library's matmul functions.
type Gemm = unsafe fn(
    usize,
    usize,
    usize,
    *mut f32,
    isize,
    isize,
    bool,
    *const f32,
    isize,
    isize,
    *const f32,
    isize,
    isize,
    f32,
    f32,
    bool,
    bool,
    bool,
    Parallelism,
);

impl Arch {
    /// All instruction sets of this processor, widest first.
    pub fn all() -> &'static [Self] {
        &ALL
    }

    /// A short name, such as `avx2`, `neon`, or `baseline` for the instructions that every processor of the family has.
    pub fn name(self) -> &'static str {
        self.0.into()
    }

    /// Selects this instruction set for later kernels of the process. For tests and measurements.
    pub fn select(self) {
        let position = ALL.iter().position(|other| other.name() == self.name());
        CHOSEN.store(position.unwrap_or(0), Ordering::Relaxed);
    }

    /// The selected instruction set, or the widest one.
    pub fn chosen() -> Self {
        ALL.get(CHOSEN.load(Ordering::Relaxed)).copied().unwrap_or(Self(Set::EVERYWHERE))
    }

    /// Runs work with this instruction set.
    #[inline(always)]
    pub fn dispatch<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx512(simd) => Simd::vectorize(simd, op),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx2(simd) => Simd::vectorize(simd, op),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Sse4(simd) if cfg!(feature = "sse4") => Simd::vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "wasm32")]
            Set::Simd128(simd) => Simd::vectorize(simd, op),
            #[cfg(not(target_arch = "wasm32"))]
            _ => op.with_simd(Scalar),
        }
    }

    /// [`Arch::dispatch`] with fewer variants, for work with identical results on all instruction sets.
    #[inline(always)]
    pub(super) fn dispatch_exact<Op: WithSimd>(self, op: Op) -> Op::Output {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx512(simd) => Simd::vectorize(*simd, op),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx2(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "aarch64")]
            Set::Neon(simd) => Simd::vectorize(simd, op),
            #[cfg(target_arch = "wasm32")]
            Set::Simd128(simd) => Simd::vectorize(simd, op),
            #[cfg(not(target_arch = "wasm32"))]
            _ => op.with_simd(Scalar),
        }
    }

    /// Runs work with AVX-512 or AVX2; false if this is another instruction set.
    #[inline(always)]
    #[cfg_attr(not(any(target_arch = "x86", target_arch = "x86_64")), expect(unused_variables, reason = "for x86"))]
    pub(super) fn dispatch_fused<Op: WithSimd<Output = bool>>(self, op: Op) -> bool {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx512(simd) => Simd::vectorize(simd, op),
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx2(simd) => Simd::vectorize(simd, op),
            _ => false,
        }
    }

    /// True if functions of [`Simd`] compute one float at a time.
    pub(super) fn is_scalar(self) -> bool {
        match self.0 {
            #[cfg(not(target_arch = "wasm32"))]
            Set::Baseline => true,
            _ => false,
        }
    }

    /// True if the processor has instructions that convert 16-bit floats, as used by the `half` crate.
    pub(super) fn converts_f16(self) -> bool {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Avx512(_) | Set::Avx2(_) => true,
            #[cfg(target_arch = "aarch64")]
            Set::Neon(_) => std::arch::is_aarch64_feature_detected!("fp16"),
            _ => false,
        }
    }

    /// The matmul function for this instruction set: our own without fused multiply-add, otherwise the library's choice.
    pub(super) fn gemm(self) -> Gemm {
        match self.0 {
            #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
            Set::Sse4(_) => microkernels::gemm,
            #[cfg(target_arch = "wasm32")]
            Set::Simd128(_) => microkernels::gemm,
            #[cfg(not(target_arch = "wasm32"))]
            Set::Baseline => microkernels::gemm,
            #[cfg(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64"))]
            _ => gemm_f32::gemm::f32::get_gemm_fn(),
        }
    }
}

/// True if the processor has fused multiply-add.
#[inline(always)]
fn is_fused<S: Simd>() -> bool {
    #[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
    let fused = [TypeId::of::<V4>(), TypeId::of::<V3>()];
    #[cfg(target_arch = "aarch64")]
    let fused = [TypeId::of::<Neon>()];
    #[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
    let fused = [];
    fused.contains(&TypeId::of::<S>())
}

/// `a * b + c`, fused if the processor can.
#[inline(always)]
pub(super) fn mul_add<S: Simd>(simd: S, a: S::f32s, b: S::f32s, c: S::f32s) -> S::f32s {
    if is_fused::<S>() { simd.mul_add_f32s(a, b, c) } else { simd.add_f32s(simd.mul_f32s(a, b), c) }
}

/// [`mul_add`] for one float.
#[inline(always)]
pub(super) fn mul_add_one<S: Simd>(a: f32, b: f32, c: f32) -> f32 {
    if is_fused::<S>() { a.mul_add(b, c) } else { a * b + c }
}
