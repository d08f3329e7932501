//! A server in this process, and a client of plain sockets.

use rewire::Kernel;
use rewire::rank::RankOptions;
use rewire_cli::serve::{Closed, Limits, Server, ServerError, Source};
use serde_json::Value;
use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

pub fn on_cpu() -> RankOptions {
    RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() }
}

pub struct Started {
    pub address: SocketAddr,
    stop: oneshot::Sender<()>,
    thread: JoinHandle<Result<Closed, ServerError>>,
}

/// A server whose models are loaded.
pub fn start(limits: Limits, sources: Vec<Source>) -> Started {
    start_with(limits, sources, None)
}

/// [`start`], with a folder of deltas.
pub fn start_with(limits: Limits, sources: Vec<Source>, deltas: Option<PathBuf>) -> Started {
    let server = Server::bind("127.0.0.1:0", limits).unwrap().with_deltas(deltas);
    let (address, (stop, stopped), (loaded, is_loaded)) =
        (server.address(), oneshot::channel(), std::sync::mpsc::channel());
    let thread = std::thread::spawn(move || {
        let ready = |models: &[Value]| loaded.send(models.len()).map_err(io::Error::other);
        server.run(sources, ready, async { drop(stopped.await) })
    });
    is_loaded.recv().unwrap();
    Started { address, stop, thread }
}

/// The demo on the CPU.
pub fn demo(limits: Limits) -> Started {
    start(limits, vec![Source::demo(&on_cpu())])
}

pub struct Answer {
    pub status: u16,
    /// Its lines, in lower case.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The code of an error with this status.
    pub fn code(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        let error = &self.json()["error"];
        assert!(!error["message"].as_str().unwrap().is_empty());
        error["code"].as_str().unwrap().to_owned()
    }
}

impl Started {
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    pub fn get(&self, path: &str) -> Answer {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        read(stream).unwrap()
    }

    pub fn post(&self, path: &str, headers: &str, body: &[u8]) -> Answer {
        let mut stream = self.connect();
        stream.write_all(&request(path, headers, body)).unwrap();
        read(stream).unwrap()
    }

    pub fn post_json(&self, path: &str, body: &Value) -> Answer {
        self.post(path, "", body.to_string().as_bytes())
    }

    /// The value of a metric, without its labels; the sum over all of them.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let value = |line: &str| {
            let (series, value) = line.rsplit_once(' ')?;
            (series.split('{').next()? == name).then(|| value.parse::<f64>().unwrap())
        };
        text.lines().filter_map(value).sum()
    }

    /// Waits until a metric has a value.
    pub fn wait_for(&self, name: &str, value: f64) {
        let begun = Instant::now();
        while self.metric(name) != value {
            assert!(begun.elapsed() < Duration::from_secs(30), "{name} is {}", self.metric(name));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn stop(self) -> Closed {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap().unwrap()
    }
}

/// The bytes of a request on a connection of its own.
pub fn request(path: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n");
    [head.as_bytes(), body].concat()
}

/// Reads the answer of a connection that the server closes.
pub fn read(mut stream: TcpStream) -> io::Result<Answer> {
    let mut all = vec![];
    stream.read_to_end(&mut all)?;
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let head = String::from_utf8(all[..end].to_vec()).unwrap().to_lowercase();
    let body = all.split_off(end + 4);
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    assert_eq!(length.parse::<usize>().unwrap(), body.len(), "{head}");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Answer { status, head, body })
}
