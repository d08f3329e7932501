//! Ranks with one model on several threads: requests per second, and the memory of the process.
//!
//! ```sh
//! cargo run --release -p rewire --example threads -- FOLDER USERS.jsonl [THREADS] [SECONDS]
//! ```

use rewire::prelude::{Kernel, RankOptions, Ranker};
use rewire::rank::{Batch, JsonError};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (Some(folder), Some(users)) = (arguments.first(), arguments.get(1)) else {
        return Err("expected a model folder and a file of users".into());
    };
    let number = |position: usize, other: u64| arguments.get(position).map_or(Ok(other), |text| text.parse());
    let (threads, time) = (number(2, 4)?, Duration::from_secs(number(3, 5)?));

    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let ranker = Ranker::load(Path::new(folder), &options)?;
    let lines = std::fs::read_to_string(users)?;
    let read = |line: &str| -> Result<Batch, JsonError> {
        let mut batch = ranker.batch();
        batch.push_json(line.as_bytes()).map(|()| batch)
    };
    let requests: Vec<Batch> = lines.lines().map(read).collect::<Result<_, _>>()?;

    let next = AtomicUsize::new(0);
    let begun = Instant::now();
    let rank = || -> Result<(), rewire::rank::RankError> {
        while begun.elapsed() < time {
            let request = &requests[next.fetch_add(1, Ordering::Relaxed) % requests.len()];
            ranker.rank_batch(request)?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let ranking: Vec<_> = (0..threads).map(|_| scope.spawn(rank)).collect();
        ranking.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
    })?;
    let ranked = next.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    let bytes = ranker.report().host_bytes;
    println!("{threads} threads: {ranked:.0} requests a second, {bytes} bytes of tensors{}", resident());
    Ok(())
}

/// The memory of the process, if the system reports it.
fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().find(|line| line.starts_with("VmHWM")).map_or_else(String::new, |line| format!(", {line}"))
}
