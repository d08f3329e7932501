use super::{Direction, Moment, Rule, averaged};
use rewire_graph::Tensor;

/// Adadelta (Zeiler, 2012).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdadeltaRule {
    pub(crate) rho: f64,
    pub(crate) eps: f64,
}

impl Rule for AdadeltaRule {
    fn moments(&self) -> Vec<Moment> {
        ["square_avg", "acc_delta"].map(|name| Moment { name, rows: false, initial: 0.0 }).to_vec()
    }

    fn direction(&self, _: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction> {
        let [squares, deltas] = moments else { return None };
        let squares = averaged(squares, self.rho, &gradient.square());
        let step = (deltas + self.eps).sqrt() / (&squares + self.eps).sqrt() * gradient;
        let deltas = averaged(deltas, self.rho, &step.square());
        Some(Direction { step, moments: vec![squares, deltas] })
    }
}
