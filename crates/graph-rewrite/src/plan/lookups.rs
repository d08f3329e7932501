//! Lookups as separate steps.

use super::{
    Binding, Body, Buffer, BufferId, Computation, Extent, MemorySpace, Nest, Operand, Output, Plan, PlanError, Source,
    Step,
};
use crate::error::NotLowerable;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use rewire_graph::{Dim, Ordered, Scalar};
use std::collections::{BTreeMap, BTreeSet};

/// A step that copies rows of a table in their storage type: row `i..` of the result is row `ids[i..]` of the table,
/// clamped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Lookup {
    /// The table, a parameter `[rows, width]`.
    pub table: BufferId,
    /// An input of integers.
    pub ids: BufferId,
    /// The result, of the table's type.
    pub rows: BufferId,
}

impl Plan {
    /// The parameters that [`Plan::look_up_first`] accepts: float tensors `[rows, width]` from which steps only read
    /// rows selected by inputs.
    pub fn tables(&self) -> Vec<BufferId> {
        let mut tables: Vec<BufferId> = (0..).zip(&self.buffers).filter_map(|(n, _)| self.table(BufferId(n))).collect();
        let mut read = BTreeSet::new();
        for step in &self.steps {
            let (named, otherwise) = self.reads_of(step);
            tables.retain(|table| !otherwise.contains(table));
            read.extend(named.into_iter().map(|(table, _)| table));
        }
        tables.retain(|table| read.contains(table));
        tables
    }

    /// Looks up the rows of some of [`Plan::tables`] in separate steps before all others. Readers of the tables then
    /// read these rows, with the same results. Kernels cannot write all types of tables: the host has to copy the rows
    /// for these steps.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::{lower, optimize};
    /// let scope = Scope::new();
    /// let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    /// let table = scope.parameter("table", DType::F32, [1000, 16]);
    /// let y = table.gather(&ids).matmul(&scope.parameter("weight", DType::F32, [16, 4]));
    /// let mut plan = lower(&optimize(scope.finish(&[("y", y)])?)?.0)?;
    /// assert_eq!(plan.steps.len(), 1);
    /// let tables = plan.tables();
    /// let lookups = plan.look_up_first(&tables)?;
    /// assert_eq!((lookups.len(), plan.steps.len()), (1, 2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`PlanError`] if no schedule supports a kernel that reads rows instead of a table.
    pub fn look_up_first(&mut self, tables: &[BufferId]) -> Result<Vec<Lookup>, PlanError> {
        let known = self.tables();
        let tables = tables.iter().copied().filter(|table| known.contains(table)).ordered_set();
        let pairs = self.steps.iter().flat_map(|step| self.reads_of(step).0);
        let pairs = pairs.filter(|(table, _)| tables.contains(table)).ordered_set();
        let free = self.buffers.len() as u32..;
        let lookups: Vec<Lookup> =
            free.zip(pairs).map(|(n, (table, ids))| Lookup { table, ids, rows: BufferId(n) }).collect();
        let steps: Vec<Step> = lookups.iter().filter_map(|own| self.lookup(*own)).collect();
        let results = steps.iter().flat_map(|step| step.computation.outputs());
        let results = results.map(|o| Buffer { dtype: o.dtype, shape: o.shape.clone(), source: Source::Step });
        self.buffers.extend(results);
        let places = lookups.iter().map(|own| ((own.table, own.ids), own.rows)).ordered_map();
        let rows = LookedUp { places: &places, buffers: &self.buffers };
        for step in &mut self.steps {
            rows.replace(step).map_err(|reason| PlanError::new(format!("a lookup of {}", step.name), reason))?;
        }
        self.steps.splice(0..0, steps);
        Ok(lookups)
    }

    /// The buffer itself, if it may be a table.
    fn table(&self, id: BufferId) -> Option<BufferId> {
        let buffer = self.buffer(id)?;
        let is_rows = buffer.shape.len() == 2 && buffer.shape.iter().all(|dim| dim.as_const().is_some());
        let bound = Binding::Buffer(id);
        let elsewhere = self.outputs.iter().any(|output| output.value == bound)
            || self.load.iter().any(|step| step.reads.contains(&bound));
        let is_table = matches!(buffer.source, Source::Parameter(_)) && buffer.dtype.is_float() && is_rows;
        (is_table && !elsewhere).then_some(id)
    }

