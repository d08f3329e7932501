//! Optimizers as arithmetic on symbolic tensors.

mod adadelta;
mod adagrad;
mod adam;
mod rmsprop;
mod sgd;

pub(crate) use adadelta::AdadeltaRule;
pub(crate) use adagrad::AdagradRule;
pub(crate) use adam::AdamRule;
pub(crate) use rmsprop::RmsPropRule;
pub(crate) use sgd::SgdRule;

use rewire_graph::{DType, Dim, Tensor};
use std::fmt::Debug;
use std::sync::Arc;

/// A state that an optimizer keeps from step to step, an `F32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The name, unlike those of the optimizer's others.
    pub name: &'static str,
    /// True for one value a row, the parameter's shape without its last extent; else there is one an element.
    pub rows: bool,
    /// What every element starts with.
    pub initial: f32,
}

/// What a step leaves of a parameter.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The parameter, of its shape.
    pub parameter: Tensor,
    /// Its moments, in the order of [`Optimizer::moments`].
    pub moments: Vec<Tensor>,
}

/// Where a step goes.
#[derive(Clone, Debug)]
pub struct Direction {
    /// What is subtracted from the parameter in a step of rate 1, of the gradient's shape.
    pub step: Tensor,
    /// The moments after the step, in the order of [`Rule::moments`].
    pub moments: Vec<Tensor>,
}

/// How an optimizer makes the direction of a step of gradients.
///
/// An optimizer of one's own is an implementation:
///
/// ```
/// use rewire_graph::Tensor;
/// use rewire_train::{Direction, Optimizer, Rule};
///
/// /// Steps of one size (Riedmiller and Braun, 1993).
/// #[derive(Debug)]
/// struct Signs;
///
/// impl Rule for Signs {
///     fn direction(&self, _: &[Tensor], gradient: &Tensor, _: &[Tensor]) -> Option<Direction> {
///         Some(Direction { step: gradient / (gradient.abs() + 1e-20), moments: vec![] })
///     }
/// }
///
/// let optimizer = Optimizer::new(Signs).with_max_gradient(1.0);
/// assert!(optimizer.moments().is_empty());
/// ```
pub trait Rule: Debug + Send + Sync {
    /// What it keeps for every parameter.
    fn moments(&self) -> Vec<Moment> {
        vec![]
    }

    /// What it keeps once for all parameters, `[1]` each.
    fn shared(&self) -> Vec<Moment> {
        vec![]
    }

    /// What is kept once, after one more step.
    fn advance(&self, _shared: &[Tensor]) -> Vec<Tensor> {
        vec![]
    }

    /// The direction of a step: of `shared` after [`Rule::advance`], the gradient, and the moments before the step. `None` where
    /// there are not as many `shared` or `moments` as the rule keeps.
    fn direction(&self, shared: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction>;
}

/// How parameters shrink in every step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WeightDecay {
    /// They do not.
    #[default]
    None,
    /// The gradient is `g + decay w`.
    Coupled(f64),
    /// The step is that of the plain gradient, and `w -= rate decay w`.
    Decoupled(f64),
}

/// How parameters follow gradients: `w -= rate direction`, with the direction of a [`Rule`].
///
/// It takes dense parameters and rows of tables: for these, `parameter` and `gradient` are the rows that a step looked up,
/// `[U, D]`, with their moments `[U, D]`, or `[U]` where these are one a row.
#[derive(Clone, Debug)]
pub struct Optimizer {
    rule: Arc<dyn Rule>,
    weight_decay: WeightDecay,
    max_gradient: Option<f64>,
}

impl Optimizer {
    /// The optimizer of a rule, without weight decay and limits.
    pub fn new(rule: impl Rule + 'static) -> Self {
        Self { rule: Arc::new(rule), weight_decay: WeightDecay::None, max_gradient: None }
    }

    /// The same with another weight decay.
    pub fn with_weight_decay(self, weight_decay: WeightDecay) -> Self {
        Self { weight_decay, ..self }
    }

