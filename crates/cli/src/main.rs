//! The rewire program.
fn main() {}
