//! Rows of tables on the host that a device keeps because they are looked up most often.

use super::ParsedKernel;
use super::frequent_rows::FrequentRows;
use super::host_table::HostTable;
use super::parameters::HostParameters;
use super::pipelines::{KernelCache, KernelKey, StepKernel, WantedKernel};
use super::placement::Site;
use super::update::Changed;
use crate::memory::Layout;
use crate::{Gpu, GpuError};
use rewire_graph::DType;
use rewire_graph_rewrite::device::{BindingChunks, BindingSource, EmittedKernel, Tuning};
use rewire_graph_rewrite::plan::{Binding, BufferId, Lookup, Plan};
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Alignment in bytes of bound ranges. So many rows of any pitch fill aligned ranges.
pub(crate) const ALIGNMENT: usize = 256;

const MOVE_ROWS: &str = include_str!("../../shaders/move_rows.wgsl");

/// The use of [`ModelOptions::device_row_bytes`](crate::ModelOptions::device_row_bytes) by all sessions of a model so
/// far. A row counts once for each lookup of a run, however many ids select it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DeviceRowUse {
    /// Rows that were on the device.
    pub hits: u64,
    /// Rows that were uploaded.
    pub uploads: u64,
    /// Bytes of the uploaded rows.
    pub uploaded_bytes: u64,
}

/// Copies, on a device, of the rows of tables on the host that are looked up most often, as runs with one version of the
/// parameters see them. All versions and sessions share the memory, which has the rows of the latest version.
#[derive(Clone, Debug)]
pub(crate) struct DeviceRows {
    shared: Arc<Shared>,
    version: u64,
}

#[derive(Debug)]
struct Shared {
    /// The kernel that copies rows.
    kernel: Arc<StepKernel>,
    /// Its unused block of sizes.
    params: wgpu::Buffer,
    /// By result.
    lookups: BTreeMap<BufferId, Lookup>,
    tables: BTreeMap<BufferId, TableSlots>,
    known: Mutex<Known>,
}

/// The memory for rows of a table.
#[derive(Debug)]
pub(crate) struct TableSlots {
    pub buffer: wgpu::Buffer,
    pub dtype: DType,
    /// Bytes of a row with its padding.
    pub pitch: u64,
}

/// The rows on the device.
#[derive(Debug)]
pub(crate) struct Known {
    version: u64,
    rows: BTreeMap<BufferId, FrequentRows>,
    used: DeviceRowUse,
}

/// Slots that a run fills. Dropped without [`Reservations::accept`], they are free again.
#[derive(Debug)]
pub(crate) struct Reservations {
    rows: DeviceRows,
    slots: Vec<(BufferId, u32, usize)>,
}

impl DeviceRows {
    /// Memory of at most `limit` bytes for tables whose rows only steps on the device read, divided by the sizes of the
    /// tables; `None` if there is no such table or no room.
    pub async fn new(
        gpu: &Gpu,
        plan: &Plan,
        resident: &HostParameters,
        (sites, limit): (&[Site], u64),
    ) -> Result<Option<Self>, GpuError> {
        let (given, mut lookups) = (resident.tables(), BTreeMap::new());
        if limit > 0 {
            lookups
                .extend(resident.lookups().iter().filter(|own| is_for_device(plan, sites, own)).map(|l| (l.rows, *l)));
        }
        let wanted = |id: &BufferId| lookups.values().any(|lookup| lookup.table == *id);
        let bytes = |table: &HostTable| table.given.bytes().len() as u128;
        let all: u128 = given.iter().filter(|(id, _)| wanted(id)).map(|(_, table)| bytes(table)).sum();
        let (mut tables, mut rows) = (BTreeMap::new(), BTreeMap::new());
        for (id, table) in given.iter().filter(|(id, _)| wanted(id)) {
            let share = u64::try_from(u128::from(limit) * bytes(table) / all.max(1)).unwrap_or(limit);
            let Some((slots, count)) = slots(gpu, plan, (*id, table), share).await? else { continue };
            tables.insert(*id, slots);
            rows.insert(*id, FrequentRows::new(count));
        }
        lookups.retain(|_, lookup| tables.contains_key(&lookup.table));
        if lookups.is_empty() {
            return Ok(None);
        }
        let params = || gpu.buffer("unused sizes", 16, wgpu::BufferUsages::UNIFORM);
        let params = gpu.checked("making room for rows", params).await?;
        let known = Mutex::new(Known { version: 0, rows, used: DeviceRowUse::default() });
        let shared = Shared { kernel: kernel(gpu).await?, params, lookups, tables, known };
        Ok(Some(Self { shared: Arc::new(shared), version: 0 }))
    }

    /// The same memory for the next version of the parameters. Rows that change are dropped; runs with earlier versions
    /// do not use the memory any more.
    pub fn next(&self, changed: &BTreeMap<BufferId, Changed>) -> Self {
        let (mut known, version) = (self.lock(), self.version + 1);
        for (id, rows) in &mut known.rows {
            match changed.get(id) {
                Some(Changed::Rows(change)) => change.rows.iter().for_each(|row| rows.remove(*row)),
                Some(Changed::Whole) => rows.clear(),
                None => {}
            }
        }
        known.version = known.version.max(version);
        Self { shared: self.shared.clone(), version }
    }

    /// The lookup with a result, if the device gathers its rows.
    pub fn lookup(&self, rows: BufferId) -> Option<Lookup> {
        self.shared.lookups.get(&rows).copied()
    }

    /// The memory for rows of a table.
    pub fn slots(&self, table: BufferId) -> Option<&TableSlots> {
        self.shared.tables.get(&table)
    }

    /// The kernel that copies rows.
    pub fn kernel(&self) -> &StepKernel {
        &self.shared.kernel
    }