    /// The same that first limits every element of gradients to `-max_gradient..=max_gradient`.
    pub fn with_max_gradient(self, max_gradient: f64) -> Self {
        Self { max_gradient: Some(max_gradient), ..self }
    }

    /// What it keeps for every parameter.
    pub fn moments(&self) -> Vec<Moment> {
        self.rule.moments()
    }

    /// What it keeps once for all parameters, `[1]` each.
    pub fn shared(&self) -> Vec<Moment> {
        self.rule.shared()
    }

    /// What is kept once, after one more step: of `shared` in the order of [`Optimizer::shared`], each `[1]`.
    pub fn advance(&self, shared: &[Tensor]) -> Vec<Tensor> {
        self.rule.advance(shared)
    }

    /// A step of one parameter.
    ///
    /// `rate` is the step's learning rate, `[1]`, and `shared` what [`Optimizer::advance`] returned for it; `gradient` has the
    /// shape of `parameter`, and `moments` are those before the step. All are `F32`.
    ///
    /// [`Scope::finish`](rewire_graph::Scope::finish) returns an error where the gradient has another shape, or there are not as
    /// many moments as the optimizer keeps.
    pub fn update(
        &self,
        rate: &Tensor,
        shared: &[Tensor],
        parameter: &Tensor,
        gradient: &Tensor,
        moments: &[Tensor],
    ) -> Updated {
        gradient.require_shape("optimizer", "gradient", parameter.shape());
        let Some(Direction { step, moments }) = self.direction(shared, || parameter.clone(), gradient, moments) else {
            let (expected, actual) = (self.moments().len(), moments.len());
            parameter.require("optimizer", "moments", false, format!("{expected} moments"), actual);
            return Updated { parameter: parameter.clone(), moments: moments.to_vec() };
        };
        Updated { parameter: self.moved(rate, parameter, &step), moments }
    }

    /// The direction of a step, and the moments after it. `parameter` is asked for where the direction depends on it. `None` of another
    /// number of moments than the rule keeps.
    pub(crate) fn direction(
        &self,
        shared: &[Tensor],
        parameter: impl FnOnce() -> Tensor,
        gradient: &Tensor,
        moments: &[Tensor],
    ) -> Option<Direction> {
        let limited = match self.max_gradient {
            Some(most) => gradient.clamp(Some(-most), Some(most)),
            None => gradient.cast(DType::F32),
        };
        let gradient = match self.weight_decay {
            WeightDecay::Coupled(decay) if decay != 0.0 => limited + parameter() * decay,
            _ => limited,
        };
        let direction = self.rule.direction(shared, &gradient, moments)?;
        // Beside what is `[1]` a scalar becomes one as well.
        let after = direction.moments.iter().zip(moments).map(|(after, before)| after.reshape(before.shape()));
        Some(Direction { step: direction.step, moments: after.collect() })
    }

    /// A parameter after a step in a direction.
    pub(crate) fn moved(&self, rate: &Tensor, parameter: &Tensor, step: &Tensor) -> Tensor {
        let moved = match self.weight_decay {
            WeightDecay::Decoupled(decay) if decay != 0.0 => parameter - rate * (step + parameter * decay),
            _ => parameter - rate * step,
        };
        moved.reshape(parameter.shape())
    }
}

/// `share before + (1 - share) next`
fn averaged(before: &Tensor, share: f64, next: &Tensor) -> Tensor {
    before * share + next * (1.0 - share)
}

/// The squares of a gradient, or by row their means, `[U]`.
fn squares(gradient: &Tensor, by_row: bool) -> Tensor {
    let squares = gradient.square();
    match gradient.shape().split_last() {
        Some((_, rows)) if by_row => squares.mean(-1).reshape(rows),
        _ => squares,
    }
}

/// What goes with the elements of a gradient; of one a row, `[U]`, a column.
fn spread(moment: &Tensor, by_row: bool) -> Tensor {
    if !by_row {
        return moment.clone();
    }
    let column: Vec<Dim> = moment.shape().iter().cloned().chain([1.into()]).collect();
    moment.reshape(column)
}
