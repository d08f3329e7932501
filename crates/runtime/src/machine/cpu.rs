use super::{MemoryAccess, shortest};
use crate::cpu::rates;
use crate::parallel::{map, threads};
use crate::{HostMemory, HostMemoryError};
use rewire_graph_rewrite::cost::HardwareModel;
use std::hint::black_box;
use std::time::Duration;
use web_time::Instant;

/// Floats of the largest array.
const FLOATS: usize = 32 << 20;
const FLOAT: u64 = size_of::<f32>() as u64;
/// Name of the measurement in memory errors.
const COPIED: &str = "measuring how fast memory is copied";

pub(super) fn measure(window: Duration) -> Result<HardwareModel, HostMemoryError> {
    // A task for each thread.
    let on_each = |work: fn() -> f64| map(vec![(); threads()], |()| black_box(work())).into_iter().sum::<f64>();
    let mut operations = 0.0;
    let computed = seconds(window, || operations = on_each(rates::multiply_adds));
    let launch = seconds(window, || {
        on_each(|| 0.0);
    });
    let bandwidth = measure_memory(MemoryAccess::Copy { bytes: u64::MAX }, window)?;
    Ok(HardwareModel { bandwidth, multiply_add: operations / computed, matrix: None, launch })
}

/// Each thread has one part, so that large copies bypass caches where that is faster.
pub(super) fn measure_memory(access: MemoryAccess, window: Duration) -> Result<f64, HostMemoryError> {
    let floats_of = |bytes: u64| usize::try_from(bytes / FLOAT).map_or(FLOATS, |floats| floats.clamp(1, FLOATS));
    match access {
        MemoryAccess::Copy { bytes } => {
            let floats = floats_of(bytes / 2);
            HostMemory::check(COPIED, 2 * floats as u64 * FLOAT)?;
            let (from, mut to, repeats) = (array(floats)?, array(floats)?, FLOATS / floats);
            let copied = seconds(window, || {
                map(to.chunks_mut(part(floats)).zip(from.chunks(part(floats))).collect(), |(to, from)| {
                    (0..repeats).for_each(|_| rates::copy(to, from));
                });
            });
            Ok((repeats * floats) as f64 * (2 * FLOAT) as f64 / copied)
        }
        MemoryAccess::Read { bytes } => {
            let floats = floats_of(bytes);
            let (from, repeats) = (array(floats)?, FLOATS / floats);
            let read = seconds(window, || {
                map(from.chunks(part(floats)).collect(), |from| (0..repeats).for_each(|_| rates::read(from)));
            });
            Ok((repeats * floats) as f64 * FLOAT as f64 / read)
        }
        MemoryAccess::Write { bytes } => {
            let floats = floats_of(bytes);
            let (mut to, repeats) = (array(floats)?, FLOATS / floats);
            let written = seconds(window, || {
                map(to.chunks_mut(part(floats)).collect(), |to| (0..repeats).for_each(|_| rates::write(to)));
            });
            Ok((repeats * floats) as f64 * FLOAT as f64 / written)
        }
    }
}

/// Floats of each thread.
fn part(floats: usize) -> usize {
    floats.div_ceil(threads())
}

fn array(floats: usize) -> Result<Vec<f32>, HostMemoryError> {
    let needed = floats as u64 * FLOAT;
    HostMemory::check(COPIED, needed)?;
    let no_room = |_| HostMemoryError { what: COPIED.to_owned(), needed, available: HostMemory::now().left() };
    rates::touched(floats).map_err(no_room)
}

fn seconds(window: Duration, mut work: impl FnMut()) -> f64 {
    let run = |count| {
        let begun = Instant::now();
        (0..count).for_each(|_| work());
        Ok::<Duration, crate::GpuError>(begun.elapsed())
    };
    shortest(window, run).unwrap_or(f64::INFINITY)
}
