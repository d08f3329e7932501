//! The server: its answers are those of the library, whatever clients do.

mod client;
mod models;

use crate::import::{block, page};
use crate::program::{DEMO, user, users};
use client::{Started, demo, on_cpu, read, request};
use rewire::rank::Ranker;
use rewire_cli::serve::{Closed, Limits, QueueLimits};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const RANK: &str = "/v1/models/demo/rank";

fn limits() -> Limits {
    Limits {
        queue: QueueLimits { waiting: 64, batch_rows: 64, batch_wait: Duration::from_millis(1) },
        rows: 32,
        body_bytes: 1 << 20,
        header_timeout: Duration::from_secs(5),
        body_timeout: Duration::from_secs(5),
        grace: Duration::from_secs(20),
        connections: 64,
        cache_rows: 512,
    }
}

fn waiting(seconds: f64) -> Limits {
    let queue = QueueLimits { batch_wait: Duration::from_secs_f64(seconds), ..limits().queue };
    Limits { queue, ..limits() }
}

fn body(users: &[Value]) -> Value {
    json!({ "requests": users })
}

#[test]
fn scores_are_those_of_the_library() {
    let users = &users()[40..46];
    let ranker = Ranker::load(&Path::new(DEMO).join("model"), &on_cpu()).unwrap();
    let mut batch = ranker.batch();
    users.iter().for_each(|user| batch.push_json(user.to_string().as_bytes()).unwrap());
    let expected = ranker.rank_batch(&batch).unwrap();
    let server = demo(limits());
    let mut body = body(users);
    body["top"] = 3.into();
    let answer = server.post_json(RANK, &body);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    let ranked = answer["ranked"].as_array().unwrap();
    assert_eq!(ranked.len(), expected.len());
    for (ranked, expected) in ranked.iter().zip(&expected) {
        assert_eq!(ranked["user"], json!(expected.user));
        let candidates = ranked["candidates"].as_array().unwrap();
        assert_eq!(candidates.len(), expected.candidates.len().min(3));
        for (candidate, expected) in candidates.iter().zip(&expected.candidates) {
            assert_eq!((&candidate["item"], &candidate["score"]), (&json!(expected.item), &json!(expected.score)));
            let logits: Vec<f32> =
                candidate["logits"].as_object().unwrap().values().map(|one| one.as_f64().unwrap() as f32).collect();
            assert_eq!(logits, expected.logits);
        }
    }
    assert_eq!(server.get("/healthz").text(), "ok\n");
    assert_eq!(server.get("/readyz").status, 200);
    let models = server.get("/v1/models").json();
    assert_eq!(models, json!({ "models": [{ "name": "demo", "operations": ["rank"] }] }));
    assert_eq!(server.get("/v1/models/demo").json()["model"], "dlrm_hstu");
    assert_eq!(server.metric("rewire_requests_total"), 5.0);
    assert_eq!(server.stop().cut_off, 0);
}

#[test]
fn requests_that_run_together_have_the_bits_of_one_alone() {
    let server = demo(waiting(0.3));
    let sizes = [(3, 2), (25, 7), (0, 4), (9, 1), (200, 3), (50, 11)];
    let bodies: Vec<Value> = (0..)
        .zip(sizes)
        .map(|(n, (events, candidates))| body(&[user(&format!("u{n}"), events, candidates), user("other", n, 1)]))
        .collect();
    let together: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let all: Vec<_> = bodies.iter().map(|body| scope.spawn(|| server.post_json(RANK, body).body)).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let (runs, requests) = ("rewire_batch_requests_count", "rewire_batch_requests_sum");
    assert_eq!(server.metric(requests), 6.0);
    assert!(server.metric(runs) < 6.0, "nothing ran together");
    for (body, together) in bodies.iter().zip(&together) {
        let alone = server.post_json(RANK, body);
        assert_eq!((alone.status, &alone.body), (200, together), "{}", alone.text());
    }
    server.stop();
}

/// A request that no model sees.
fn refused(server: &Started, path: &str, headers: &str, body: impl AsRef<[u8]>, status: u16) -> String {
    server.post(path, headers, body.as_ref()).code(status)
}

