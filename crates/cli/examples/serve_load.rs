//! The load test of `docs/serving.md`: clients rank users of the demo by HTTP, each waiting for its answer before the next request, until the
//! server is stopped while they send. Every answered request has to reach its client.
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A case of the test.
#[derive(Clone, Copy)]
struct Case {
    clients: usize,
    /// Rows of the largest batch.
    batch_rows: usize,
    /// Beside other clients: one that sends a byte at a time, one whose bodies are too large, and one that leaves without its answers.
    beside: bool,
}

const CASES: [Case; 6] = [
    Case { clients: 1, batch_rows: 1, beside: false },
    Case { clients: 16, batch_rows: 1, beside: false },
    Case { clients: 16, batch_rows: 64, beside: false },
    Case { clients: 64, batch_rows: 1, beside: false },
    Case { clients: 64, batch_rows: 64, beside: false },
    Case { clients: 16, batch_rows: 64, beside: true },
];

/// One connection of a client that is no good.
type Other = fn(SocketAddr, &[u8], &Seen) -> Result<()>;

/// Bytes of a body at most.
const BODY: usize = 1 << 20;

/// What clients have seen.
#[derive(Default)]
struct Seen {
    is_stopped: AtomicBool,
    answers: AtomicU64,
    too_slow: AtomicU64,
    too_large: AtomicU64,
    left: AtomicU64,
}

