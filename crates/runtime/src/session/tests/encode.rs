//! Runs in the app's encoder.

use super::*;

const STEPS: &[(u32, u32)] = &[(0, 1), (2, 0), (3, 1)];

fn encoder(gpu: &Gpu) -> wgpu::CommandEncoder {
    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default())
}

fn check(session: &Session, outputs: &Outputs, rows: usize) {
    let expected = expected(STEPS, rows);
    for id in [3, 4] {
        let name = format!("t{id}");
        let Some(RunValue::Device(tensor)) = outputs.value(&name) else { panic!("{name} is not on the device") };
        assert_eq!(
            block_on(session.read_async(tensor)).unwrap().to_f32(),
            expected[id as usize],
            "{name} of {rows} rows"
        );
    }
}

fn ran(session: &mut Session, rows: usize) {
    let outputs = session.run(&inputs(rows)).unwrap();
    assert_eq!(outputs.get("t4").unwrap().to_f32(), expected(STEPS, rows)[4], "{rows} rows");
}

#[test]
fn encoded_runs_compute_what_others_compute() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(sums(STEPS, &[3, 4]), Kernel::Wgpu).unwrap();
    for rows in [5, 5, 0, 600, 3] {
        let mut encoder = encoder(&gpu);
        let outputs = session.encode(&mut encoder, &inputs(rows)).unwrap();
        gpu.queue().submit([encoder.finish()]);
        check(&session, &outputs, rows);
    }
}

#[test]
fn runs_between_recording_and_submission_disturb_nothing() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(sums(STEPS, &[3, 4]), Kernel::Wgpu).unwrap();
    ran(&mut session, 7);
    let mut both = encoder(&gpu);
    let first = session.encode(&mut both, &inputs(40)).unwrap();
    let second = session.encode(&mut both, &inputs(9)).unwrap();
    let mut dropped = encoder(&gpu);
    drop(session.encode(&mut dropped, &inputs(300)).unwrap());
    drop(dropped);
    for rows in [300, 9, 7, 7] {
        ran(&mut session, rows);
    }
    gpu.queue().submit([both.finish()]);
    ran(&mut session, 7);
    check(&session, &first, 40);
    check(&session, &second, 9);
}

#[test]
fn results_of_one_run_are_inputs_of_the_next_in_one_encoder() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(sums(STEPS, &[3, 4]), Kernel::Wgpu).unwrap();
    let mut encoder = encoder(&gpu);
    let first = session.encode(&mut encoder, &inputs(12)).unwrap();
    let Some(RunValue::Device(tensor)) = first.value("t4") else { panic!("not on the device") };
    let mut next = Inputs::new().with("y", tensor_of_zeros(12));
    next.insert_device("x", tensor.clone());
    let second = session.encode(&mut encoder, &next).unwrap();
    gpu.queue().submit([encoder.finish()]);
    let Some(RunValue::Device(tensor)) = second.value("t3") else { panic!("not on the device") };
    let doubled: Vec<f32> = expected(STEPS, 12)[4].iter().map(|value| value * 2.0).collect();
    assert_eq!(block_on(session.read_async(tensor)).unwrap().to_f32(), doubled);
}

fn tensor_of_zeros(rows: usize) -> HostTensor {
    HostTensor::zeros(DType::F32, vec![rows, WIDTH]).unwrap()
}

#[test]
fn what_runs_on_the_cpu_is_not_recorded() {
    let Some(gpu) = gpu() else { return };
    for mut session in sessions(&sums(STEPS, &[3, 4])) {
        let on_cpu = session.report().cpu_steps > 0;
        let result = session.encode(&mut encoder(&gpu), &inputs(3));
        assert_eq!(result.is_err(), on_cpu, "{result:?}");
    }
}
