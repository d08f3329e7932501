use super::error::CpuError;
use super::kept::ContentId;
use super::lines::{Line, Lines};
use super::storage::{Elements, ElementsMut, SharedElements, Values};
use super::stream::prefetch;
use bytemuck::{cast_slice, cast_slice_mut};
use rewire_graph::{DType, HostTensor, SharedBytes};
use std::sync::Arc;

/// A tensor in host memory in kernel layout: row major, the last dimension padded to a multiple of four.
///
/// The content of the padding is unspecified. A scalar is one row of four elements. Memory without padding can be shared
/// with host tensors.
#[derive(Clone)]
pub struct Memory {
    dtype: DType,
    shape: Vec<usize>,
    /// Strides of `shape`, in elements.
    strides: Vec<usize>,
    elements: usize,
    storage: Storage,
    /// Previous memory, replaced because a host tensor shared it when the content had to change. Reused once it is not shared.
    lent: Option<Arc<Lines>>,
    /// The identity of the content; `None` if it was not requested, or the content changed since.
    content: Option<ContentId>,
}

#[derive(Clone)]
enum Storage {
    Own(Arc<Lines>),
    /// The memory of a host tensor.
    Host(SharedBytes),
}

/// The first bytes of memory shared with a host tensor.
struct Content {
    lines: Arc<Lines>,
    bytes: usize,
}

impl AsRef<[u8]> for Content {
    fn as_ref(&self) -> &[u8] {
        cast_slice::<Line, u8>(&self.lines).get(..self.bytes).unwrap_or(&[])
    }
}

/// Bytes of a tensor with padding, saturating.
pub fn padded_bytes(dtype: DType, shape: &[usize]) -> u64 {
    padded_elements(dtype, shape).map_or(u64::MAX, |elements| dtype.format().bytes(elements as u64))
}

fn padded_elements(dtype: DType, shape: &[usize]) -> Result<usize, CpuError> {
    let limit = isize::MAX as usize / 16;
    let elements = dtype.format().elements(shape).filter(|&elements| elements <= limit);
    elements.ok_or_else(|| CpuError::Memory { dtype, shape: shape.to_vec() })
}

/// Sets `strides` to those of a tensor in kernel layout, in elements.
fn set_strides(strides: &mut Vec<usize>, dtype: DType, shape: &[usize]) {
    strides.clear();
    strides.resize(shape.len(), 1);
    let mut step = shape.last().and_then(|&width| dtype.format().pitch(width)).unwrap_or(1);
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = step;
        step *= shape[axis];
    }
}

impl Memory {
    /// A tensor of zeros.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if allocation fails.
    pub fn new(dtype: DType, shape: &[usize]) -> Result<Self, CpuError> {
        let storage = Storage::Own(Arc::default());
        let mut memory =
            Self { dtype, shape: vec![], strides: vec![], elements: 0, storage, lent: None, content: None };
        memory.reset(dtype, shape)?;
        Ok(memory)
    }

    /// Makes this a tensor of another type and shape with unspecified content. It reuses the allocation if that is
    /// large enough and not shared. A tensor of the same type and shape that is not shared keeps its content.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if allocation fails; the tensor is unchanged then.
    pub fn reset(&mut self, dtype: DType, shape: &[usize]) -> Result<(), CpuError> {
        let elements = padded_elements(dtype, shape)?;
        let size = (dtype.format().bytes(elements as u64) as usize).div_ceil(size_of::<Line>());
        let keeps = match &mut self.storage {
            Storage::Own(lines) => Arc::get_mut(lines).is_some_and(|lines| lines.len() >= size),
            Storage::Host(_) => self.dtype == dtype && self.shape == shape,
        };
        if !keeps {
            // Tensors of different sizes may alternate in memory that is repeatedly shared.
            let most = match &self.storage {
                Storage::Own(lines) => size.max(lines.len()),
                Storage::Host(_) => size,
            };
            let spare = self.lent.take().filter(|lent| lent.len() >= size && Arc::strong_count(lent) == 1);
            let lines = match spare {
                Some(lines) => lines,
                None => Arc::new(Lines::zeros(most).ok_or_else(|| CpuError::Memory { dtype, shape: shape.to_vec() })?),
            };
            if let Storage::Own(old) = std::mem::replace(&mut self.storage, Storage::Own(lines)) {
                self.lent = Some(old).filter(|old| Arc::strong_count(old) > 1);
            }
        }
        self.content = None;
        self.dtype = dtype;
        self.elements = elements;
        shape.clone_into(&mut self.shape);
        set_strides(&mut self.strides, dtype, shape);
        Ok(())
    }

    /// Bytes of the allocation.
    pub fn bytes(&self) -> u64 {
        self.all_bytes().len() as u64
    }

