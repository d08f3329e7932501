use super::waves::waves;
use crate::Transfer;
use rewire_graph_rewrite::plan::{Binding, BufferId, Lifetime, Plan, SlotPlan};
use std::ops::Range;

/// The device of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Site {
    Gpu,
    Cpu,
}

/// Consecutive steps on one site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SiteRun {
    pub site: Site,
    pub steps: Range<usize>,
    /// The steps in the order in which the CPU runs them; steps of one wave may run in parallel.
    pub waves: Vec<Vec<usize>>,
    /// Tensors that must be moved to the site before the segment: inputs of the run, and results of the other site.
    pub fetches: Vec<BufferId>,
    /// Tensors of a GPU segment that later CPU segments read.
    pub downloads: Vec<BufferId>,
    /// Outputs of the plan that are complete after the segment.
    pub results: Vec<BufferId>,
}

/// The memory of a site's tensors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BufferAssignment {
    /// The slot of a tensor; `None` for resident ones and for those that the site does not use.
    pub slot: Vec<Option<usize>>,
    /// Parameters and constants that the site reads.
    pub resident: Vec<bool>,
    /// Number of slots.
    pub slots: usize,
}

/// The segments of a plan, and the transfers between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placement {
    pub segments: Vec<SiteRun>,
    pub gpu: BufferAssignment,
    pub cpu: BufferAssignment,
}

/// First and last time at which each tensor is in memory, by site and buffer; a step takes one time unit.
struct Uses {
    gpu: Vec<Option<(usize, usize)>>,
    cpu: Vec<Option<(usize, usize)>>,
}

impl Uses {
    fn of(&mut self, site: Site) -> &mut Vec<Option<(usize, usize)>> {
        match site {
            Site::Gpu => &mut self.gpu,
            Site::Cpu => &mut self.cpu,
        }
    }

    fn touch(&mut self, site: Site, id: BufferId, (first, last): (usize, usize)) {
        if let Some(span) = self.of(site).get_mut(id.0 as usize) {
            let known = span.unwrap_or((first, last));
            *span = Some((known.0.min(first), known.1.max(last)));
        }
    }
}

/// The sites with the current content of a tensor, and the segment that wrote it last.
#[derive(Clone, Copy, Default)]
struct Holder {
    gpu: bool,
    cpu: bool,
    writer: Option<usize>,
}

impl Holder {
    fn holds(&mut self, site: Site) -> &mut bool {
        match site {
            Site::Gpu => &mut self.gpu,
            Site::Cpu => &mut self.cpu,
        }
    }
}

impl Placement {
    /// Divides the steps of a valid plan into segments; `sites` has an entry per step.
    pub fn new(plan: &Plan, sites: &[Site]) -> Self {
        let mut segments = segments(plan, sites);
        let mut uses = Uses { gpu: vec![None; plan.buffers.len()], cpu: vec![None; plan.buffers.len()] };
        let mut holders = vec![Holder::default(); plan.buffers.len()];
        let times = times(&segments);
        for at in 0..segments.len() {
            for step in segments[at].steps.clone() {
                move_operands(plan, &mut segments, at, (step, times[step]), &mut holders, &mut uses);
            }
        }
        for output in &plan.outputs {
            let Binding::Buffer(id) = output.value else { continue };
            let Some(writer) = holders[id.0 as usize].writer else { continue };
            let segment = &mut segments[writer];
            if !segment.results.contains(&id) {
                segment.results.push(id);
            }
            uses.touch(segment.site, id, (segment.steps.end - 1, segment.steps.end - 1));
        }
        Self { gpu: homes(plan, &uses.gpu), cpu: homes(plan, &uses.cpu), segments }
    }
}

/// The transfers between device and host if the steps of a plan run on both; `on_device` has an entry per step.
///
/// # Panics
/// If there are fewer entries than steps.
pub fn transfers(plan: &Plan, on_device: &[bool]) -> Vec<Transfer> {
    let sites: Vec<Site> = on_device.iter().map(|is| if *is { Site::Gpu } else { Site::Cpu }).collect();
    let segments = Placement::new(plan, &sites).segments.into_iter();
    let moved = segments.map(|SiteRun { site, steps, fetches, .. }| {
        let is_result = |id: &BufferId| plan.steps[..steps.start].iter().any(|step| step.writes.contains(id));
        let tensors = fetches.into_iter().filter(is_result).collect();
        Transfer { step: steps.start, to_device: site == Site::Gpu, tensors }
    });
    moved.filter(|transfer| !transfer.tensors.is_empty()).collect()
}

