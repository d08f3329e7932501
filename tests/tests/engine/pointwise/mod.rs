//! Functions element by element.

mod expressions;
mod integers;
mod time_buckets;
