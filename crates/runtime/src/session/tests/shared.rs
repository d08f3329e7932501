//! Sessions of one model on several threads.

use super::matmul::product;
use super::*;
use crate::{Detail, Lane, Report, ThreadPool, ThreadPoolOptions};
use rewire_graph::Scope;
use rewire_graph_rewrite::{lower, optimize};
use std::pin::pin;
use std::sync::Barrier;
use std::task::{Context, Poll, Waker};

const STEPS: &[(u32, u32)] = &[(0, 1), (2, 0), (3, 1), (4, 2)];

fn check(session: &mut Session, rows: usize) {
    let outputs = session.run(&inputs(rows)).unwrap();
    let expected = expected(STEPS, rows);
    for id in [3, 5] {
        assert_eq!(outputs.get(&format!("t{id}")).unwrap().to_f32(), expected[id as usize], "t{id} of {rows} rows");
    }
}

fn shares<T: Send + Sync>(_: &T) {}

#[test]
fn threads_run_one_model_at_different_sizes() {
    for session in sessions(&sums(STEPS, &[3, 5])) {
        let model = session.model();
        shares(model);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let mut session = model.session();
                    (0..30).for_each(|run| check(&mut session, (thread * 37 + run * 11) % 130));
                });
            }
        });
    }
}

/// Sums of the inputs, sums of those, and so on.
const WAVES: &[(u32, u32)] =
    &[(0, 1), (1, 1), (0, 0), (1, 0), (0, 1), (1, 1), (2, 3), (4, 5), (6, 7), (8, 9), (10, 11)];

#[test]
fn steps_side_by_side_are_as_one_after_the_other() {
    let plan = sums(WAVES, &[8, 12]);
    let model = Model::load(plan, (), options(Kernel::Cpu)).unwrap();
    let mut session = model.session();
    for rows in (0..200).map(|run| run * 7 % 90) {
        let outputs = session.run(&inputs(rows)).unwrap();
        let expected = expected(WAVES, rows);
        for id in [8, 12] {
            assert_eq!(outputs.get(&format!("t{id}")).unwrap().to_f32(), expected[id as usize], "t{id} of {rows} rows");
        }
        for detail in [Detail::Steps, Detail::Passes] {
            let (timed, profile) = session.run_timed(&inputs(rows), detail).unwrap();
            let steps = profile.spans.iter().filter(|span| span.lane == Lane::Cpu);
            let times = steps.map(|span| (span.start + span.duration, span.duration)).collect::<Vec<_>>();
            assert!(timed == outputs && times.len() == WAVES.len() && times.is_sorted_by_key(|time| time.0));
            assert!(profile.cpu <= times.iter().map(|time| time.1).sum());
        }
    }
}

fn weight() -> HostTensor {
    HostTensor::f32(vec![21, 10], &(0..210).map(|n| (n % 17) as f32 - 8.3).collect::<Vec<_>>()).unwrap()
}

fn x(rows: usize) -> Inputs {
    let values: Vec<f32> = (0..rows * 21).map(|n| (n % 23) as f32 / 7.0).collect();
    Inputs::new().with("x", HostTensor::f32(vec![rows, 21], &values).unwrap())
}

#[test]
fn parameters_are_there_once() {
    let mut kernels = vec![Kernel::Cpu];
    kernels.extend(gpu().map(|_| Kernel::Wgpu));
    for kernel in kernels {
        let model = Model::load(product(), |_: &str| Some(weight()), options(kernel)).unwrap();
        let alone = model.report();
        // The last dimension is padded to a multiple of four, and memory of the host to whole cache lines.
        let bytes = alone.device_bytes + alone.host_bytes;
        assert_eq!(bytes.next_multiple_of(64), 1024);
        let [mut first, mut second] = [model.session(), model.session()];
        assert_eq!(first.report(), alone);
        let outputs = [first.run(&x(5)).unwrap(), second.run(&x(5)).unwrap()];
        assert_eq!(outputs[0], outputs[1]);
        let Report { packed_bytes, scratch_bytes, .. } = model.report();
        assert_eq!(model.report(), Report { packed_bytes, scratch_bytes, ..alone.clone() });
        assert_eq!(kernel == Kernel::Cpu, packed_bytes + scratch_bytes > 0);
        let (held, other) = (first.report(), second.report());
        assert!(held == other && held.device_bytes + held.host_bytes > alone.device_bytes + alone.host_bytes);
        first.trim();
        assert_eq!(first.report(), alone);
        drop(model);
        assert_eq!(first.run(&x(5)).unwrap(), outputs[1]);
    }
}

#[test]
fn updates_hold_no_lock_while_they_wait() {
    let model = Model::load(product(), |_: &str| Some(weight()), options(Kernel::Cpu)).unwrap();
    let nested = model.clone();
    // The source of an update's tensors may update the model itself, as may a future that its thread polls next.
    let parameters = std::iter::once_with(|| {
        nested.update([("w", weight())]).unwrap();
        ("w", weight())
    });
    model.update(parameters).unwrap();
    let mut turn = pin!(model.turn());
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(turn.as_mut().poll(&mut context), Poll::Ready(None)), "a future takes no turn");
    let mut session = model.session();
    session.run(&x(1)).unwrap();
    assert_eq!(session.updates(), 2);
}