    /// The unused block of sizes of the kernel.
    pub fn params(&self) -> &wgpu::Buffer {
        &self.shared.params
    }

    /// Bytes of device memory.
    pub fn bytes(&self) -> u64 {
        self.shared.tables.values().map(|slots| slots.buffer.size()).sum()
    }

    /// The use by all sessions.
    pub fn used(&self) -> DeviceRowUse {
        self.lock().used
    }

    /// The positions of those of some rows of a table that are not on the device now.
    pub fn absent(&self, table: BufferId, rows: &[u32]) -> Vec<u32> {
        let known = self.lock();
        let found = known.rows.get(&table).filter(|_| known.version == self.version);
        let is_absent = |row: u32| found.is_none_or(|found| !found.contains(row));
        (0..).zip(rows).filter(|(_, row)| is_absent(**row)).map(|(at, _)| at).collect()
    }

    /// The rows on the device. Commands that read or write slots have to be submitted before the guard is dropped.
    pub fn lock(&self) -> MutexGuard<'_, Known> {
        self.shared.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a lookup; returns the slot of the row, if it is on the device.
    pub fn find(&self, known: &mut Known, table: BufferId, row: u32) -> Option<u32> {
        let place = match known.version == self.version {
            true => known.rows.get_mut(&table).and_then(|rows| rows.find(row)),
            false => None,
        };
        match place {
            Some(_) => known.used.hits += 1,
            None => {
                known.used.uploads += 1;
                known.used.uploaded_bytes += self.slots(table).map_or(0, |slots| slots.pitch);
            }
        }
        place.and_then(|place| u32::try_from(place).ok())
    }
}

impl Reservations {
    /// None so far.
    pub fn new(rows: &DeviceRows) -> Self {
        Self { rows: rows.clone(), slots: vec![] }
    }

    /// Reserves a slot for a row that is not on the device, if it is looked up often enough.
    pub fn reserve(&mut self, known: &mut Known, table: BufferId, row: u32) -> Option<u32> {
        let rows = known.rows.get_mut(&table).filter(|_| known.version == self.rows.version)?;
        let place = rows.reserve(row)?;
        self.slots.push((table, row, place));
        u32::try_from(place).ok()
    }

    /// Lets other runs find the rows, once the device has accepted their upload.
    pub fn accept(mut self) {
        self.settle(FrequentRows::hold);
    }

    fn settle(&mut self, accepted: impl Fn(&mut FrequentRows, usize, u32)) {
        if self.slots.is_empty() {
            return;
        }
        let mut known = self.rows.lock();
        let is_latest = known.version == self.rows.version;
        for (table, row, place) in self.slots.drain(..) {
            let Some(rows) = known.rows.get_mut(&table) else { continue };
            match is_latest {
                true => accepted(rows, place, row),
                false => rows.release(place),
            }
        }
    }
}

impl Drop for Reservations {
    fn drop(&mut self) {
        self.settle(|rows, place, _| rows.release(place));
    }
}

/// True if only steps on the device read the rows of a lookup.
fn is_for_device(plan: &Plan, sites: &[Site], lookup: &Lookup) -> bool {
    let rows = Binding::Buffer(lookup.rows);
    let mut readers = plan.steps.iter().zip(sites).filter(|(step, _)| step.reads.contains(&rows));
    let is_output = plan.outputs.iter().any(|output| output.value == rows);
    !is_output && readers.all(|(_, site)| *site == Site::Gpu)
}

/// Slots within a limit of bytes, and their number; `None` if there is no room for one.
async fn slots(
    gpu: &Gpu,
    plan: &Plan,
    (id, table): (BufferId, &HostTable),
    limit: u64,
) -> Result<Option<(TableSlots, usize)>, GpuError> {
    let (Some(dtype), Some(width)) = (plan.buffer(id).map(|buffer| buffer.dtype), table.given.shape().last()) else {
        return Ok(None);
    };
    let pitch = Layout::new(dtype, vec![1, *width]).bytes();
    let most = limit.min(gpu.target().binding_bytes).min(gpu.limits().max_buffer_size);
    let count = most.checked_div(pitch).unwrap_or(0).min(table.height() as u64);
    if count == 0 || pitch > gpu.target().window_bytes() / ALIGNMENT as u64 {
        return Ok(None);
    }
    if most < limit && count < table.height() as u64 {
        tracing::warn!("the device keeps {most} bytes of rows of a table instead of {limit}: more exceed a binding");
    }
    let make = || gpu.tensor_buffer("rows of a table", count * pitch);
    let buffer = gpu.checked("making room for rows", make).await?;
    Ok(Some((TableSlots { buffer, dtype, pitch }, count as usize)))
}

/// The kernel that copies rows.
async fn kernel(gpu: &Gpu) -> Result<Arc<StepKernel>, GpuError> {
    let kernel = EmittedKernel {
        wgsl: MOVE_ROWS.to_owned(),
        params: vec![],
        slots: vec![BindingSource::Operand(0), BindingSource::Operand(1), BindingSource::Output(0)],
        tile_lists: vec![],
        grid: vec![],
        unchecked: true,
        extension: None,
    };
    let rejected = |reason: String| GpuError::Rejected { what: "copying rows".into(), reason };
    let kernel = ParsedKernel::parse(kernel).map_err(|error| rejected(error.to_string()));
    let key = KernelKey { step: 0, windows: BindingChunks::default(), tuning: Tuning::default() };
    let wanted = WantedKernel { key, label: "copying rows".into(), kernel, lasting: false };
    let made = KernelCache::new(false).make(gpu, vec![wanted]).await.pop();
    made.unwrap_or_else(|| Err(rejected("it has no pipeline".into())))
}
