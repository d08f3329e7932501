use crate::device::Mapping;
use crate::session::profile::{Detail, Recorder};
use crate::{Gpu, GpuError};
use rewire_graph_rewrite::plan::Plan;
use std::ops::Range;
use std::time::Duration;
use web_time::Instant;

/// Timestamp queries around the passes of a segment, and around its steps if requested.
///
/// Lives for one run, since some devices have few query sets.
#[derive(Debug)]
pub(super) struct Timer {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    readback: wgpu::Buffer,
    passes: Vec<Range<usize>>,
    /// True if each step of a pass is marked, not only its begin and end.
    marks: bool,
}

impl Timer {
    /// Queries for some steps; `None` if the device has none, or too few.
    pub fn new(gpu: &Gpu, steps: Range<usize>, detail: Detail) -> Option<Self> {
        let features = gpu.device().features();
        if !features.contains(wgpu::Features::TIMESTAMP_QUERY) || steps.is_empty() {
            return None;
        }
        let marks = detail == Detail::Steps && features.contains(wgpu::Features::TIMESTAMP_QUERY_INSIDE_PASSES);
        let passes = match (detail, marks) {
            (Detail::Steps, false) => steps.map(|step| step..step + 1).collect(),
            _ => vec![steps],
        };
        let count = passes.iter().map(|pass| queries(pass, marks)).sum::<usize>();
        let count = u32::try_from(count).ok().filter(|&count| count <= wgpu::QUERY_SET_MAX_QUERIES)?;
        let queries = gpu.device().create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("times"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let buffer = |usage| gpu.buffer("times", u64::from(count) * u64::from(wgpu::QUERY_SIZE), usage);
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let readback = buffer(wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST);
        Some(Self { queries, resolved, readback, passes, marks })
    }

    /// The steps of each pass.
    pub fn passes(&self) -> Vec<Range<usize>> {
        self.passes.clone()
    }

    /// The timestamps that a pass writes at its begin and end.
    pub fn writes(&self, pass: usize) -> wgpu::ComputePassTimestampWrites<'_> {
        let begin = self.first(pass) as u32;
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(begin),
            end_of_pass_write_index: (!self.marks).then_some(begin + 1),
        }
    }

    /// Records the time after a step.
    pub fn mark(&self, encoder: &mut wgpu::ComputePass<'_>, pass: usize, step: usize) {
        if self.marks {
            let within = self.passes.get(pass).map_or(0, |steps| step - steps.start);
            encoder.write_timestamp(&self.queries, (self.first(pass) + within + 1) as u32);
        }
    }

    /// Copies the times to where the host reads them.
    pub fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        encoder.resolve_query_set(&self.queries, 0..self.queries.count(), &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.readback, 0, self.readback.size());
    }

    /// Requests the times of a submission.
    pub fn start(&self, submission: wgpu::SubmissionIndex) -> Mapping {
        Mapping::start(&self.readback, self.readback.size(), submission)
    }

    /// Waits for the times of a submission at `since` and records them.
    pub async fn read(
        &self,
        (gpu, times): (&Gpu, Mapping),
        plan: &Plan,
        since: Option<Instant>,
        recorder: &mut Recorder,
    ) -> Result<(), GpuError> {
        let decode =
            |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&tick| u64::from_le_bytes(tick)).collect::<Vec<_>>();
        let ticks = times.read(gpu, decode).await?;
        let period = f64::from(gpu.queue().get_timestamp_period());
        let first = ticks.first().copied().unwrap_or(0);
        let at = |query: usize| {
            let ticks = ticks.get(query).copied().unwrap_or(first).saturating_sub(first);
            Duration::from_nanos((ticks as f64 * period) as u64)
        };
        for (pass, steps) in self.passes.iter().enumerate() {
            let begin = self.first(pass);
            recorder.pass(since, at(begin), at(begin + queries(steps, self.marks) - 1));
            if self.marks || steps.len() == 1 {
                for (n, position) in steps.clone().enumerate() {
                    if let Some(step) = plan.steps.get(position) {
                        recorder.gpu(position, step, since, [at(begin + n), at(begin + n + 1)]);
                    }
                }
            }
        }
        Ok(())
    }

    /// The first query of a pass.
    fn first(&self, pass: usize) -> usize {
        self.passes.iter().take(pass).map(|steps| queries(steps, self.marks)).sum()
    }
}

/// Queries of a pass: its begin, and its end or the ends of all its steps.
fn queries(steps: &Range<usize>, marks: bool) -> usize {
    1 + if marks { steps.len() } else { 1 }
}
