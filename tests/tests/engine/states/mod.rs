//! What sessions keep from run to run, and parameters that change.

mod cached;
mod rows;
mod sessions;
mod updates;
