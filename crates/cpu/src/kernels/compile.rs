//! Compiles expressions to a register program.

use super::error::CpuError;
use super::fusion::{ExprInfo, Fusion};
use super::program::{
    AccumulatorValue, Chain, Guard, HoistLevel, Instruction, Last, Load, Op, Program, Source, Start, file,
};
use super::run::{Run, run_along, runs};
use super::step::{ChainStep, Pass, passes};
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Affine, Dag, Expr, ExprId};
use rewire_graph_rewrite::plan::Operand;
use std::collections::{HashMap, HashSet};

/// Maximum number of expressions in a body, so that register numbers fit in 16 bits.
const MOST: usize = 1 << 14;

impl Program {
    /// Compiles `roots` along coordinate `axis`; `accumulator` returns the values of accumulations.
    pub(super) fn compile(
        dag: &Dag,
        operands: &[Operand],
        roots: &[ExprId],
        axis: u8,
        accumulator: &dyn Fn(&Dag, ExprId) -> Option<AccumulatorValue>,
    ) -> Result<Self, CpuError> {
        if dag.len() > MOST || dag.ids().any(|id| matches!(dag.expr(id), Expr::Coord(32..))) {
            let reason = "it has too many expressions or coordinates".to_owned();
            return Err(CpuError::Unsupported { kernel: "pointwise", reason });
        }
        let runs = runs(dag, operands, axis);
        let mut compiler = Compiler::new(dag, &runs, roots, axis, accumulator);
        for id in compiler.order.clone() {
            compiler.compile(id)?;
        }
        compiler.finish(roots)
    }
}

struct Compiler<'a> {
    dag: &'a Dag,
    runs: &'a HashMap<ExprId, Run>,
    axis: u8,
    accumulator: &'a dyn Fn(&Dag, ExprId) -> Option<AccumulatorValue>,
    order: Vec<ExprId>,
    rates: HashMap<ExprId, HoistLevel>,
    places: HashMap<ExprId, Source>,
    branches: super::branch::Branches,
    fusion: Fusion,
    states: HashMap<ExprId, u16>,
    uses: HashMap<ExprId, usize>,
    /// Values read by per-point instructions or roots; their registers must stay valid.
    kept: HashSet<ExprId>,
    /// Free axis and lane registers, per register file.
    free: [[Vec<u16>; 3]; 2],
    program: Program,
}

impl<'a> Compiler<'a> {
    fn new(
        dag: &'a Dag,
        runs: &'a HashMap<ExprId, Run>,
        roots: &[ExprId],
        axis: u8,
        accumulator: &'a dyn Fn(&Dag, ExprId) -> Option<AccumulatorValue>,
    ) -> Self {
        let reads = |id: ExprId| reads(dag, runs, axis, id, accumulator);
        let order = dag.ordered(roots, reads);
        let mut rates: HashMap<ExprId, HoistLevel> = HashMap::new();
        let mut uses: HashMap<ExprId, usize> = HashMap::new();
        for &id in &order {
            let own = match (accumulator(dag, id), dag.expr(id)) {
                (Some(AccumulatorValue::Lane(_)), _) => HoistLevel::Point,
                (Some(AccumulatorValue::Row(_)), _) => HoistLevel::Row,
                (None, &Expr::Coord(coord)) if coord == axis => HoistLevel::Axis,
                (None, Expr::Coord(_)) => HoistLevel::Row,
                // Contiguous floats are read in place.
                (None, Expr::Load { .. }) if runs.contains_key(&id) && dag.scalar(id) == Scalar::F32 => {
                    HoistLevel::Point
                }
                (None, Expr::Load { .. }) if runs.contains_key(&id) => HoistLevel::Axis,
                (None, &Expr::Uniform { index, .. }) if run_along(dag, index, axis).is_some() => HoistLevel::Point,
                _ => HoistLevel::Run,
            };
            let rate = reads(id).iter().fold(own, |rate, read| {
                *uses.entry(*read).or_default() += 1;
                rate.join(rates.get(read).copied().unwrap_or(HoistLevel::Run))
            });
            rates.insert(id, rate);
        }
        let per_point = order.iter().filter(|id| rates.get(id) == Some(&HoistLevel::Point));
        let kept = per_point.flat_map(|&id| reads(id)).chain(roots.iter().copied()).collect();
        roots.iter().for_each(|root| *uses.entry(*root).or_default() += 1);
        let branches = super::branch::Branches::new(dag, &order, roots, &reads);
        let is_accumulator = |id: ExprId| accumulator(dag, id).is_some();
        let facts = ExprInfo { dag, rates: &rates, uses: &uses, branches: &branches, is_accumulator: &is_accumulator };
        let fusion = Fusion::new(&facts, &order);
        Self {
            dag,
            runs,
            axis,
            accumulator,
            order,
            rates,
            places: HashMap::new(),
            branches,
            fusion,
            states: HashMap::new(),
            uses,
            kept,
            free: Default::default(),
            program: Program::default(),
        }
    }

