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

/// A state of an optimizer, of type `F32`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// The name, unique within the optimizer.
    pub name: &'static str,
    /// True for one value per row: the parameter's shape without its last dimension. False for one value per element.
    pub rows: bool,
    /// The initial value of every element.
    pub initial: f32,
}

/// The result of a step.
#[derive(Clone, Debug)]
pub struct Updated {
    /// The new parameter.
    pub parameter: Tensor,
    /// The new moments, in the order of [`Optimizer::moments`].
    pub moments: Vec<Tensor>,
}

/// The direction of a step.
#[derive(Clone, Debug)]
pub struct Direction {
    /// The value to subtract from the parameter at learning rate 1, in the gradient's shape.
    pub step: Tensor,
    /// The new moments, in the order of [`Rule::moments`].
    pub moments: Vec<Tensor>,
}

/// Computes the direction of a step from a gradient.
///
/// A custom optimizer implements this trait:
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
    /// The states per parameter.
    fn moments(&self) -> Vec<Moment> {
        vec![]
    }

    /// The states shared by all parameters, `[1]` each.
    fn shared(&self) -> Vec<Moment> {
        vec![]
    }

    /// Advances the shared states by one step.
    fn advance(&self, _shared: &[Tensor]) -> Vec<Tensor> {
        vec![]
    }

    /// The direction of a step, from the shared states after [`Rule::advance`], the gradient, and the moments before the step. `None` if
    /// the number of `shared` or `moments` is wrong.
    fn direction(&self, shared: &[Tensor], gradient: &Tensor, moments: &[Tensor]) -> Option<Direction>;
}

/// How weight decay is applied.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WeightDecay {
    /// No weight decay.
    #[default]
    None,
    /// The gradient is `g + decay w`.
    Coupled(f64),
    /// The gradient is unchanged, and additionally `w -= rate decay w`.
    Decoupled(f64),
}

/// Updates parameters by `w -= rate direction`, with the direction of a [`Rule`].
///
/// It accepts dense parameters and rows of tables. For tables, `parameter` and `gradient` are the `U` rows looked up in a
/// step, `[U, D]`; moments are `[U, D]`, or `[U]` with one value per row.
#[derive(Clone, Debug)]
pub struct Optimizer {
    rule: Arc<dyn Rule>,
    weight_decay: WeightDecay,
    max_gradient: Option<f64>,
}

impl Optimizer {
    /// Creates an optimizer from a rule, without weight decay and clipping.
    pub fn new(rule: impl Rule + 'static) -> Self {
        Self { rule: Arc::new(rule), weight_decay: WeightDecay::None, max_gradient: None }
    }

    /// Sets the weight decay.
    pub fn with_weight_decay(self, weight_decay: WeightDecay) -> Self {
        Self { weight_decay, ..self }
    }

    /// Clips every element of gradients to `-max_gradient..=max_gradient` before the rule.
    pub fn with_max_gradient(self, max_gradient: f64) -> Self {
        Self { max_gradient: Some(max_gradient), ..self }
    }

    /// The states per parameter.
    pub fn moments(&self) -> Vec<Moment> {
        self.rule.moments()
    }

    /// The states shared by all parameters, `[1]` each.
    pub fn shared(&self) -> Vec<Moment> {
        self.rule.shared()
    }

    /// Advances the shared states by one step. They are in the order of [`Optimizer::shared`], each `[1]`.
    pub fn advance(&self, shared: &[Tensor]) -> Vec<Tensor> {
        self.rule.advance(shared)
    }

    /// Updates one parameter.
    ///
    /// `rate` is the learning rate of the step, `[1]`. `shared` is the result of [`Optimizer::advance`] for the step. `gradient` has
    /// the shape of `parameter`. `moments` are the moments before the step. All are `F32`.
    ///
    /// [`Scope::finish`](rewire_graph::Scope::finish) returns an error if the gradient has another shape, or the number of
    /// moments is wrong.
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

    /// The direction of a step, with the new moments. `parameter` is called only if the direction depends on it. `None` if the number
    /// of moments is wrong.
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
        // A scalar combined with a `[1]` becomes `[1]` as well.
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

/// The squares of a gradient, or their means per row, `[U]`.
fn squares(gradient: &Tensor, by_row: bool) -> Tensor {
    let squares = gradient.square();
    match gradient.shape().split_last() {
        Some((_, rows)) if by_row => squares.mean(-1).reshape(rows),
        _ => squares,
    }
}

/// Reshapes a moment with one value per row, `[U]`, to a column, which broadcasts over gradients.
fn spread(moment: &Tensor, by_row: bool) -> Tensor {
    if !by_row {
        return moment.clone();
    }
    let column: Vec<Dim> = moment.shape().iter().cloned().chain([1.into()]).collect();
    moment.reshape(column)
}
