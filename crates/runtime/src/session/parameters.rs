use super::cpu::CpuSide;
use super::placement::Homes;
use super::sizes::Sizes;
use crate::RuntimeError;
use crate::cpu::CpuError;
use crate::memory::Layout;
use rewire_graph::HostTensor;
use rewire_graph_rewrite::plan::{Binding, Buffer, BufferId, Plan, Source};

/// What stays in memory from run to run, by buffer: parameters and constants, checked and in their storage type, and what
/// the plan computes from them.
pub(crate) fn resident(
    plan: &Plan,
    parameters: impl Fn(&str) -> Option<HostTensor>,
) -> Result<Vec<Option<HostTensor>>, RuntimeError> {
    let mut tensors = bound(plan, parameters)?;
    compute(plan, &mut tensors)?;
    Ok(tensors)
}

/// Runs the steps of [`Plan::load`] on the CPU.
fn compute(plan: &Plan, tensors: &mut [Option<HostTensor>]) -> Result<(), RuntimeError> {
    if plan.load.is_empty() {
        return Ok(());
    }
    let memory = |error: CpuError| RuntimeError::Memory { reason: error.to_string() };
    let mut cpu = CpuSide::new(plan.load.len());
    cpu.settle(homes(plan), tensors).map_err(memory)?;
    let layouts = plan.buffers.iter().map(|buffer| {
        let shape = buffer.shape.iter().map(|dim| dim.as_const().unwrap_or(0)).collect();
        Layout::new(buffer.dtype, shape)
    });
    let sizes = Sizes::fixed(layouts.collect());
    for (position, step) in plan.load.iter().enumerate() {
        let failed = |error: CpuError| RuntimeError::Load {
            step: position,
            name: step.name.clone(),
            path: step.path.clone(),
            reason: error.to_string(),
        };
        cpu.add(position, step).map_err(failed)?;
        cpu.run_step(position, step, &sizes).map_err(failed)?;
    }
    for (n, (buffer, tensor)) in plan.buffers.iter().zip(tensors).enumerate() {
        if buffer.source == Source::Load {
            *tensor = cpu.get(BufferId(n as u32)).map_err(memory)?;
        }
    }
    Ok(())
}

/// A slot for everything that is computed.
fn homes(plan: &Plan) -> Homes {
    let computed = plan.buffers.iter().scan(0, |slots, buffer| {
        let slot = (buffer.source == Source::Load).then_some(*slots);
        *slots += usize::from(slot.is_some());
        Some(slot)
    });
    let slot: Vec<Option<usize>> = computed.collect();
    let mut resident = vec![false; plan.buffers.len()];
    for binding in plan.load.iter().flat_map(|step| &step.reads) {
        if let Binding::Buffer(id) = binding
            && let Some(resident) = resident.get_mut(id.0 as usize)
        {
            *resident = slot[id.0 as usize].is_none();
        }
    }
    Homes { slots: slot.iter().flatten().count(), slot, resident }
}

/// The parameters and constants of a plan by buffer.
fn bound(
    plan: &Plan,
    parameters: impl Fn(&str) -> Option<HostTensor>,
) -> Result<Vec<Option<HostTensor>>, RuntimeError> {
    plan.buffers
        .iter()
        .map(|buffer| match &buffer.source {
            Source::Parameter(name) => parameter(name, buffer, parameters(name)).map(Some),
            Source::Constant(bytes) => {
                let shape = constant_shape(buffer, "a constant")?;
                HostTensor::from_bytes(buffer.dtype, shape, bytes.clone())
                    .map(Some)
                    .map_err(|error| RuntimeError::Plan { reason: format!("a constant does not fit: {error}") })
            }
            Source::Input(_) | Source::Load | Source::Step => Ok(None),
        })
        .collect()
}

fn constant_shape(buffer: &Buffer, what: &str) -> Result<Vec<usize>, RuntimeError> {
    let shape: Option<Vec<usize>> = buffer.shape.iter().map(|dim| dim.as_const()).collect();
    shape.ok_or_else(|| RuntimeError::Plan { reason: format!("the shape of {what} depends on inputs") })
}

fn parameter(name: &str, buffer: &Buffer, given: Option<HostTensor>) -> Result<HostTensor, RuntimeError> {
    let name = || name.to_owned();
    let expected = constant_shape(buffer, &format!("parameter `{}`", name()))?;
    let dtype = buffer.dtype;
    let Some(tensor) = given else {
        return Err(RuntimeError::MissingParameter { name: name(), dtype, shape: expected });
    };
    if tensor.shape() != expected {
        return Err(RuntimeError::ParameterShape { name: name(), expected, actual: tensor.shape().to_vec() });
    }
    let tensor = tensor.stored_as(dtype).map_err(|actual| RuntimeError::ParameterType {
        name: name(),
        expected: dtype,
        actual,
    })?;
    match tensor.first_non_finite() {
        Some((element, value)) => {
            Err(RuntimeError::ParameterValue { name: name(), element, value: value as f32, dtype })
        }
        None => Ok(tensor),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire_graph::DType;

    fn plan(dtype: DType) -> Plan {
        let buffer = Buffer { dtype, shape: vec![2.into()], source: Source::Parameter("w".into()) };
        Plan { buffers: vec![buffer], ..Plan::default() }
    }

    #[test]
    fn halves_and_floats_convert() {
        let given = HostTensor::f32(vec![2], &[1.5, -2.0]).unwrap();
        let loaded = resident(&plan(DType::F16), |_| Some(given.clone())).unwrap();
        assert_eq!(loaded[0].as_ref().map(HostTensor::to_f32), Some(vec![1.5, -2.0]));
    }

    #[test]
    fn every_defect_is_named() {
        let load = |dtype, tensor: Option<HostTensor>| resident(&plan(dtype), move |_| tensor.clone()).unwrap_err();
        let f32s = |values: &[f32]| Some(HostTensor::f32(vec![values.len()], values).unwrap());
        assert!(matches!(load(DType::F32, None), RuntimeError::MissingParameter { name, .. } if name == "w"));
        assert!(matches!(load(DType::F32, f32s(&[1.0; 3])), RuntimeError::ParameterShape { .. }));
        assert!(matches!(load(DType::I64, f32s(&[1.0; 2])), RuntimeError::ParameterType { .. }));
        let nan = load(DType::F32, f32s(&[1.0, f32::NAN]));
        assert!(matches!(nan, RuntimeError::ParameterValue { element: 1, .. }), "{nan}");
        assert!(matches!(load(DType::F16, f32s(&[1e6, 0.0])), RuntimeError::ParameterValue { element: 0, .. }));
    }
}
