//! What goes wrong around a run, and that the run after it is right.

mod errors;
mod panics;
