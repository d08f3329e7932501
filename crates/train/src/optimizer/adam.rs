use super::{Direction, Moment, Rule, averaged, spread, squares};
use crate::config::{ConfigError, number};
use rewire_graph::Tensor;

/// Adam (Kingma and Ba, 2015), with a second moment per element or per row.
///
/// The bias correction `c = 1 - beta^t` is a state, updated by `c' = (1 - beta) + beta c`. Computing it from `beta^t` would lose
/// precision in the first steps, and the host does not have `t`, the number of applied steps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdamRule {
    betas: [f64; 2],
    eps: f64,
    by_row: bool,
}

impl AdamRule {
    pub(crate) fn new(betas: [f64; 2], eps: f64, by_row: bool) -> Result<Self, ConfigError> {
        number("beta1", betas[0], 0.0..1.0)?;
        number("beta2", betas[1], 0.0..1.0)?;
        number("eps", eps, 0.0..)?;
        Ok(Self { betas, eps, by_row })
    }
}

impl Rule for AdamRule {
    fn moments(&self) -> Vec<Moment> {
        let first = Moment { name: "exp_avg", rows: false, initial: 0.0 };
        vec![first, Moment { name: "exp_avg_sq", rows: self.by_row, ..first }]
    }

    fn shared(&self) -> Vec<Moment> {
        let first = Moment { name: "correction1", rows: false, initial: 0.0 };
        vec![first, Moment { name: "correction2", ..first }]
    }

    fn advance(&self, shared: &[Tensor]) -> Vec<Tensor> {
        shared.iter().zip(self.betas).map(|(correction, beta)| correction * beta + (1.0 - beta)).collect()
    }

    fn direction(&self, shared: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction> {
        let ([correction1, correction2], [first, second]) = (shared, moments) else { return None };
        let [beta1, beta2] = self.betas;
        let first = averaged(first, beta1, gradient);
        let second = averaged(second, beta2, &squares(gradient, self.by_row));
        let root = (spread(&second, self.by_row) / correction2).sqrt();
        let step = (&first / correction1) / (root + self.eps);
        Some(Direction { step, moments: vec![first, second] })
    }
}
