//! Names of the inputs, states and outputs that a step adds to its model.
//!
//! All start with [`PREFIX`], which is reserved. The kind of value follows, so that values of different kinds never share
//! a name. The name of a parameter comes last.

/// The reserved prefix.
pub const PREFIX: &str = "train:";

/// The kind of the optimizer of tables.
pub const SPARSE: &str = "sparse";
/// The input that is 1 for the last batch of a step, otherwise 0.
pub const LAST: &str = "train:last";
/// The input with the weight of a batch of a rank in its step.
pub const SHARE: &str = "train:share";
/// The input with the row of [`REPORTED`] that a batch writes.
pub const ROW: &str = "train:row";

/// The state with the scale of the loss.
pub const SCALE: &str = "train:scale";
/// The state with the number of steps since the scale changed.
pub const GROWTH: &str = "train:growth";
/// The state that is 1 after averages were initialized.
pub const AVERAGES_BEGAN: &str = "train:averages";
/// The state that buffers reported outputs on the device, one row per batch.
pub const REPORTED: &str = "train:reported";

/// The output that is 1 if all gradients of a step are finite, otherwise 0.
pub const FINITE: &str = "train:finite";

/// The input with the learning rate of a kind of parameters.
pub fn rate(kind: &str) -> String {
    format!("{PREFIX}rate:{kind}")
}

/// The vector of a kind's small parameters, which are updated together.
pub fn small(kind: &str) -> String {
    format!("{PREFIX}small:{kind}")
}

/// The sum of a parameter's gradients over the batches of a step.
pub fn sum(parameter: &str) -> String {
    format!("{PREFIX}sum:{parameter}")
}

/// An optimizer's moment of a parameter.
pub fn moment(moment: &str, parameter: &str) -> String {
    debug_assert!(!moment.contains(':'), "the end of `{moment}` is not known");
    format!("{PREFIX}moment:{moment}:{parameter}")
}

/// An optimizer state shared by all parameters of a kind.
pub fn shared(moment: &str, kind: &str) -> String {
    format!("{PREFIX}shared:{kind}:{moment}")
}

/// The moving average of a parameter.
pub fn average(parameter: &str) -> String {
    format!("{PREFIX}average:{parameter}")
}

/// The name under which several dense gradients are joined: see [`sum`].
pub fn block(position: usize) -> String {
    format!("{PREFIX}block:{position}")
}

/// The prefix of the names of a lookup of the rows that all ranks looked up in a table.
pub fn merged(table: &str) -> String {
    format!("{PREFIX}merged:{table}")
}

/// The input with the row gradients of all ranks for a table.
pub fn gathered(table: &str) -> String {
    format!("{PREFIX}gathered:{table}")
}

/// The input with the looked-up rows of a table.
pub fn rows(table: &str) -> String {
    format!("{PREFIX}rows:{table}")
}

/// The input with rows of a state before an update.
pub fn before(state: &str) -> String {
    format!("{PREFIX}before:{state}")
}

/// The output with the same rows after the update.
pub fn after(state: &str) -> String {
    format!("{PREFIX}after:{state}")
}

/// The output with the new value of a state that the model sets.
pub fn kept(state: &str) -> String {
    format!("{PREFIX}kept:{state}")
}

/// The prefix of the names of a lookup's inputs.
pub fn lookup(position: usize) -> String {
    format!("{PREFIX}lookup:{position}")
}

/// A temporary output with the replacement of a node.
pub fn replaced(position: usize) -> String {
    format!("{PREFIX}replaced:{position}")
}

/// A saved array of a map from ids to rows.
pub fn ids(map: &str, part: &str) -> String {
    format!("{PREFIX}ids:{part}:{map}")
}

/// True for a reserved name.
pub fn is_reserved(name: &str) -> bool {
    name.starts_with(PREFIX)
}
