use super::error::Refusal;
use crate::plan::{Body, Operand, Place};
use rewire_graph::limits::{MAX_CHAIN, MAX_EXPRESSIONS, MAX_POINTS, check_count};
use rewire_graph::op::{Elements, Fused, Permute, Reshape, Slice};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{DType, Dim, Graph, Layout, NodeId, Type, Value};
use std::collections::{HashMap, HashSet};

/// Writes the values of a body as expressions of loop coordinates, producers substituted into readers.
pub(super) struct Inliner<'a> {
    pub graph: &'a Graph,
    pub body: Body,
    anchored: HashMap<Value, Anchored>,
    memo: HashMap<(Value, Vec<ExprId>), ExprId>,
    /// Samples of rows, by offsets and row, that the kernel's loop knows.
    samples: HashMap<(usize, ExprId), ExprId>,
    /// A coordinate with the only value that it has for the output at hand.
    pinned: Option<(ExprId, ExprId)>,
    /// Operators from the one that was asked for to the one at hand.
    chain: usize,
    failure: Option<Refusal>,
}

/// What the anchor supplies for a value.
struct Anchored {
    /// The coordinates at which it does; those of the first reading if `None`.
    coords: Option<Vec<ExprId>>,
    /// The expressions: one, or one an entry of `axis`, whose coordinate may be any.
    entries: Vec<ExprId>,
    axis: Option<usize>,
}

/// Where the element of a loop point goes in a tensor, and the columns of the loop it exists for.
#[derive(Clone)]
pub(super) struct Placed {
    pub index: Vec<ExprId>,
    pub columns: Option<(usize, usize)>,
    /// The loop coordinate that `columns` limits.
    pub column: Option<ExprId>,
}

impl Placed {
    /// Every point, at `index`.
    pub fn all(index: Vec<ExprId>) -> Self {
        Self { index, columns: None, column: None }
    }
}

impl<'a> Inliner<'a> {
    pub fn new(graph: &'a Graph) -> Self {
        let mut operands: Vec<(usize, Operand)> = graph
            .ids()
            .filter_map(|id| {
                let node = graph.node(id)?;
                let ty = node.types.first()?;
                let place = if ty.layout == Layout::Host { Place::Host } else { Place::Device };
                let operand = Operand { dtype: ty.dtype, shape: ty.shape.clone(), place };
                Some((Fused::operand(node.op.as_ref())?, operand))
            })
            .collect();
        operands.sort_by_key(|(position, _)| *position);
        let body = Body {
            dag: Dag::new(),
            operands: operands.into_iter().map(|(_, operand)| operand).collect(),
            sizes: vec![],
        };
        Self {
            graph,
            body,
            anchored: HashMap::new(),
            memo: HashMap::new(),
            samples: HashMap::new(),
            pinned: None,
            chain: 0,
            failure: None,
        }
    }

    /// Coordinates of a loop. Bounds of extents that are no constants follow from the number of points: see
    /// [`crate::plan::Kernel::points`].
    pub fn coords(&mut self, extents: &[Dim]) -> Vec<ExprId> {
        let constants = extents.iter().filter_map(Dim::as_const).fold(1usize, |all, n| all.saturating_mul(n.max(1)));
        let most = MAX_POINTS / constants;
        let coord = |(axis, dim): (usize, &Dim)| self.body.dag.coord(axis as u8, dim.as_const().or(Some(most)));
        extents.iter().enumerate().map(coord).collect()
    }

    /// Lets the anchor supply `value` at `coords`.
    pub fn anchor(&mut self, value: Value, coords: Vec<ExprId>, expr: ExprId) {
        let coords = self.canonical(value, &coords);
        self.anchored.insert(value, Anchored { coords: Some(coords), entries: vec![expr], axis: None });
        self.memo.clear();
    }

    /// Lets the anchor supply the entries of `value` along `axis`, which are all at `coords` otherwise.
    pub fn anchor_entries(&mut self, value: Value, coords: Vec<ExprId>, axis: usize, entries: Vec<ExprId>) {
        let coords = self.canonical(value, &coords);
        self.anchored.insert(value, Anchored { coords: Some(coords), entries, axis: Some(axis) });
        self.memo.clear();
    }

    /// Lets the anchor supply `value` at the coordinates at which it is read first.
    pub fn supply(&mut self, value: Value, expr: ExprId) {
        self.anchored.insert(value, Anchored { coords: None, entries: vec![expr], axis: None });
        self.memo.clear();
    }

    /// A row of a sample as a row of the jagged values. Nothing has to search for its sample by the same offsets.
    pub fn jagged_row(&mut self, offsets: Value, sample: ExprId, row: ExprId) -> Result<ExprId, Refusal> {
        let start = self.element(offsets, &[sample])?;
        let global = self.body.dag.binary(BinaryOp::Add, start, row);
        if let Some(position) = self.operand(offsets.node) {
            self.samples.insert((position, global), sample);
        }
        Ok(global)
    }

