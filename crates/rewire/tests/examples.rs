//! Models of the examples learn, and packages rank.
#![allow(clippy::unwrap_used)]

#[path = "../examples/din.rs"]
mod din;
#[path = "../examples/package.rs"]
mod package;
#[path = "../examples/retrieval.rs"]
mod retrieval;
#[path = "../examples/two_tower.rs"]
mod two_tower;

#[test]
fn a_deep_interest_network() {
    din::main().unwrap();
}

#[test]
fn a_package() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../cli/tests/packages");
    let users = std::fs::read(format!("{folder}/users.jsonl")).unwrap();
    package::rank(&format!("{folder}/format-1.rewire"), users.as_slice()).unwrap();
    assert!(package::rank(&format!("{folder}/format-1.rewire"), &b"{"[..]).is_err());
}

#[test]
fn a_two_tower_model() {
    two_tower::main().unwrap();
}

#[test]
fn retrieval_from_histories() {
    retrieval::main().unwrap();
}
