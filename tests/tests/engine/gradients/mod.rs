//! Gradients, what steps make of them, and randomness on the way.

mod adjoints;
mod differentiate;
mod dropout;
mod golden;
mod losses;
mod optimizers;
mod recompute;
