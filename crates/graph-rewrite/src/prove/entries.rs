//! Relations between entries of host vectors.

use super::form::{Atoms, LinearExpr, VarDef};
use super::host::Host;
use crate::plan::{Check, HostOp, HostSlot};
use rewire_graph::Dim;
use rewire_graph::pointwise::BinaryOp;
use std::collections::HashMap;

/// Largest number of host values examined for one index.
const STEPS: usize = 256;

/// A value of the shape program at an index.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    Entry(HostSlot),
    /// The difference of consecutive offsets at the index.
    Length(HostSlot),
    Scalar(HostSlot),
    /// The last entry of offsets.
    End(HostSlot),
}

/// Inequalities found at an index.
#[derive(Default)]
pub(super) struct Known {
    parts: HashMap<Part, LinearExpr>,
    /// Forms that are not negative.
    pub facts: Vec<LinearExpr>,
}

/// Entries of host vectors at one index, and facts about them.
pub(super) struct Entries<'h> {
    host: &'h Host<'h>,
    atoms: &'h mut Atoms,
    index: LinearExpr,
    /// An exclusive upper bound of the index, and that bound plus 1. `None` if there is no index; then only scalars
    /// have values.
    within: Option<[Dim; 2]>,
    known: Known,
    /// Values whose checks have not been applied yet.
    open: Vec<HostSlot>,
}

impl<'h> Entries<'h> {
    pub fn new(
        host: &'h Host<'h>,
        atoms: &'h mut Atoms,
        (index, within): (LinearExpr, Option<Dim>),
        known: Known,
    ) -> Self {
        let within = within.map(|within| [within.clone(), within + 1.into()]);
        Self { host, atoms, index, within, known, open: vec![] }
    }

    /// True for vectors that have an entry at the index.
    fn has(&self, slot: HostSlot) -> bool {
        self.is_long(slot, |[within, _], length| length == within) || self.follows(slot)
    }

    /// True for vectors that have an entry after the one at the index.
    fn follows(&self, slot: HostSlot) -> bool {
        self.is_long(slot, |[_, after], length| length == after)
    }

    fn is_long(&self, slot: HostSlot, is: impl FnOnce(&[Dim; 2], &Dim) -> bool) -> bool {
        self.within.as_ref().zip(self.host.length(slot)).is_some_and(|(within, length)| is(within, length))
    }

    /// All facts about the requested values.
    pub fn finish(mut self) -> Known {
        while let Some(slot) = self.open.pop() {
            for (check, inputs) in self.host.checks(slot) {
                self.checked(check, inputs);
            }
        }
        self.known
    }

    fn not_negative(&mut self, form: Option<LinearExpr>) {
        self.known.facts.extend(form);
    }

    fn equal(&mut self, a: &LinearExpr, b: &LinearExpr) {
        self.not_negative(a.minus(b));
        self.not_negative(b.minus(a));
    }

    /// The form of a part; `express` computes it on first use.
    fn part(
        &mut self,
        part: Part,
        meaning: VarDef,
        express: impl FnOnce(&mut Self) -> Option<LinearExpr>,
    ) -> LinearExpr {
        if let Some(known) = self.known.parts.get(&part) {
            return known.clone();
        }
        let own = self.atoms.form(meaning);
        let is_room = self.known.parts.len() < STEPS;
        // It is an unknown until it is expressed in terms of others, or if it cannot be.
        self.known.parts.insert(part, own.clone());
        let form = if is_room { express(self).unwrap_or(own) } else { own };
        self.known.parts.insert(part, form.clone());
        form
    }

    /// The last entry of offsets.
    pub fn end(&mut self, slot: HostSlot) -> LinearExpr {
        let end = self.atoms.form(VarDef::End(slot));
        if self.known.parts.insert(Part::End(slot), end.clone()).is_some() {
            return end;
        }
        self.not_negative(Some(end.clone()));
        for size in self.host.ends(slot) {
            let size = self.atoms.dim(&size);
            self.equal(&end, &size);
        }
        end
    }

    /// The difference of consecutive offsets at the index.
    pub fn length(&mut self, slot: HostSlot) -> LinearExpr {
        let meaning = VarDef::Length(slot, self.index.clone());
        if !self.follows(slot) {
            return self.atoms.form(meaning);
        }
        let lengths = match self.host.computed(slot) {
            Some((HostOp::Offsets, &[lengths])) => Some(lengths),
            _ => None,
        };
        let is_new = !self.known.parts.contains_key(&Part::Length(slot));
        let length = self.part(Part::Length(slot), meaning, |entries| Some(entries.entry(lengths?)));
        if is_new {
            self.open.push(slot);
            if self.host.is_offsets(slot) {
                self.not_negative(Some(length.clone()));
            }
        }
        length
    }

