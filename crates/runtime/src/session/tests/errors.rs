//! Errors for invalid inputs and devices; the session stays usable.

use super::*;
use crate::wgpu;

fn device_tensor(gpu: &Gpu, usage: wgpu::BufferUsages, bytes: u64, shape: Vec<usize>) -> DeviceTensor {
    let descriptor = wgpu::BufferDescriptor { label: None, size: bytes, usage, mapped_at_creation: false };
    DeviceTensor::new(gpu.device().create_buffer(&descriptor), DType::F32, shape)
}

#[test]
fn device_tensors_that_do_not_fit() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(sums(&[(0, 1)], &[2]), Kernel::Wgpu).unwrap();
    let mut run = |tensor: DeviceTensor| {
        let mut inputs = Inputs::new().with("y", self::tensor(2, 2));
        inputs.insert_device("x", tensor);
        session.run(&inputs).map(drop)
    };
    let storage = wgpu::BufferUsages::STORAGE;
    let bytes = 2 * 8 * 4;
    let usage = run(device_tensor(&gpu, wgpu::BufferUsages::COPY_SRC, bytes, vec![2, WIDTH])).unwrap_err();
    assert_eq!(usage.to_string(), "input `x`: its buffer lacks STORAGE usage");
    let small = run(device_tensor(&gpu, storage, bytes - 4, vec![2, WIDTH])).unwrap_err();
    assert_eq!(small.to_string(), "input `x`: its buffer has 60 bytes, expected 64");
    let shape = run(device_tensor(&gpu, storage, bytes, vec![2, WIDTH - 1])).unwrap_err();
    assert!(matches!(shape, RunError::InputShape { ref name, .. } if name == "x"), "{shape}");
    let mut f16 = device_tensor(&gpu, storage, bytes, vec![2, WIDTH]);
    f16.dtype = DType::F16;
    assert_eq!(run(f16).unwrap_err().to_string(), "input `x`: expected f32, got f16");
    assert_eq!(run(device_tensor(&gpu, storage, bytes, vec![2, WIDTH])), Ok(()));
}

#[test]
fn sizes_cannot_lie_on_the_device() {
    let Some(gpu) = gpu() else { return };
    let mut session = Model::load(samples(), (), options(Kernel::Wgpu)).unwrap().session();
    let mut tensor = device_tensor(&gpu, wgpu::BufferUsages::STORAGE, 64, vec![4]);
    let mut inputs = Inputs::new();
    tensor.dtype = DType::I64;
    inputs.insert_device("lengths", tensor);
    let error = session.run(&inputs).unwrap_err();
    assert!(matches!(&error, RunError::InputPlace { name, .. } if name == "lengths"), "{error}");
    inputs = Inputs::new().with("lengths", HostTensor::lengths(&[1]));
    inputs.keep_on_device("offsets");
    let error = session.run(&inputs).unwrap_err();
    assert_eq!(error.to_string(), "input `offsets`: it is computed on the host");
}

/// `out[row] = x[row]` for words.
fn copy_of(dtype: DType) -> Plan {
    let shape = vec![rows()];
    let mut dag = Dag::new();
    let row = dag.coord(0, None);
    let value = dag.load(0, dtype, vec![row]);
    let operand = Operand { dtype, shape: shape.clone(), space: MemorySpace::Device };
    let output = Output { target: 0, dtype, shape: shape.clone(), index: vec![row], value, columns: None };
    let body = Body { dag, operands: vec![operand], sizes: vec![] };
    let computation = plan::Computation::of(Nest::map(body, shape.clone(), vec![output])).unwrap();
    let buffer = |source| Buffer { dtype, shape: shape.clone(), source };
    Plan {
        load: vec![],
        buffers: vec![buffer(Source::Input("x".into())), buffer(Source::Step)],
        steps: vec![Step {
            name: "copy".into(),
            path: String::new(),
            computation,
            reads: vec![Binding::Buffer(BufferId(0))],
            writes: vec![BufferId(1)],
        }],
        outputs: vec![PlanOutput { name: "out".into(), value: Binding::Buffer(BufferId(1)), dtype, shape }],
        shapes: sums(&[], &[]).shapes,
        host_inputs: vec![],
        ..Plan::default()
    }
}

#[test]
fn words_beyond_their_type_are_named() {
    for (dtype, limit) in [(DType::Bool, 1), (DType::U32, i32::MAX as u32)] {
        for kernel in std::iter::once(Kernel::Cpu).chain(gpu().map(|_| Kernel::Wgpu)) {
            let mut session = Model::load(copy_of(dtype), (), options(kernel)).unwrap().session();
            let mut run = |words: [u32; 3]| {
                let bytes = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                let x = HostTensor::from_bytes(dtype, vec![3], bytes).unwrap();
                session.run(&Inputs::new().with("x", x))
            };
            let error = run([0, 1, limit + 1]).unwrap_err();
            let value = i64::from(limit) + 1;
            assert_eq!(error.to_string(), format!("input `x`: expected 0 to {limit}, got {value} at element 2"));
            assert_eq!(run([0, 1, limit]).unwrap().get("out").unwrap().to_i64(), [0, 1, i64::from(limit)]);
        }
    }
}

#[test]
fn a_tensor_beyond_a_buffer_names_the_limit() {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle_from_env());
    let Ok(adapter) = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) else {
        return;
    };
    let bytes = 1 << 16;
    let required_limits =
        wgpu::Limits { max_buffer_size: bytes, max_storage_buffer_binding_size: bytes, ..wgpu::Limits::default() };
    let request = wgpu::DeviceDescriptor { required_limits, ..Default::default() };
    let (device, queue) = pollster::block_on(adapter.request_device(&request)).unwrap();
    let options = ModelOptions { gpu: Some(Gpu::from_device(device, queue)), ..options(Kernel::Wgpu) };
    let mut session = load_with(sums(&[(0, 1)], &[2]), options, &emit_add).unwrap();
    let error = session.run(&inputs(2049)).unwrap_err();
    let refused = GpuError::TooLarge {
        what: "`x` of shape [2049, 6]".into(),
        bytes: 2049 * 32,
        limit: bytes,
        name: "max_buffer_size",
        way_out: "run fewer rows at once, or use kernel cpu",
    };
    assert_eq!(error, RunError::Gpu(refused));
    assert_eq!(session.run(&inputs(2)).unwrap().get("t2").unwrap().to_f32(), expected(&[(0, 1)], 2)[2]);
}

#[test]
fn infinities_pass_through_and_do_not_spread() {
    for mut session in sessions(&sums(&[(0, 1)], &[2])) {
        let mut x = tensor(3, 1).to_f32();
        (x[1], x[8]) = (f32::INFINITY, f32::NAN);
        let mut expected: Vec<f32> = x.iter().zip(tensor(3, 2).to_f32()).map(|(x, y)| x + y).collect();
        let result = session.run(&inputs(3).with("x", HostTensor::f32(vec![3, WIDTH], &x).unwrap())).unwrap();
        let mut got = result.get("t2").unwrap().to_f32();
        assert!(got[1] == f32::INFINITY && got[8].is_nan(), "{got:?}");
        (got[8], expected[8]) = (0.0, 0.0);
        assert_eq!(got, expected);
    }
}
