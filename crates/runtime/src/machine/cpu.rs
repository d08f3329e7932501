use super::shortest;
use crate::cpu::{Arch, mul_add};
use crate::parallel::{map, threads};
use crate::{HostMemory, HostMemoryError};
use pulp::{Simd, WithSimd};
use rewire_graph_rewrite::cost::HardwareModel;
use std::hint::black_box;
use std::time::Duration;
use web_time::Instant;

/// Floats in the arrays that are copied, more than caches hold.
const FLOATS: usize = 32 << 20;
const BYTES: u64 = (FLOATS * size_of::<f32>()) as u64;
/// Name of the measurement in memory errors.
const COPIED: &str = "measuring how fast memory is copied";
/// Floats that a task copies.
const PART: usize = 64 << 10;
/// Rounds of multiply-adds per measurement, enough to make synchronization of threads negligible.
const ROUNDS: u32 = 1 << 17;
/// Independent chains of multiply-adds, enough for two units with a latency of four cycles.
const CHAINS: usize = 12;

pub(super) fn measure() -> Result<HardwareModel, HostMemoryError> {
    HostMemory::check(COPIED, 2 * BYTES)?;
    let (from, mut to) = (floats(1.0)?, floats(0.0)?);
    // A task for each thread.
    let on_each = |work: fn() -> f64| map(vec![(); threads()], |()| black_box(work())).into_iter().sum::<f64>();
    let multiply_adds = || Arch::chosen().dispatch(MultiplyAdds);
    let copied = seconds(|| {
        map(to.chunks_mut(PART).zip(from.chunks(PART)).collect(), |(to, from)| to.copy_from_slice(from));
        black_box(to.as_slice());
    });
    let mut operations = 0.0;
    let computed = seconds(|| operations = on_each(multiply_adds));
    let launch = seconds(|| {
        on_each(|| 0.0);
    });
    Ok(HardwareModel {
        bandwidth: 2.0 * size_of_val(from.as_slice()) as f64 / copied,
        multiply_add: operations / computed,
        matrix: None,
        launch,
    })
}

fn floats(value: f32) -> Result<Vec<f32>, HostMemoryError> {
    let mut floats = vec![];
    let no_room = |_| HostMemoryError { what: COPIED.to_owned(), needed: BYTES, available: HostMemory::now().left() };
    floats.try_reserve_exact(FLOATS).map_err(no_room)?;
    floats.resize(FLOATS, value);
    Ok(floats)
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
