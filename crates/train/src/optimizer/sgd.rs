use super::{Direction, Moment, Rule};
use rewire_graph::Tensor;

/// Gradient descent with momentum (Sutskever et al., 2013), as in torch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SgdRule {
    pub(crate) momentum: f64,
    pub(crate) dampening: f64,
    pub(crate) nesterov: bool,
}

impl Rule for SgdRule {
    fn moments(&self) -> Vec<Moment> {
        let buffer = Moment { name: "momentum_buffer", rows: false, initial: 0.0 };
        if self.momentum == 0.0 { vec![] } else { vec![buffer] }
    }

    /// The step count, up to 2: the first step is not dampened.
    fn shared(&self) -> Vec<Moment> {
        let step = Moment { name: "step", rows: false, initial: 0.0 };
        if self.momentum == 0.0 || self.dampening == 0.0 { vec![] } else { vec![step] }
    }

    fn advance(&self, shared: &[Tensor]) -> Vec<Tensor> {
        shared.iter().map(|step| (step + 1.0).minimum(2.0)).collect()
    }

    fn direction(&self, shared: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction> {
        let before = match moments {
            [] if self.momentum == 0.0 => return Some(Direction { step: gradient.clone(), moments: vec![] }),
            [before] if self.momentum != 0.0 => before,
            _ => return None,
        };
        let buffer = match shared {
            [] if self.dampening == 0.0 => before * self.momentum + gradient,
            [step] if self.dampening != 0.0 => {
                let dampened = before * self.momentum + gradient * (1.0 - self.dampening);
                step.lt(1.5).select(gradient, &dampened)
            }
            _ => return None,
        };
        let step = if self.nesterov { gradient + &buffer * self.momentum } else { buffer.clone() };
        Some(Direction { step, moments: vec![buffer] })
    }
}
