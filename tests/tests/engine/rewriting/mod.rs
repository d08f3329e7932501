//! Passes, rules and operators that move elements.

mod movement;
mod passes;
mod select_rows;
