//! The load test of `docs/serving.md`: clients rank users of the demo by HTTP, each waiting for its answer before the next request.
//!
//! `cargo run --release -p rewire-cli --features serve --example serve_load -- [SECONDS]` prints requests per second and times as JSON Lines,
//! by clients and largest batch.

use rewire::rank::RankOptions;
use rewire::{Kernel, ThreadPool};
use rewire_cli::serve::{Limits, QueueLimits, Server, Source};
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Clients, and rows of the largest batch.
const CASES: [(usize, usize); 5] = [(1, 1), (16, 1), (16, 64), (64, 1), (64, 64)];

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(5.0), |text| text.parse())?;
    let bodies = bodies()?;
    for (clients, batch_rows) in CASES {
        let mut times = measure(clients, batch_rows, Duration::from_secs_f64(seconds), &bodies)?;
        times.sort();
        let at = |share: f64| {
            let place = (times.len() as f64 * share) as usize;
            times.get(place.min(times.len() - 1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        println!(
            "{}",
            json!({
                "clients": clients, "batch": batch_rows, "requests": times.len(),
                "requests_per_second": times.len() as f64 / seconds, "p50_ms": at(0.5), "p99_ms": at(0.99),
                "resident_pages": resident_pages(),
            })
        );
    }
    Ok(())
}

/// The memory of this process, on Linux, which does not grow from case to case.
fn resident_pages() -> Option<u64> {
    std::fs::read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()
}

/// A request for each user of the demo.
fn bodies() -> Result<Vec<Vec<u8>>> {
    let text = include_str!("../demo/interactions.jsonl");
    let body = |line: &str| {
        let user: Value = serde_json::from_str(line)?;
        Ok(json!({ "requests": [user] }).to_string().into_bytes())
    };
    text.lines().map(body).collect()
}

/// The times of all requests of clients that send for `time`.
fn measure(clients: usize, batch_rows: usize, time: Duration, bodies: &[Vec<u8>]) -> Result<Vec<Duration>> {
    let queue = QueueLimits { waiting: 256, batch_rows, batch_wait: Duration::from_millis(1) };
    let (patience, connections) = (Duration::from_secs(30), 1024);
    let limits = Limits {
        queue,
        rows: 64,
        body_bytes: 1 << 20,
        header_timeout: patience,
        body_timeout: patience,
        grace: patience,
        connections,
        cache_rows: 1,
    };
    let options = RankOptions { kernel: Kernel::Cpu, threads: Some(ThreadPool::current()), ..RankOptions::default() };
    let server = Server::bind("127.0.0.1:0", limits)?;
    let (address, (stop, stopped), (loaded, is_loaded)) =
        (server.address(), oneshot::channel::<()>(), std::sync::mpsc::channel());
    std::thread::scope(|scope| {
        let ready = move |_: &[Value]| loaded.send(()).map_err(std::io::Error::other);
        let running = scope.spawn(|| server.run(vec![Source::demo(&options)], ready, async { drop(stopped.await) }));
        is_loaded.recv()?;
        // Kernels are compiled and memory is allocated.
        client(address, Duration::from_millis(500), bodies)?;
        let all: Vec<_> = (0..clients)
            .map(|first| {
                let (before, after) = bodies.split_at(first * 37 % bodies.len());
                let order = [after, before].concat();
                scope.spawn(move || client(address, time, &order))
            })
            .collect();
        let mut times = vec![];
        for one in all {
            times.extend(one.join().map_err(|_| "a client ended early")??);
        }
        drop(stop);
        let closed = running.join().map_err(|_| "the server ended early")??;
        if closed.cut_off > 0 {
            return Err(format!("{} connections were cut off", closed.cut_off).into());
        }
        Ok(times)
    })
}

/// Sends one request after the other on a connection, and times them.
fn client(address: SocketAddr, time: Duration, bodies: &[Vec<u8>]) -> Result<Vec<Duration>> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (mut reader, mut writer) = (BufReader::new(stream.try_clone()?), stream);
    let (begun, mut times) = (Instant::now(), vec![]);
    for body in bodies.iter().cycle() {
        if begun.elapsed() >= time {
            break;
        }
        let sent = Instant::now();
        let head = format!("POST /v1/models/demo/rank HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
        writer.write_all(&[head.as_bytes(), body].concat())?;
        answer(&mut reader)?;
        times.push(sent.elapsed());
    }
    Ok(times)
}

/// Reads an answer with status 200.
fn answer(reader: &mut impl BufRead) -> Result<()> {
    let (mut length, mut line) = (0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if line.starts_with("HTTP") && !line.contains(" 200 ") {
            return Err(line.into());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    Ok(())
}
