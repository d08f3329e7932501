//! Inequalities about host values from the shape program.

use super::ProveError;
use super::entries::{Entries, Known};
use super::form::{Atoms, LinearExpr};
use crate::plan::{Binding, Check, HostOp, HostSlot, MemorySpace, Plan, ShapeEntry, Step, SymbolSource};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Arrange, Dim, Symbol};
use std::collections::{HashMap, HashSet};

/// The values of a shape program, their dependencies, and the checks on them before each run.
#[derive(Debug, Default)]
pub(super) struct Host<'a> {
    computed: HashMap<HostSlot, (&'a HostOp, &'a [HostSlot])>,
    /// The lengths of vectors; scalars have none.
    lengths: HashMap<HostSlot, Dim>,
    /// Sizes that equal the sum of a vector, and sizes that equal a scalar.
    totals: HashMap<HostSlot, Symbol>,
    scalars: HashMap<HostSlot, Symbol>,
    /// Checks, by each value that they involve.
    checks: HashMap<HostSlot, Vec<(&'a Check, &'a [HostSlot])>>,
    /// Offsets: non-decreasing vectors that begin with 0, with the sizes that equal their last entry.
    offsets: HashMap<HostSlot, Vec<Dim>>,
    /// Vectors without negative entries, since offsets are computed from them.
    natural: HashSet<HostSlot>,
    /// Scalars that are the largest entries of vectors, by the vector.
    largest: HashMap<HostSlot, Vec<HostSlot>>,
    /// Sizes of states, which have at least one row.
    filled: HashSet<Symbol>,
}

impl<'a> Host<'a> {
    /// Reads the shape program of a plan.
    pub fn new(plan: &'a Plan) -> Result<Self, ProveError> {
        check_once(plan)?;
        let (mut host, states) = (Self::default(), plan.states());
        for input in &plan.host_inputs {
            host.lengths.extend(input.shape.first().map(|dim| (input.slot, dim.clone())));
        }
        for entry in &plan.shapes.entries {
            match entry {
                ShapeEntry::Compute { op, inputs, output } => host.compute(op, inputs, *output),
                ShapeEntry::Check { check, inputs, .. } => host.check(check, inputs),
                ShapeEntry::Define { symbol, source } => match source {
                    SymbolSource::Extent { input, .. } if states.contains_key(input.as_str()) => {
                        host.filled.insert(*symbol);
                    }
                    SymbolSource::Extent { .. } => {}
                    SymbolSource::Total(slot) => drop(host.totals.insert(*slot, *symbol)),
                    SymbolSource::Scalar(slot) => drop(host.scalars.insert(*slot, *symbol)),
                },
            }
        }
        Ok(host)
    }

    fn compute(&mut self, op: &'a HostOp, inputs: &'a [HostSlot], output: HostSlot) {
        let first = inputs.first().copied();
        let length = |slot: HostSlot| self.lengths.get(&slot).cloned();
        let len = match op {
            HostOp::Size(_) | HostOp::Sum | HostOp::Max => None,
            HostOp::Fill(len) | HostOp::Iota(len) => Some(len.clone()),
            HostOp::Offsets => first.and_then(length).map(|len| len + 1.into()),
            HostOp::Lengths => first.and_then(length).map(|len| len - 1.into()),
            HostOp::Binary(_) => inputs.iter().find_map(|&slot| length(slot)),
            HostOp::Check { .. } => first.and_then(length),
        };
        self.lengths.extend(len.map(|len| (output, len)));
        match (op, first) {
            (HostOp::Offsets, Some(lengths)) => {
                self.offsets.entry(output).or_default();
                self.natural.insert(lengths);
            }
            (HostOp::Max, Some(vector)) => self.largest.entry(vector).or_default().push(output),
            (HostOp::Check { check, .. }, _) => self.check(check, inputs),
            _ => {}
        }
        self.computed.insert(output, (op, inputs));
    }

    fn check(&mut self, check: &'a Check, inputs: &'a [HostSlot]) {
        if let (Check::Offsets { rows }, Some(&offsets)) = (check, inputs.first()) {
            self.offsets.entry(offsets).or_default().push(rows.clone());
        }
        for &slot in inputs {
            self.checks.entry(slot).or_default().push((check, inputs));
        }
    }

