//! A small schema and requests for it.

use super::{Column, Place, Request, Schema};
use std::collections::BTreeMap;

pub(crate) fn schema() -> Schema {
    Schema {
        contextual: vec![Column::ids("age", 4)],
        history: vec![Column::ids("item", 10), Column::numbers("action", true), Column::numbers("timestamp", false)],
        candidates: vec![Column::ids("item", 10), Column::numbers("timestamp", false)],
    }
}

pub(crate) fn request(events: i64, candidates: i64) -> Request {
    let ids = |n: i64| (0..n).map(|i| i % 10).collect::<Vec<_>>();
    Request {
        user: "u".into(),
        place: Place::Line(7),
        contextual: BTreeMap::from([("age".to_owned(), 1)]),
        history: BTreeMap::from([
            ("item".to_owned(), ids(events)),
            ("action".to_owned(), vec![1; events as usize]),
            ("timestamp".to_owned(), (100..100 + events).collect()),
        ]),
        candidates: BTreeMap::from([("item".to_owned(), ids(candidates))]),
        labels: None,
    }
}
