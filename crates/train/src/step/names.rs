//! Names of the inputs, states and outputs that a step adds to those of its model.
//!
//! All of them begin with [`PREFIX`], which the names of a model must not. After it comes the kind of value, so that values of
//! different kinds never share a name, and the name of a parameter comes last.

/// The beginning that models may not use.
pub const PREFIX: &str = "train:";

/// The kind of the optimizer of tables.
pub const SPARSE: &str = "sparse";
/// The input that is 1 in the last batch of a step, 0 in others.
pub const LAST: &str = "train:last";
/// The input with the row of [`REPORTED`] that a batch writes.
pub const ROW: &str = "train:row";

/// The state with the scale of the loss.
pub const SCALE: &str = "train:scale";
/// The state with the number of steps since the scale changed.
pub const GROWTH: &str = "train:growth";
/// The state that is 1 once averages were taken.
pub const AVERAGES_BEGAN: &str = "train:averages";
/// The state with the reported outputs of batches, a row each, which wait on the device until they are read.
pub const REPORTED: &str = "train:reported";

/// The output that is 1 where all gradients of a step are finite, 0 where not.
pub const FINITE: &str = "train:finite";

/// The input with the learning rate of a kind of parameters.
pub fn rate(kind: &str) -> String {
    format!("{PREFIX}rate:{kind}")
}

/// The small parameters of a kind, which are updated as one vector: the name of this vector in place of a parameter's.
pub fn small(kind: &str) -> String {
    format!("{PREFIX}small:{kind}")
}

/// The sum of a parameter's gradients over the batches of a step.
pub fn sum(parameter: &str) -> String {
    format!("{PREFIX}sum:{parameter}")
}

/// A value that an optimizer keeps for a parameter.
pub fn moment(moment: &str, parameter: &str) -> String {
    debug_assert!(!moment.contains(':'), "the end of `{moment}` is not known");
    format!("{PREFIX}moment:{moment}:{parameter}")
}

/// A value that the optimizer of a kind of parameters keeps once for all of them.
pub fn shared(moment: &str, kind: &str) -> String {
    format!("{PREFIX}shared:{kind}:{moment}")
}

/// The moving average of a parameter.
pub fn average(parameter: &str) -> String {
    format!("{PREFIX}average:{parameter}")
}

/// The first part of the names of a lookup's inputs.
pub fn lookup(position: usize) -> String {
    format!("{PREFIX}lookup:{position}")
}

/// An output that is a sum by the index of a lookup, until it has replaced what it is the sum of.
pub fn replaced(position: usize) -> String {
    format!("{PREFIX}replaced:{position}")
}

/// True for a name that models may not use.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(PREFIX)
}
