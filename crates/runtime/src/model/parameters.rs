use super::cpu::{CpuKernels, CpuSite};
use super::host_table::HostTable;
use super::placement::BufferAssignment;
use super::row_cache::RowCache;
use super::row_patch::{RowChange, RowPatch};
use super::update::{Changed, ParameterUpdate};
use super::{Backing, Parameters};
use crate::cpu::CpuError;
use crate::memory::Layout;
use crate::session::{CpuSide, Sizes};
use crate::{RunError, RuntimeError};
use rewire_graph::{DType, HostTensor, Ordered, similar_name};
use rewire_graph_rewrite::plan::{Binding, Buffer, BufferId, Lookup, Plan, Source, Step};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Tensors that stay in memory between runs, by buffer: parameters as given, constants, and values that the plan
/// computes from them. Given tensors are shared, not copied.
#[derive(Clone, Debug, Default)]
pub(crate) struct HostParameters {
    tensors: Vec<Option<HostTensor>>,
    /// Rows of the tensors that updates replaced since.
    patches: BTreeMap<BufferId, RowPatch>,
    /// Frequent rows of tables.
    caches: BTreeMap<BufferId, Arc<RowCache>>,
    /// The limit in bytes of all caches.
    hot_row_bytes: u64,
    /// The steps that copy rows of tables, which are read in place.
    lookups: Vec<Lookup>,
    /// True if some tensors were dropped.
    partial: bool,
    /// The owners of given tensors' memory.
    backing: Arc<[Arc<dyn Backing>]>,
}

impl HostParameters {
    /// Checks shapes and types of a plan's parameters, and computes the values derived from them.
    pub fn new(
        plan: &Plan,
        lookups: Vec<Lookup>,
        hot_row_bytes: u64,
        parameters: impl Parameters,
    ) -> Result<Self, RuntimeError> {
        let backing = parameters.backing().into();
        let tensors = bound(plan, parameters)?;
        let mut resident = Self { tensors, lookups, hot_row_bytes, backing, ..Self::default() };
        let tables: BTreeSet<BufferId> = resident.lookups.iter().map(|lookup| lookup.table).collect();
        for table in tables {
            resident.cache(plan, table);
        }
        resident.compute(plan)?;
        Ok(resident)
    }

    /// Starts to read a table by rows, with a share of the memory for frequent rows.
    fn cache(&mut self, plan: &Plan, table: BufferId) {
        self.caches.remove(&table);
        let bytes = |id: BufferId| self.tensors.get(id.0 as usize)?.as_ref().map(|tensor| tensor.bytes().len() as u128);
        let tables: BTreeSet<BufferId> = self.lookups.iter().map(|lookup| lookup.table).collect();
        let all: u128 = tables.into_iter().filter_map(bytes).sum();
        let (Some(own), Some(Some(given))) = (bytes(table), self.tensors.get(table.0 as usize)) else { return };
        self.backing.iter().for_each(|backing| backing.read_by_rows(given.bytes()));
        let limit = u128::from(self.hot_row_bytes) * own / all.max(1);
        let width = given.shape().last().copied().unwrap_or(0);
        let row_bytes = plan.buffer(table).and_then(|buffer| buffer.dtype.format().row_bytes(width));
        let cache = row_bytes.and_then(|row_bytes| RowCache::new(row_bytes, u64::try_from(limit).ok()?));
        self.caches.extend(cache.map(|cache| (table, Arc::new(cache))));
    }

    /// The steps that copy rows of tables.
    pub fn lookups(&self) -> &[Lookup] {
        &self.lookups
    }

    /// The lookup of a step, if it copies rows of a table.
    pub fn lookup(&self, step: &Step) -> Option<Lookup> {
        self.lookups.iter().find(|lookup| step.writes == [lookup.rows]).copied()
    }

    /// The tables from which steps copy rows.
    pub fn tables(&self) -> BTreeMap<BufferId, HostTable> {
        let table = |id: BufferId| {
            let patch = self.patches.get(&id).cloned().unwrap_or_default();
            let (given, cache) = (self.tensors.get(id.0 as usize)?.clone()?, self.caches.get(&id).cloned());
            Some((id, HostTable { given, patch, cache, backing: self.backing.clone() }))
        };
        self.lookups.iter().filter_map(|lookup| table(lookup.table)).ordered_map()
    }

    /// True if no tensor was dropped.
    pub fn is_whole(&self) -> bool {
        !self.partial
    }

