//! A device that is lost at every stage, and refused buffers.

use super::*;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const STEPS: &[(u32, u32)] = &[(0, 1), (2, 1), (3, 2)];

/// A device opened by an app, without notification of its loss.
fn guest() -> Option<Gpu> {
    let gpu = Gpu::open(None).ok()?;
    Some(Gpu::from_device(gpu.device().clone(), gpu.queue().clone()))
}

fn plan() -> Plan {
    sums(STEPS, &[3, 4])
}

fn session(gpu: &Gpu, kernel: Kernel) -> Result<Session, RuntimeError> {
    load_with(plan(), ModelOptions { kernel, gpu: Some(gpu.clone()), ..ModelOptions::default() }, &emit_add)
}

fn check(outputs: &Outputs, rows: usize) {
    let expected = expected(STEPS, rows);
    for (name, position) in [("t3", 3), ("t4", 4)] {
        assert_eq!(outputs.get(name).unwrap().to_f32(), expected[position], "{name} of {rows} rows");
    }
}

fn kept(rows: usize) -> Inputs {
    let mut inputs = inputs(rows);
    ["t3", "t4"].into_iter().for_each(|name| inputs.keep_on_device(name));
    inputs
}

fn is_lost(error: &RunError) -> bool {
    matches!(error, RunError::Gpu(GpuError::Lost { .. }))
}

#[test]
fn the_loss_of_an_apps_device_is_noticed() {
    for told in [false, true] {
        let Some(gpu) = guest() else { return };
        let mut session = session(&gpu, Kernel::Wgpu).unwrap();
        session.run(&kept(5)).unwrap();
        let tensor = session.upload(&tensor(5, 1)).unwrap();
        let heard = Arc::new(Mutex::new(vec![]));
        let listener = |heard: &Arc<Mutex<Vec<String>>>| {
            let heard = heard.clone();
            move |reason: &str| heard.lock().unwrap().push(reason.to_owned())
        };
        gpu.on_loss(listener(&heard));
        match told {
            true => gpu.report_loss("lost by the app"),
            false => gpu.device().destroy(),
        }
        for _ in 0..2 {
            let error = session.run(&kept(5)).unwrap_err();
            assert!(is_lost(&error) && (!told || error.to_string().ends_with("lost by the app")), "{error}");
            assert!(!session.is_retryable(&error));
        }
        gpu.clone().on_loss(listener(&heard));
        let heard = heard.lock().unwrap();
        assert!(heard.len() == 2 && heard[0] == heard[1] && (!told || heard[0] == "lost by the app"), "{heard:?}");
        assert!(is_lost(&block_on(session.read_async(&tensor)).unwrap_err()));
        assert!(is_lost(&session.upload(&self::tensor(2, 1)).unwrap_err()));
        assert!(matches!(gpu.wait(), Err(GpuError::Lost { .. })));
        assert!(matches!(self::session(&gpu, Kernel::Wgpu), Err(RuntimeError::Gpu(GpuError::Lost { .. }))));
    }
}

#[test]
fn an_app_submits_by_itself() {
    let Some(gpu) = guest() else { return };
    let count = Arc::new(AtomicUsize::new(0));
    let own = count.clone();
    let gpu = gpu.with_submit(move |queue, commands| {
        own.fetch_add(commands.len(), Ordering::Relaxed);
        queue.submit(commands)
    });
    let mut session = session(&gpu, Kernel::Wgpu).unwrap();
    for runs in 1..4 {
        check(&session.run(&inputs(5)).unwrap(), 5);
        assert_eq!(count.load(Ordering::Relaxed), runs);
    }
}

#[test]
fn a_device_that_many_look_at_is_not_lost() {
    let Some(gpu) = guest() else { return };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| assert_eq!(gpu.wait(), Ok(()))));
        }
    });
}

#[test]
fn a_loss_at_any_stage_of_a_run_is_an_error() {
    for stage in 0.. {
        let Some(gpu) = guest() else { return };
        let mut session = session(&gpu, Kernel::Wgpu).unwrap();
        session.run(&kept(3)).unwrap();
        gpu.faults.stages.set(stage);
        let result = session.run(&kept(300));
        if gpu.faults.stages.runs() && stage > 20 {
            break;
        }
        match result {
            Err(error) => assert!(is_lost(&error), "stage {stage}: {error}"),
            Ok(_) => assert!(stage > 3, "stage {stage}"),
        }
    }
}

