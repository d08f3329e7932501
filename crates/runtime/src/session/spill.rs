//! Moves rows of states to the host and back.

use super::states::Held;
use super::{RunValue, Session};
use crate::device::Mapping;
use crate::memory::Layout;
use crate::{RunError, block_on};
use rewire_graph_rewrite::plan::Buffer;
use std::ops::Range;

/// Rows, on the host or on their way there, of a session's states with an app-defined first extent.
#[derive(Debug)]
pub struct SpilledRows {
    rows: usize,
    bytes: u64,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Device(Mapping),
    Host(Vec<u8>),
}

impl SpilledRows {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes on the host.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// A part of a state: its position in the state, and in the concatenated rows of all states.
struct Part<'a> {
    state: &'a str,
    at: u64,
    packed: u64,
    bytes: u64,
}

impl Session {
    /// Bytes of one row of all states with an app-defined first extent.
    pub fn state_row_bytes(&self) -> u64 {
        self.open_states().map(|(_, buffer)| row_bytes(buffer)).sum()
    }

    /// Starts to copy rows of the states with an app-defined first extent to the host. The copy has the values written
    /// by the runs so far, regardless of later ones. Does not wait for the device.
    ///
    /// # Errors
    /// [`RunError::State`] for rows that do not exist, [`RunError::Gpu`] if memory cannot be allocated.
    pub fn spill_rows(&self, rows: &[Range<usize>]) -> Result<SpilledRows, RunError> {
        let parts = self.parts(rows)?;
        let bytes = parts.iter().map(|part| part.bytes).sum();
        let place = match &self.gpu {
            Some(side) if bytes > 0 => {
                let gpu = side.gpu();
                let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
                let target = gpu.buffer("rows of states", bytes, usage);
                let label = Some("rows of states to the host");
                let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label });
                for part in &parts {
                    let Some(source) = self.state_buffer(part.state) else { continue };
                    encoder.copy_buffer_to_buffer(source, part.at, &target, part.packed, part.bytes);
                }
                let submission = gpu.submit([encoder.finish()]);
                Place::Device(Mapping::start(&target, bytes, submission))
            }
            _ => {
                let mut packed = Vec::with_capacity(bytes as usize);
                for part in &parts {
                    let Some(Held::Memory(memory)) = self.states.held(part.state) else { continue };
                    packed.extend_from_slice(memory.bytes_at(part.at as usize, part.bytes as usize));
                }
                Place::Host(packed)
            }
        };
        Ok(SpilledRows { rows: rows.iter().map(Range::len).sum(), bytes, place })
    }

    /// Moves rows back, to the same or to the same number of other rows.
    ///
    /// # Errors
    /// [`RunError::State`] for rows that do not exist or a wrong number of them, [`RunError::Gpu`] if they cannot be
    /// copied.
    pub async fn restore_rows_async(&mut self, rows: &[Range<usize>], spilled: SpilledRows) -> Result<(), RunError> {
        let parts = self.parts(rows)?;
        if parts.iter().map(|part| part.bytes).sum::<u64>() != spilled.bytes {
            let count = rows.iter().map(Range::len).sum::<usize>();
            let reason = format!("{} rows were kept, and {count} are to be restored", spilled.rows);
            return Err(RunError::State { name: "rows".to_owned(), reason });
        }
        match (spilled.place, &self.gpu) {
            (Place::Device(mapping), Some(side)) => {
                let gpu = side.gpu().clone();
                let upload = |bytes: &[u8]| {
                    let source = gpu.filled("rows of states", bytes);
                    let label = Some("rows of states from the host");
                    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor { label });
                    for part in &parts {
                        let Some(target) = self.state_buffer(part.state) else { continue };
                        encoder.copy_buffer_to_buffer(&source, part.packed, target, part.at, part.bytes);
                    }
                    gpu.submit([encoder.finish()]);
                };
                mapping.read(&gpu, upload).await?;
            }
            (Place::Host(packed), _) => {
                let places: Vec<_> =
                    parts.iter().map(|part| (part.state.to_owned(), part.at, part.packed, part.bytes)).collect();
                for (state, at, from, bytes) in places {
                    let Some(Held::Memory(memory)) = self.states.held_mut(&state) else { continue };
                    let content = &packed[from as usize..(from + bytes) as usize];
                    let refused =
                        |error: crate::cpu::CpuError| RunError::State { name: state, reason: error.to_string() };
                    memory.write_at(at as usize, content).map_err(refused)?;
                }
            }
            (Place::Device(_), None) => {
                return Err(RunError::StateLost { name: "rows".to_owned() });
            }
        }
        Ok(())
    }

    /// [`Session::restore_rows_async`], blocking.
    ///
    /// # Errors
    /// As [`Session::restore_rows_async`].
    pub fn restore_rows(&mut self, rows: &[Range<usize>], spilled: SpilledRows) -> Result<(), RunError> {
        block_on(self.restore_rows_async(rows, spilled))
    }

    /// The states with an app-defined first extent.
    fn open_states(&self) -> impl Iterator<Item = (&str, &Buffer)> {
        let is_open = |buffer: &Buffer| buffer.shape.first().is_some_and(|dim| dim.as_const().is_none());
        self.plan().states().into_iter().filter(move |(_, buffer)| is_open(buffer))
    }

    /// The positions of rows, checked.
    fn parts(&self, rows: &[Range<usize>]) -> Result<Vec<Part<'_>>, RunError> {
        let (shapes, mut packed) = (self.states.shapes(self.plan()), 0);
        let mut parts = vec![];
        for (state, buffer) in self.open_states() {
            let held = shapes.get(state).and_then(|shape| shape.first()).copied().unwrap_or_default();
            let row = row_bytes(buffer);
            if self.state_buffer(state).is_none() && !matches!(self.states.held(state), Some(Held::Memory(_))) {
                let reason = "it has no rows yet: reserve them first".to_owned();
                return Err(RunError::State { name: state.to_owned(), reason });
            }
            for range in rows {
                if range.start > range.end || range.end > held {
                    let reason = format!("it has {held} rows, and not those of {range:?}");
                    return Err(RunError::State { name: state.to_owned(), reason });
                }
                let bytes = range.len() as u64 * row;
                parts.push(Part { state, at: range.start as u64 * row, packed, bytes });
                packed += bytes;
            }
        }
        Ok(parts)
    }

    fn state_buffer(&self, state: &str) -> Option<&wgpu::Buffer> {
        match self.states.held(state)? {
            Held::Value(RunValue::Device(tensor)) => Some(tensor.buffer()),
            _ => None,
        }
    }
}

/// Bytes of a row with padding.
fn row_bytes(buffer: &Buffer) -> u64 {
    let inner = buffer.shape.iter().skip(1).map(|dim| dim.as_const().unwrap_or(1));
    Layout::new(buffer.dtype, std::iter::once(1).chain(inner).collect()).bytes()
}