    /// The tensors needed to compute with new parameters: those that the steps of [`Plan::load`] read, and tables.
    pub fn needed_again(&self, plan: &Plan) -> Self {
        let (read, tables) = (loaded(plan), self.tables());
        let is_kept = |n: usize| read[n] || tables.contains_key(&BufferId(n as u32));
        let kept = |(n, tensor): (usize, &Option<HostTensor>)| tensor.clone().filter(|_| is_kept(n));
        let tensors = self.tensors.iter().enumerate().map(kept).collect();
        let patches = self.patches.iter().filter(|(id, _)| is_kept(id.0 as usize));
        let patches = patches.map(|(id, patch)| (*id, patch.clone())).ordered_map();
        Self { tensors, patches, partial: true, ..self.clone() }
    }

    /// Checks that no mapped file of parameters was modified.
    pub fn check_backing(&self) -> Result<(), RunError> {
        self.backing.iter().try_for_each(|backing| backing.check())
    }

    /// Replaces a parameter or some of its rows; adds all tensors that change with it to `changed`.
    pub fn set(
        &mut self,
        plan: &Plan,
        (name, update): (&str, &ParameterUpdate),
        changed: &mut BTreeMap<BufferId, Changed>,
    ) -> Result<(), RuntimeError> {
        let is_it = |buffer: &Buffer| matches!(&buffer.source, Source::Parameter(known) if known == name);
        let Some(n) = plan.buffers.iter().position(is_it) else {
            let names = plan.buffers.iter().filter_map(|buffer| match &buffer.source {
                Source::Parameter(name) => Some(name.as_str()),
                _ => None,
            });
            return Err(RuntimeError::UnknownParameter {
                name: name.to_owned(),
                nearest: similar_name(name, names).map(str::to_owned),
            });
        };
        let id = BufferId(n as u32);
        match update {
            ParameterUpdate::Whole(tensor) => {
                self.tensors[n] = Some(parameter(plan, n, name, &[(name, tensor.clone())])?);
                self.patches.remove(&id);
                if self.lookups.iter().any(|lookup| lookup.table == id) {
                    self.cache(plan, id);
                }
                changed.insert(id, Changed::Whole);
            }
            ParameterUpdate::Rows { rows, values } => {
                let change = new_rows(plan, id, name, rows, values)?;
                if self.tensors[n].is_some() {
                    self.patches.entry(id).or_default().set(&change);
                }
                let change = match changed.remove(&id) {
                    None => Some(change),
                    Some(Changed::Rows(earlier)) => earlier.and(change),
                    Some(Changed::Whole) => None,
                };
                changed.insert(id, change.map_or(Changed::Whole, Changed::Rows));
            }
        }
        if loaded(plan)[n] {
            let computed = (0..).map(BufferId).zip(&plan.buffers).filter(|(_, buffer)| buffer.source == Source::Load);
            changed.extend(computed.map(|(id, _)| (id, Changed::Whole)));
        }
        Ok(())
    }

    /// A tensor in its storage type, all of whose values are finite.
    pub fn tensor(&self, plan: &Plan, id: BufferId) -> Result<Option<HostTensor>, RuntimeError> {
        let n = id.0 as usize;
        let (Some(Some(tensor)), Some(buffer)) = (self.tensors.get(n), plan.buffers.get(n)) else { return Ok(None) };
        let Source::Parameter(name) = &buffer.source else { return Ok(Some(tensor.clone())) };
        let tensor = stored(name, buffer.dtype, tensor.clone())?;
        match self.patches.get(&id) {
            None => Ok(Some(tensor)),
            Some(patch) => patch.applied(&tensor).map(Some).ok_or_else(|| RuntimeError::Memory {
                reason: format!("`{name}` with replaced rows takes {} bytes", tensor.bytes().len()),
            }),
        }
    }

    /// Parameters and constants that are outputs of the plan.
    pub fn outputs(&self, plan: &Plan) -> Result<HashMap<BufferId, HostTensor>, RuntimeError> {
        let ids = plan.outputs.iter().filter_map(|output| match output.value {
            Binding::Buffer(id) => Some(id),
            Binding::Host(_) => None,
        });
        ids.filter_map(|id| self.tensor(plan, id).map(|tensor| Some((id, tensor?))).transpose()).collect()
    }

