//! Gradients, their use in training steps, and randomness.

mod adjoints;
mod differentiate;
mod dropout;
mod golden;
mod losses;
mod optimizers;
mod recompute;
