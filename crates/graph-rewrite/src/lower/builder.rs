use crate::error::NotLowerable;
use crate::plan::{Accumulation, Axis, Body, Extent, MemorySpace, Nest, Operand};
use rewire_graph::limits::{MAX_CHAIN, MAX_EXPRESSIONS, MAX_POINTS, MAX_STATISTICS, MAX_VALUES, check_count};
use rewire_graph::op::{Accumulator, Elements, Fused, Permute, ReduceOp, Reshape, SetRows, Slice, Span};
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{Arrange, DType, Dim, Graph, Layout, NodeId, Scalar, Type, Value};
use std::collections::{HashMap, HashSet};

/// Builds expressions of loop coordinates for the values of a body, with producers substituted into readers.
pub(super) struct Builder<'a> {
    pub graph: &'a Graph,
    pub nest: Nest,
    memo: HashMap<(Value, Vec<ExprId>), ExprId>,
    /// The samples of rows that the kernel's loop provides, by offsets and row.
    samples: HashMap<(usize, ExprId), ExprId>,
    /// The coordinates at which reductions that are results are available.
    bases: HashMap<Value, Vec<ExprId>>,
    /// Axes that further reductions may loop over.
    sums: Vec<u8>,
    /// Axes of the reductions whose elements are being built, innermost last.
    open: Vec<u8>,
    /// A coordinate that is constant for the current output, with its value.
    pinned: Option<(ExprId, ExprId)>,
    /// Number of operators in the chain from the requested one to the current one.
    chain: usize,
    failure: Option<NotLowerable>,
}

/// The index of a loop point's element in a tensor, and the columns of the loop for which it exists.
#[derive(Clone)]
pub(super) struct Placed {
    pub index: Vec<ExprId>,
    pub columns: Option<(usize, usize)>,
    /// The loop coordinate that `columns` limits, the last result axis.
    pub column: Option<ExprId>,
}

impl Placed {
    /// Every point, at `index`.
    pub fn all(index: Vec<ExprId>) -> Self {
        Self { index, columns: None, column: None }
    }
}

impl<'a> Builder<'a> {
    pub fn new(graph: &'a Graph) -> Self {
        let mut operands: Vec<(usize, Operand)> = graph
            .ids()
            .filter_map(|id| {
                let node = graph.node(id)?;
                let ty = node.types.first()?;
                let space = if ty.layout == Layout::Host { MemorySpace::Host } else { MemorySpace::Device };
                let operand = Operand { dtype: ty.dtype, shape: ty.shape.clone(), space };
                Some((Fused::operand(node.op.as_ref())?, operand))
            })
            .collect();
        operands.arrange_by_key(|(position, _)| *position);
        let operands = operands.into_iter().map(|(_, operand)| operand).collect();
        Self {
            graph,
            nest: Nest { body: Body { operands, ..Body::default() }, ..Nest::default() },
            memo: HashMap::new(),
            samples: HashMap::new(),
            bases: HashMap::new(),
            sums: vec![],
            open: vec![],
            pinned: None,
            chain: 0,
            failure: None,
        }
    }

    fn dag(&mut self) -> &mut Dag {
        &mut self.nest.body.dag
    }

    /// The coordinates of a loop over axes of these extents. Bounds of symbolic extents follow from the number of
    /// points: see [`Nest::points`].
    pub fn walk(&mut self, extents: &[Dim]) -> Vec<ExprId> {
        self.walk_on(extents, &mut vec![])
    }

