//! A run, segment by segment, and its outputs.

use super::cpu::CpuSide;
use super::gpu::{GpuSide, LookedUp, LookupError};
use super::io::Wanted;
use super::profile::Recorder;
use super::sizes::Sizes;
use super::{DeviceTensor, Inputs, Outputs, RunValue, Session, no_device};
use crate::RunError;
use crate::cpu::CpuError;
use crate::model::{Site, SiteRun};
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{Binding, BufferId, Plan, PlanOutput, Source};
use std::collections::HashMap;

impl Session {
    /// Runs these inputs, segment by segment.
    pub(super) async fn execute(&mut self, inputs: &Inputs, recorder: &mut Recorder) -> Result<Outputs, RunError> {
        let begun = recorder.now();
        let (model, sites) = (self.model.clone(), self.sites.clone());
        let (plan, placement) = (model.plan(), &sites.placement);
        let wanted = Wanted::new(plan, inputs)?;
        if self.gpu.is_none() {
            self.check_places(inputs)?;
        }
        let sizes = self.sizes_of(inputs, inputs.states())?;
        recorder.host("sizes", begun);
        if let Some(side) = &mut self.gpu {
            let begun = recorder.now();
            side.prepare(plan, placement, &sizes, inputs, &wanted).await?;
            recorder.host("prepare", begun);
        }
        let mut results = Results::default();
        for segment in &placement.segments {
            match segment.site {
                Site::Cpu => self.run_on_cpu(segment, &sizes, inputs, &mut results, recorder).await?,
                Site::Gpu => self.run_on_gpu(segment, &sizes, inputs, &wanted, &mut results, recorder).await?,
            }
        }
        let mut values = Vec::with_capacity(plan.outputs.len());
        let is_kept = |value| matches!(value, Binding::Buffer(id) if self.cpu.has_state(id));
        for output in plan.outputs.iter().filter(|output| !is_kept(output.value)) {
            let value = self.output(output, &sizes, inputs, &results).await?;
            values.push((output.name.clone(), value));
        }
        if let Some(side) = &mut self.gpu {
            side.send_others(&wanted, &values).await?;
        }
        Ok(Outputs::new(values))
    }

    fn check_places(&self, inputs: &Inputs) -> Result<(), RunError> {
        for buffer in &self.plan().buffers {
            if let Some(name) = buffer.source.run_name()
                && let Some(RunValue::Device(_)) = inputs.get(name)
            {
                return Err(no_device(name));
            }
        }
        match inputs.on_device().first() {
            Some(name) => Err(no_device(name)),
            None => Ok(()),
        }
    }

    async fn run_on_cpu(
        &mut self,
        segment: &SiteRun,
        sizes: &Sizes,
        inputs: &Inputs,
        results: &mut Results,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let model = self.model.clone();
        let plan = model.plan();
        let begun = recorder.now();
        for &id in &segment.fetches {
            let read;
            let tensor = match (input(plan, id, inputs), &self.gpu) {
                (Some(RunValue::Host(tensor)), _) => tensor,
                (Some(RunValue::Device(tensor)), Some(side)) => {
                    read = side.read(tensor).await?;
                    &read
                }
                _ => continue,
            };
            self.cpu.put(id, tensor).map_err(|error| cpu_failure(segment, plan, &error))?;
        }
        recorder.host("fetch", begun);
        self.cpu.run(plan, segment, sizes, recorder)?;
        let begun = recorder.now();
        for &id in segment.results.iter().filter(|id| !self.cpu.has_state(**id)).collect::<Vec<_>>() {
            let tensor = self.cpu.get(id).map_err(|error| cpu_failure(segment, plan, &error))?;
            results.host.extend(tensor.map(|tensor| (id, tensor)));
        }
        recorder.host("collect", begun);
        Ok(())
    }