    /// The coordinates at which the anchor supplies `value`, once they are known.
    pub fn supplied_at(&self, value: Value) -> Option<Vec<ExprId>> {
        self.anchored.get(&value).and_then(|anchored| anchored.coords.clone())
    }

    /// Takes back what the anchor supplied for `nodes`.
    pub fn release(&mut self, nodes: &[NodeId]) {
        self.anchored.retain(|value, _| !nodes.contains(&value.node));
        self.memo.clear();
    }

    /// The element of `value` for the loop points at `placed`.
    pub fn placed(&mut self, value: Value, placed: &Placed) -> Result<ExprId, Refusal> {
        if let Some((start, end)) = placed.columns
            && end - start == 1
        {
            // An axis of one entry is read at 0, and what it was cut from at the entry's column.
            let only = self.body.dag.int(start as i64);
            self.pinned = placed.column.map(|column| (column, only));
            self.memo.clear();
        }
        let element = self.element(value, &placed.index);
        if self.pinned.take().is_some() {
            self.memo.clear();
        }
        element
    }

    /// The element of `value` at `coords`.
    pub fn element(&mut self, value: Value, coords: &[ExprId]) -> Result<ExprId, Refusal> {
        let expr = self.at(value, coords);
        match self.failure.take() {
            None => Ok(expr),
            Some(reason) => Err(reason),
        }
    }

    fn fail(&mut self, reason: impl Into<Refusal>) -> ExprId {
        self.failure.get_or_insert(reason.into());
        self.body.dag.int(0)
    }

    fn at(&mut self, value: Value, coords: &[ExprId]) -> ExprId {
        if self.failure.is_some() {
            return self.body.dag.int(0);
        }
        let coords = self.canonical(value, coords);
        if let Some(&known) = self.memo.get(&(value, coords.clone())) {
            return known;
        }
        let counts =
            [("operators in a row", self.chain, MAX_CHAIN), ("expressions", self.body.dag.len(), MAX_EXPRESSIONS)];
        if let Err(error) = counts.into_iter().try_for_each(|(what, count, limit)| check_count(what, count, limit)) {
            return self.fail(error);
        }
        self.chain += 1;
        let expr = self.compute(value, &coords);
        self.chain -= 1;
        self.memo.insert((value, coords), expr);
        expr
    }

    /// The same element, with 0 for every axis of extent 1.
    pub fn canonical(&mut self, value: Value, coords: &[ExprId]) -> Vec<ExprId> {
        let zero = self.body.dag.int(0);
        let one: Dim = 1.into();
        let shape = self.graph.ty(value).map_or(&[][..], |ty| &ty.shape);
        let single = |axis: usize| shape.get(axis) == Some(&one);
        coords.iter().enumerate().map(|(axis, &coord)| if single(axis) { zero } else { coord }).collect()
    }

    fn compute(&mut self, value: Value, coords: &[ExprId]) -> ExprId {
        if let Some(anchored) = self.anchored.get_mut(&value) {
            let (axis, entries) = (anchored.axis, anchored.entries.clone());
            let known = anchored.coords.get_or_insert_with(|| coords.to_vec()).iter().zip(coords).enumerate();
            let is_same = |(at, (&known, &coord)): (usize, (&ExprId, &ExprId))| {
                known == coord || axis == Some(at) || self.pinned == Some((known, coord))
            };
            if known.into_iter().all(is_same) {
                return self.entry(&entries, axis.and_then(|axis| coords.get(axis)).copied());
            }
            return self.fail("the anchor's result is read at other coordinates than its own".to_owned());
        }
        let graph = self.graph;
        let Some(node) = graph.node(value.node) else {
            return self.fail("a value of the body does not exist".to_owned());
        };
        if let Some(position) = Fused::operand(node.op.as_ref()) {
            let dtype = node.types.first().map_or(DType::F32, |ty| ty.dtype);
            return self.body.dag.load(position as u16, dtype, coords.to_vec());
        }
        match node.op.elementwise() {
            Some(elementwise) => {
                let inputs = graph.inputs(value.node);
                elementwise.element(&mut Reading { inliner: self, inputs: &inputs }, coords)
            }
            None => self.fail(format!("{} is computed within a prologue", node.op.name())),
        }
    }

    /// The entry at `position`, the only one where there is no position.
    fn entry(&mut self, entries: &[ExprId], position: Option<ExprId>) -> ExprId {
        let Some((&last, others)) = entries.split_last() else {
            return self.fail("an anchor supplies nothing".to_owned());
        };
        let Some(position) = position else { return last };
        others.iter().enumerate().rev().fold(last, |rest, (number, &entry)| {
            let end = self.body.dag.int(number as i64 + 1);
            let is_before = self.body.dag.binary(BinaryOp::Lt, position, end);
            self.body.dag.select(is_before, entry, rest)
        })
    }

