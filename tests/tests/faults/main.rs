//! What goes wrong around a run, and that the run after it is right. What shares a device, and runs for long.

mod endurance;
mod errors;
mod panics;
