use super::{MemoryAccess, shortest};
use crate::cpu::{Arch, mul_add};
use crate::parallel::{map, threads};
use crate::{HostMemory, HostMemoryError};
use pulp::{Simd, WithSimd};
use rewire_graph_rewrite::cost::HardwareModel;
use std::hint::black_box;
use std::time::Duration;
use web_time::Instant;

/// Floats of an array that caches do not hold, and its bytes.
const FLOATS: usize = 32 << 20;
const BYTES: u64 = FLOATS as u64 * FLOAT;
const FLOAT: u64 = size_of::<f32>() as u64;
/// Name of the measurement in memory errors.
const COPIED: &str = "measuring how fast memory is copied";
/// Rounds of multiply-adds per measurement, enough to make synchronization of threads negligible.
const ROUNDS: u32 = 1 << 17;
/// Independent chains of multiply-adds, enough for two units with a latency of four cycles.
const CHAINS: usize = 12;

pub(super) fn measure() -> Result<HardwareModel, HostMemoryError> {
    // A task for each thread.
    let on_each = |work: fn() -> f64| map(vec![(); threads()], |()| black_box(work())).into_iter().sum::<f64>();
    let multiply_adds = || Arch::chosen().dispatch(MultiplyAdds);
    let mut operations = 0.0;
    let computed = seconds(|| operations = on_each(multiply_adds));
    let launch = seconds(|| {
        on_each(|| 0.0);
    });
    let bandwidth = measure_memory(MemoryAccess::Copy { bytes: u64::MAX })?;
    Ok(HardwareModel { bandwidth, multiply_add: operations / computed, matrix: None, launch })
}

/// Each thread has one part, so that large copies bypass caches where that is faster.
pub(super) fn measure_memory(access: MemoryAccess) -> Result<f64, HostMemoryError> {
    match access {
        MemoryAccess::Copy { bytes } => {
            let floats = usize::try_from(bytes / (2 * FLOAT)).map_or(FLOATS, |floats| floats.clamp(1, FLOATS));
            HostMemory::check(COPIED, 2 * floats as u64 * FLOAT)?;
            let (from, mut to, repeats) = (array(floats, 1.0)?, array(floats, 0.0)?, FLOATS / floats);
            let copied = seconds(|| {
                map(to.chunks_mut(part(floats)).zip(from.chunks(part(floats))).collect(), |(to, from)| {
                    (0..repeats).for_each(|_| black_box(&mut *to).copy_from_slice(black_box(from)));
                });
            });
            Ok((repeats * floats) as f64 * (2 * FLOAT) as f64 / copied)
        }
        MemoryAccess::Read => {
            let from = array(FLOATS, 1.0)?;
            let parts = || from.chunks(part(FLOATS)).collect();
            let read = seconds(|| {
                black_box(map(parts(), |part: &[f32]| part.iter().fold(0, |all, float| all ^ float.to_bits())));
            });
            Ok(BYTES as f64 / read)
        }
        MemoryAccess::Write => {
            let mut to = array(FLOATS, 1.0)?;
            let written = seconds(|| {
                map(to.chunks_mut(part(FLOATS)).collect(), |part: &mut [f32]| black_box(part).fill(black_box(0.0)));
            });
            Ok(BYTES as f64 / written)
        }
    }
}

/// Floats of each thread.
fn part(floats: usize) -> usize {
    floats.div_ceil(threads())
}

fn array(floats: usize, value: f32) -> Result<Vec<f32>, HostMemoryError> {
    let needed = floats as u64 * FLOAT;
    HostMemory::check(COPIED, needed)?;
    let mut array = vec![];
    let no_room = |_| HostMemoryError { what: COPIED.to_owned(), needed, available: HostMemory::now().left() };
    array.try_reserve_exact(floats).map_err(no_room)?;
    array.resize(floats, value);
    Ok(array)
}

fn seconds(mut work: impl FnMut()) -> f64 {
    let run = |count| {
        let begun = Instant::now();
        (0..count).for_each(|_| work());
        Ok::<Duration, crate::GpuError>(begun.elapsed())
    };
    shortest(run).unwrap_or(f64::INFINITY)
}

/// Multiply-adds in registers; returns the number of operations.
struct MultiplyAdds;

impl WithSimd for MultiplyAdds {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let factor = simd.splat_f32s(black_box(0.5));
        let mut chains = [simd.splat_f32s(black_box(1.0)); CHAINS];
        for _ in 0..ROUNDS {
            for chain in &mut chains {
                *chain = mul_add(simd, *chain, factor, factor);
            }
        }
        black_box(chains);
        f64::from(ROUNDS) * (CHAINS * S::F32_LANES * 2) as f64
    }
}