    /// Shares the memory of a host tensor; `None` if its rows need padding or its elements are not aligned.
    pub fn shared_with(tensor: &HostTensor) -> Option<Self> {
        let (dtype, shape) = (tensor.dtype(), tensor.shape());
        let format = dtype.format();
        let aligned = tensor.bytes().as_ptr().addr().is_multiple_of(format.bits.div_ceil(8));
        let elements = padded_elements(dtype, shape).ok()?;
        let mut strides = vec![];
        set_strides(&mut strides, dtype, shape);
        (format.is_dense(shape) && aligned).then(|| Self {
            dtype,
            shape: shape.to_vec(),
            strides,
            elements,
            storage: Storage::Host(tensor.shared().clone()),
            lent: None,
            content: None,
        })
    }

    /// A host tensor in kernel layout. Shares the host tensor's memory if possible.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if allocation fails.
    pub fn from_host(tensor: &HostTensor) -> Result<Self, CpuError> {
        if let Some(shared) = Self::shared_with(tensor) {
            return Ok(shared);
        }
        let mut memory = Self::new(tensor.dtype(), tensor.shape())?;
        memory.write(tensor.bytes())?;
        Ok(memory)
    }

    /// Assigns an identity to the content, so that kernels can cache data derived from it while the content exists.
    pub fn know_content(&mut self) {
        self.content = Some(ContentId::default());
    }

    /// As [`Memory::know_content`], by value.
    pub fn with_known_content(mut self) -> Self {
        self.know_content();
        self
    }

    /// The identity of the content, if it has one.
    pub(super) fn known_content(&self) -> Option<&ContentId> {
        self.content.as_ref()
    }

    /// Writes little-endian elements, row-major and unpadded. Elements beyond `bytes` are unchanged.
    ///
    /// # Errors
    /// [`CpuError::Memory`] if a host tensor shares the memory and other memory cannot be allocated. The tensor is unchanged
    /// then.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CpuError> {
        let (format, shape) = (self.dtype.format(), self.shape.clone());
        format.to_kernels(&shape, bytes, cast_slice_mut(self.lines_mut()?));
        Ok(())
    }

    /// The tensor without padding. Shares this memory if there is no padding.
    ///
    /// # Errors
    /// [`CpuError::Content`] if the memory is too small for the tensor, [`CpuError::Memory`] if a copy cannot be allocated.
    pub fn to_host(&self) -> Result<HostTensor, CpuError> {
        let (dtype, shape, format) = (self.dtype, self.shape.clone(), self.dtype.format());
        let size = format.bytes(self.elements as u64) as usize;
        let tensor = match &self.storage {
            Storage::Own(lines) if format.is_dense(&shape) => {
                HostTensor::from_shared(dtype, shape, Arc::new(Content { lines: lines.clone(), bytes: size }))
            }
            Storage::Host(bytes) => HostTensor::from_shared(dtype, shape, bytes.clone()),
            Storage::Own(lines) => {
                let mut bytes = Vec::new();
                bytes.try_reserve_exact(size).map_err(|_| self.no_room())?;
                format.to_host(&shape, cast_slice::<Line, u8>(lines).get(..size).unwrap_or(&[]), &mut bytes);
                HostTensor::from_bytes(dtype, shape, bytes)
            }
        };
        tensor.map_err(|_| CpuError::Content { dtype, shape: self.shape.clone() })
    }

    /// A range of bytes in kernel layout, including padding; empty if out of range.
    pub fn bytes_at(&self, offset: usize, count: usize) -> &[u8] {
        self.all_bytes().get(offset..offset.saturating_add(count)).unwrap_or_default()
    }

    /// Replaces a range of bytes in kernel layout; does nothing if out of range.
    ///
    /// # Errors
    /// As [`Memory::write`].
    pub fn write_at(&mut self, offset: usize, bytes: &[u8]) -> Result<(), CpuError> {
        let all: &mut [u8] = cast_slice_mut(self.lines_mut()?);
        if let Some(place) = all.get_mut(offset..offset.saturating_add(bytes.len())) {
            place.copy_from_slice(bytes);
        }
        Ok(())
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Logical shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Strides in elements.
    pub(super) fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Allocated bytes, including padding and unused capacity.
    pub fn capacity(&self) -> usize {
        self.all_bytes().len()
    }

    /// All bytes, for exclusive access. Shared memory is copied first.
    pub(super) fn bytes_mut(&mut self) -> Result<&mut [u8], CpuError> {
        Ok(cast_slice_mut(self.lines_mut()?))
    }

    fn all_bytes(&self) -> &[u8] {
        match &self.storage {
            Storage::Own(lines) => cast_slice(lines),
            Storage::Host(bytes) => (**bytes).as_ref(),
        }
    }

    /// The memory, for exclusive access. Shared memory is copied first.
    fn lines_mut(&mut self) -> Result<&mut [Line], CpuError> {
        self.content = None;
        let shared = match &mut self.storage {
            Storage::Own(lines) => Arc::get_mut(lines).is_none(),
            Storage::Host(_) => true,
        };
        if shared {
            let content = self.all_bytes();
            let mut lines = Lines::zeros(content.len().div_ceil(size_of::<Line>())).ok_or_else(|| self.no_room())?;
            cast_slice_mut::<Line, u8>(&mut lines)[..content.len()].copy_from_slice(content);
            self.storage = Storage::Own(Arc::new(lines));
        }
        match &mut self.storage {
            Storage::Own(lines) => Ok(Arc::get_mut(lines).map_or(&mut [], |lines| &mut **lines)),
            Storage::Host(_) => Ok(&mut []),
        }
    }

    pub(super) fn no_room(&self) -> CpuError {
        CpuError::Memory { dtype: self.dtype, shape: self.shape.clone() }
    }

    pub(super) fn elements(&self) -> Elements<'_> {
        Elements::new(self.dtype, self.all_bytes(), self.elements, self.pitch())
    }

    pub(super) fn elements_mut(&mut self) -> Result<ElementsMut<'_>, CpuError> {
        Ok(self.parts_mut()?.0)
    }

    /// The elements to write, and shape and strides.
    pub(super) fn parts_mut(&mut self) -> Result<(ElementsMut<'_>, [&[usize]; 2]), CpuError> {
        self.lines_mut()?;
        let Self { dtype, shape, strides, elements, storage, .. } = self;
        let lines = match storage {
            Storage::Own(lines) => Arc::get_mut(lines).map_or(&mut [][..], |lines| &mut **lines),
            Storage::Host(_) => &mut [],
        };
        let elements = ElementsMut::new(*dtype, cast_slice_mut(lines), *elements);
        let read_only =
            || CpuError::Unsupported { kernel: "storing", reason: format!("a tensor of {dtype} is only read") };
        Ok((elements.ok_or_else(read_only)?, [&shape[..], &strides[..]]))
    }

    /// Row stride in elements.
    fn pitch(&self) -> usize {
        let width = self.shape.last().map_or(1, |&width| width);
        self.dtype.format().pitch(width).unwrap_or(usize::MAX)
    }

    /// Writes unpadded row-major values.
    ///
    /// # Errors
    /// As [`Memory::write`].
    pub(super) fn store(&mut self, values: Values<'_>) -> Result<(), CpuError> {
        let (width, pitch) = (self.shape.last().map_or(1, |&width| width), self.pitch());
        let mut elements = self.elements_mut()?;
        values.rows(width).enumerate().for_each(|(row, values)| elements.store(row * pitch, values));
        Ok(())
    }
}

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} {:?})", self.dtype, self.shape)
    }
}

