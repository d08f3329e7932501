//! An app with its own device: threads serve users with one model, and take turns on the app's queue.
//!
//! ```sh
//! cargo run --release -p rewire-examples --example app
//! ```

use rewire::block_on;
use rewire::prelude::*;
use rewire::runtime::wgpu;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

const ITEMS: usize = 500;
const WIDTH: usize = 16;
const BEST: usize = 5;
const USERS: usize = 40;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The device that the app draws with, if an adapter exists, with the features that kernels can use.
fn device() -> Option<(wgpu::Device, wgpu::Queue)> {
    let adapter = block_on(wgpu::Instance::default().request_adapter(&wgpu::RequestAdapterOptions::default())).ok()?;
    let useful = wgpu::Features::SHADER_F16 | wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER;
    let request = wgpu::DeviceDescriptor {
        label: Some("app"),
        required_features: adapter.features() & useful,
        required_limits: adapter.limits(),
        ..Default::default()
    };
    block_on(adapter.request_device(&request)).ok()
}

/// The best items of users, by causal attention over the items that they viewed.
fn trace() -> Result<Graph, rewire::GraphError> {
    let scope = Scope::new();
    let users = scope.size("users");
    let rows = scope.lengths("lengths", &users);
    let items = scope.parameter("items", DType::F32, [ITEMS, WIDTH]);
    let seen = items.gather(&scope.input("ids", DType::U32, (&rows.total,)));
    let heads = seen.reshape((&rows.total, 1, WIDTH));
    let earlier = rows.row_index(&rows, 1).ge(&rows.key_index(&rows, 1));
    let attended = heads.scores(&heads, &rows, &rows).softmax_scores(Some(&earlier), &rows, &rows);
    let context = attended.weighted_sum(&heads, &rows, &rows).reshape((&rows.total, WIDTH));
    let last = context.jagged_tail(&rows, &Ragged::dense(&scope, users, &scope.host_size(1)));
    let (scores, best) = scope.top_k(&last.matmul(&items.transpose(0, 1)), BEST);
    scope.finish(&[("scores", scores), ("best", best)])
}

/// Serves 40 users.
pub fn main() -> Result<(), Failure> {
    let mut options = ModelOptions::default();
    if let Some((device, queue)) = device() {
        // The app draws under the same lock.
        let turn = Arc::new(Mutex::new(()));
        let gpu = Gpu::from_device(device.clone(), queue).with_submit(move |queue, commands| {
            let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
            queue.submit(commands)
        });
        let lost = gpu.clone();
        device.set_device_lost_callback(move |reason, message| lost.report_loss(&format!("{reason:?}: {message}")));
        gpu.on_loss(|reason| eprintln!("continuing on the CPU: {reason}"));
        options.gpu = Some(gpu);
    }
    let plan = rewire::lower(&rewire::optimize(trace()?)?.0)?;
    let numbers: Vec<f32> = (0..ITEMS * WIDTH).map(|n| ((n * 7919) % 251) as f32 / 251.0 - 0.5).collect();
    let model = Model::load(plan, [("items", HostTensor::f32([ITEMS, WIDTH], &numbers)?)], options)?;
    model.warm_up()?;

    let (next, served) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let serve = || -> Result<(), Failure> {
        let mut session = model.session();
        loop {
            let user = next.fetch_add(1, Ordering::Relaxed);
            if user >= USERS {
                return Ok(());
            }
            let ids: Vec<u32> = (0..=user as u32 % 7).map(|n| (n * 97 + user as u32 * 31) % ITEMS as u32).collect();
            let inputs = Inputs::new().with("lengths", HostTensor::lengths(&[ids.len() as i64]));
            let outputs = session.run(&inputs.with("ids", HostTensor::vector(&ids)))?;
            let best = outputs.get("best").map(HostTensor::to_i64).unwrap_or_default();
            served.lock().unwrap_or_else(PoisonError::into_inner).push((user, best));
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(serve)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into())))
    })?;
    let mut served = served.into_inner().unwrap_or_else(PoisonError::into_inner);
    served.sort();
    eprintln!("on {}", model.report().adapter.as_deref().unwrap_or("the CPU"));
    println!("{} users with {BEST} items each", served.iter().filter(|(_, best)| best.len() == BEST).count());
    println!("the best items of the first: {:?}", served[0].1);
    Ok(())
}