#[test]
fn invalid_requests_are_named_by_code() {
    let server = demo(limits());
    let text = |body: &str| refused(&server, RANK, "", body, 400);
    let bodies =
        ["", "{", "[]", "7", "{}", r#"{"requests":7}"#, r#"{"requests":[7]}"#, r#"{"requests":[{}]}"#, "\u{0}"];
    bodies.iter().for_each(|body| assert_eq!(text(body), "request.text", "{body}"));
    let more = [r#"{"requests":[],"topp":1}"#, r#"{"requests":[],"top":-1}"#, r#"{"requests":[]} x"#];
    more.iter().for_each(|body| assert_eq!(text(body), "request.text", "{body}"));
    assert_eq!(refused(&server, RANK, "", b"{\"requests\":\"\xff", 400), "request.text");
    assert_eq!(text(&"[".repeat(500_000)), "request.text");
    assert_eq!(text(&format!(r#"{{"requests":[{{"x":{}"#, "[".repeat(500_000))), "request.text");
    let mut wrong = user("u", 2, 2);
    wrong["candidates"]["item_id"][1] = json!(99_999);
    let answer = server.post_json(RANK, &body(&[user("v", 1, 1), wrong]));
    assert_eq!(answer.code(400), "rank.request");
    assert!(answer.text().contains("requests[1]: user `u`: `candidates.item_id[1]` is 99999"), "{}", answer.text());
    let many: Vec<Value> = (0..33).map(|n| user(&n.to_string(), 1, 1)).collect();
    assert_eq!(server.post_json(RANK, &body(&many)).code(413), "serve.rows_limit");
    assert_eq!(refused(&server, "/v1/models/demo/predict", "", "{}", 404), "serve.operation");
    assert_eq!(refused(&server, "/v1/models/demos/rank", "", "{}", 404), "serve.model");
    assert_eq!(refused(&server, "/rank", "", "{}", 405), "serve.method");
    assert_eq!(server.get("/rank").code(404), "serve.path");
    assert_eq!(server.get(RANK).code(405), "serve.method");
    assert_eq!(refused(&server, RANK, "content-type: text/csv\r\n", "{}", 415), "serve.content_type");
    let arrow = "content-type: application/vnd.apache.arrow.stream\r\n";
    assert_eq!(refused(&server, RANK, arrow, "{}", 400), "serve.arrow");
    assert_eq!(server.metric("rewire_batch_requests_count"), 0.0, "a run");
    assert_eq!(server.post_json(RANK, &body(&[])).json(), json!({ "ranked": [] }));
    server.stop();
}

#[test]
fn slow_clients_and_huge_bodies_are_cut_off() {
    let timeout = Duration::from_millis(200);
    let server = demo(Limits { header_timeout: timeout, body_timeout: timeout, ..limits() });
    let begun = Instant::now();
    let mut silent = server.connect();
    silent.write_all(b"POST /v1/models/demo/rank HTTP/1.1\r\nhost:").unwrap();
    let mut rest = vec![];
    let _ = silent.read_to_end(&mut rest);
    let mut slow = server.connect();
    slow.write_all(&request(RANK, "", &[b' '; 100])[..120]).unwrap();
    assert_eq!(read(slow).unwrap().code(408), "serve.body_timeout");
    assert!(begun.elapsed() >= 2 * timeout && begun.elapsed() < Duration::from_secs(20));
    let mut claimed = server.connect();
    write!(claimed, "POST {RANK} HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999999\r\n\r\n").unwrap();
    let answer = read(claimed).unwrap();
    assert!(answer.head.contains("connection: close"), "{}", answer.head);
    assert_eq!(answer.code(413), "serve.body_limit");
    let mut chunked = server.connect();
    write!(chunked, "POST {RANK} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 1 << 16, " ".repeat(1 << 16));
    // The server stops reading before the end.
    let _ = (0..32).try_for_each(|_| chunked.write_all(chunk.as_bytes()));
    assert_eq!(read(chunked).unwrap().code(413), "serve.body_limit");
    assert_eq!(server.metric("rewire_batch_requests_count"), 0.0);
    server.wait_for("rewire_connections", 1.0);
    server.stop();
}

#[test]
fn the_work_of_a_client_that_is_gone_is_dropped() {
    let server = demo(waiting(0.5));
    let mut gone = server.connect();
    gone.write_all(&request(RANK, "", body(&[user("u", 3, 2)]).to_string().as_bytes())).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    drop(gone);
    server.wait_for("rewire_cancelled_total", 1.0);
    assert_eq!(server.metric("rewire_batch_requests_count"), 0.0, "it ran");
    assert_eq!(server.metric("rewire_queue_depth"), 0.0);
    server.stop();
}

#[test]
fn a_full_queue_refuses_requests() {
    let queue = QueueLimits { waiting: 1, batch_rows: 1, batch_wait: Duration::ZERO };
    let server = demo(Limits { queue, ..limits() });
    let users: Vec<Value> = (0..16).map(|n| user(&n.to_string(), 200, 20)).collect();
    let body = body(&users);
    let (full, ranked) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let send = || {
            let answer = server.post_json(RANK, &body);
            if answer.status == 200 {
                ranked.fetch_add(1, Ordering::Relaxed);
                return;
            }
            assert!(answer.head.contains("retry-after: 1"), "{}", answer.head);
            assert_eq!(answer.code(503), "serve.queue_full");
            full.fetch_add(1, Ordering::Relaxed);
        };
        (0..12).for_each(|_| drop(scope.spawn(send)));
    });
    assert!(full.load(Ordering::Relaxed) > 0 && ranked.load(Ordering::Relaxed) > 0);
    assert_eq!(full.into_inner() + ranked.into_inner(), 12);
    assert_eq!(server.metric("rewire_queue_depth"), 0.0);
    server.stop();
}

#[test]
fn a_shutdown_under_load_answers_all_that_was_accepted() {
    let server = demo(limits());
    let body = body(&[user("u", 40, 8), user("v", 7, 3)]).to_string();
    let expected = server.post(RANK, "", body.as_bytes()).body;
    let (address, is_over, answered) = (server.address, AtomicBool::new(false), AtomicU64::new(1));
    let bytes = request(RANK, "", body.as_bytes());
    let client = || {
        while let Ok(mut stream) = TcpStream::connect(address) {
            // A connection that the system took and the server did not is reset without an answer.
            let Ok(answer) = stream.write_all(&bytes).and_then(|()| read(stream)) else { break };
            assert_eq!((answer.status, &answer.body), (200, &expected), "{}", answer.text());
            answered.fetch_add(1, Ordering::Relaxed);
        }
        assert!(is_over.load(Ordering::Relaxed), "a request got no answer");
    };
    std::thread::scope(|scope| {
        (0..8).for_each(|_| drop(scope.spawn(client)));
        while answered.load(Ordering::Relaxed) < 40 {
            std::thread::sleep(Duration::from_millis(5));
        }
        is_over.store(true, Ordering::Relaxed);
        let closed = server.stop();
        assert_eq!((closed.cut_off, closed.is_clean), (0, true));
        let begun = Instant::now();
        // Clients may still be reading their last answers.
        while answered.load(Ordering::Relaxed) < closed.answered && begun.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(answered.load(Ordering::Relaxed), closed.answered);
    });
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let server = demo(Limits { body_timeout: Duration::from_millis(200), ..limits() });
    let mut deaf = server.connect();
    server.wait_for("rewire_connections", 2.0);
    let requests = "GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(10_000);
    // The server may end the connection before it has read all.
    let _ = deaf.write_all(requests.as_bytes());
    server.wait_for("rewire_connections", 1.0);
    let mut rest = vec![];
    let _ = deaf.read_to_end(&mut rest);
    assert!(rest.windows(8).filter(|eight| eight == b"HTTP/1.1").count() < 10_000);
    assert!(server.stop().is_clean);
}

#[test]
fn a_shutdown_ends_after_the_time_of_grace() {
    let server = demo(Limits { grace: Duration::from_millis(100), ..waiting(5.0) });
    let mut late = server.connect();
    late.write_all(&request(RANK, "", body(&[user("u", 3, 2)]).to_string().as_bytes())).unwrap();
    server.wait_for("rewire_connections", 2.0);
    let begun = Instant::now();
    let closed = server.stop();
    assert!(matches!(closed, Closed { cut_off: 1, is_clean: true, .. }), "{closed:?}");
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert!(read(late).is_err(), "an answer");
}

/// The page has the numbers of one processor: others round the last digits of sums differently.
#[test]
fn the_page_shows_what_the_server_answers() {
    let section = page("docs/serving.md", "### rank");
    let (command, shown) = (block(&section, "sh"), block(&section, "json"));
    let (path, body) = command.trim().strip_prefix("curl localhost:8000").unwrap().split_once(" --json '").unwrap();
    let server = demo(limits());
    let answer = server.post(path, "", body.strip_suffix('\'').unwrap().as_bytes()).json();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let [answer, shown] = [&answer, &shown].map(|all| all["ranked"][0]["candidates"].as_array().unwrap().clone());
    assert_eq!(answer.len(), shown.len());
    for (answer, shown) in answer.iter().zip(&shown) {
        assert_eq!(answer["item"], shown["item"]);
        for (answer, shown) in
            [(&answer["score"], &shown["score"]), (&answer["logits"]["is_like"], &shown["logits"]["is_like"])]
        {
            assert!((answer.as_f64().unwrap() - shown.as_f64().unwrap()).abs() < 1e-4, "{answer} is not {shown}");
        }
    }
    server.stop();
}