    /// The coordinates of a loop over a result; offsets may divide one of its axes into samples.
    pub fn walk_result(&mut self, shape: &[Dim], samples: Option<(usize, Value)>) -> Result<Vec<ExprId>, NotLowerable> {
        let Some((axis, offsets)) = samples else { return Ok(self.walk(shape)) };
        let position = self.operand(offsets.node).ok_or("offsets must be an operand")?;
        let count = self.graph.ty(offsets).and_then(|ty| ty.shape.first().cloned());
        let count = count.ok_or("offsets must be a vector")? - 1.into();
        let mut walked = vec![];
        let sample = self.loop_over(Extent::Dense(count), None, &mut walked);
        let row = self.loop_over(Extent::Ragged { offsets: position as u16 }, None, &mut walked);
        let start = self.element(offsets, &[sample])?;
        let global = self.dag().binary(BinaryOp::Add, start, row);
        self.samples.insert((position, global), sample);
        let inner: Vec<Dim> =
            shape.iter().enumerate().filter(|(n, _)| *n != axis).map(|(_, dim)| dim.clone()).collect();
        let mut coords = self.walk_on(&inner, &mut walked);
        coords.insert(axis, global);
        Ok(coords)
    }

    fn walk_on(&mut self, extents: &[Dim], walked: &mut Vec<usize>) -> Vec<ExprId> {
        let constants = extents.iter().filter_map(Dim::as_const).fold(1usize, |all, n| all.saturating_mul(n.max(1)));
        let most = MAX_POINTS / constants;
        extents
            .iter()
            .map(|dim| self.loop_over(Extent::Dense(dim.clone()), dim.as_const().or(Some(most)), walked))
            .collect()
    }

    /// The coordinate of rows that are reduced for every point of the loop.
    pub fn walk_rows(&mut self, extent: &Dim) -> ExprId {
        self.nest.axes.push(Axis { extent: Extent::Dense(extent.clone()), summed: true });
        let axis = self.nest.axes.len() - 1;
        self.dag().coord(axis as u8, extent.as_const())
    }

    /// The coordinate of a result axis: an axis that another result has and that is not `walked` yet, or else a new
    /// one.
    fn loop_over(&mut self, extent: Extent, bound: Option<usize>, walked: &mut Vec<usize>) -> ExprId {
        let axes = &mut self.nest.axes;
        let known = (0..axes.len()).find(|axis| axes[*axis].extent == extent && !walked.contains(axis));
        let axis = known.unwrap_or_else(|| {
            axes.push(Axis { extent, summed: false });
            axes.len() - 1
        });
        walked.push(axis);
        self.dag().coord(axis as u8, bound)
    }

    /// Computes a reduction that is a result of the loop at `coords`.
    pub fn base(&mut self, value: Value, coords: &[ExprId]) -> Result<(), NotLowerable> {
        let coords = self.canonical(value, coords);
        self.element(value, &coords)?;
        self.bases.insert(value, coords);
        Ok(())
    }

    /// Allows reductions to loop over a result axis.
    pub fn combine_over(&mut self, axis: usize) {
        self.sums.push(axis as u8);
    }

