//! The indices of one loop as linear forms, and their bounds.

mod products;

use super::cover::{MixedRadix, Span};
use super::entries::{Entries, Known};
use super::facts::{Guard, Inequalities, When};
use super::form::{Atoms, LinearExpr, Var, VarDef};
use super::guards::guards;
use super::host::{Host, slot};
use super::region::{Region, Values};
use super::{Access, ProveError, Unproven};
use crate::plan::{HostSlot, Operand, Output, Step};
use products::elements;
use rewire_graph::limits::MAX_POINTS;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId, UnaryOp};
use rewire_graph::{Arrange, Dim, Scalar};
use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

const LEAST: i128 = i32::MIN as i128;
const MOST: i128 = i32::MAX as i128;

/// Inequalities about host values at an index, and for each scope the number of them already recorded there.
#[derive(Default)]
struct AtIndex {
    known: Known,
    noted: Vec<(When, usize)>,
}

/// The proof of one loop of a kernel.
pub(super) struct Analysis<'a> {
    dag: &'a Dag,
    operands: &'a [Operand],
    sizes: &'a [Dim],
    step: &'a Step,
    host: &'a Host<'a>,
    atoms: Atoms,
    facts: Inequalities,
    /// The linear forms of expressions, modulo 2^32 for 32-bit expressions.
    forms: HashMap<ExprId, LinearExpr>,
    guards: HashMap<ExprId, Guard>,
    /// Forms that are not negative if a condition is true, and if it is false.
    conditions: HashMap<ExprId, [Vec<LinearExpr>; 2]>,
    /// Inequalities about host values at an index below a size.
    at: HashMap<(LinearExpr, Option<Dim>), AtIndex>,
    found: Vec<Unproven>,
}

/// Results of the analysis of a loop.
pub(super) struct Findings {
    /// Loads, and possibly the store, without a proof.
    pub unproven: Vec<Unproven>,
    /// The written elements, if all of them are known: a span per dimension.
    pub written: Option<Vec<Span>>,
}

impl<'a> Analysis<'a> {
    /// Proves the loads and the store of a loop to be in range.
    pub fn run(step: &'a Step, region: &Region<'_>, host: &'a Host<'a>) -> Result<Findings, ProveError> {
        let body = step.computation.body();
        let mut analysis = Self {
            dag: &body.dag,
            operands: &body.operands,
            sizes: &body.sizes,
            step,
            host,
            atoms: Atoms::default(),
            facts: Inequalities::default(),
            forms: HashMap::new(),
            guards: guards(&body.dag, &region.roots),
            conditions: HashMap::new(),
            at: HashMap::new(),
            found: vec![],
        };
        analysis.bound_sizes();
        analysis.bound_coords(&region.coords);
        for id in analysis.order(&region.roots) {
            if let &Expr::Coord(axis) = analysis.dag.expr(id) {
                analysis.check_coord(id, region.coords.get(usize::from(axis)))?;
            }
            let form = analysis.visit(id);
            analysis.forms.insert(id, form);
        }
        let mut written = None;
        if let Some((position, output)) = region.output {
            let when = When { coords: u32::MAX, guard: Guard::default() };
            if analysis.access(Access::Store(position), &output.index, &output.shape, &when) {
                written = analysis.written(&region.coords, output);
            }
        }
        Ok(Findings { unproven: analysis.found, written })
    }

