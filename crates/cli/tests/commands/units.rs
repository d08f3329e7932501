//! Units of time are counted with the reference's rounding on every kernel.

use rewire::hstu::ops::rounded_units;
use rewire::prelude::*;
use rewire::runtime::{Inputs, Model, ModelOptions};
use rewire::{Gpu, Kernel, lower, optimize};

const UNITS: [i64; 12] = [1, 2, 5, 7, 60, 97, 128, 300, 600, 3600, 86_400, 604_800];

/// `torch.div` of F32 with `rounding_mode="floor"`.
fn reference(seconds: f32, unit: f32) -> f32 {
    let quotient = (seconds - seconds % unit) / unit;
    let whole = quotient.floor();
    if quotient - whole > 0.5 { whole + 1.0 } else { whole }
}

fn check(options: ModelOptions) -> Result<(), Box<dyn std::error::Error>> {
    let mut state = 1u64;
    let mut seconds: Vec<f32> = vec![0.0, 1.0, 59.5, 3599.0, 3600.0, 16_777_216.0, 1_652_283_904.0];
    for _ in 0..20_000 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seconds.push((state >> 33) as f32 / (1 << (state >> 24 & 7)) as f32);
    }
    let scope = Scope::new();
    let times = scope.input("times", DType::F32, [scope.size("times")]).cast(DType::I64);
    let named = UNITS.map(|unit| (unit.to_string(), rounded_units(&times, unit)));
    let outputs: Vec<(&str, Tensor)> = named.iter().map(|(name, units)| (name.as_str(), units.clone())).collect();
    let plan = lower(&optimize(scope.finish(&outputs)?)?.0)?;
    let mut session = Model::load(plan, (), options)?.session();
    let found = session.run(&Inputs::new().with("times", HostTensor::vector(&seconds)))?;
    let mut inexact = 0;
    for unit in UNITS {
        let units = found.get(&unit.to_string()).ok_or("no units")?.to_i64();
        for (&seconds, units) in seconds.iter().zip(units) {
            assert_eq!(units as f32, reference(seconds, unit as f32), "{seconds} in {unit}");
            inexact += usize::from(units != seconds as i64 / unit);
        }
    }
    assert!(inexact > 1000);
    Ok(())
}

#[test]
fn units_of_time_are_rounded_as_by_the_reference() -> Result<(), Box<dyn std::error::Error>> {
    check(ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() })?;
    let Ok(gpu) = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")) else { return Ok(()) };
    check(ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..ModelOptions::default() })
}
