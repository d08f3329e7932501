//! Passes, rules and what they move.

mod movement;
mod passes;
mod select_rows;