    /// The element ranges that an output writes if its index is in range; `None` unless every element in them is
    /// written.
    fn written(&mut self, coords: &[Values], output: &Output) -> Option<Vec<Span>> {
        if output.columns.is_some() && !matches!(coords.last(), Some(Values::Part(..))) {
            return None;
        }
        let is_ragged = coords.iter().any(|extent| matches!(extent, Values::Ragged(_)));
        let mut index: Vec<LinearExpr> = output.index.iter().map(|&id| self.form(id)).collect();
        let mut digits = MixedRadix::default();
        // A sample and a row of it are one coordinate: the row among all rows.
        for (axis, extent) in coords.iter().enumerate().skip(usize::from(is_ragged)) {
            let (coord, _) = self.atoms.intern(VarDef::Coord(axis as u8));
            match extent {
                Values::Unread => {}
                Values::Dim(dim) | Values::Depth(dim) => digits.coord(coord, 0, dim.clone()),
                Values::Part(first, last, _) => digits.coord(coord, *first, (last + 1 - first).into()),
                Values::Ragged(offsets) => {
                    let slot = slot(self.step, *offsets).filter(|slot| self.host.is_offsets(*slot))?;
                    let ends: Vec<Dim> = self.host.ends(slot).collect();
                    let end = ends.iter().find(|end| output.shape.contains(end)).or(ends.first())?;
                    digits.coord(coord, 0, end.clone());
                    let start = self.sample_start(slot);
                    for form in &mut index {
                        *form = form.plus(&start, -form.multiple_of(&coord))?;
                    }
                }
            }
        }
        digits.spans(&self.atoms, &index)
    }

    /// The first row of the sample at coordinate 0.
    fn sample_start(&mut self, slot: HostSlot) -> LinearExpr {
        let sample = self.atoms.form(VarDef::Coord(0));
        let samples = self.host.length(slot).cloned().unwrap_or_default() - 1.into();
        self.at((sample, Some(samples)), &When { coords: 1, guard: Guard::default() }, |entries| entries.entry(slot))
    }

    fn when(&self, id: ExprId) -> When {
        let guard = self.guards.get(&id).cloned().unwrap_or_default();
        // The coordinates of a condition exist where it is evaluated.
        let coords = guard.iter().fold(self.dag.coords(id), |coords, (of, _)| coords | self.dag.coords(*of));
        When { coords, guard }
    }

    /// A run fails if a tensor has a negative size, or more elements than 32 bits count.
    fn bound_sizes(&mut self) {
        let always = When::default();
        let written = self.step.computation.written();
        let tensors = self.operands.iter().map(|operand| operand.shape.as_slice());
        let shapes: Vec<&[Dim]> = tensors.chain(written.iter().map(|written| written.shape)).collect();
        let products = shapes.iter().filter_map(|shape| elements(shape));
        let mut dims: Vec<Dim> = shapes.iter().copied().flatten().chain(self.sizes).cloned().chain(products).collect();
        dims.arrange();
        dims.dedup();
        for dim in &dims {
            let form = self.atoms.dim(dim);
            self.facts.extend([form.times(-1).and_then(|form| form.shifted(MOST))], &always);
            let least = if self.host.is_filled(dim) { 1 } else { 0 };
            self.facts.extend([form.shifted(-least)], &always);
        }
        // Entries are uploaded as 32-bit words.
        let slots = (0..self.operands.len() as u16).filter_map(|operand| slot(self.step, operand));
        for offsets in slots.filter(|slot| self.host.is_offsets(*slot)) {
            let end = self.atoms.form(VarDef::End(offsets));
            self.facts.extend([end.times(-1).and_then(|end| end.shifted(MOST))], &always);
        }
    }

    fn bound_coords(&mut self, coords: &[Values]) {
        for (axis, extent) in coords.iter().enumerate() {
            let coord = self.atoms.form(VarDef::Coord(axis as u8));
            let mut when = When { coords: 1 << axis, guard: Guard::default() };
            let (first, end) = match extent {
                Values::Unread => continue,
                Values::Dim(dim) | Values::Depth(dim) => (0, Some(self.atoms.dim(dim))),
                Values::Part(first, last, _) => (*first as i128, Some(LinearExpr::constant(*last as i128 + 1))),
                Values::Ragged(offsets) => {
                    when.coords |= 1;
                    (0, slot(self.step, *offsets).map(|slot| self.sample_rows(slot, &when)))
                }
            };
            self.facts.extend([coord.shifted(-first)], &when);
            self.facts.extend([end.and_then(|end| end.minus(&coord)?.shifted(-1))], &when);
        }
    }

    /// The number of rows of the sample at coordinate 0.
    fn sample_rows(&mut self, slot: HostSlot, when: &When) -> LinearExpr {
        let sample = self.atoms.form(VarDef::Coord(0));
        // A run fails unless the number of samples is the number of offsets minus one.
        let samples = self.host.length(slot).cloned().unwrap_or_default() - 1.into();
        self.at((sample, Some(samples)), when, |entries| {
            entries.entry(slot);
            entries.length(slot)
        })
    }