#[test]
fn auto_goes_on_after_a_loss_at_any_stage() {
    let mut places = BTreeSet::new();
    for stage in 0..40 {
        let Some(gpu) = guest() else { return };
        gpu.faults.stages.set(stage);
        let mut session = session(&gpu, Kernel::Auto).unwrap();
        for rows in [3, 300, 3] {
            check(&session.run(&inputs(rows)).unwrap(), rows);
        }
        places.insert(session.report().adapter.is_some());
    }
    assert!(places.contains(&false));
}

#[test]
fn a_model_opens_its_own_device_anew() {
    let Some(gpu) = guest() else { return };
    // As if the model had opened the device itself.
    let options = ModelOptions { kernel: Kernel::Wgpu, ..ModelOptions::default() };
    let mut session = block_on(Model::load_with(plan(), Some(gpu), (), options, &emit_add)).unwrap().session();
    check(&session.run(&inputs(7)).unwrap(), 7);
    for rows in [7, 200] {
        session.gpu.as_ref().unwrap().gpu().device().destroy();
        check(&session.run(&inputs(rows)).unwrap(), rows);
        assert_eq!((session.report().gpu_steps, session.report().cpu_steps), (STEPS.len(), 0));
    }
    let outputs = session.run(&kept(9)).unwrap();
    assert!(outputs.iter().all(|(_, value)| matches!(value, RunValue::Device(_))));
}

#[test]
fn tensors_on_a_lost_device_are_gone_and_the_next_run_goes_on() {
    let Some(gpu) = guest() else { return };
    let mut session = session(&gpu, Kernel::Auto).unwrap();
    let mut held = inputs(4);
    held.insert_device("x", session.upload(&tensor(4, 1)).unwrap());
    check(&session.run(&held).unwrap(), 4);
    gpu.device().destroy();
    let lost = session.run(&held).unwrap_err();
    assert!(is_lost(&lost) && session.is_retryable(&lost));
    check(&session.run(&inputs(4)).unwrap(), 4);
    assert_eq!(session.report().adapter, None);
    let place = session.run(&held).unwrap_err();
    assert!(matches!(place, RunError::InputPlace { .. }) && !session.is_retryable(&place));
}

#[test]
fn a_refused_buffer_is_an_error_and_the_next_run_is_right() {
    let Some(gpu) = guest() else { return };
    let mut clean = session(&gpu, Kernel::Wgpu).unwrap();
    clean.run(&inputs(300)).unwrap();
    for number in 0.. {
        let mut session = session(&gpu, Kernel::Wgpu).unwrap();
        gpu.faults.buffers.set(number);
        let result = session.run(&inputs(300));
        if gpu.faults.buffers.runs() {
            gpu.faults.buffers.set(usize::MAX);
            assert!(number > 3);
            check(&result.unwrap(), 300);
            break;
        }
        let error = result.unwrap_err();
        assert!(matches!(error, RunError::Gpu(GpuError::Rejected { .. })), "buffer {number}: {error}");
        for rows in [300, 2, 300] {
            check(&session.run(&inputs(rows)).unwrap(), rows);
        }
        assert_eq!(session.report(), clean.report(), "after buffer {number}");
    }
}

#[test]
fn a_refused_buffer_while_loading_is_an_error() {
    let Some(gpu) = guest() else { return };
    let weight = HostTensor::f32(vec![21, 10], &[0.5; 210]).unwrap();
    let load = || {
        let options = ModelOptions { kernel: Kernel::Wgpu, gpu: Some(gpu.clone()), ..ModelOptions::default() };
        Model::load(product(), |_: &str| Some(weight.clone()), options)
    };
    gpu.faults.buffers.set(0);
    assert!(matches!(load(), Err(RuntimeError::Gpu(GpuError::Rejected { .. }))));
    assert!(!gpu.faults.buffers.runs());
    load().unwrap();
}