    fn rate(&self, id: ExprId) -> HoistLevel {
        self.rates.get(&id).copied().unwrap_or(HoistLevel::Run)
    }

    fn source(&self, id: ExprId, kind: Scalar) -> Result<Source, CpuError> {
        match self.places.get(&id) {
            Some(&source) if self.dag.scalar(id) == kind => Ok(source),
            _ => Err(CpuError::Unsupported {
                kernel: "pointwise",
                reason: format!("expression {} is {:?} where {kind:?} is read", id.0, self.dag.scalar(id)),
            }),
        }
    }

    fn compile(&mut self, id: ExprId) -> Result<(), CpuError> {
        if self.fusion.is_absorbed(id) {
            return Ok(());
        }
        let kind = self.dag.scalar(id);
        let accumulator = (self.accumulator)(self.dag, id);
        if accumulator.is_none()
            && let Expr::Value(position) = self.dag.expr(id)
        {
            let reason = format!("it reads value {position}, which its accumulator does not supply");
            return Err(CpuError::Unsupported { kernel: "pointwise", reason });
        }
        if let Some(AccumulatorValue::Lane(position)) = accumulator {
            self.places.insert(id, Source::Accumulator(position));
            return Ok(());
        }
        let op = match accumulator {
            Some(AccumulatorValue::Row(position)) => Op::RowValue(position),
            _ => self.operation(id, kind)?,
        };
        let target = match &op {
            Op::Load(Load { in_place: Some(slot), .. }) => Source::InPlace(*slot),
            _ => self.allocate(self.rate(id), kind),
        };
        self.places.insert(id, target);
        self.push(id, Instruction { op, kind, target, guard: None });
        if self.fusion.ends_chain(id) {
            let (first, steps) = self.fusion.chain(self.dag, id);
            self.release(first);
            for step in steps {
                step.map(|read| self.release(read));
            }
        } else {
            for read in reads(self.dag, self.runs, self.axis, id, self.accumulator) {
                self.release(read);
            }
        }
        if self.branches.decides(id) {
            self.decide(id, target);
        }
        Ok(())
    }

    fn decide(&mut self, id: ExprId, condition: Source) {
        let state = self.program.counts.states;
        self.program.counts.states += 1;
        self.states.insert(id, state);
        let op = Op::Decide(condition, state);
        self.push(id, Instruction { op, kind: Scalar::Bool, target: condition, guard: None });
    }

    fn push(&mut self, id: ExprId, mut instruction: Instruction) {
        let rate = self.rate(id);
        let known = |condition: ExprId| self.rate(condition).precedes(rate) && self.states.contains_key(&condition);
        instruction.guard = self
            .branches
            .innermost(id, known)
            .and_then(|(condition, side)| self.states.get(&condition).map(|&state| Guard { state, side }));
        match rate {
            HoistLevel::Run => self.program.per_run.push(instruction),
            HoistLevel::Row => self.program.per_row.push(instruction),
            HoistLevel::Axis => self.program.per_axis.push(instruction),
            HoistLevel::Point => self.program.per_point.push(instruction),
        }
    }