    /// The tables whose rows a step selects by inputs, as pairs `(table, input)`, and all tensors that it reads in any
    /// other way.
    fn reads_of(&self, step: &Step) -> (Vec<(BufferId, BufferId)>, Vec<BufferId>) {
        let (mut named, mut otherwise) = (vec![], vec![]);
        let Computation::Nest(nest) = &step.computation else {
            otherwise.extend(step.reads.iter().filter_map(|binding| buffer(*binding)));
            return (named, otherwise);
        };
        let dag = &nest.body.dag;
        for id in dag.reachable(&nest.roots()) {
            let Expr::Load { operand, index } = dag.expr(id) else { continue };
            let Some(table) = step.reads.get(usize::from(*operand)).and_then(|binding| buffer(*binding)) else {
                continue;
            };
            match self.ids(step, dag, table, index) {
                Some(ids) => named.push((table, ids)),
                None => otherwise.push(table),
            }
        }
        (named, otherwise)
    }

    /// The input that selects the row of a load.
    fn ids(&self, step: &Step, dag: &Dag, table: BufferId, index: &[ExprId]) -> Option<BufferId> {
        let rows = self.buffer(table)?.shape.first()?.as_const()?;
        let (operand, _) = named_row(dag, *index.first().filter(|_| index.len() == 2)?, rows)?;
        let ids = buffer(*step.reads.get(usize::from(operand))?)?;
        let is_input =
            |ids: &BufferId| matches!(self.buffer(*ids), Some(found) if matches!(found.source, Source::Input(_)));
        Some(ids).filter(is_input)
    }

    /// The step that copies the rows.
    fn lookup(&self, Lookup { table, ids, rows }: Lookup) -> Option<Step> {
        let (own, from) = (self.buffer(table)?, self.buffer(ids)?);
        let [height, width] = &own.shape[..] else { return None };
        let mut dag = Dag::new();
        let shape: Vec<Dim> = from.shape.iter().chain([width]).cloned().collect();
        let coords: Vec<ExprId> = (0..).zip(&shape).map(|(axis, dim)| dag.coord(axis, dim.as_const())).collect();
        let (column, outer) = coords.split_last()?;
        let id = dag.load(0, from.dtype, outer.to_vec());
        let row = nearest(&mut dag, id, height.as_const()?);
        let value = dag.load(1, own.dtype, vec![row, *column]);
        let operands = [from, own].map(on_device).to_vec();
        let body = Body { dag, operands, sizes: vec![] };
        let output = Output { target: 0, dtype: own.dtype, shape: shape.clone(), index: coords, value, columns: None };
        let name = match &own.source {
            Source::Parameter(name) => name.clone(),
            _ => String::new(),
        };
        Some(Step {
            name: "lookup".to_owned(),
            path: name,
            computation: Computation::of(Nest::map(body, shape, vec![output])).ok()?,
            reads: vec![Binding::Buffer(ids), Binding::Buffer(table)],
            writes: vec![rows],
        })
    }
}

fn on_device(buffer: &Buffer) -> Operand {
    Operand { dtype: buffer.dtype, shape: buffer.shape.clone(), space: MemorySpace::Device }
}

fn buffer(binding: Binding) -> Option<BufferId> {
    match binding {
        Binding::Buffer(id) => Some(id),
        Binding::Host(_) => None,
    }
}

/// The row of a table for an id, clamped.
fn nearest(dag: &mut Dag, id: ExprId, rows: usize) -> ExprId {
    let scalar = dag.scalar(id);
    let (zero, last) = (dag.constant(scalar, 0), dag.constant(scalar, rows as i64 - 1));
    let row = dag.binary(BinaryOp::Min, id, last);
    let row = dag.binary(BinaryOp::Max, row, zero);
    dag.cast(Scalar::I32, row)
}

