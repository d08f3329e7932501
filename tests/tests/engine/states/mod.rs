//! States of sessions, and parameters that change.

mod cached;
mod channels;
mod rows;
mod sessions;
mod updates;