    fn allocate(&mut self, rate: HoistLevel, kind: Scalar) -> Source {
        let file = file(kind);
        let count = &mut self.program.counts.files[file][rate as usize];
        let idle = match rate {
            HoistLevel::Run | HoistLevel::Row => None,
            HoistLevel::Axis => self.free[0][file].pop(),
            HoistLevel::Point => self.free[1][file].pop(),
        };
        let register = idle.unwrap_or(*count);
        *count += u16::from(idle.is_none());
        match rate {
            HoistLevel::Run => Source::Run(register),
            HoistLevel::Row => Source::Row(register),
            HoistLevel::Axis => Source::Axis(register),
            HoistLevel::Point => Source::Lane(register),
        }
    }

    fn release(&mut self, id: ExprId) {
        let left = self.uses.get_mut(&id).map_or(1, |uses| {
            *uses -= 1;
            *uses
        });
        let file = file(self.dag.scalar(id));
        match self.places.get(&id) {
            Some(&Source::Lane(register)) if left == 0 => self.free[1][file].push(register),
            Some(&Source::Axis(register)) if left == 0 && !self.kept.contains(&id) => self.free[0][file].push(register),
            _ => {}
        }
    }

    fn operation(&mut self, id: ExprId, kind: Scalar) -> Result<Op, CpuError> {
        if self.fusion.ends_chain(id) {
            let (first, steps) = self.fusion.chain(self.dag, id);
            return Ok(Op::Chain(self.chain(self.rate(id), first, steps)?));
        }
        Ok(match *self.dag.expr(id) {
            Expr::Float(bits) => Op::Float(f32::from_bits(bits)),
            Expr::Int(_, value) => Op::Int(value),
            Expr::Bool(value) => Op::Int(value.into()),
            Expr::Coord(coord) if coord == self.axis => Op::Axis,
            Expr::Coord(coord) => Op::Coord(coord),
            Expr::Size(position) => Op::Size(position),
            Expr::Value(position) => Op::RowValue(position),
            Expr::Load { operand, ref index } => Op::Load(self.load(id, operand, index, kind)?),
            Expr::Sample { offsets, row } => Op::Sample { offsets, row: self.source(row, Scalar::I32)? },
            Expr::Uniform { seed, index } => {
                let index = match run_along(self.dag, index, self.axis) {
                    Some(start) => self.run(&start)?,
                    None => Last::At(self.source(index, Scalar::I32)?),
                };
                Op::Uniform { seed: self.source(seed, Scalar::I64)?, index }
            }
            Expr::Call { ref function, ref arguments } => Op::Call {
                function: function.definition().cloned().ok_or_else(|| unbound(function.name()))?,
                arguments: arguments.iter().map(|&a| self.source(a, Scalar::F32)).collect::<Result<_, _>>()?,
            },
            Expr::Unary(op, a) => Op::Unary(op, self.source(a, kind)?),
            Expr::Binary(op, a, b) => {
                let read = self.dag.scalar(a);
                Op::Binary(read, op, self.source(a, read)?, self.source(b, read)?)
            }
            Expr::Select(c, a, b) => {
                Op::Select(self.source(c, Scalar::Bool)?, self.source(a, kind)?, self.source(b, kind)?)
            }
            Expr::Cast(_, a) => {
                let read = self.dag.scalar(a);
                Op::Cast(read, self.source(a, read)?)
            }
        })
    }