    async fn run_on_gpu(
        &mut self,
        segment: &SiteRun,
        sizes: &Sizes,
        inputs: &Inputs,
        wanted: &Wanted,
        results: &mut Results,
        recorder: &mut Recorder,
    ) -> Result<(), RunError> {
        let model = self.model.clone();
        let plan = model.plan();
        let Some(side) = &mut self.gpu else { return Err(no_device("a device tensor")) };
        let begun = recorder.now();
        let lookups = looked_up(segment, side, &self.cpu).map_err(|error| cpu_failure(segment, plan, &error))?;
        if !lookups.is_empty() {
            let done = side.look_up(lookups).await;
            done.inspect_err(|_| side.trim()).map_err(|error| match error {
                LookupError::Device(error) => error.into(),
                LookupError::Table(error) => cpu_failure(segment, plan, &error),
            })?;
            recorder.host("look up", begun);
        }
        let mut fetched = Vec::with_capacity(segment.fetches.len());
        for &id in &segment.fetches {
            let tensor = match input(plan, id, inputs) {
                Some(RunValue::Host(tensor)) => Some(tensor.clone()),
                Some(RunValue::Device(_)) => None,
                None if side.lookup(id).is_some() => None,
                None => self.cpu.get(id).map_err(|error| cpu_failure(segment, plan, &error))?,
            };
            fetched.extend(tensor.map(|tensor| (id, tensor)));
        }
        let values = side.run(plan, segment, sizes, &fetched, wanted, recorder).await;
        for (id, value) in values.inspect_err(|_| side.trim())? {
            if let (RunValue::Host(tensor), true) = (&value, segment.downloads.contains(&id)) {
                self.cpu.put(id, tensor).map_err(|error| cpu_failure(segment, plan, &error))?;
            }
            match value {
                RunValue::Host(tensor) if segment.results.contains(&id) => results.host.insert(id, tensor).map(drop),
                RunValue::Device(tensor) => results.device.insert(id, tensor).map(drop),
                RunValue::Host(_) => None,
            };
        }
        Ok(())
    }

    fn is_state(&self, id: BufferId) -> bool {
        self.plan().buffer(id).is_some_and(|buffer| matches!(buffer.source, Source::State(_)))
    }

    /// The value of an output.
    pub(super) async fn output(
        &self,
        output: &PlanOutput,
        sizes: &Sizes,
        inputs: &Inputs,
        results: &Results,
    ) -> Result<RunValue, RunError> {
        let id = match output.value {
            Binding::Host(slot) => return host_value(output, sizes, sizes.slot(slot)).map(RunValue::Host),
            Binding::Buffer(id) => id,
        };
        let kept = inputs.on_device().contains(&output.name);
        if let (true, Some(tensor)) = (kept, results.device.get(&id)) {
            return Ok(RunValue::Device(tensor.clone()));
        }
        let host = results.host.get(&id).or_else(|| self.sites.constants.get(&id)).cloned().map(RunValue::Host);
        match (host.or_else(|| input(self.plan(), id, inputs).cloned()), &self.gpu) {
            (Some(RunValue::Host(tensor)), Some(side)) if kept => Ok(RunValue::Device(side.keep(&tensor).await?)),
            // The app has no tensor on the device in this case, so none is returned.
            (Some(RunValue::Device(tensor)), Some(side)) if !kept && self.is_state(id) => {
                Ok(RunValue::Host(side.read(&tensor).await?))
            }
            (Some(value), _) => Ok(value),
            (None, _) => Err(RunError::UnknownName { name: output.name.clone(), known: "no value for it".into() }),
        }
    }
}

/// Results of a run so far.
#[derive(Default)]
pub(super) struct Results {
    pub host: HashMap<BufferId, HostTensor>,
    pub device: HashMap<BufferId, DeviceTensor>,
}

/// The value of an input or a state.
pub(super) fn input<'a>(plan: &Plan, id: BufferId, inputs: &'a Inputs) -> Option<&'a RunValue> {
    inputs.get(plan.buffer(id)?.source.run_name()?)
}

/// The lookups of a segment whose rows the device gathers.
fn looked_up<'a>(segment: &SiteRun, side: &GpuSide, cpu: &'a CpuSide) -> Result<Vec<LookedUp<'a>>, CpuError> {
    let lookups = segment.fetches.iter().filter_map(|id| side.lookup(*id));
    let found = lookups.map(|lookup| {
        let selected = cpu.selected(lookup)?;
        Ok(selected.map(|(table, rows)| LookedUp { lookup, table, rows }))
    });
    found.filter_map(Result::transpose).collect()
}

fn host_value(output: &PlanOutput, sizes: &Sizes, values: &[i64]) -> Result<HostTensor, RunError> {
    let shape = output.shape.iter().map(|dim| sizes.dim(dim).map(|n| n as usize)).collect::<Result<_, _>>()?;
    HostTensor::lengths(values)
        .reshape(shape)
        .map_err(|error| RunError::Size { what: format!("output `{}`", output.name), size: error.to_string() })
}

fn cpu_failure(segment: &SiteRun, plan: &Plan, error: &CpuError) -> RunError {
    let step = plan.steps.get(segment.steps.start);
    RunError::Cpu {
        step: segment.steps.start,
        name: step.map(|step| step.name.clone()).unwrap_or_default(),
        path: step.map(|step| step.path.clone()).unwrap_or_default(),
        reason: error.to_string(),
    }
}
