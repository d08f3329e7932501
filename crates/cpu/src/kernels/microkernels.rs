//! Matmuls for processors without fused multiply-add. WebAssembly uses the library's vectors; other targets use arrays of
//! four floats, which the compiler vectorises.
#![allow(clippy::too_many_arguments, reason = "the library defines them")]

use gemm_common::simd::Scalar;
use gemm_common::{Parallelism, gemm::gemm_basic_generic};

#[cfg(not(target_arch = "wasm32"))]
use arrays::{MR_DIV_N, NR, UKR};
#[cfg(target_arch = "wasm32")]
use gemm_f32::microkernel::simd128::f32::{MR_DIV_N, NR, UKR};

type T = f32;
/// Floats of a vector.
const N: usize = 4;

/// `dst = alpha dst + beta lhs rhs`, column-major, with the signature of the library's functions.
///
/// # Safety
/// As for the library: `lhs` is `m` by `k`, `rhs` is `k` by `n`, and `dst` is `m` by `n`, all in memory with these
/// strides, and nothing else accesses `dst` during the call.
#[inline(never)]
pub(super) unsafe fn gemm(
    m: usize,
    n: usize,
    k: usize,
    dst: *mut T,
    dst_cs: isize,
    dst_rs: isize,
    read_dst: bool,
    lhs: *const T,
    lhs_cs: isize,
    lhs_rs: isize,
    rhs: *const T,
    rhs_cs: isize,
    rhs_rs: isize,
    alpha: T,
    beta: T,
    conj_dst: bool,
    conj_lhs: bool,
    conj_rhs: bool,
    parallelism: Parallelism,
) {
    // SAFETY: the caller guarantees the same, and the microkernels use only instructions that all processors have.
    unsafe {
        gemm_basic_generic::<_, T, N, { MR_DIV_N * N }, NR, MR_DIV_N, 0, 0>(
            Scalar,
            m,
            n,
            k,
            dst,
            dst_cs,
            dst_rs,
            read_dst,
            lhs,
            lhs_cs,
            lhs_rs,
            rhs,
            rhs_cs,
            rhs_rs,
            alpha,
            beta,
            conj_dst,
            conj_lhs,
            conj_rhs,
            |a, b, c| a * b + c,
            &UKR,
            &[],
            false,
            parallelism,
        );
    }
}

#[cfg(not(target_arch = "wasm32"))]
#[cfg_attr(not(feature = "sse4"), expect(clippy::modulo_one, reason = "a loop that is not unrolled"))]
mod arrays {
    use super::{N, T};
    use gemm_common::{microkernel, microkernel_fn_array};
    use std::array::from_fn;

    type Pack = [T; N];

    #[inline(always)]
    fn splat(value: T) -> Pack {
        [value; N]
    }

    #[inline(always)]
    fn mul(a: Pack, b: Pack) -> Pack {
        from_fn(|n| a[n] * b[n])
    }

    #[inline(always)]
    fn add(a: Pack, b: Pack) -> Pack {
        from_fn(|n| a[n] + b[n])
    }

    #[inline(always)]
    fn mul_add(a: Pack, b: Pack, c: Pack) -> Pack {
        from_fn(|n| a[n] * b[n] + c[n])
    }

    #[inline(always)]
    fn scalar_mul(a: T, b: T) -> T {
        a * b
    }

    #[inline(always)]
    fn scalar_add(a: T, b: T) -> T {
        a + b
    }

    #[inline(always)]
    fn scalar_mul_add(a: T, b: T, c: T) -> T {
        a * b + c
    }

    /// A microkernel with its loop unrolled by two, or not unrolled in small builds.
    macro_rules! unrolled {
        ($name: ident, $rows: tt, $columns: tt) => {
            #[cfg(feature = "sse4")]
            microkernel!(, 2, $name, $rows, $columns);
            #[cfg(not(feature = "sse4"))]
            microkernel!(, 1, $name, $rows, $columns);
        };
    }

    unrolled!(x1x1, 1, 1);
    unrolled!(x1x2, 1, 2);
    unrolled!(x1x3, 1, 3);
    unrolled!(x1x4, 1, 4);

    unrolled!(x2x1, 2, 1);
    unrolled!(x2x2, 2, 2);
    unrolled!(x2x3, 2, 3);
    unrolled!(x2x4, 2, 4);

    unrolled!(x3x1, 3, 1);
    unrolled!(x3x2, 3, 2);
    unrolled!(x3x3, 3, 3);
    unrolled!(x3x4, 3, 4);

    microkernel_fn_array! {
        [x1x1, x1x2, x1x3, x1x4,],
        [x2x1, x2x2, x2x3, x2x4,],
        [x3x1, x3x2, x3x3, x3x4,],
    }
}
