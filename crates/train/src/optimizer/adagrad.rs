use super::{Direction, Moment, Rule, spread, squares};
use crate::config::{ConfigError, number};
use rewire_graph::Tensor;

/// Adagrad (Duchi et al., 2011), with a sum of squares per element or per row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdagradRule {
    initial: f64,
    eps: f64,
    by_row: bool,
}

impl AdagradRule {
    pub(crate) fn new(initial: f64, eps: f64, by_row: bool) -> Result<Self, ConfigError> {
        number("initial_accumulator_value", initial, 0.0..)?;
        number("eps", eps, 0.0..)?;
        Ok(Self { initial, eps, by_row })
    }
}

impl Rule for AdagradRule {
    fn moments(&self) -> Vec<Moment> {
        vec![Moment { name: "sum", rows: self.by_row, initial: self.initial as f32 }]
    }

    fn direction(&self, _: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction> {
        let [sum] = moments else { return None };
        let sum = sum + squares(gradient, self.by_row);
        let step = gradient / (spread(&sum, self.by_row).sqrt() + self.eps);
        Some(Direction { step, moments: vec![sum] })
    }
}
