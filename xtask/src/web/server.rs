use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Maximum number of headers of a request.
const HEADERS: usize = 100;

/// Timeout of a browser's request.
const PATIENCE: Duration = Duration::from_secs(30);

/// An HTTP server for the files of a folder. It only accepts connections from this machine.
pub(crate) struct Server {
    listener: TcpListener,
    folder: Arc<Path>,
    port: u16,
}

impl Server {
    /// Listens on a port; 0 selects any free port.
    pub(crate) fn open(folder: PathBuf, port: u16) -> Result<Self, String> {
        let wrong = |error: io::Error| format!("cannot listen on port {port}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(wrong)?;
        let port = listener.local_addr().map_err(wrong)?.port();
        Ok(Self { listener, folder: folder.into(), port })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Answers requests until the program ends.
    pub(crate) fn run(self) {
        for stream in self.listener.incoming().flatten() {
            let folder = self.folder.clone();
            // Errors are ignored: the browser may have disconnected.
            thread::spawn(move || drop(answer(stream, &folder)));
        }
    }
}

fn answer(mut stream: TcpStream, folder: &Path) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    for line in lines.take(HEADERS) {
        if line?.is_empty() {
            break;
        }
    }
    let (method, address) = match first.split(' ').collect::<Vec<_>>()[..] {
        [method, address, _] => (method, address),
        _ => return respond(&mut stream, "400 Bad Request", "text/plain", b"", true),
    };
    let has_body = match method {
        "GET" => true,
        "HEAD" => false,
        _ => return respond(&mut stream, "405 Method Not Allowed", "text/plain", b"", true),
    };
    match file(folder, address).and_then(|path| Some((kind(&path), std::fs::read(path).ok()?))) {
        Some((kind, content)) => respond(&mut stream, "200 OK", kind, &content, has_body),
        None => respond(&mut stream, "404 Not Found", "text/plain", b"not found", has_body),
    }
}

/// The file that a URL names; `None` if it is not in the folder.
fn file(folder: &Path, address: &str) -> Option<PathBuf> {
    let path = address.split(['?', '#']).next()?.strip_prefix('/')?;
    let path = if path.is_empty() { "index.html" } else { path };
    let is_inside = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    is_inside.then(|| folder.join(path)).filter(|path| path.is_file())
}

fn kind(path: &Path) -> &'static str {
    match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("csv" | "jsonl") => "text/plain; charset=utf-8",
        Some("wasm") => "application/wasm",
        _ => "application/octet-stream",
    }
}

/// Headers that isolate the page, so that it may share memory with its workers.
const ISOLATED: &str = "Cross-Origin-Opener-Policy: same-origin\r\nCross-Origin-Embedder-Policy: require-corp\r\n";

fn respond(stream: &mut TcpStream, status: &str, kind: &str, content: &[u8], has_body: bool) -> io::Result<()> {
    let length = content.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{ISOLATED}Cache-Control: no-cache\r\nConnection: close\r\n\r\n"
    )?;
    if has_body { stream.write_all(content) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn files_are_served_and_nothing_else() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let server = Server::open(folder, 0).unwrap();
        let port = server.port();
        thread::spawn(move || server.run());
        let found = ask(port, "GET /wasi.mjs?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(found.starts_with("HTTP/1.1 200 OK\r\n") && found.contains("import"), "{found}");
        assert!(found.contains(ISOLATED), "{found}");
        let head = ask(port, "HEAD /main.rs HTTP/1.1\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for path in ["/", "/../Cargo.toml", "//etc/passwd", "/web/../../Cargo.toml", "/web", "none"] {
            let missing = ask(port, &format!("GET {path} HTTP/1.1\r\n\r\n"));
            assert!(missing.starts_with("HTTP/1.1 404 "), "{path}: {missing}");
        }
        assert!(ask(port, "POST /main.rs HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
        assert!(ask(port, "what\r\n\r\n").starts_with("HTTP/1.1 400 "));
    }
}
