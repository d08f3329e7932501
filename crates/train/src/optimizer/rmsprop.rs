use super::{Direction, Moment, Rule, averaged};
use rewire_graph::Tensor;

/// RMSprop (Tieleman and Hinton, 2012), as in torch; centered (Graves, 2013).
#[derive(Clone, Copy, Debug)]
pub(crate) struct RmsPropRule {
    pub(crate) alpha: f64,
    pub(crate) eps: f64,
    pub(crate) momentum: f64,
    pub(crate) centered: bool,
}

impl Rule for RmsPropRule {
    fn moments(&self) -> Vec<Moment> {
        let kept = [("square_avg", true), ("grad_avg", self.centered), ("momentum_buffer", self.momentum != 0.0)];
        let kept = kept.into_iter().filter(|(_, is_kept)| *is_kept);
        kept.map(|(name, _)| Moment { name, rows: false, initial: 0.0 }).collect()
    }

    fn direction(&self, _: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction> {
        if moments.len() != self.moments().len() {
            return None;
        }
        let (squares, others) = moments.split_first()?;
        let squares = averaged(squares, self.alpha, &gradient.square());
        let mean = others.first().filter(|_| self.centered).map(|mean| averaged(mean, self.alpha, gradient));
        // Rounding can make the difference for equal gradients negative.
        let variance = mean.as_ref().map_or_else(|| squares.clone(), |mean| (&squares - mean.square()).maximum(0.0));
        let scaled = gradient / (variance.sqrt() + self.eps);
        let buffer = others.last().filter(|_| self.momentum != 0.0).map(|buffer| buffer * self.momentum + &scaled);
        let step = buffer.clone().unwrap_or(scaled);
        Some(Direction { step, moments: [Some(squares), mean, buffer].into_iter().flatten().collect() })
    }
}