    /// Runs the steps of [`Plan::load`] on the CPU.
    pub fn compute(&mut self, stored: &Plan) -> Result<(), RuntimeError> {
        if stored.load.is_empty() {
            return Ok(());
        }
        let plan = &*stored.when_loading();
        let mut kernels = CpuKernels::new(plan.load.len());
        let failed = |position: usize, error: CpuError| RuntimeError::Load {
            step: position,
            name: plan.load[position].name.clone(),
            path: plan.load[position].path.clone(),
            reason: error.to_string(),
        };
        for (position, step) in plan.load.iter().enumerate() {
            kernels.add(position, step).map_err(|error| failed(position, error))?;
        }
        let site = CpuSite::new(kernels, plan, homes(plan), self)?;
        let mut cpu = CpuSide::new(site);
        let layouts = plan.buffers.iter().map(|buffer| {
            let shape = buffer.shape.iter().map(|dim| dim.as_const().unwrap_or(0)).collect();
            Layout::new(buffer.dtype, shape)
        });
        let sizes = Sizes::fixed(layouts.collect());
        for (position, step) in plan.load.iter().enumerate() {
            cpu.run_step(position, step, &sizes).map_err(|error| failed(position, error))?;
        }
        for (n, (buffer, tensor)) in stored.buffers.iter().zip(&mut self.tensors).enumerate() {
            if buffer.source == Source::Load {
                let shape = constant_shape(buffer, "a computed parameter")?;
                let computed = cpu.get(BufferId(n as u32)).map_err(out_of_memory)?;
                let laid = computed.map(|tensor| tensor.reshape(shape)?.stored_as(buffer.dtype)).transpose();
                *tensor = laid.map_err(|error| RuntimeError::of_stored(&format!("computed parameter {n}"), error))?;
            }
        }
        Ok(())
    }
}

pub(crate) fn out_of_memory(error: CpuError) -> RuntimeError {
    RuntimeError::Memory { reason: error.to_string() }
}

/// Assigns a slot to every computed tensor.
fn homes(plan: &Plan) -> BufferAssignment {
    let computed = plan.buffers.iter().scan(0, |slots, buffer| {
        let slot = (buffer.source == Source::Load).then_some(*slots);
        *slots += usize::from(slot.is_some());
        Some(slot)
    });
    let slot: Vec<Option<usize>> = computed.collect();
    BufferAssignment { slots: slot.iter().flatten().count(), slot, resident: loaded(plan) }
}

/// By buffer, true for a parameter or constant that the steps of [`Plan::load`] read.
fn loaded(plan: &Plan) -> Vec<bool> {
    let mut read = vec![false; plan.buffers.len()];
    for binding in plan.load.iter().flat_map(|step| &step.reads) {
        if let Binding::Buffer(id) = binding
            && let (Some(read), Some(buffer)) = (read.get_mut(id.0 as usize), plan.buffer(*id))
        {
            *read = buffer.source != Source::Load;
        }
    }
    read
}

/// The parameters and constants of a plan by buffer.
fn bound(plan: &Plan, parameters: impl Parameters) -> Result<Vec<Option<HostTensor>>, RuntimeError> {
    let buffers = plan.buffers.iter().enumerate();
    buffers
        .map(|(n, buffer)| match &buffer.source {
            Source::Parameter(name) => parameter(plan, n, name, &parameters).map(Some),
            Source::Constant(bytes) => {
                let shape = constant_shape(buffer, "a constant")?;
                HostTensor::from_bytes(buffer.dtype, shape, bytes.clone())
                    .map(Some)
                    .map_err(|error| RuntimeError::Plan { reason: format!("a constant does not fit: {error}") })
            }
            Source::Input(_) | Source::State(_) | Source::Load | Source::Step => Ok(None),
        })
        .collect()
}

fn constant_shape(buffer: &Buffer, what: &str) -> Result<Vec<usize>, RuntimeError> {
    let shape: Option<Vec<usize>> = buffer.shape.iter().map(|dim| dim.as_const()).collect();
    shape.ok_or_else(|| RuntimeError::Plan { reason: format!("the shape of {what} depends on inputs") })
}