    /// The element of `value` for the loop points at `placed`.
    pub fn placed(&mut self, value: Value, placed: &Placed) -> Result<ExprId, NotLowerable> {
        if let Some((start, end)) = placed.columns
            && end - start == 1
        {
            // An axis of extent 1 is read at 0. The value that it is a slice of is read at the column of the slice.
            let only = self.dag().int(start as i64);
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
    pub fn element(&mut self, value: Value, coords: &[ExprId]) -> Result<ExprId, NotLowerable> {
        let expr = self.at(value, coords);
        match self.failure.take() {
            None => Ok(expr),
            Some(reason) => Err(reason),
        }
    }

    /// The element of `value` at `coords`, where `known` has the given element.
    pub fn element_with(
        &mut self,
        value: Value,
        coords: &[ExprId],
        (known, element): (Value, ExprId),
    ) -> Result<ExprId, NotLowerable> {
        let place = (known, self.canonical(known, coords));
        self.memo.clear();
        self.memo.insert(place, element);
        let element = self.element(value, coords);
        // The given element may hold for the columns of one output only.
        self.memo.clear();
        element
    }

    /// The index in the table of the row element at `coords`.
    pub fn row_place(
        &mut self,
        set: &SetRows,
        inputs: &[Value],
        coords: &[ExprId],
    ) -> Result<Vec<ExprId>, NotLowerable> {
        let place = set.place(&mut Reading { builder: self, inputs }, coords);
        self.failure.take().map_or(Ok(place), Err)
    }

    fn fail(&mut self, reason: impl Into<NotLowerable>) -> ExprId {
        self.failure.get_or_insert(reason.into());
        self.dag().int(0)
    }

    fn at(&mut self, value: Value, coords: &[ExprId]) -> ExprId {
        if self.failure.is_some() {
            return self.dag().int(0);
        }
        let coords = self.canonical(value, coords);
        if let Some(&known) = self.memo.get(&(value, coords.clone())) {
            return known;
        }
        let counts =
            [("operators in a row", self.chain, MAX_CHAIN), ("expressions", self.nest.body.dag.len(), MAX_EXPRESSIONS)];
        if let Err(error) = counts.into_iter().try_for_each(|(what, count, limit)| check_count(what, count, limit)) {
            return self.fail(error);
        }
        self.chain += 1;
        let expr = self.compute(value, &coords);
        self.chain -= 1;
        self.memo.insert((value, coords), expr);
        expr
    }

    /// The coordinates of the same element, with 0 for every axis of extent 1.
    pub fn canonical(&mut self, value: Value, coords: &[ExprId]) -> Vec<ExprId> {
        let zero = self.dag().int(0);
        let one: Dim = 1.into();
        let shape = self.graph.ty(value).map_or(&[][..], |ty| &ty.shape);
        let single = |axis: usize| shape.get(axis) == Some(&one);
        coords.iter().enumerate().map(|(axis, &coord)| if single(axis) { zero } else { coord }).collect()
    }

    fn compute(&mut self, value: Value, coords: &[ExprId]) -> ExprId {
        let graph = self.graph;
        let Some(node) = graph.node(value.node) else {
            return self.fail("a value of the body does not exist".to_owned());
        };
        if let Some(position) = Fused::operand(node.op.as_ref()) {
            let dtype = node.types.first().map_or(DType::F32, |ty| ty.dtype);
            return self.dag().load(position as u16, dtype, coords.to_vec());
        }
        let inputs = graph.inputs(value.node);
        if let Some(elementwise) = node.op.elementwise() {
            return elementwise.element(&mut Reading { builder: self, inputs: &inputs }, coords);
        }
        let Some(accumulated) = node.op.accumulated() else {
            return self.fail(format!("{} is computed within a prologue", node.op.name()));
        };
        if accumulated.reduced().is_some()
            && let Some(axis) = self.summed_axis(value, coords)
        {
            return self.entries(value, coords, axis);
        }
        let coords = &self.unpinned(value, coords);
        accumulated.element(&mut Reading { builder: self, inputs: &inputs }, coords)
    }

    /// Removes scales that are equal for all elements from the factors of a dot product. They apply to the sum, so that
    /// loops read operands in place.
    fn scales(&self, factors: &mut [ExprId]) -> Vec<ExprId> {
        let dag = &self.nest.body.dag;
        let is_scale = |id: ExprId| dag.coords(id) == 0 && dag.values(id) == 0;
        let mut scales = vec![];
        if factors.len() < 2 {
            return scales;
        }
        for factor in factors {
            while let Expr::Binary(BinaryOp::Mul, a, b) = *dag.expr(*factor) {
                let (scale, rest) = match (is_scale(a), is_scale(b)) {
                    (true, false) => (a, b),
                    (false, true) => (b, a),
                    _ => break,
                };
                scales.push(scale);
                *factor = rest;
            }
        }
        scales
    }

    /// The coordinates that expressions depend on, as a bit mask.
    fn point(&self, ids: &[ExprId]) -> u32 {
        ids.iter().fold(0, |bits, id| bits | self.nest.body.dag.coords(*id))
    }

    /// The coordinates of a result, with the constant one replaced by its value.
    fn unpinned(&self, value: Value, coords: &[ExprId]) -> Vec<ExprId> {
        let is_same = |(&known, &coord): (&ExprId, &ExprId)| known == coord || self.pinned == Some((known, coord));
        match self.bases.get(&value) {
            Some(base) if base.iter().zip(coords).all(is_same) => base.clone(),
            _ => coords.to_vec(),
        }
    }

    /// A short axis of a reduction's result that is indexed by the coordinate of another reduction.
    fn summed_axis(&self, value: Value, coords: &[ExprId]) -> Option<usize> {
        let shape = &self.graph.ty(value)?.shape;
        let summed = self.sums.iter().fold(0, |bits, axis| bits | 1u32 << axis);
        (0..coords.len()).find(|&axis| {
            let few = shape.get(axis).and_then(Dim::as_const).is_some_and(|extent| extent <= MAX_STATISTICS);
            few && self.nest.body.dag.coords(coords[axis]) & summed != 0
        })
    }

    /// An entry of a reduction at a computed position along `axis`: computes all entries and selects one.
    fn entries(&mut self, value: Value, coords: &[ExprId], axis: usize) -> ExprId {
        let count = self.graph.ty(value).and_then(|ty| ty.extent(axis)).unwrap_or(1);
        let mut entries = vec![];
        for entry in 0..count {
            let mut index = coords.to_vec();
            index[axis] = self.dag().int(entry as i64);
            entries.push(self.at(value, &index));
        }
        let position = coords[axis];
        let Some((&last, others)) = entries.split_last() else { return self.dag().float(0.0) };
        others.iter().enumerate().rev().fold(last, |rest, (number, &entry)| {
            let end = self.dag().int(number as i64 + 1);
            let is_before = self.dag().binary(BinaryOp::Lt, position, end);
            self.dag().select(is_before, entry, rest)
        })
    }

    /// The axis for a reduction of this extent, other than the coordinates in `point`, a bit mask: an existing or a new
    /// one.
    fn sum_axis(&mut self, extent: Extent, point: u32) -> (u8, ExprId) {
        let fits = |&&axis: &&u8| point >> axis & 1 == 0 && self.nest.axes[usize::from(axis)].extent == extent;
        let axis = self.open.iter().rev().chain(&self.sums).find(fits).copied().unwrap_or_else(|| {
            self.nest.axes.push(Axis::sum(extent.clone()));
            let axis = self.nest.axes.len() as u8 - 1;
            self.sums.push(axis);
            axis
        });
        let dag = &mut self.nest.body.dag;
        let known = dag.ids().find(|id| *dag.expr(*id) == Expr::Coord(axis));
        (axis, known.unwrap_or_else(|| dag.coord(axis, extent.dense().and_then(Dim::as_const))))
    }

    pub fn size(&mut self, dim: &Dim) -> ExprId {
        self.nest.body.dag.extent(&mut self.nest.body.sizes, dim)
    }

    /// Traces `value` back to one of `bases` and returns the index of its loop point in `value`.
    pub fn place(&mut self, value: Value, bases: &HashMap<Value, Vec<ExprId>>) -> Option<Placed> {
        self.place_unless(value, bases, &mut HashSet::new())
    }

    /// Like [`Self::place`]; `misplaced` values are known not to lead to any of `bases`.
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
        if let Some(reshape) = graph.op::<Reshape>(value.node) {
            let placed = self.place_unless(first, bases, misplaced)?;
            let from = graph.ty(first)?.shape.clone();
            let mut reading = Reading { builder: self, inputs: &inputs };
            let index = Reshape::map(&mut reading, &from, &reshape.shape, &placed.index);
            return Some(Placed { index, ..placed });
        }
        if let Some(permute) = graph.op::<Permute>(value.node) {
            let placed = self.place_unless(first, bases, misplaced)?;
            let index = permute.axes.iter().map(|&axis| placed.index.get(axis).copied()).collect::<Option<_>>()?;
            return Some(Placed { index, ..placed });
        }
        if let Some(slice) = graph.op::<Slice>(value.node) {
            let placed = self.place_unless(first, bases, misplaced)?;
            return self.sliced(slice, placed);
        }
        if !node.op.is_pointwise() {
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
        let (rank, dag) = (self.nest.rank(), &mut self.nest.body.dag);
        // Columns refer to the loop's last axis. The last axis of a permuted value may be another one.
        if !matches!(dag.expr(index[last]), Expr::Coord(axis) if usize::from(*axis) + 1 == rank) {
            return None;
        }
        let (column, start) = (index[last], dag.int(slice.start as i64));
        index[last] = dag.binary(BinaryOp::Sub, column, start);
        Some(Placed { index, columns: Some((slice.start, slice.start + slice.len)), column: Some(column) })
    }
}

struct Reading<'a, 'b> {
    builder: &'a mut Builder<'b>,
    inputs: &'a [Value],
}

impl Elements for Reading<'_, '_> {
    fn dag(&mut self) -> &mut Dag {
        self.builder.dag()
    }

    fn operands(&self) -> usize {
        self.inputs.len()
    }

    fn ty(&self, operand: usize) -> &Type {
        static SCALAR: Type = Type { dtype: DType::I32, shape: vec![], layout: Layout::Device };
        self.inputs.get(operand).and_then(|&input| self.builder.graph.ty(input)).unwrap_or(&SCALAR)
    }

    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId {
        match self.inputs.get(operand) {
            Some(&input) => self.builder.at(input, index),
            None => self.builder.fail(format!("operand {operand} does not exist")),
        }
    }

    fn sample(&mut self, operand: usize, row: ExprId) -> ExprId {
        match self.inputs.get(operand).and_then(|input| self.builder.operand(input.node)) {
            Some(position) => match self.builder.samples.get(&(position, row)) {
                Some(&sample) => sample,
                None => self.dag().sample(position as u16, row),
            },
            None => self.builder.fail("offsets must be an operand of the kernel".to_owned()),
        }
    }

    fn size(&mut self, dim: &Dim) -> ExprId {
        self.builder.size(dim)
    }
}

impl Accumulator for Reading<'_, '_> {
    fn accumulate(
        &mut self,
        op: ReduceOp,
        span: Span,
        point: &[ExprId],
        factors: &mut dyn FnMut(&mut dyn Accumulator, ExprId) -> Vec<ExprId>,
    ) -> ExprId {
        let mut ragged = None;
        let extent = match span {
            Span::Dense(dim) => Extent::Dense(dim),
            Span::Ragged { offsets, sample } => {
                let position = self.inputs.get(offsets).and_then(|input| self.builder.operand(input.node));
                let first = matches!(self.builder.nest.body.dag.expr(sample), Expr::Coord(0));
                let Some(position) = position.filter(|_| first) else {
                    return self
                        .builder
                        .fail("a sum runs over rows of another sample than that of the loop".to_owned());
                };
                ragged = Some((position, offsets, sample));
                Extent::Ragged { offsets: position as u16 }
            }
        };
        let (axis, coord) = self.builder.sum_axis(extent, self.builder.point(point));
        if let Some((position, offsets, sample)) = ragged {
            let start = self.load(offsets, &[sample]);
            let row = self.dag().binary(BinaryOp::Add, start, coord);
            self.builder.samples.insert((position, row), sample);
        }
        self.builder.open.push(axis);
        let mut factors = factors(self, coord);
        self.builder.open.pop();
        let scales = if op == ReduceOp::Sum { self.builder.scales(&mut factors) } else { vec![] };
        let sum = Accumulation { op, axis, factors, dtype: DType::F32 };
        let sums = &mut self.builder.nest.accumulations;
        let position = sums.iter().position(|known| *known == sum).unwrap_or_else(|| {
            sums.push(sum);
            sums.len() - 1
        });
        match check_count("results of reductions", position + 1, MAX_VALUES) {
            Ok(()) => {
                let value = self.dag().value(position as u8, Scalar::F32);
                scales.into_iter().fold(value, |value, scale| self.dag().binary(BinaryOp::Mul, value, scale))
            }
            Err(error) => self.builder.fail(error),
        }
    }
}

impl Builder<'_> {
    /// The position of the operand, if this node of the body is one.
    pub fn operand(&self, node: NodeId) -> Option<usize> {
        Fused::operand(self.graph.node(node)?.op.as_ref())
    }
}
