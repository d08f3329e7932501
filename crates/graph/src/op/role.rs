use super::{Constant, Fused, HostOp, Input, Op, Parameter};

/// The role of an operator in a graph.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// Bound for each run.
    Input(&'a Input),
    /// Bound when a plan is loaded.
    Parameter(&'a Parameter),
    /// Part of the graph.
    Constant(&'a Constant),
    /// Computed on the host before a run.
    Host(&'a HostOp),
    /// Computed by one kernel.
    Fused(&'a Fused),
    /// Any other operator.
    Computed,
}

impl dyn Op {
    /// The role of the operator in a graph.
    pub fn role(&self) -> Role<'_> {
        let input = || self.downcast_ref().map(Role::Input);
        let parameter = || self.downcast_ref().map(Role::Parameter);
        let constant = || self.downcast_ref().map(Role::Constant);
        let host = || self.downcast_ref().map(Role::Host);
        let fused = || self.downcast_ref().map(Role::Fused);
        input().or_else(parameter).or_else(constant).or_else(host).or_else(fused).unwrap_or(Role::Computed)
    }
}

impl<'a> Role<'a> {
    /// The name of an input or parameter.
    pub fn name(self) -> Option<&'a str> {
        match self {
            Role::Input(input) => Some(&input.name),
            Role::Parameter(parameter) => Some(&parameter.name),
            _ => None,
        }
    }

    /// True for values that are the same in every run.
    pub fn is_fixed(self) -> bool {
        matches!(self, Role::Parameter(_) | Role::Constant(_))
    }
}