/// The operand and the index of the load that selects a row, directly or through [`nearest`].
fn named_row(dag: &Dag, row: ExprId, rows: usize) -> Option<(u16, &[ExprId])> {
    let mut row = row;
    if let Expr::Cast(Scalar::I32, of) = dag.expr(row) {
        row = *of;
    }
    for (limit, value) in [(BinaryOp::Max, 0), (BinaryOp::Min, rows as i64 - 1)] {
        let is_limit = |id: ExprId| matches!(dag.expr(id), Expr::Int(_, known) if *known == value);
        match *dag.expr(row) {
            Expr::Binary(op, a, b) if op == limit && is_limit(b) => row = a,
            Expr::Binary(op, a, b) if op == limit && is_limit(a) => row = b,
            _ => {}
        }
    }
    match dag.expr(row) {
        Expr::Load { operand, index } => Some((*operand, index)),
        _ => None,
    }
}

/// Replaces loads from tables by loads of looked-up rows.
struct LookedUp<'a> {
    /// The buffers of looked-up rows, by table and ids.
    places: &'a BTreeMap<(BufferId, BufferId), BufferId>,
    buffers: &'a [Buffer],
}

impl LookedUp<'_> {
    fn replace(&self, step: &mut Step) -> Result<(), NotLowerable> {
        let is_table = |binding: &Binding| self.places.keys().any(|(table, _)| *binding == Binding::Buffer(*table));
        if !step.reads.iter().any(is_table) {
            return Ok(());
        }
        let Computation::Nest(kernel) = &mut step.computation else { return Ok(()) };
        step.reads = kernel.edit(|nest| self.replaced(nest, &step.reads))?;
        Ok(())
    }

    /// Replaces tables by rows; returns the new bindings of the operands.
    fn replaced(&self, nest: &mut Nest, bound: &[Binding]) -> Vec<Binding> {
        let (mut operands, mut reads) = (nest.body.operands.clone(), bound.to_vec());
        nest.rebuild(|dag, expr, copies| {
            let (Expr::Load { operand, .. }, &[row, column]) = (expr, copies) else { return None };
            let table = buffer(*bound.get(usize::from(*operand))?)?;
            let (ids, place) = named_row(dag, row, self.buffers.get(table.0 as usize)?.shape.first()?.as_const()?)?;
            let rows = *self.places.get(&(table, buffer(*bound.get(usize::from(ids))?)?))?;
            let found = self.buffers.get(rows.0 as usize)?;
            let index = place.iter().copied().chain([column]).collect();
            let row = Binding::Buffer(rows);
            let position = reads.iter().position(|known| *known == row).unwrap_or_else(|| {
                operands.push(on_device(found));
                reads.push(row);
                reads.len() - 1
            });
            Some(dag.load(position as u16, found.dtype, index))
        });
        nest.body.operands = operands;
        drop_unread(nest, &mut reads);
        reads
    }
}

/// Removes operands that no expression and no axis reads.
fn drop_unread(nest: &mut Nest, reads: &mut Vec<Binding>) {
    let dag = &nest.body.dag;
    let loaded = dag.reachable(&nest.roots()).into_iter().filter_map(|id| match dag.expr(id) {
        Expr::Load { operand, .. } | Expr::Sample { offsets: operand, .. } => Some(*operand),
        _ => None,
    });
    let read = loaded.chain(nest.offsets()).ordered_set();
    let number: BTreeMap<u16, u16> = read.iter().copied().zip(0..).ordered_map();
    let operands = nest.body.operands.clone();
    nest.rebuild(|dag, expr, copies| match expr {
        Expr::Load { operand, .. } => {
            let dtype = operands.get(usize::from(*operand))?.dtype;
            Some(dag.load(*number.get(operand)?, dtype, copies.to_vec()))
        }
        Expr::Sample { offsets, .. } => Some(dag.sample(*number.get(offsets)?, *copies.first()?)),
        _ => None,
    });
    for axis in &mut nest.axes {
        if let Extent::Ragged { offsets } = &mut axis.extent
            && let Some(position) = number.get(offsets)
        {
            *offsets = *position;
        }
    }
    let is_read = |position: usize| read.contains(&(position as u16));
    let mut positions = 0..;
    nest.body.operands.retain(|_| positions.next().is_some_and(is_read));
    let mut positions = 0..;
    reads.retain(|_| positions.next().is_some_and(is_read));
}