    /// True for offsets: non-decreasing vectors that begin with 0.
    pub fn is_offsets(&self, slot: HostSlot) -> bool {
        self.offsets.contains_key(&slot)
    }

    /// The sizes that equal the last entry of offsets.
    pub fn ends(&self, slot: HostSlot) -> impl Iterator<Item = Dim> + '_ {
        let lengths = match self.computed(slot) {
            Some((HostOp::Offsets, &[lengths])) => self.totals.get(&lengths),
            _ => None,
        };
        let total = lengths.map(|total| Dim::symbol(*total));
        self.offsets.get(&slot).into_iter().flatten().cloned().chain(total)
    }

    /// The computation of a value; `None` for an input.
    pub fn computed(&self, slot: HostSlot) -> Option<(&'a HostOp, &'a [HostSlot])> {
        self.computed.get(&slot).copied()
    }

    /// The number of entries of a vector; `None` for a scalar.
    pub fn length(&self, slot: HostSlot) -> Option<&Dim> {
        self.lengths.get(&slot)
    }

    /// The size that equals the sum of a vector.
    pub fn total(&self, slot: HostSlot) -> Option<Symbol> {
        self.totals.get(&slot).copied()
    }

    /// The size that equals a scalar.
    pub fn symbol(&self, slot: HostSlot) -> Option<Symbol> {
        self.scalars.get(&slot).copied()
    }

    /// The sizes that equal the product of two scalars, in order.
    pub fn products(&self) -> Vec<(Symbol, [HostSlot; 2])> {
        let product = |(slot, symbol): (&HostSlot, &Symbol)| match self.computed(*slot)? {
            (HostOp::Binary(BinaryOp::Mul), &[a, b]) => Some((*symbol, [a, b])),
            _ => None,
        };
        let mut products: Vec<_> = self.scalars.iter().filter_map(product).collect();
        products.arrange_by_key(|(symbol, _)| *symbol);
        products
    }

    /// True for vectors without negative entries.
    pub fn is_natural(&self, slot: HostSlot) -> bool {
        self.natural.contains(&slot) || self.is_offsets(slot)
    }

    /// The scalars that are the largest entry of a vector.
    pub fn largest(&self, slot: HostSlot) -> &[HostSlot] {
        self.largest.get(&slot).map(Vec::as_slice).unwrap_or_default()
    }

    /// True for a size that is at least 1.
    pub fn is_filled(&self, size: &Dim) -> bool {
        size.as_symbol().is_some_and(|symbol| self.filled.contains(&symbol))
    }

    /// The checks that involve a value.
    pub fn checks(&self, slot: HostSlot) -> &[(&'a Check, &'a [HostSlot])] {
        self.checks.get(&slot).map(Vec::as_slice).unwrap_or_default()
    }

    /// The entries at an index below a size, with facts about them; scalars if there is no size.
    pub fn at<'h>(&'h self, atoms: &'h mut Atoms, at: (LinearExpr, Option<Dim>), known: Known) -> Entries<'h> {
        Entries::new(self, atoms, at, known)
    }
}

/// The host value that an operand is bound to.
pub(super) fn slot(step: &Step, operand: u16) -> Option<HostSlot> {
    let operand = usize::from(operand);
    let is_host = step.computation.body().operands.get(operand)?.space == MemorySpace::Host;
    match step.reads.get(operand)? {
        Binding::Host(slot) if is_host => Some(*slot),
        _ => None,
    }
}

/// Fails if a host value or a size is defined twice.
fn check_once(plan: &Plan) -> Result<(), ProveError> {
    let (mut slots, mut symbols) = (HashSet::new(), HashSet::new());
    if let Some(input) = plan.host_inputs.iter().find(|input| !slots.insert(input.slot)) {
        return Err(ProveError::Twice { what: format!("host slot {}", input.slot.0) });
    }
    for entry in &plan.shapes.entries {
        match entry {
            ShapeEntry::Compute { output, .. } if !slots.insert(*output) => {
                return Err(ProveError::Twice { what: format!("host slot {}", output.0) });
            }
            ShapeEntry::Define { symbol, .. } if !symbols.insert(*symbol) => {
                return Err(ProveError::Twice { what: format!("size s{}", symbol.0) });
            }
            _ => {}
        }
    }
    Ok(())
}