/// The tensor of a parameter, in its buffer's layout except for the storage type.
fn parameter(plan: &Plan, n: usize, name: &str, parameters: &impl Parameters) -> Result<HostTensor, RuntimeError> {
    let (buffer, id) = (&plan.buffers[n], BufferId(n as u32));
    let (by_column, in_groups) = (plan.by_column.contains(&id), plan.in_groups.contains(&id));
    let (dtype, expected) = (buffer.dtype, constant_shape(buffer, &format!("parameter `{name}`"))?);
    let rank = expected.len();
    let bound = |mut shape: Vec<usize>| {
        if in_groups && shape.len() == rank {
            let group = shape.pop().unwrap_or(1);
            shape.last_mut().into_iter().for_each(|groups| *groups *= group);
        }
        match shape.as_mut_slice() {
            [.., rows, columns] if by_column => std::mem::swap(rows, columns),
            _ => {}
        }
        shape
    };
    let given = if by_column { parameters.columns(name) } else { parameters.parameter(name) };
    let given = given.map_err(|error| RuntimeError::of_stored(name, error.into()))?;
    let name = name.to_owned();
    let Some(tensor) = given else {
        return Err(RuntimeError::MissingParameter { name, dtype, shape: bound(expected) });
    };
    let tensor = if in_groups { tensor.in_groups(&expected) } else { Ok(tensor) };
    let tensor = tensor.map_err(|error| RuntimeError::of_stored(&name, error))?;
    if tensor.shape() != expected {
        let actual = bound(tensor.shape().to_vec());
        return Err(RuntimeError::ParameterShape { name, expected: bound(expected), actual });
    }
    let actual = tensor.dtype();
    match actual == dtype || (actual.is_float() && dtype.is_float()) {
        true => Ok(tensor),
        false => Err(RuntimeError::ParameterType { name, expected: dtype, actual }),
    }
}

/// New rows of a parameter in its storage type.
fn new_rows(
    plan: &Plan,
    id: BufferId,
    name: &str,
    rows: &[u32],
    values: &HostTensor,
) -> Result<RowChange, RuntimeError> {
    let buffer = &plan.buffers[id.0 as usize];
    let shape = constant_shape(buffer, &format!("parameter `{name}`"))?;
    let refused = |reason: &str| RuntimeError::ParameterRows { name: name.to_owned(), reason: reason.to_owned() };
    let &[height, width] = shape.as_slice() else { return Err(refused("it is not a matrix")) };
    if plan.by_column.contains(&id) {
        return Err(refused("it is stored by column"));
    }
    if let Some(row) = rows.iter().find(|row| **row as usize >= height) {
        return Err(refused(&format!("row {row} is not one of its {height} rows")));
    }
    if values.shape() != [rows.len(), width] {
        let (name, actual) = (name.to_owned(), values.shape().to_vec());
        return Err(RuntimeError::ParameterShape { name, expected: vec![rows.len(), width], actual });
    }
    Ok(RowChange { rows: rows.to_vec(), values: stored(name, buffer.dtype, values.clone())? })
}

/// A parameter in its storage type.
fn stored(name: &str, dtype: DType, given: HostTensor) -> Result<HostTensor, RuntimeError> {
    let name = name.to_owned();
    let tensor = given.stored_as(dtype).map_err(|error| RuntimeError::of_stored(&name, error))?;
    match tensor.first_non_finite() {
        Some((element, value)) => Err(RuntimeError::ParameterValue { name, element, value: value as f32, dtype }),
        None => Ok(tensor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(dtype: DType) -> Plan {
        let buffer = Buffer { dtype, shape: vec![2.into()], source: Source::Parameter("w".into()) };
        Plan { buffers: vec![buffer], ..Plan::default() }
    }

    fn resident(dtype: DType, tensor: Option<HostTensor>) -> Result<Option<HostTensor>, RuntimeError> {
        let plan = plan(dtype);
        HostParameters::new(&plan, vec![], 0, move |_: &str| tensor.clone())?.tensor(&plan, BufferId(0))
    }

    #[test]
    fn f16_and_f32_convert() {
        let given = HostTensor::f32(vec![2], &[1.5, -2.0]).unwrap();
        let loaded = resident(DType::F16, Some(given)).unwrap().unwrap();
        assert_eq!((loaded.dtype(), loaded.to_f32()), (DType::F16, vec![1.5, -2.0]));
    }

    #[test]
    fn every_defect_is_named() {
        let load = |dtype, tensor| resident(dtype, tensor).unwrap_err();
        let f32s = |values: &[f32]| Some(HostTensor::f32(vec![values.len()], values).unwrap());
        assert!(matches!(load(DType::F32, None), RuntimeError::MissingParameter { name, .. } if name == "w"));
        assert!(matches!(load(DType::F32, f32s(&[1.0; 3])), RuntimeError::ParameterShape { .. }));
        assert!(matches!(load(DType::I64, f32s(&[1.0; 2])), RuntimeError::ParameterType { .. }));
        let nan = load(DType::F32, f32s(&[1.0, f32::NAN]));
        assert!(matches!(nan, RuntimeError::ParameterValue { element: 1, .. }), "{nan}");
        assert!(matches!(load(DType::F16, f32s(&[1e6, 0.0])), RuntimeError::ParameterValue { element: 0, .. }));
    }
}
