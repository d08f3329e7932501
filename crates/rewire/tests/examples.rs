//! Models of the examples learn.
#![allow(clippy::unwrap_used)]

#[path = "../examples/din.rs"]
mod din;
#[path = "../examples/retrieval.rs"]
mod retrieval;
#[path = "../examples/two_tower.rs"]
mod two_tower;

#[test]
fn a_deep_interest_network() {
    din::main().unwrap();
}

#[test]
fn a_two_tower_model() {
    two_tower::main().unwrap();
}

#[test]
fn retrieval_from_histories() {
    retrieval::main().unwrap();
}