fn segments(plan: &Plan, sites: &[Site]) -> Vec<SiteRun> {
    let mut segments: Vec<SiteRun> = Vec::new();
    for (step, &site) in sites.iter().enumerate() {
        match segments.last_mut() {
            Some(segment) if segment.site == site => segment.steps.end = step + 1,
            _ => segments.push(SiteRun {
                site,
                steps: step..step + 1,
                waves: vec![],
                fetches: vec![],
                downloads: vec![],
                results: vec![],
            }),
        }
    }
    for segment in &mut segments {
        segment.waves = match segment.site {
            Site::Gpu => segment.steps.clone().map(|step| vec![step]).collect(),
            Site::Cpu => waves(plan, segment.steps.clone()),
        };
    }
    segments
}

/// By step, the first and last time at which its wave runs.
fn times(segments: &[SiteRun]) -> Vec<(usize, usize)> {
    let mut times = vec![(0, 0); segments.last().map_or(0, |segment| segment.steps.end)];
    let mut first = 0;
    for wave in segments.iter().flat_map(|segment| &segment.waves) {
        let last = first + wave.len() - 1;
        wave.iter().for_each(|&step| times[step] = (first, last));
        first = last + 1;
    }
    times
}

/// Records the tensors that a step of segment `at` uses, and the required transfers.
fn move_operands(
    plan: &Plan,
    segments: &mut [SiteRun],
    at: usize,
    (step, time): (usize, (usize, usize)),
    holders: &mut [Holder],
    uses: &mut Uses,
) {
    let (site, start) = (segments[at].site, segments[at].steps.start);
    let reads = plan.steps[step].reads.iter().filter_map(|binding| match binding {
        Binding::Buffer(id) => Some(*id),
        Binding::Host(_) => None,
    });
    // If several steps write parts of a tensor, all but the first read it too; a state has content before the run.
    let rewritten = |id: &BufferId| plan.is_state(*id) || holders[id.0 as usize].writer.is_some();
    let rewritten = plan.steps[step].writes.iter().copied().filter(rewritten);
    for id in reads.chain(rewritten).collect::<Vec<_>>() {
        uses.touch(site, id, time);
        let holder = &mut holders[id.0 as usize];
        let resident = plan.buffers[id.0 as usize].source.is_resident();
        if resident || std::mem::replace(holder.holds(site), true) {
            continue;
        }
        uses.touch(site, id, (start, start));
        segments[at].fetches.push(id);
        let Some(writer) = holder.writer else { continue };
        let end = segments[writer].steps.end - 1;
        let moved = if site == Site::Gpu { start } else { end };
        uses.touch(Site::Gpu, id, (moved, moved));
        uses.touch(Site::Cpu, id, (moved, moved));
        if site == Site::Cpu {
            segments[writer].downloads.push(id);
        }
    }
    for &id in &plan.steps[step].writes {
        uses.touch(site, id, time);
        holders[id.0 as usize] = Holder { gpu: site == Site::Gpu, cpu: site == Site::Cpu, writer: Some(at) };
    }
}

fn homes(plan: &Plan, uses: &[Option<(usize, usize)>]) -> BufferAssignment {
    let resident = |n: usize| plan.buffers[n].source.is_resident();
    let tensors: Vec<usize> = (0..uses.len()).filter(|&n| uses[n].is_some() && !resident(n)).collect();
    let lifetimes: Vec<Lifetime> = tensors
        .iter()
        .filter_map(|&n| Some(Lifetime::new(uses[n]?, plan.buffers[n].dtype, &plan.buffers[n].shape)))
        .collect();
    let shared = SlotPlan::new(&lifetimes);
    let mut homes = BufferAssignment {
        slot: vec![None; uses.len()],
        resident: (0..uses.len()).map(|n| uses[n].is_some() && resident(n)).collect(),
        slots: shared.slots,
    };
    for (&n, &slot) in tensors.iter().zip(&shared.slot) {
        homes.slot[n] = Some(slot);
    }
    homes
}
