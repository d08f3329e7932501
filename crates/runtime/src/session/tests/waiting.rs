//! Futures that wait for a device.

use super::*;
use crate::Workers;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A session on a device that no other thread polls.
fn session(workers: Option<Workers>) -> Option<Session> {
    let options = ModelOptions { workers, gpu: Some(Gpu::open(None).ok()?), ..options(Kernel::Wgpu) };
    let gpu = block_on(open(&options)).unwrap();
    let plan = sums(&[(0, 1)], &[2]);
    Some(block_on(Model::load_with(plan, gpu, (), options, &emit_add)).unwrap().session())
}

fn check(outputs: &Outputs, rows: usize) {
    assert_eq!(outputs.get("t2").unwrap().to_f32(), expected(&[(0, 1)], rows)[2]);
}

#[test]
fn a_future_without_workers_sleeps_until_its_work_is_done() {
    let Some(mut session) = session(None) else { return };
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut slept = 0;
    for rows in [4000, 0, 4001] {
        let inputs = inputs(rows);
        let mut run = pin!(session.run_async(&inputs));
        let outputs = loop {
            if let Poll::Ready(outputs) = run.as_mut().poll(&mut Context::from_waker(&waker)) {
                break outputs.unwrap();
            }
            let begun = Instant::now();
            slept += 1;
            while count.0.load(Ordering::SeqCst) < slept {
                assert!(begun.elapsed() < Duration::from_secs(60), "nobody woke the task");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        check(&outputs, rows);
        assert_eq!(count.0.load(Ordering::SeqCst), slept, "it was woken without a reason");
    }
    assert!(slept >= 2, "{slept}");
}

#[test]
fn a_future_with_workers_sleeps_until_one_has_waited() {
    let queue = Arc::new(Mutex::new(vec![]));
    let own = queue.clone();
    let Some(mut session) = session(Some(Workers::new(move |work| own.lock().unwrap().push(work)))) else { return };
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    let inputs = inputs(77);
    {
        let mut run = pin!(session.run_async(&inputs));
        assert!(run.as_mut().poll(&mut context).is_pending());
        assert!(run.as_mut().poll(&mut context).is_pending());
        let work = std::mem::take(&mut *queue.lock().unwrap());
        assert_eq!((work.len(), count.0.load(Ordering::SeqCst)), (1, 0));
        work.into_iter().for_each(|work| work());
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        let Poll::Ready(outputs) = run.as_mut().poll(&mut context) else { panic!("there is no result") };
        check(&outputs.unwrap(), 77);
    }
    // A dropped future leaves the session unchanged.
    for _ in 0..3 {
        assert!(pin!(session.run_async(&inputs)).as_mut().poll(&mut context).is_pending());
    }
    check(&session.run(&inputs).unwrap(), 77);
    queue.lock().unwrap().drain(..).for_each(|work| work());
    check(&session.run(&inputs).unwrap(), 77);
}

#[test]
fn what_blocks_needs_no_workers() {
    let Some(mut session) = session(Some(Workers::new(|_| panic!("asked for")))) else { return };
    check(&session.run(&inputs(9)).unwrap(), 9);
    check(&block_on(session.run_async(&inputs(10))).unwrap(), 10);
}

#[test]
fn steps_on_the_cpu_are_offered_to_workers() {
    let queue = Arc::new(Mutex::new(vec![]));
    let own = queue.clone();
    let workers = Some(Workers::new(move |work| own.lock().unwrap().push(work)));
    let build = || Ok::<_, RuntimeError>(sums(&[(0, 1)], &[2]));
    let model = Model::build(build, (), ModelOptions { workers, ..options(Kernel::Cpu) }).unwrap();
    let mut session = model.session();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    for rows in [0, 1, 50] {
        let inputs = inputs(rows);
        let mut run = pin!(session.run_async(&inputs));
        assert!(run.as_mut().poll(&mut context).is_pending());
        let work: Vec<_> = std::mem::take(&mut *queue.lock().unwrap());
        assert_eq!(work.len(), 1);
        let woken = count.0.load(Ordering::SeqCst);
        work.into_iter().for_each(|work| std::thread::spawn(work).join().unwrap());
        assert_eq!(count.0.load(Ordering::SeqCst), woken + 1);
        let Poll::Ready(outputs) = run.as_mut().poll(&mut context) else { panic!("there is no result") };
        check(&outputs.unwrap(), rows);
    }
    {
        let inputs = inputs(7);
        let mut run = pin!(session.run_async(&inputs));
        assert!(run.as_mut().poll(&mut context).is_pending());
        queue.lock().unwrap().clear();
        assert_eq!(run.as_mut().poll(&mut context), Poll::Ready(Err(RunError::Dropped(crate::WorkDropped))));
    }
    check(&session.run(&inputs(9)).unwrap(), 9);
}

#[test]
fn a_wait_for_the_device_has_a_twin() {
    let Ok(gpu) = Gpu::open(None) else { return };
    let queue = Arc::new(Mutex::new(vec![]));
    let own = queue.clone();
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let mut context = Context::from_waker(&waker);
    {
        let mut wait = pin!(gpu.wait_async());
        while wait.as_mut().poll(&mut context) != Poll::Ready(Ok(())) {}
    }
    let gpu = gpu.with_workers(Workers::new(move |work| own.lock().unwrap().push(work)));
    let mut wait = pin!(gpu.wait_async());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    let woken = count.0.load(Ordering::SeqCst);
    queue.lock().unwrap().drain(..).for_each(|work: crate::Work| work());
    assert_eq!(count.0.load(Ordering::SeqCst), woken + 1);
    assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(())));
}