    pub fn size(&mut self, dim: &Dim) -> ExprId {
        self.body.dag.extent(&mut self.body.sizes, dim)
    }

    /// Follows `value` back to one of `bases` and returns where its loop point lies in `value`.
    pub fn place(&mut self, value: Value, bases: &HashMap<Value, Vec<ExprId>>) -> Option<Placed> {
        self.place_unless(value, bases, &mut HashSet::new())
    }

    /// As [`Inliner::place`]; what is `misplaced` was followed to none of `bases` before.
    fn place_unless(
        &mut self,
        value: Value,
        bases: &HashMap<Value, Vec<ExprId>>,
        misplaced: &mut HashSet<Value>,
    ) -> Option<Placed> {
        if let Some(index) = bases.get(&value) {
            return Some(Placed::all(index.clone()));
        }
        if misplaced.contains(&value) {
            return None;
        }
        let placed = self.follow(value, bases, misplaced);
        if placed.is_none() {
            misplaced.insert(value);
        }
        placed
    }

    fn follow(
        &mut self,
        value: Value,
        bases: &HashMap<Value, Vec<ExprId>>,
        misplaced: &mut HashSet<Value>,
    ) -> Option<Placed> {
        let graph = self.graph;
        let node = graph.node(value.node)?;
        let shape = &node.types.first()?.shape;
        let inputs = graph.inputs(value.node);
        node.op.elementwise()?;
        let first = *inputs.first()?;
        let op = node.op.as_ref();
        if let Some(reshape) = op.downcast_ref::<Reshape>() {
            let placed = self.place_unless(first, bases, misplaced)?;
            let from = graph.ty(first)?.shape.clone();
            let mut reading = Reading { inliner: self, inputs: &inputs };
            let index = Reshape::map(&mut reading, &from, &reshape.shape, &placed.index);
            return Some(Placed { index, ..placed });
        }
        if let Some(permute) = op.downcast_ref::<Permute>() {
            let placed = self.place_unless(first, bases, misplaced)?;
            let index = permute.axes.iter().map(|&axis| placed.index.get(axis).copied()).collect::<Option<_>>()?;
            return Some(Placed { index, ..placed });
        }
        if let Some(slice) = op.downcast_ref::<Slice>() {
            let placed = self.place_unless(first, bases, misplaced)?;
            return self.sliced(slice, placed);
        }
        if !op.is_pointwise() {
            return None;
        }
        inputs
            .into_iter()
            .filter(|input| graph.ty(*input).is_some_and(|ty| ty.shape == *shape))
            .find_map(|input| self.place_unless(input, bases, misplaced))
    }

    fn sliced(&mut self, slice: &Slice, placed: Placed) -> Option<Placed> {
        let Placed { mut index, columns, .. } = placed;
        let last = index.len().checked_sub(1)?;
        if slice.axis != last || columns.is_some() {
            return None;
        }
        let dag = &mut self.body.dag;
        if !matches!(dag.expr(index[last]), Expr::Coord(_)) {
            return None;
        }
        let (column, start) = (index[last], dag.int(slice.start as i64));
        index[last] = dag.binary(BinaryOp::Sub, column, start);
        Some(Placed { index, columns: Some((slice.start, slice.start + slice.len)), column: Some(column) })
    }
}

struct Reading<'a, 'b> {
    inliner: &'a mut Inliner<'b>,
    inputs: &'a [Value],
}

impl Elements for Reading<'_, '_> {
    fn dag(&mut self) -> &mut Dag {
        &mut self.inliner.body.dag
    }

    fn operands(&self) -> usize {
        self.inputs.len()
    }

    fn ty(&self, operand: usize) -> &Type {
        static SCALAR: Type = Type { dtype: DType::I32, shape: vec![], layout: Layout::Device };
        self.inputs.get(operand).and_then(|&input| self.inliner.graph.ty(input)).unwrap_or(&SCALAR)
    }

    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId {
        match self.inputs.get(operand) {
            Some(&input) => self.inliner.at(input, index),
            None => self.inliner.fail(format!("operand {operand} does not exist")),
        }
    }

    fn sample(&mut self, operand: usize, row: ExprId) -> ExprId {
        match self.inputs.get(operand).and_then(|input| self.inliner.operand(input.node)) {
            Some(position) => match self.inliner.samples.get(&(position, row)) {
                Some(&sample) => sample,
                None => self.inliner.body.dag.sample(position as u16, row),
            },
            None => self.inliner.fail("offsets must be an operand of the kernel".to_owned()),
        }
    }

    fn size(&mut self, dim: &Dim) -> ExprId {
        self.inliner.size(dim)
    }
}

impl Inliner<'_> {
    /// The operand that a node of the body stands for.
    pub fn operand(&self, node: NodeId) -> Option<usize> {
        Fused::operand(self.graph.node(node)?.op.as_ref())
    }
}
