//! Loads and stores of elements, for each storage type.

use super::arch::Arch;
use super::f16;
use super::quantized::Rows;
use bytemuck::{AnyBitPattern, cast_slice, cast_slice_mut, try_cast_slice};
use rewire_graph::DType;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Elements of a tensor. `U32` is read as `I32`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements<'a> {
    F32(&'a [f32]),
    HalfFormat(&'a [u16], &'static HalfFormat),
    I8(&'a [i8]),
    Rows(Rows<'a>),
    I64(&'a [i64]),
    I32(&'a [i32]),
    Bool(&'a [u32]),
}

/// Elements of a tensor for exclusive writes by one task.
#[derive(Debug)]
pub(super) enum ElementsMut<'a> {
    F32(&'a mut [f32]),
    HalfFormat(&'a mut [u16], &'static HalfFormat),
    I8(&'a mut [i8]),
    I64(&'a mut [i64]),
    I32(&'a mut [i32]),
}

/// Elements of a tensor for atomic writes by several tasks.
#[derive(Clone, Copy, Debug)]
pub(super) enum SharedElements<'a> {
    F32(&'a [AtomicU32]),
    HalfFormat(&'a [AtomicU16], &'static HalfFormat),
    I8(&'a [AtomicU8]),
    I64(&'a [AtomicU64]),
    I32(&'a [AtomicU32]),
}

/// Contiguous results of a kernel, in the arithmetic type of their expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    F32(&'a [f32]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

impl<'a> Values<'a> {
    /// Splits the values into rows of `width`.
    pub(super) fn rows(self, width: usize) -> Box<dyn Iterator<Item = Self> + 'a> {
        let width = width.max(1);
        match self {
            Self::F32(values) => Box::new(values.chunks(width).map(Self::F32)),
            Self::I32(values) => Box::new(values.chunks(width).map(Self::I32)),
            Self::I64(values) => Box::new(values.chunks(width).map(Self::I64)),
        }
    }
}

/// A 16-bit float format: conversions between slices of equal lengths.
#[derive(Debug)]
pub(super) struct HalfFormat {
    widen: fn(&[u16], &mut [f32]),
    narrow: fn(&[f32], &mut [u16]),
}

static F16: HalfFormat = HalfFormat { widen: f16::widen, narrow: f16::narrow };

static BF16: HalfFormat = HalfFormat {
    widen: |from, to| {
        Arch::chosen()
            .dispatch(|| to.iter_mut().zip(from).for_each(|(to, &e)| *to = f32::from_bits(u32::from(e) << 16)));
    },
    narrow: |from, to| {
        Arch::chosen().dispatch(|| to.iter_mut().zip(from).for_each(|(to, &value)| *to = upper_half(value)));
    },
};

/// The high 16 bits of a float (bf16), rounded to nearest, ties to even.
#[inline(always)]
fn upper_half(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    ((if value.is_nan() { bits | 0x40_0000 } else { rounded }) >> 16) as u16
}

/// The nearest signed byte, ties to even; 0 for NaN.
#[inline(always)]
fn byte(value: f32) -> i8 {
    value.round_ties_even() as i8
}

/// Elements converted per block.
const BLOCK: usize = 64;

impl<'a> Elements<'a> {
    /// The first `count` elements of memory, with a row stride of `pitch` elements.
    pub(super) fn new(dtype: DType, memory: &'a [u8], count: usize, pitch: usize) -> Self {
        fn first<T: AnyBitPattern>(memory: &[u8], count: usize) -> &[T] {
            try_cast_slice(memory).ok().and_then(|all: &[T]| all.get(..count)).unwrap_or(&[])
        }
        match dtype {
            DType::F32 => Self::F32(first(memory, count)),
            DType::F16 => Self::HalfFormat(first(memory, count), &F16),
            DType::BF16 => Self::HalfFormat(first(memory, count), &BF16),
            DType::I8 => Self::I8(first(memory, count)),
            DType::Rows8 | DType::Rows4 | DType::Rows2 => Self::Rows(Rows::new(dtype, memory, (count, pitch))),
            DType::I64 => Self::I64(first(memory, count)),
            DType::I32 | DType::U32 => Self::I32(first(memory, count)),
            DType::Bool => Self::Bool(first(memory, count)),
        }
    }

    /// Copies contiguous floats from `start` on.
    pub(super) fn floats(self, start: usize, out: &mut [f32]) {
        match self {
            Self::F32(e) => copy_each(e, start, out, |e| e),
            Self::HalfFormat(e, short) => {
                if let Some(found) = e.get(start..start.saturating_add(out.len())) {
                    (short.widen)(found, out);
                }
            }
            Self::I8(e) => copy_each(e, start, out, f32::from),
            Self::Rows(rows) => rows.floats(start, out),
            _ => out.fill(0.0),
        }
    }

    /// Copies contiguous integers or bools from `start` on.
    pub(super) fn ints(self, start: usize, out: &mut [i32]) {
        match self {
            Self::I32(e) => copy_each(e, start, out, |e| e),
            Self::Bool(e) => copy_each(e, start, out, |e| i32::from(e != 0)),
            Self::I64(e) => copy_each(e, start, out, |e| e as i32),
            _ => out.fill(0),
        }
    }

    /// Copies contiguous 64-bit integers from `start` on.
    pub(super) fn longs(self, start: usize, out: &mut [i64]) {
        match self {
            Self::I64(e) => copy_each(e, start, out, |e| e),
            Self::I32(e) => copy_each(e, start, out, i64::from),
            _ => out.fill(0),
        }
    }

    /// Copies the floats at offsets `at`. Elements out of range are zero.
    pub(super) fn gather_floats(self, at: &[usize], out: &mut [f32]) {
        match self {
            Self::F32(e) => gather_each(e, at, out, |e| e),
            Self::HalfFormat(e, short) => {
                for (at, out) in at.chunks(BLOCK).zip(out.chunks_mut(BLOCK)) {
                    let mut found = [0; BLOCK];
                    gather_each(e, at, &mut found, |e| e);
                    (short.widen)(&found[..out.len()], out);
                }
            }
            Self::I8(e) => gather_each(e, at, out, f32::from),
            Self::Rows(rows) => rows.gather(at, out),
            _ => out.fill(0.0),
        }
    }

    /// Copies the integers or bools at offsets `at`. Elements out of range are zero.
    pub(super) fn gather_ints(self, at: &[usize], out: &mut [i32]) {
        match self {
            Self::I32(e) => gather_each(e, at, out, |e| e),
            Self::Bool(e) => gather_each(e, at, out, |e| i32::from(e != 0)),
            Self::I64(e) => gather_each(e, at, out, |e| e as i32),
            _ => out.fill(0),
        }
    }

    /// Copies the 64-bit integers at offsets `at`. Elements out of range are zero.
    pub(super) fn gather_longs(self, at: &[usize], out: &mut [i64]) {
        match self {
            Self::I64(e) => gather_each(e, at, out, |e| e),
            Self::I32(e) => gather_each(e, at, out, i64::from),
            _ => out.fill(0),
        }
    }

    /// The element at an offset as f64.
    pub(super) fn number(self, at: usize) -> Option<f64> {
        match self {
            Self::I64(e) => e.get(at).map(|&e| e as f64),
            Self::I32(e) => e.get(at).map(|&e| e.into()),
            Self::Bool(e) => e.get(at).map(|&e| f64::from(u8::from(e != 0))),
            Self::F32(_) | Self::HalfFormat(..) | Self::I8(_) | Self::Rows(_) => {
                let mut number = [f32::NAN];
                self.floats(at, &mut number);
                Some(number[0].into()).filter(|number: &f64| !number.is_nan())
            }
        }
    }
}

impl<'a> ElementsMut<'a> {
    /// The first `count` elements of memory. `None` if the memory is not aligned, or kernels cannot write the type.
    pub(super) fn new(dtype: DType, memory: &'a mut [u8], count: usize) -> Option<Self> {
        Some(match dtype {
            DType::Rows8 | DType::Rows4 | DType::Rows2 => return None,
            DType::F32 => Self::F32(&mut cast_slice_mut(memory)[..count]),
            DType::F16 => Self::HalfFormat(&mut cast_slice_mut(memory)[..count], &F16),
            DType::BF16 => Self::HalfFormat(&mut cast_slice_mut(memory)[..count], &BF16),
            DType::I8 => Self::I8(&mut cast_slice_mut(memory)[..count]),
            DType::I64 => Self::I64(&mut cast_slice_mut(memory)[..count]),
            DType::I32 | DType::U32 | DType::Bool => Self::I32(&mut cast_slice_mut(memory)[..count]),
        })
    }

    /// Splits the elements into chunks of `size`; the last one may be shorter.
    pub(super) fn pieces(self, size: usize) -> Vec<Self> {
        match self {
            Self::F32(e) => e.chunks_mut(size).map(Self::F32).collect(),
            Self::HalfFormat(e, short) => e.chunks_mut(size).map(|e| Self::HalfFormat(e, short)).collect(),
            Self::I8(e) => e.chunks_mut(size).map(Self::I8).collect(),
            Self::I64(e) => e.chunks_mut(size).map(Self::I64).collect(),
            Self::I32(e) => e.chunks_mut(size).map(Self::I32).collect(),
        }
    }

    /// Makes the elements writable by several tasks.
    pub(super) fn share(self) -> SharedElements<'a> {
        match self {
            Self::F32(e) => SharedElements::F32(atomic_u32(cast_slice_mut(e))),
            Self::HalfFormat(e, short) => SharedElements::HalfFormat(atomic_u16(e), short),
            Self::I8(e) => SharedElements::I8(atomic_u8(cast_slice_mut(e))),
            Self::I64(e) => SharedElements::I64(atomic_u64(cast_slice_mut(e))),
            Self::I32(e) => SharedElements::I32(atomic_u32(cast_slice_mut(e))),
        }
    }

    /// Stores contiguous elements from `offset` on.
    pub(super) fn store(&mut self, offset: usize, values: Values<'_>) {
        match (self, values) {
            (Self::F32(e), Values::F32(v)) => copy(e, offset, v),
            (Self::HalfFormat(e, short), Values::F32(v)) => {
                if let Some(target) = e.get_mut(offset..offset.saturating_add(v.len())) {
                    (short.narrow)(v, target);
                }
            }
            (Self::I8(e), Values::F32(v)) => {
                if let Some(target) = e.get_mut(offset..offset.saturating_add(v.len())) {
                    Arch::chosen().dispatch(|| target.iter_mut().zip(v).for_each(|(to, &value)| *to = byte(value)));
                }
            }
            (Self::I32(e), Values::I32(v)) => copy(e, offset, v),
            (Self::I64(e), Values::I64(v)) => copy(e, offset, v),
            (elements, values) => debug_assert!(false, "{values:?} for {elements:?}"),
        }
    }
}

impl SharedElements<'_> {
    /// Stores contiguous elements from `offset` on.
    pub(super) fn store(self, offset: usize, values: Values<'_>) {
        match (self, values) {
            (Self::F32(e), Values::F32(v)) => words(e, offset, cast_slice(v)),
            (Self::HalfFormat(e, short), Values::F32(v)) => {
                for (n, v) in v.chunks(BLOCK).enumerate() {
                    let mut stored = [0; BLOCK];
                    (short.narrow)(v, &mut stored[..v.len()]);
                    each(e, offset + n * BLOCK, &stored[..v.len()], |e, v| e.store(v, RELAXED));
                }
            }
            (Self::I8(e), Values::F32(v)) => each(e, offset, v, |e, v| e.store(byte(v) as u8, RELAXED)),
            (Self::I32(e), Values::I32(v)) => words(e, offset, cast_slice(v)),
            (Self::I64(e), Values::I64(v)) => each(e, offset, v, |e, v| e.store(v as u64, RELAXED)),
            (elements, values) => debug_assert!(false, "{values:?} for {elements:?}"),
        }
    }
}

fn copy_each<T: Copy, V>(elements: &[T], start: usize, out: &mut [V], value: impl Fn(T) -> V) {
    let found = elements.get(start..).unwrap_or(&[]);
    out.iter_mut().zip(found).for_each(|(out, &element)| *out = value(element));
}

fn gather_each<T: Copy, V: Default>(elements: &[T], at: &[usize], out: &mut [V], value: impl Fn(T) -> V) {
    out.iter_mut().zip(at).for_each(|(out, &at)| *out = elements.get(at).map_or(V::default(), |&e| value(e)));
}

const RELAXED: Ordering = Ordering::Relaxed;

fn each<A, V: Copy>(elements: &[A], offset: usize, values: &[V], store: impl Fn(&A, V)) {
    if let Some(rest) = elements.get(offset..) {
        for (element, &value) in rest.iter().zip(values) {
            store(element, value);
        }
    }
}

/// Stores 32-bit elements.
fn words(elements: &[AtomicU32], offset: usize, values: &[u32]) {
    let elements = elements.get(offset..).unwrap_or_default();
    let ((targets, _), (wide, values)) = (elements.as_chunks(), values.as_chunks());
    targets.iter().zip(wide).for_each(|(target, values)| store_wide(target, values));
    let rest = elements.get(wide.as_flattened().len()..).unwrap_or_default();
    let ((targets, _), (narrow, last)) = (rest.as_chunks(), values.as_chunks());
    targets.iter().zip(narrow).for_each(|(target, values)| store_narrow(target, values));
    each(rest, narrow.as_flattened().len(), last, |e, v| e.store(v, RELAXED));
}

/// Elements that [`store_wide`] stores.
const WORDS: usize = 16;

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store_wide(target: &[AtomicU32; WORDS], values: &[u32; WORDS]) {
    // SAFETY: reads and writes the 64 bytes of the two arrays; atomics may be written through a shared reference. The processor stores each
    // aligned element of a vector whole, as a relaxed store of the element does. SSE2 is part of x86-64.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups {b}, [{from} + 16]",
            "movups {c}, [{from} + 32]",
            "movups {d}, [{from} + 48]",
            "movups [{to}], {a}",
            "movups [{to} + 16], {b}",
            "movups [{to} + 32], {c}",
            "movups [{to} + 48], {d}",
            from = in(reg) values.as_ptr(),
            to = in(reg) target.as_ptr(),
            a = out(xmm_reg) _,
            b = out(xmm_reg) _,
            c = out(xmm_reg) _,
            d = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn store_wide(target: &[AtomicU32; WORDS], values: &[u32; WORDS]) {
    target.iter().zip(values).for_each(|(target, &value)| target.store(value, RELAXED));
}

/// Elements that [`store_narrow`] stores: rows of tables have a multiple of them.
const FEW_WORDS: usize = 4;

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn store_narrow(target: &[AtomicU32; FEW_WORDS], values: &[u32; FEW_WORDS]) {
    // SAFETY: as in `store_wide`, for the 16 bytes of the two arrays.
    unsafe {
        std::arch::asm!(
            "movups {a}, [{from}]",
            "movups [{to}], {a}",
            from = in(reg) values.as_ptr(),
            to = in(reg) target.as_ptr(),
            a = out(xmm_reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn store_narrow(target: &[AtomicU32; FEW_WORDS], values: &[u32; FEW_WORDS]) {
    target.iter().zip(values).for_each(|(target, &value)| target.store(value, RELAXED));
}

fn copy<T: Copy>(elements: &mut [T], offset: usize, values: &[T]) {
    if let Some(target) = elements.get_mut(offset..offset.saturating_add(values.len())) {
        target.copy_from_slice(values);
    }
}

macro_rules! atomic_view {
    ($name:ident, $int:ty, $atomic:ty) => {
        fn $name(elements: &mut [$int]) -> &[$atomic] {
            let (start, len) = (elements.as_mut_ptr().cast::<$atomic>(), elements.len());
            assert!(start.is_aligned());
            // SAFETY: an atomic has the size and bit validity of its integer, the alignment was checked, and the
            // exclusive borrow ends for the lifetime of the result, so all access during it is atomic.
            unsafe { std::slice::from_raw_parts(start, len) }
        }
    };
}

atomic_view!(atomic_u8, u8, AtomicU8);
atomic_view!(atomic_u16, u16, AtomicU16);
atomic_view!(atomic_u32, u32, AtomicU32);
atomic_view!(atomic_u64, u64, AtomicU64);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rewire_graph::HostTensor;

    /// Floats rounded to a storage type.
    fn rounded(dtype: DType, values: &[f32]) -> Vec<f32> {
        let values: Vec<f64> = values.iter().map(|&value| value.into()).collect();
        HostTensor::from_f64(dtype, vec![values.len()], &values).unwrap().to_f32()
    }

    fn same(a: &[f32], b: &[f32]) -> bool {
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan())
    }

    proptest! {
        #[test]
        fn what_is_stored_is_loaded_as_its_type_rounds(
            bits in proptest::collection::vec(any::<u32>(), 0..150),
            start in 0usize..9,
        ) {
            let values: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
            let count = start + values.len();
            for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_float() && dtype.format().is_written()) {
                let (mut own, mut shared) = (vec![0u64; count], vec![0u64; count]);
                ElementsMut::new(dtype, cast_slice_mut(&mut own), count).unwrap().store(start, Values::F32(&values));
                let elements = ElementsMut::new(dtype, cast_slice_mut(&mut shared), count).unwrap();
                elements.share().store(start, Values::F32(&values));
                prop_assert_eq!(&own, &shared);
                let elements = Elements::new(dtype, cast_slice(&own), count, count);
                let (mut run, mut gathered) = (vec![1.0; values.len()], vec![1.0; values.len() + 1]);
                elements.floats(start, &mut run);
                let at: Vec<usize> = (start..count).rev().chain([count]).collect();
                elements.gather_floats(&at, &mut gathered);
                let expected = rounded(dtype, &values);
                prop_assert!(same(&run, &expected), "{dtype}: {values:?} as {run:?}");
                prop_assert_eq!(gathered.pop(), Some(0.0));
                gathered.reverse();
                prop_assert!(same(&gathered, &expected), "{dtype}: {values:?} as {gathered:?}");
            }
        }
    }
}