fn main() -> Result<()> {
    let seconds = std::env::args().nth(1).map_or(Ok(5.0), |text| text.parse())?;
    let bodies = bodies()?;
    for case in CASES {
        let seen = Seen::default();
        let mut times = measure(case, Duration::from_secs_f64(seconds), &bodies, &seen)?;
        times.sort();
        let at = |share: f64| {
            let place = (times.len() as f64 * share) as usize;
            times.get(place.min(times.len() - 1)).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
        };
        let [too_slow, too_large, left] =
            [&seen.too_slow, &seen.too_large, &seen.left].map(|count| count.load(Ordering::Relaxed));
        println!(
            "{}",
            json!({
                "clients": case.clients, "batch": case.batch_rows, "requests": times.len(),
                "requests_per_second": times.len() as f64 / seconds, "p50_ms": at(0.5), "p99_ms": at(0.99),
                "resident_pages": resident_pages(), "too_slow": too_slow, "too_large": too_large, "left": left,
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

/// The times of all requests that clients send in `time`.
fn measure(case: Case, time: Duration, bodies: &[Vec<u8>], seen: &Seen) -> Result<Vec<Duration>> {
    let queue = QueueLimits { waiting: 256, batch_rows: case.batch_rows, batch_wait: Duration::from_millis(1) };
    let patience = Duration::from_secs(30);
    let limits = Limits {
        queue,
        rows: 64,
        body_bytes: BODY,
        header_timeout: patience,
        body_timeout: if case.beside { Duration::from_secs(1) } else { patience },
        grace: patience,
        connections: 1024,
        cache_rows: 1,
    };
    let options = RankOptions { kernel: Kernel::Cpu, threads: Some(ThreadPool::current()), ..RankOptions::default() };
    let server = Server::bind("127.0.0.1:0", limits)?;
    let (address, (stop, stopped), (loaded, is_loaded)) =
        (server.address(), oneshot::channel::<()>(), std::sync::mpsc::channel());
    thread::scope(|scope| {
        let ready = move |_: &[Value]| loaded.send(()).map_err(std::io::Error::other);
        let running = scope.spawn(|| server.run(vec![Source::demo(&options)], ready, async { drop(stopped.await) }));
        is_loaded.recv()?;
        // Kernels are compiled and memory is allocated.
        let warm = Seen::default();
        client(address, Instant::now(), bodies[..64].iter(), &warm)?;
        let end = Instant::now() + time;
        let clients: Vec<_> = (0..case.clients)
            .map(|first| {
                let (before, after) = bodies.split_at(first * 37 % bodies.len());
                let order = [after, before].concat();
                scope.spawn(move || client(address, end, order.iter().cycle(), seen))
            })
            .collect();
        let others: &[Other] = if case.beside { &[slow, large, leaving] } else { &[] };
        let others: Vec<_> =
            others.iter().map(|other| scope.spawn(move || until_stopped(*other, address, &bodies[0], seen))).collect();
        thread::sleep(end.saturating_duration_since(Instant::now()));
        seen.is_stopped.store(true, Ordering::Relaxed);
        drop(stop);
        let mut times = vec![];
        for one in clients {
            times.extend(one.join().map_err(|_| "a client ended early")??);
        }
        for other in others {
            other.join().map_err(|_| "a client ended early")??;
        }
        let closed = running.join().map_err(|_| "the server ended early")??;
        let answers = seen.answers.load(Ordering::Relaxed) + warm.answers.load(Ordering::Relaxed);
        // Nobody counts the answers of clients that leave.
        if closed.cut_off > 0 || !closed.is_clean || !case.beside && closed.answered != answers {
            return Err(format!("{closed:?}, and {answers} answers reached their clients").into());
        }
        Ok(times)
    })
}

/// Sends one request after the other on a connection until the server is stopped and closes it, and times those before `end`.
fn client<'a>(
    address: SocketAddr,
    end: Instant,
    bodies: impl Iterator<Item = &'a Vec<u8>>,
    seen: &Seen,
) -> Result<Vec<Duration>> {
    let (mut reader, mut writer) = connect(address)?;
    let mut times = vec![];
    for body in bodies {
        let sent = Instant::now();
        match writer.write_all(&request(body)).map_err(Into::into).and_then(|()| answer(&mut reader)) {
            Ok(200) => drop(seen.answers.fetch_add(1, Ordering::Relaxed)),
            Err(_) if seen.is_stopped.load(Ordering::Relaxed) => break,
            other => return Err(format!("expected an answer with status 200, got {other:?}").into()),
        }
        if sent < end {
            times.push(sent.elapsed());
        }
    }
    Ok(times)
}

/// Lets a client begin again and again until the server is stopped.
fn until_stopped(other: Other, address: SocketAddr, body: &[u8], seen: &Seen) -> Result<()> {
    loop {
        match other(address, body, seen) {
            Err(_) if seen.is_stopped.load(Ordering::Relaxed) => return Ok(()),
            other => other?,
        }
    }
}

/// Sends a body byte by byte until the server has waited long enough.
fn slow(address: SocketAddr, body: &[u8], seen: &Seen) -> Result<()> {
    let (mut reader, mut writer) = connect(address)?;
    let request = request(body);
    let (head, rest) = request.split_at(request.len() - body.len());
    writer.write_all(head)?;
    for byte in rest.iter().take(18) {
        writer.write_all(&[*byte])?;
        thread::sleep(Duration::from_millis(50));
    }
    expect(answer(&mut reader)?, 408, &seen.too_slow)
}

/// Announces a body that is larger than the limit.
fn large(address: SocketAddr, _: &[u8], seen: &Seen) -> Result<()> {
    let (mut reader, mut writer) = connect(address)?;
    write!(writer, "POST /v1/models/demo/rank HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", BODY << 10)?;
    expect(answer(&mut reader)?, 413, &seen.too_large)?;
    thread::sleep(Duration::from_millis(10));
    Ok(())
}

/// Leaves before its answer.
fn leaving(address: SocketAddr, body: &[u8], seen: &Seen) -> Result<()> {
    let (_, mut writer) = connect(address)?;
    writer.write_all(&request(body))?;
    seen.left.fetch_add(1, Ordering::Relaxed);
    thread::sleep(Duration::from_millis(10));
    Ok(())
}

fn expect(status: u16, expected: u16, count: &AtomicU64) -> Result<()> {
    if status != expected {
        return Err(format!("expected status {expected}, got {status}").into());
    }
    count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn connect(address: SocketAddr) -> Result<(BufReader<TcpStream>, TcpStream)> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok((BufReader::new(stream.try_clone()?), stream))
}

fn request(body: &[u8]) -> Vec<u8> {
    let head = format!("POST /v1/models/demo/rank HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}

/// Reads an answer and returns its status.
fn answer(reader: &mut impl BufRead) -> Result<u16> {
    let (mut status, mut length, mut line) = (None, 0, String::new());
    while reader.read_line(&mut line)? > 2 {
        if line.starts_with("HTTP") {
            status = line.split(' ').nth(1).and_then(|text| text.parse().ok());
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        line.clear();
    }
    reader.read_exact(&mut vec![0; length])?;
    status.ok_or_else(|| "the connection ended without an answer".into())
}