#[test]
fn no_update_is_lost() {
    let model = Model::load(product(), |_: &str| Some(weight()), options(Kernel::Cpu)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let model = &model;
            scope.spawn(move || {
                for _ in 0..20 {
                    match thread % 2 {
                        0 => model.update([("w", weight())]).unwrap(),
                        // Polled by another executor than `block_on`.
                        _ => pollster::block_on(model.update_async([("w", weight())])).unwrap(),
                    }
                }
            });
        }
    });
    let mut session = model.session();
    session.run(&x(1)).unwrap();
    assert_eq!(session.updates(), 80);
}

#[test]
fn models_share_the_threads_of_the_app() {
    let pool = ThreadPool::new(ThreadPoolOptions { threads: Some(3), ..ThreadPoolOptions::default() }).unwrap();
    let options = ModelOptions { threads: Some(pool.clone()), ..options(Kernel::Cpu) };
    let models = [(); 2].map(|()| Model::load(product(), |_: &str| Some(weight()), options.clone()).unwrap());
    let default = Model::load(product(), |_: &str| Some(weight()), super::options(Kernel::Cpu)).unwrap();
    let expected = default.session().run(&x(500)).unwrap();
    for model in &models {
        assert_eq!(model.threads().threads(), 3);
        assert_eq!(model.session().run(&x(500)).unwrap(), expected);
    }
    assert_eq!(
        pool.install(|| default.threads().threads()),
        3,
        "a model without threads of its own takes those installed"
    );
}

#[test]
fn what_one_session_measures_the_others_use() {
    let Some(gpu) = gpu() else { return };
    let options = ModelOptions { gpu: Some(gpu), ..options(Kernel::Wgpu) };
    let model = Model::load(product(), |_: &str| Some(weight()), options).unwrap();
    let (mut tuning, mut running) = (model.session(), model.session());
    let expected = running.run(&x(40)).unwrap();
    let found = loop {
        match tuning.refine(&x(40), std::time::Duration::ZERO) {
            Ok(refinement) if refinement.tuned.is_some() => break refinement.tuned.unwrap().after,
            Ok(_) => {}
            Err(RunError::NoTimes { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        running.run(&x(40)).unwrap();
    };
    assert_eq!(running.run(&x(40)).unwrap(), expected);
    assert_eq!(running.gpu.as_ref().unwrap().tuning_of(0), Some(found));
    assert_eq!(model.report().tuned_steps, 1);
}

#[test]
fn a_model_that_is_warm_has_the_kernels_of_all_sizes() {
    if gpu().is_none() {
        return;
    }
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, (scope.size("rows"), 200));
    let y = x.matmul(&scope.parameter("w", DType::F32, [200, 10]));
    let plan = lower(&optimize(scope.finish(&[("y", y)]).unwrap()).unwrap().0).unwrap();
    let weight = HostTensor::f32([200, 10], &(0..2000).map(|n| (n % 17) as f32 - 8.5).collect::<Vec<_>>()).unwrap();
    let load = || {
        // Matmuls with few rows split their sums.
        let tuning = Tuning { split_sums: Some(true), ..Tuning::default() };
        let options = ModelOptions { tuning, ..options(Kernel::Wgpu) };
        Model::load(plan.clone(), |_: &str| Some(weight.clone()), options).unwrap()
    };
    let run = |model: &Model, rows: &[usize]| {
        let mut session = model.session();
        let x = |rows: usize| HostTensor::f32([rows, 200], &vec![0.25; rows * 200]).unwrap();
        rows.iter().map(|&rows| session.run(&Inputs::new().with("x", x(rows))).unwrap()).collect::<Vec<_>>()
    };
    let (warm, cold) = (load(), load());
    let all = warm.warm_up().unwrap();
    run(&cold, &[1]);
    assert!(all > 1 && cold.warm_up().unwrap() == all - 1, "{all} kernels");
    let sizes = [1, 3, 40, 700, 3000];
    assert_eq!(run(&warm, &sizes), run(&load(), &sizes));
    assert_eq!(warm.warm_up().unwrap(), 0);
}

#[test]
fn a_tuning_is_forced_on_one_session_alone() {
    if gpu().is_none() {
        return;
    }
    let model = Model::load(product(), |_: &str| Some(weight()), options(Kernel::Wgpu)).unwrap();
    let (mut forced, mut other) = (model.session(), model.session());
    forced.force(0, Some("product:rows=5,columns=16,depth=8,rows_per_thread=1,parts=1".parse().unwrap()));
    for _ in 0..2 {
        assert!(matches!(forced.run(&x(9)), Err(RunError::Tuning { step: 0, .. })));
        assert!(other.run(&x(9)).is_ok());
    }
}

#[test]
fn sessions_that_lose_their_device_together_go_on_together() {
    for own in [false, true] {
        let Ok(gpu) = Gpu::open(None) else { return };
        let kernel = if own { Kernel::Wgpu } else { Kernel::Auto };
        let given = (!own).then(|| gpu.clone());
        let options = ModelOptions { kernel, gpu: given, ..ModelOptions::default() };
        let plan = sums(STEPS, &[3, 5]);
        let model = block_on(Model::load_with(plan, Some(gpu.clone()), (), options, &emit_add)).unwrap();
        let barrier = Barrier::new(4);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (model, barrier, gpu) = (&model, &barrier, &gpu);
                scope.spawn(move || {
                    let mut session = model.session();
                    check(&mut session, 7 + thread);
                    if barrier.wait().is_leader() {
                        gpu.device().destroy();
                    }
                    (0..5).for_each(|run| check(&mut session, 20 * run + thread));
                    assert_eq!(session.report().adapter, model.report().adapter);
                });
            }
        });
        assert_eq!(model.report().adapter.is_some(), own);
    }
}
