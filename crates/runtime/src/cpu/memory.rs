use super::error::CpuError;
use bytemuck::{AnyBitPattern, Pod, Zeroable, cast_slice, cast_slice_mut, try_cast_slice};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rewire_graph::{DType, HostTensor, SharedBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

/// One cache line, so that every tensor is aligned for all element types and whole vectors.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A tensor in host memory as kernels see it: row major, the last dimension padded to a multiple of four.
///
/// The content of the padding is unspecified. A scalar is one row of four elements. Where no row is padded, host
/// tensors share the memory.
#[derive(Clone)]
pub struct Memory {
    dtype: DType,
    shape: Vec<usize>,
    elements: usize,
    storage: Storage,
    /// What a host tensor shared when its elements had to change, used again when it is no longer shared.
    lent: Option<Arc<Vec<Line>>>,
}

#[derive(Clone)]
enum Storage {
    Own(Arc<Vec<Line>>),
    /// Of a host tensor.
    Host(SharedBytes),
}

/// The first bytes of memory that a host tensor shares.
struct Content {
    lines: Arc<Vec<Line>>,
    bytes: usize,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        cast_slice::<Line, u8>(&self.lines).get(..self.bytes).unwrap_or(&[])
    }
}

/// Elements of a tensor, by storage type. `U32` is read as `I32`.
#[derive(Clone, Copy, Debug)]
pub(super) enum Elements<'a> {
    F32(&'a [f32]),
    F16(&'a [f16]),
    I64(&'a [i64]),
    I32(&'a [i32]),
    Bool(&'a [u32]),
}

/// Elements of a tensor that one task writes.
#[derive(Debug)]
pub(super) enum ElementsMut<'a> {
    F32(&'a mut [f32]),
    F16(&'a mut [f16]),
    I64(&'a mut [i64]),
    I32(&'a mut [i32]),
}

/// Elements of a tensor that several tasks write.
#[derive(Clone, Copy, Debug)]
pub(super) enum SharedElements<'a> {
    F32(&'a [AtomicU32]),
    F16(&'a [AtomicU16]),
    I64(&'a [AtomicU64]),
    I32(&'a [AtomicU32]),
}

/// Elements between two rows of a tensor of this shape.
pub(super) fn pitch(shape: &[usize]) -> usize {
    shape.last().map_or(4, |width| width.next_multiple_of(4))
}

/// Bytes of a tensor with its padding, as many as there can be where they are more.
pub(crate) fn padded_bytes(dtype: DType, shape: &[usize]) -> u64 {
    padded_elements(dtype, shape).map_or(u64::MAX, |elements| (elements * dtype.bytes()) as u64)
}

fn padded_elements(dtype: DType, shape: &[usize]) -> Result<usize, CpuError> {
    let outer = shape.split_last().map_or(&[][..], |(_, outer)| outer);
    let limit = isize::MAX as usize / 16;
    shape
        .last()
        .map_or(Some(4), |width| width.checked_next_multiple_of(4))
        .and_then(|pitch| outer.iter().try_fold(pitch, |size, &n| size.checked_mul(n)))
        .filter(|&elements| elements <= limit)
        .ok_or_else(|| CpuError::Memory { dtype, shape: shape.to_vec() })
}

impl Memory {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if there is no room.
    pub fn new(dtype: DType, shape: &[usize]) -> Result<Self, CpuError> {
        let mut memory = Self { dtype, shape: vec![], elements: 0, storage: Storage::Own(Arc::default()), lent: None };
        memory.reset(dtype, shape)?;
        Ok(memory)
    }

    /// Makes this a tensor of another type and shape with unspecified content, in the same allocation where it fits
    /// and no host tensor shares it. A tensor of the same type and shape that is not shared keeps its content.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if there is no room; the tensor is unchanged then.
    pub fn reset(&mut self, dtype: DType, shape: &[usize]) -> Result<(), CpuError> {
        let elements = padded_elements(dtype, shape)?;
        let size = (elements * dtype.bytes()).div_ceil(size_of::<Line>());
        let keeps = match &mut self.storage {
            Storage::Own(lines) => Arc::get_mut(lines).is_some_and(|lines| lines.len() >= size),
            Storage::Host(_) => self.dtype == dtype && self.shape == shape,
        };
        if !keeps {
            let spare = self.lent.take().filter(|lent| lent.len() >= size && Arc::strong_count(lent) == 1);
            let lines = match spare {
                Some(lines) => lines,
                None => Arc::new(zeros(size).ok_or_else(|| CpuError::Memory { dtype, shape: shape.to_vec() })?),
            };
            if let Storage::Own(old) = std::mem::replace(&mut self.storage, Storage::Own(lines)) {
                self.lent = Some(old).filter(|old| Arc::strong_count(old) > 1);
            }
        }
        self.dtype = dtype;
        self.elements = elements;
        shape.clone_into(&mut self.shape);
        Ok(())
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        self.content().len() as u64
    }

    /// True for shapes whose rows need no padding.
    pub(crate) fn unpadded(shape: &[usize]) -> bool {
        shape.last().is_some_and(|width| width % 4 == 0)
    }

    /// The memory of a host tensor itself, if its rows need no padding and its elements are aligned.
    pub fn shared_with(tensor: &HostTensor) -> Option<Self> {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let aligned = tensor.bytes().as_ptr().addr().is_multiple_of(dtype.bytes());
        let elements = padded_elements(dtype, shape).ok()?;
        (Self::unpadded(shape) && aligned).then(|| Self {
            dtype,
            shape: shape.to_vec(),
            elements,
            storage: Storage::Host(tensor.shared().clone()),
            lent: None,
        })
    }

    /// The padded form of a host tensor, in its memory where possible.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if there is no room.
    pub fn from_host(tensor: &HostTensor) -> Result<Self, CpuError> {
        if let Some(shared) = Self::shared_with(tensor) {
            return Ok(shared);
        }
        let mut memory = Self::new(tensor.dtype(), tensor.shape())?;
        memory.write(tensor.bytes())?;
        Ok(memory)
    }

    /// Fills the tensor with little-endian elements, row major, unpadded; missing ones are left as they are.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if a host tensor shares the memory and there is no room for another; the tensor is unchanged
    /// then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CpuError> {
        let (row, pitch) = self.row_bytes();
        if row > 0 {
            let target: &mut [u8] = cast_slice_mut(self.lines_mut()?);
            for (to, from) in target.chunks_mut(pitch).zip(bytes.chunks(row)) {
                to[..from.len()].copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// The tensor without its padding; it shares this memory if there is none.
    ///
    /// # Errors
    /// [`CpuError::Content`] if the memory is too small for the tensor, [`CpuError::Memory`] if there is no room for a copy.
    pub fn to_host(&self) -> Result<HostTensor, CpuError> {
        let (row, pitch) = self.row_bytes();
        let (dtype, shape, size) = (self.dtype, self.shape.clone(), self.elements * self.dtype.bytes());
        let tensor = match &self.storage {
            Storage::Own(lines) if row == pitch => {
                HostTensor::from_shared(dtype, shape, Arc::new(Content { lines: lines.clone(), bytes: size }))
            }
            Storage::Host(bytes) => HostTensor::from_shared(dtype, shape, bytes.clone()),
            Storage::Own(lines) => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(size).map_err(|_| self.no_room())?;
                if row > 0 {
                    let source = cast_slice::<Line, u8>(lines).get(..size).unwrap_or(&[]);
                    source.chunks_exact(pitch).for_each(|line| bytes.extend_from_slice(&line[..row]));
                }
                HostTensor::from_bytes(dtype, shape, bytes)
            }
        };
        tensor.map_err(|_| CpuError::Content { dtype, shape: self.shape.clone() })
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Logical shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Bytes reserved, padding and unused capacity included.
    pub fn capacity(&self) -> usize {
        self.content().len()
    }

    fn row_bytes(&self) -> (usize, usize) {
        let bytes = self.dtype.bytes();
        (self.shape.last().map_or(1, |&width| width) * bytes, pitch(&self.shape) * bytes)
    }

    fn content(&self) -> &[u8] {
        match &self.storage {
            Storage::Own(lines) => cast_slice(lines),
            Storage::Host(bytes) => (**bytes).as_ref(),
        }
    }

    /// The memory, of this tensor alone.
    fn lines_mut(&mut self) -> Result<&mut [Line], CpuError> {
        let shared = match &mut self.storage {
            Storage::Own(lines) => Arc::get_mut(lines).is_none(),
            Storage::Host(_) => true,
        };
        if shared {
            let content = self.content();
            let mut lines = zeros(content.len().div_ceil(size_of::<Line>())).ok_or_else(|| self.no_room())?;
            cast_slice_mut::<Line, u8>(&mut lines)[..content.len()].copy_from_slice(content);
            self.storage = Storage::Own(Arc::new(lines));
        }
        match &mut self.storage {
            Storage::Own(lines) => Ok(Arc::get_mut(lines).map_or(&mut [], Vec::as_mut_slice)),
            Storage::Host(_) => Ok(&mut []),
        }
    }

    fn no_room(&self) -> CpuError {
        CpuError::Memory { dtype: self.dtype, shape: self.shape.clone() }
    }

    fn slice<T: AnyBitPattern>(&self) -> &[T] {
        try_cast_slice(self.content()).ok().and_then(|all: &[T]| all.get(..self.elements)).unwrap_or(&[])
    }

    pub(super) fn elements(&self) -> Elements<'_> {
        match self.dtype {
            DType::F32 => Elements::F32(self.slice()),
            DType::F16 => Elements::F16(self.slice()),
            DType::I64 => Elements::I64(self.slice()),
            DType::I32 | DType::U32 => Elements::I32(self.slice()),
            DType::Bool => Elements::Bool(self.slice()),
        }
    }

    pub(super) fn elements_mut(&mut self) -> Result<ElementsMut<'_>, CpuError> {
        let (dtype, elements) = (self.dtype, self.elements);
        let lines = self.lines_mut()?;
        Ok(match dtype {
            DType::F32 => ElementsMut::F32(&mut cast_slice_mut(lines)[..elements]),
            DType::F16 => ElementsMut::F16(&mut cast_slice_mut(lines)[..elements]),
            DType::I64 => ElementsMut::I64(&mut cast_slice_mut(lines)[..elements]),
            DType::I32 | DType::U32 | DType::Bool => ElementsMut::I32(&mut cast_slice_mut(lines)[..elements]),
        })
    }
}

fn zeros(lines: usize) -> Option<Vec<Line>> {
    let mut fresh: Vec<Line> = Vec::new();
    fresh.try_reserve_exact(lines).ok()?;
    fresh.resize(lines, Line::zeroed());
    Some(fresh)
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} {:?})", self.dtype, self.shape)
    }
}

impl<'a> ElementsMut<'a> {
    /// Cuts the elements into pieces of `size`, the last one shorter.
    pub(super) fn pieces(self, size: usize) -> Vec<Self> {
        match self {
            Self::F32(e) => e.chunks_mut(size).map(Self::F32).collect(),
            Self::F16(e) => e.chunks_mut(size).map(Self::F16).collect(),
            Self::I64(e) => e.chunks_mut(size).map(Self::I64).collect(),
            Self::I32(e) => e.chunks_mut(size).map(Self::I32).collect(),
        }
    }

    /// Lets several tasks write the elements.
    pub(super) fn share(self) -> SharedElements<'a> {
        match self {
            Self::F32(e) => SharedElements::F32(atomic_u32(cast_slice_mut(e))),
            Self::F16(e) => SharedElements::F16(atomic_u16(cast_slice_mut(e))),
            Self::I64(e) => SharedElements::I64(atomic_u64(cast_slice_mut(e))),
            Self::I32(e) => SharedElements::I32(atomic_u32(cast_slice_mut(e))),
        }
    }
}

macro_rules! atomic_view {
    ($name:ident, $int:ty, $atomic:ty) => {
        fn $name(elements: &mut [$int]) -> &[$atomic] {
            let (start, len) = (elements.as_mut_ptr().cast::<$atomic>(), elements.len());
            assert!(start.is_aligned());
            // SAFETY: an atomic has the size and bit validity of its integer, the alignment was checked, and the
            // exclusive borrow is given up for the lifetime of the result, so all access in it is atomic.
            unsafe { std::slice::from_raw_parts(start, len) }
        }
    };
}

atomic_view!(atomic_u16, u16, AtomicU16);
atomic_view!(atomic_u32, u32, AtomicU32);
atomic_view!(atomic_u64, u64, AtomicU64);

/// A place that one task writes rows and elements to. Writes out of range are dropped.
#[derive(Debug)]
pub(super) enum Sink<'a> {
    /// Elements from this offset on, of this task alone.
    Own(ElementsMut<'a>, usize),
    /// All elements, written by other tasks too.
    Shared(SharedElements<'a>),
}

/// Neighbouring values of a kernel, in the arithmetic type of their expression.
#[derive(Clone, Copy, Debug)]
pub(super) enum Values<'a> {
    F32(&'a [f32]),
    I32(&'a [i32]),
    I64(&'a [i64]),
}

/// An arithmetic type whose values can be stored.
pub(super) trait Scalars: Copy {
    fn values(values: &[Self]) -> Values<'_>;
}

impl Scalars for f32 {
    fn values(values: &[Self]) -> Values<'_> {
        Values::F32(values)
    }
}

impl Scalars for i32 {
    fn values(values: &[Self]) -> Values<'_> {
        Values::I32(values)
    }
}

impl Scalars for i64 {
    fn values(values: &[Self]) -> Values<'_> {
        Values::I64(values)
    }
}

impl Sink<'_> {
    /// The floats of this task alone from `offset` on.
    pub(super) fn floats(&mut self, offset: usize) -> Option<&mut [f32]> {
        match self {
            Self::Own(ElementsMut::F32(elements), base) => elements.get_mut(offset.checked_sub(*base)?..),
            _ => None,
        }
    }

    /// Stores neighbouring elements from `offset` on.
    pub(super) fn store(&mut self, offset: usize, values: Values<'_>) {
        match self {
            Self::Own(elements, base) => store_own(elements, offset.wrapping_sub(*base), values),
            Self::Shared(elements) => match (*elements, values) {
                (SharedElements::F32(e), Values::F32(v)) => each(e, offset, v, |e, v| e.store(v.to_bits(), RELAXED)),
                (SharedElements::F16(e), Values::F32(v)) => {
                    each(e, offset, v, |e, v| e.store(f16::from_f32(v).to_bits(), RELAXED));
                }
                (SharedElements::I32(e), Values::I32(v)) => each(e, offset, v, |e, v| e.store(v as u32, RELAXED)),
                (SharedElements::I64(e), Values::I64(v)) => each(e, offset, v, |e, v| e.store(v as u64, RELAXED)),
                _ => debug_assert!(false, "{values:?} for {elements:?}"),
            },
        }
    }
}

const RELAXED: Ordering = Ordering::Relaxed;

fn each<A, V: Copy>(elements: &[A], offset: usize, values: &[V], store: impl Fn(&A, V)) {
    if let Some(rest) = elements.get(offset..) {
        for (element, &value) in rest.iter().zip(values) {
            store(element, value);
        }
    }
}

fn store_own(elements: &mut ElementsMut<'_>, offset: usize, values: Values<'_>) {
    match (elements, values) {
        (ElementsMut::F32(e), Values::F32(v)) => copy(e, offset, v),
        (ElementsMut::F16(e), Values::F32(v)) => {
            if let Some(target) = e.get_mut(offset..offset.saturating_add(v.len())) {
                target.convert_from_f32_slice(v);
            }
        }
        (ElementsMut::I32(e), Values::I32(v)) => copy(e, offset, v),
        (ElementsMut::I64(e), Values::I64(v)) => copy(e, offset, v),
        (elements, values) => debug_assert!(false, "{values:?} for {elements:?}"),
    }
}

fn copy<T: Copy>(elements: &mut [T], offset: usize, values: &[T]) {
    if let Some(target) = elements.get_mut(offset..offset.saturating_add(values.len())) {
        target.copy_from_slice(values);
    }
}
