//! A small schema and requests for it.

use super::{Batch, Column, Request, Schema};

pub(crate) fn schema() -> Schema {
    Schema {
        contextual: vec![Column::ids("age", 4)],
        history: vec![Column::ids("item", 10), Column::numbers("action", true), Column::numbers("timestamp", false)],
        candidates: vec![Column::ids("item", 10), Column::numbers("timestamp", false)],
    }
}

pub(crate) fn request(events: i64, candidates: i64) -> Request {
    let ids = |n: i64| (0..n).map(|i| i % 10).collect::<Vec<_>>();
    Request::new("u")
        .contextual("age", 1)
        .history("item", ids(events))
        .history("action", vec![1; events as usize])
        .history("timestamp", (100..100 + events).collect::<Vec<_>>())
        .candidates("item", ids(candidates))
}

pub(crate) fn batch(requests: &[Request]) -> Batch {
    let mut batch = Batch::new(schema());
    requests.iter().for_each(|request| batch.push(request).unwrap());
    batch
}