    /// The entry of a vector.
    pub fn entry(&mut self, slot: HostSlot) -> LinearExpr {
        let (part, meaning) = (Part::Entry(slot), VarDef::Entry(slot, self.index.clone()));
        if let Some(known) = self.known.parts.get(&part) {
            return known.clone();
        }
        if !self.has(slot) {
            return self.atoms.form(meaning);
        }
        let form = self.part(part, meaning, |entries| entries.expressed(slot, true));
        self.open.push(slot);
        if self.host.is_natural(slot) {
            self.not_negative(Some(form.clone()));
        }
        for &largest in self.host.largest(slot) {
            let largest = self.scalar(largest);
            self.not_negative(largest.minus(&form));
        }
        if self.host.is_offsets(slot) {
            let rows = if self.follows(slot) { self.length(slot) } else { LinearExpr::default() };
            let rest = self.end(slot).minus(&form).and_then(|rest| rest.minus(&rows));
            self.not_negative(rest);
        }
        form
    }

    /// The value of a scalar.
    pub fn scalar(&mut self, slot: HostSlot) -> LinearExpr {
        let (part, meaning) = (Part::Scalar(slot), VarDef::Scalar(slot));
        if let Some(known) = self.known.parts.get(&part) {
            return known.clone();
        }
        let symbol = self.host.symbol(slot);
        let form = self.part(part, meaning, |entries| match symbol {
            Some(symbol) => Some(entries.atoms.form(VarDef::Symbol(symbol))),
            None => entries.expressed(slot, false),
        });
        self.open.push(slot);
        form
    }

    /// A value in the same check as the vector `like`: a scalar, or the entry at the same index of a vector of the same
    /// length.
    fn beside(&mut self, slot: HostSlot, like: HostSlot) -> Option<LinearExpr> {
        match self.host.length(slot) {
            None => Some(self.scalar(slot)),
            length if length == self.host.length(like) => Some(self.entry(slot)),
            _ => None,
        }
    }

    /// A value expressed in terms of others.
    fn expressed(&mut self, slot: HostSlot, is_vector: bool) -> Option<LinearExpr> {
        let (op, inputs) = self.host.computed(slot)?;
        match (op, inputs) {
            (HostOp::Size(dim), []) if !is_vector => Some(self.atoms.dim(dim)),
            (HostOp::Sum, [vector]) if !is_vector => {
                self.host.total(*vector).map(|total| self.atoms.form(VarDef::Symbol(total)))
            }
            (HostOp::Fill(_), [value]) if is_vector => Some(self.scalar(*value)),
            (HostOp::Iota(_), []) if is_vector => Some(self.index.clone()),
            (HostOp::Lengths, [offsets]) if is_vector && self.follows(*offsets) => Some(self.length(*offsets)),
            (HostOp::Check { .. }, [first, ..]) => self.beside(*first, slot),
            (HostOp::Binary(op), [a, b]) => {
                let (a, b) = (self.beside(*a, slot)?, self.beside(*b, slot)?);
                self.binary(*op, &a, &b, slot, is_vector)
            }
            _ => None,
        }
    }

    fn binary(
        &mut self,
        op: BinaryOp,
        a: &LinearExpr,
        b: &LinearExpr,
        slot: HostSlot,
        is_vector: bool,
    ) -> Option<LinearExpr> {
        match op {
            BinaryOp::Add => a.plus(b, 1),
            BinaryOp::Sub => a.minus(b),
            BinaryOp::Mul => match (a.as_constant(), b.as_constant()) {
                (Some(factor), _) => b.times(factor),
                (_, Some(factor)) => a.times(factor),
                _ => None,
            },
            BinaryOp::Min | BinaryOp::Max => {
                let index = self.index.clone();
                let meaning = if is_vector { VarDef::Entry(slot, index) } else { VarDef::Scalar(slot) };
                let chosen = self.atoms.form(meaning);
                for of in [a, b] {
                    let apart = if op == BinaryOp::Min { of.minus(&chosen) } else { chosen.minus(of) };
                    self.not_negative(apart);
                }
                Some(chosen)
            }
            _ => None,
        }
    }

    /// Records the facts of a check at the index.
    fn checked(&mut self, check: &Check, inputs: &[HostSlot]) {
        match (check, inputs) {
            (Check::Counts, &[value]) => {
                let value = self.beside(value, value);
                let rest = value.as_ref().and_then(|value| value.times(-1)?.shifted(i32::MAX.into()));
                self.not_negative(value);
                self.not_negative(rest);
            }
            (Check::AtMost, &[value, bound]) => {
                let (Some(value), Some(bound)) = (self.beside(value, value), self.beside(bound, value)) else { return };
                self.not_negative(bound.minus(&value));
                self.not_negative(Some(value));
            }
            (Check::Slices, &[offsets, starts, kept])
                if self.has(starts) && [offsets, kept].iter().all(|&slot| self.follows(slot)) =>
            {
                let (rows, start, kept) = (self.length(offsets), self.entry(starts), self.length(kept));
                self.not_negative(rows.minus(&start).and_then(|left| left.minus(&kept)));
                self.not_negative(Some(start));
            }
            (Check::Sum, &[a, b, sum]) if [a, b, sum].iter().all(|&slot| self.has(slot)) => {
                let starts = [a, b, sum].map(|slot| self.entry(slot));
                let follow = [a, b, sum].iter().all(|&slot| self.follows(slot));
                let rows = follow.then(|| [a, b, sum].map(|slot| self.length(slot)));
                for [a, b, sum] in std::iter::once(starts).chain(rows) {
                    if let Some(both) = a.plus(&b, 1) {
                        self.equal(&both, &sum);
                    }
                }
            }
            _ => {}
        }
    }
}