/// The destination of a task's writes. Writes out of range are ignored.
#[derive(Debug)]
pub(super) enum Sink<'a> {
    /// Elements exclusive to this task, and the offset of the first one.
    Own(ElementsMut<'a>, usize),
    /// All elements, written by several tasks.
    Shared(SharedElements<'a>),
}

/// An arithmetic type whose values can be stored.
pub(super) trait Scalars: Copy + Default {
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
    /// The floats from `offset` on; `None` if they are not exclusive to this task or not f32.
    pub(super) fn floats(&mut self, offset: usize) -> Option<&mut [f32]> {
        match self {
            Self::Own(ElementsMut::F32(elements), base) => elements.get_mut(offset.checked_sub(*base)?..),
            _ => None,
        }
    }

    /// Prefetches floats from `offset` on, which will be stored.
    pub(super) fn prefetch(&self, offset: usize, count: usize) {
        match self {
            Self::Own(ElementsMut::F32(elements), base) => prefetch_range(elements, offset.wrapping_sub(*base), count),
            Self::Shared(SharedElements::F32(elements)) => prefetch_range(elements, offset, count),
            _ => {}
        }
    }

    /// Stores contiguous elements from `offset` on.
    pub(super) fn store(&mut self, offset: usize, values: Values<'_>) {
        match self {
            Self::Own(elements, base) => elements.store(offset.wrapping_sub(*base), values),
            Self::Shared(elements) => elements.store(offset, values),
        }
    }
}

fn prefetch_range<T>(elements: &[T], offset: usize, count: usize) {
    prefetch(elements.get(offset..offset.saturating_add(count)).unwrap_or(&[]), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_hosts_share_has_room_for_the_largest_tensor_it_held() {
        let mut memory = Memory::new(DType::F32, &[40, 4]).unwrap();
        let bytes = memory.bytes();
        for _ in 0..3 {
            let shared = memory.to_host().unwrap();
            memory.reset(DType::F32, &[8, 4]).unwrap();
            memory.write(&[1; 8]).unwrap();
            assert_eq!(memory.bytes(), bytes);
            memory.reset(DType::F32, shared.shape()).unwrap();
        }
    }
}