    fn chain(&mut self, rate: HoistLevel, first: ExprId, steps: Vec<ChainStep<ExprId>>) -> Result<Chain, CpuError> {
        let mut operands = vec![self.source(first, Scalar::F32)?];
        let mut named = Vec::with_capacity(steps.len());
        for step in steps {
            named.push(step.try_map(|id| {
                let source = self.source(id, Scalar::F32)?;
                let known = operands.iter().position(|&operand| operand == source);
                Ok(known.unwrap_or_else(|| {
                    operands.push(source);
                    operands.len() - 1
                }) as u16)
            })?);
        }
        let passes = passes(&named, |position| match operands.get(usize::from(position)) {
            Some(Source::Run(_)) => true,
            Some(Source::Row(_)) => rate == HoistLevel::Point,
            _ => false,
        });
        let steps = named.into_iter().map(Pass::ChainStep).collect();
        self.program.counts.operands = self.program.counts.operands.max(operands.len() as u16);
        Ok(Chain { operands, passes, steps })
    }

    fn load(&mut self, id: ExprId, operand: u16, index: &[ExprId], kind: Scalar) -> Result<Load, CpuError> {
        let sources = |index: &[ExprId]| index.iter().map(|&i| self.source(i, Scalar::I32)).collect::<Result<_, _>>();
        let Some(run) = self.runs.get(&id) else {
            let Some((&last, outer)) = index.split_last() else {
                return Ok(Load { operand, index: vec![], last: None, in_place: None });
            };
            let last = Some(Last::At(self.source(last, Scalar::I32)?));
            return Ok(Load { operand, index: sources(outer)?, last, in_place: None });
        };
        let index = sources(&index[..run.outer])?;
        let last = Some(self.run(&run.start)?);
        let in_place = (kind == Scalar::F32).then_some(self.program.counts.in_place);
        self.program.counts.in_place += u16::from(in_place.is_some());
        Ok(Load { operand, index, last, in_place })
    }

    fn run(&self, start: &Affine<ExprId>) -> Result<Last, CpuError> {
        let terms = start.terms().map(|(term, multiple)| Ok((self.source(term, Scalar::I32)?, multiple as i32)));
        let terms = terms.collect::<Result<_, CpuError>>()?;
        Ok(Last::Run(Start { terms, constant: start.offset() as i32 }))
    }

    fn finish(mut self, roots: &[ExprId]) -> Result<Program, CpuError> {
        for &root in roots {
            let kind = self.dag.scalar(root);
            let source = self.source(root, kind)?;
            self.program.roots.push((source, kind));
        }
        if let Some(Instruction { op: Op::Chain(..), target, guard: None, .. }) = self.program.per_point.last() {
            let is_target = |(source, kind): &(Source, Scalar)| source == target && *kind == Scalar::F32;
            let mut found = self.program.roots.iter().enumerate().filter(|(_, root)| is_target(root));
            if let (Some((position, _)), None) = (found.next(), found.next()) {
                self.program.last = Some(position);
            }
        }
        let (last, before) = match self.program.per_point.split_last() {
            Some((Instruction { op: Op::Chain(_), guard: None, .. }, before)) => (self.program.last.is_some(), before),
            _ => (true, &self.program.per_point[..]),
        };
        self.program.streams = last && before.iter().all(Instruction::is_in_place);
        Ok(self.program)
    }
}

fn unbound(function: &str) -> CpuError {
    let reason = format!("the function `{function}` has no CPU form: bind the plan to a registry that has it");
    CpuError::Unsupported { kernel: "pointwise", reason }
}

/// The operands of a compiled expression, including the start of its run if it loads contiguous elements.
fn reads(
    dag: &Dag,
    runs: &HashMap<ExprId, Run>,
    axis: u8,
    id: ExprId,
    accumulator: &dyn Fn(&Dag, ExprId) -> Option<AccumulatorValue>,
) -> Vec<ExprId> {
    match (accumulator(dag, id), runs.get(&id), dag.expr(id)) {
        (Some(_), ..) => vec![],
        (None, Some(run), Expr::Load { index, .. }) => {
            index.iter().take(run.outer).copied().chain(run.start.terms().map(|(term, _)| term)).collect()
        }
        (None, None, &Expr::Uniform { seed, index }) if let Some(start) = run_along(dag, index, axis) => {
            std::iter::once(seed).chain(start.terms().map(|(term, _)| term)).collect()
        }
        _ => dag.expr(id).operands(),
    }
}