    /// Queries host values at an index below a size, or scalars if there is no size. Records all facts that follow.
    fn at<T>(&mut self, at: (LinearExpr, Option<Dim>), when: &When, ask: impl FnOnce(&mut Entries<'_>) -> T) -> T {
        let AtIndex { known, mut noted } = self.at.remove(&at).unwrap_or_default();
        let mut entries = self.host.at(&mut self.atoms, at.clone(), known);
        let answer = ask(&mut entries);
        let known = entries.finish();
        let before = noted.iter().filter(|(place, _)| place.covers(when)).map(|(_, count)| *count).max().unwrap_or(0);
        if let Some(more) = known.facts.get(before..).filter(|more| !more.is_empty()) {
            self.facts.extend(more.iter().cloned().map(Some), when);
            noted.push((when.clone(), known.facts.len()));
        }
        self.at.insert(at, AtIndex { known, noted });
        answer
    }

    /// Fails if an expression assumes fewer values of a coordinate than the loop has.
    fn check_coord(&self, id: ExprId, extent: Option<&Values>) -> Result<(), ProveError> {
        let needed = match extent {
            Some(Values::Dim(dim)) => match dim.as_const() {
                Some(extent) => extent as i64 - 1,
                None => self.most_points() - 1,
            },
            Some(Values::Depth(dim)) => dim.as_const().map_or(i64::from(i32::MAX), |extent| extent as i64 - 1),
            Some(Values::Part(_, _, extent)) => *extent as i64 - 1,
            Some(Values::Ragged(_)) => i64::from(i32::MAX),
            Some(Values::Unread) | None => return Ok(()),
        };
        match self.dag.range(id) {
            Some((0, high)) if high >= needed => Ok(()),
            _ => Err(ProveError::Coordinate { expression: id.0 }),
        }
    }

    /// The largest value of the loop's symbolic extents: a run checks its number of points.
    fn most_points(&self) -> i64 {
        let constants = self.step.computation.points(|dim| Some(dim.as_const().map_or(1, |extent| extent.max(1))));
        (MAX_POINTS / constants.unwrap_or(MAX_POINTS)) as i64
    }

    /// Expressions after their operands, and after the conditions under which they are evaluated.
    fn order(&self, roots: &[ExprId]) -> Vec<ExprId> {
        let conditions = |id| self.guards.get(&id).into_iter().flat_map(|guard| guard.iter().map(|(of, _)| *of));
        // Inequalities are recorded in this order, last operand first; proofs depend on it.
        let reads = |id| self.dag.expr(id).operands().into_iter().chain(conditions(id)).rev().collect();
        self.dag.ordered(roots, reads)
    }

    fn visit(&mut self, id: ExprId) -> LinearExpr {
        let dag = self.dag;
        let form = match dag.expr(id) {
            &Expr::Int(_, value) => Some(LinearExpr::constant(value.into())),
            &Expr::Coord(axis) => Some(self.atoms.form(VarDef::Coord(axis))),
            &Expr::Size(position) => self.sizes.get(usize::from(position)).map(|dim| self.atoms.dim(dim)),
            Expr::Load { operand, index } => self.load(id, *operand, index),
            &Expr::Sample { offsets, row } => {
                self.sample(id, offsets, row);
                None
            }
            &Expr::Unary(UnaryOp::Neg, a) if dag.scalar(id) == Scalar::I32 => self.form(a).times(-1),
            &Expr::Unary(UnaryOp::Not, a) => {
                if let Some([yes, no]) = self.conditions.get(&a).cloned() {
                    self.condition(id, [no, yes]);
                }
                None
            }
            &Expr::Binary(op, a, b) => self.binary(id, op, a, b),
            &Expr::Select(c, a, b) => {
                self.select(id, c, a, b);
                None
            }
            &Expr::Cast(Scalar::I32 | Scalar::I64, a) if dag.scalar(a) == Scalar::I32 => Some(self.exact(a, id)),
            &Expr::Cast(Scalar::I32, a) if dag.scalar(a) == Scalar::I64 => {
                let form = self.form(a);
                self.is_word(&form, &self.when(id)).then_some(form)
            }
            _ => None,
        };
        form.unwrap_or_else(|| self.atoms.form(VarDef::Value(id)))
    }

    fn form(&self, id: ExprId) -> LinearExpr {
        debug_assert!(self.forms.contains_key(&id), "operands are analysed before what reads them");
        self.forms.get(&id).cloned().unwrap_or_default()
    }

    /// True if a form fits in 32 bits.
    fn fits(&mut self, form: &LinearExpr, when: &When) -> bool {
        if form.as_unknown().is_some_and(Var::is_value) {
            return true;
        }
        self.is_word(form, when)
    }

    fn is_word(&mut self, form: &LinearExpr, when: &When) -> bool {
        let above = form.shifted(-LEAST);
        let below = form.times(-1).and_then(|form| form.shifted(MOST));
        [above, below].into_iter().all(|form| form.is_some_and(|form| self.facts.prove(&form, when)))
    }

    /// The value of an operand of `user`: a new unknown if it may wrap around.
    fn exact(&mut self, id: ExprId, user: ExprId) -> LinearExpr {
        let form = self.form(id);
        let exact = self.dag.scalar(id) == Scalar::I64 || self.fits(&form, &self.when(user));
        if exact { form } else { self.atoms.form(VarDef::Value(id)) }
    }

    fn binary(&mut self, id: ExprId, op: BinaryOp, a: ExprId, b: ExprId) -> Option<LinearExpr> {
        use BinaryOp::*;
        match (op, self.dag.scalar(a)) {
            (Add, Scalar::I32) => self.form(a).plus(&self.form(b), 1),
            (Sub, Scalar::I32) => self.form(a).minus(&self.form(b)),
            (Mul, Scalar::I32) => match (self.form(a).as_constant(), self.form(b).as_constant()) {
                (Some(factor), _) => self.form(b).times(factor),
                (_, Some(factor)) => self.form(a).times(factor),
                _ => {
                    self.multiplied(id, a, b);
                    None
                }
            },
            (Div | Mod, Scalar::I32) => self.divided(id, op, a, b),
            (Min | Max, Scalar::I32 | Scalar::I64) => {
                self.extreme(id, op, a, b);
                None
            }
            (Lt | Le | Gt | Ge | Eq, Scalar::I32 | Scalar::I64) => {
                self.compared(id, op, a, b);
                None
            }
            (And | Or, Scalar::Bool) => {
                let of = |side: ExprId| self.conditions.get(&side).cloned().unwrap_or_default();
                let [[a_yes, a_no], [b_yes, b_no]] = [of(a), of(b)];
                match op {
                    And => self.condition(id, [[a_yes, b_yes].concat(), vec![]]),
                    _ => self.condition(id, [vec![], [a_no, b_no].concat()]),
                }
                None
            }
            _ => None,
        }
    }

    /// Records the consequences of a condition and of its negation.
    fn condition(&mut self, id: ExprId, cases: [Vec<LinearExpr>; 2]) {
        for (forms, value) in cases.iter().zip([true, false]) {
            let when = When { coords: 0, guard: Rc::new(BTreeSet::from([(id, value)])) };
            self.facts.extend(forms.iter().cloned().map(Some), &when);
        }
        self.conditions.insert(id, cases);
    }

    fn compared(&mut self, id: ExprId, op: BinaryOp, a: ExprId, b: ExprId) {
        let (a, b) = (self.exact(a, id), self.exact(b, id));
        let apart = |high: &LinearExpr, low: &LinearExpr, by: i128| high.minus(low).and_then(|form| form.shifted(-by));
        let (yes, no) = match op {
            BinaryOp::Lt => (vec![apart(&b, &a, 1)], vec![apart(&a, &b, 0)]),
            BinaryOp::Le => (vec![apart(&b, &a, 0)], vec![apart(&a, &b, 1)]),
            BinaryOp::Gt => (vec![apart(&a, &b, 1)], vec![apart(&b, &a, 0)]),
            BinaryOp::Ge => (vec![apart(&a, &b, 0)], vec![apart(&b, &a, 1)]),
            BinaryOp::Eq => (vec![apart(&a, &b, 0), apart(&b, &a, 0)], vec![]),
            _ => return,
        };
        self.condition(id, [yes, no].map(|forms| forms.into_iter().flatten().collect()));
    }

    fn divided(&mut self, id: ExprId, op: BinaryOp, a: ExprId, b: ExprId) -> Option<LinearExpr> {
        let (dividend, divisor, when) = (self.form(a), self.exact(b, id), self.when(id));
        let constant = divisor.as_constant().filter(|&divisor| divisor > 0);
        // A value that wraps around may be divided as if unsigned.
        let Some(constant) = constant.filter(|_| self.fits(&dividend, &when)) else {
            if op == BinaryOp::Mod && divisor.shifted(-1).is_some_and(|rest| self.facts.prove(&rest, &when)) {
                let rest = self.atoms.form(VarDef::Value(id));
                let above = divisor.minus(&rest).and_then(|above| above.shifted(-1));
                self.facts.extend([above, Some(rest)], &when);
            }
            self.split(id, op, a, &divisor);
            return None;
        };
        let quotient = self.atoms.form(VarDef::Quotient(dividend.clone(), constant));
        let rest = dividend.plus(&quotient, -constant)?;
        self.facts.extend([Some(rest.clone()), rest.times(-1).and_then(|rest| rest.shifted(constant - 1))], &when);
        Some(if op == BinaryOp::Div { quotient } else { rest })
    }

    /// Records that a value is one of two.
    fn either(&mut self, id: ExprId, bounds: [Option<LinearExpr>; 2], cases: [(Vec<LinearExpr>, &LinearExpr); 2]) {
        let (atom, _) = self.atoms.intern(VarDef::Value(id));
        let (value, when) = (LinearExpr::unknown(atom), self.when(id));
        self.facts.extend(bounds, &when);
        let cases = cases.map(|(mut forms, same)| {
            forms.extend(value.minus(same).into_iter().chain(same.minus(&value)));
            forms
        });
        self.facts.choose(atom, cases);
    }

    fn extreme(&mut self, id: ExprId, op: BinaryOp, a: ExprId, b: ExprId) {
        let (a, b) = (self.exact(a, id), self.exact(b, id));
        let value = self.atoms.form(VarDef::Value(id));
        let above = |high: &LinearExpr, low: &LinearExpr| high.minus(low);
        let (bounds, a_chosen, b_chosen) = match op {
            BinaryOp::Min => ([above(&a, &value), above(&b, &value)], above(&b, &a), above(&a, &b)),
            _ => ([above(&value, &a), above(&value, &b)], above(&a, &b), above(&b, &a)),
        };
        let cases = [(a_chosen.into_iter().collect(), &a), (b_chosen.into_iter().collect(), &b)];
        self.either(id, bounds, cases);
    }

    fn select(&mut self, id: ExprId, condition: ExprId, a: ExprId, b: ExprId) {
        if !matches!(self.dag.scalar(id), Scalar::I32 | Scalar::I64) {
            return;
        }
        let [yes, no] = self.conditions.get(&condition).cloned().unwrap_or_default();
        let (a, b) = (self.exact(a, a), self.exact(b, b));
        self.either(id, [None, None], [(yes, &a), (no, &b)]);
    }

    /// Records the dimensions in which an index is not proven to be within a shape; true if there are none.
    fn access(&mut self, access: Access, index: &[ExprId], shape: &[Dim], when: &When) -> bool {
        let axes = index.iter().zip(shape).enumerate();
        let outside: Vec<usize> =
            axes.filter(|(_, (id, dim))| !self.within(**id, dim, when)).map(|(axis, _)| axis).collect();
        if outside.is_empty() {
            return true;
        }
        let mut filled = |dim: &Dim| self.atoms.dim(dim).shifted(-1).is_some_and(|rest| self.facts.prove(&rest, when));
        let empty = outside.iter().any(|&axis| !filled(&shape[axis]));
        self.found.push(Unproven { access, outside, empty });
        false
    }

    fn within(&mut self, id: ExprId, dim: &Dim, when: &When) -> bool {
        let (Some(form), extent) = (self.forms.get(&id).cloned(), self.atoms.dim(dim)) else { return false };
        self.is_below(&form, &extent, when)
    }

    fn load(&mut self, id: ExprId, position: u16, index: &[ExprId]) -> Option<LinearExpr> {
        let operand = self.operands.get(usize::from(position))?;
        let when = self.when(id);
        let is_within = self.access(Access::Load(id), index, &operand.shape, &when);
        let slot = slot(self.step, position).filter(|_| is_within)?;
        let form = match index.first().map(|index| self.form(*index)) {
            None => self.at(Default::default(), &when, |entries| entries.scalar(slot)),
            Some(index) => self.entry(slot, index, operand, &when),
        };
        // Entries are uploaded as 32-bit words.
        let words = [form.shifted(-LEAST), form.times(-1).and_then(|form| form.shifted(MOST))];
        self.facts.extend(words, &when);
        Some(form)
    }

    /// The entry of a host vector at a valid index; an offset at `s + 1` is expressed in terms of the offset at `s`.
    fn entry(&mut self, slot: HostSlot, index: LinearExpr, operand: &Operand, when: &When) -> LinearExpr {
        debug_assert!(!operand.shape.is_empty(), "host operands are vectors");
        let count = operand.shape.first().cloned().unwrap_or_default();
        if !self.host.is_offsets(slot) {
            return self.at((index, Some(count)), when, |entries| entries.entry(slot));
        }
        let samples = count.clone() - 1.into();
        let before = index.shifted(-1).filter(|_| index.offset() > 0);
        if let Some(before) = before.filter(|before| self.facts.prove(before, when)) {
            let ask = |entries: &mut Entries<'_>| entries.entry(slot).plus(&entries.length(slot), 1);
            if let Some(form) = self.at((before, Some(samples.clone())), when, ask) {
                return form;
            }
        }
        let more = self.atoms.dim(&samples).minus(&index).and_then(|rest| rest.shifted(-1));
        let is_sample = more.is_some_and(|more| self.facts.prove(&more, when));
        self.at((index, Some(if is_sample { samples } else { count })), when, |entries| entries.entry(slot))
    }

    /// Records facts about the sample of a row.
    fn sample(&mut self, id: ExprId, offsets: u16, row: ExprId) {
        let when = self.when(id);
        let sample = self.atoms.form(VarDef::Value(id));
        self.facts.add(sample.clone(), &when);
        let Some([count]) = self.operands.get(usize::from(offsets)).map(|operand| operand.shape.as_slice()) else {
            return;
        };
        let last = self.atoms.dim(count).shifted(-2);
        let room = last.as_ref().and_then(|last| last.minus(&sample));
        let slot = slot(self.step, offsets).filter(|slot| self.host.is_offsets(*slot));
        let row = self.exact(row, id);
        let Some(slot) = slot.filter(|slot| self.is_divided(*slot, &row, &when)) else {
            // The search finds a sample if there is one.
            if last.is_some_and(|last| self.facts.prove(&last, &when)) {
                self.facts.extend([room], &when);
            }
            return;
        };
        let samples = count.clone() - 1.into();
        let (start, rows) =
            self.at((sample, Some(samples)), &when, |entries| (entries.entry(slot), entries.length(slot)));
        let position = row.minus(&start);
        let left = position.as_ref().and_then(|position| rows.minus(position)?.shifted(-1));
        self.facts.extend([room, position, left], &when);
    }

    /// True if a row is within the rows that offsets divide into samples.
    fn is_divided(&mut self, slot: HostSlot, row: &LinearExpr, when: &When) -> bool {
        let end = self.at(Default::default(), when, |entries| entries.end(slot));
        self.is_below(row, &end, when)
    }

    /// True if a form is proven to be at least 0 and below another.
    fn is_below(&mut self, form: &LinearExpr, end: &LinearExpr, when: &When) -> bool {
        let below = end.minus(form).and_then(|rest| rest.shifted(-1));
        self.facts.prove(form, when) && below.is_some_and(|below| self.facts.prove(&below, when))
    }
}
