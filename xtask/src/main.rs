//! Set-up, tests and reports.
fn main() {}
