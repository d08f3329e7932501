use super::{HostInput, HostSlot, ShapeEntry, ShapeProgram, SymbolSource};
use crate::op::{Check, Fused, HostOp, Input, Op, Requirement, Role};
use crate::{Graph, GraphError, Ids, Layout, Node, NodeId, SizeSource, Symbol, Type, Value};
use std::collections::{HashMap, HashSet};

/// A shape program under construction.
struct Builder<'a> {
    graph: &'a Graph,
    program: ShapeProgram,
    inputs: Vec<HostInput>,
    slots: HashMap<Value, HostSlot>,
    /// The symbols that come from a value.
    symbols: HashMap<Value, Vec<Symbol>>,
    /// The slots of values that are computed already.
    known: HashMap<(HostOp, Vec<HostSlot>), HostSlot>,
    checked: HashSet<(Check, Vec<HostSlot>)>,
}

/// The shape program of a graph, with its inputs and the slots of host values.
#[derive(Clone, Debug)]
pub struct HostProgram {
    /// The program.
    pub shapes: ShapeProgram,
    /// Its inputs.
    pub inputs: Vec<HostInput>,
    /// The slot of every host value.
    pub slots: HashMap<Value, HostSlot>,
}

impl HostProgram {
    /// Builds the shape program of a graph. It checks the declarations of host values and the requirements of the
    /// graph's operators, including those inside fused operators.
    ///
    /// # Errors
    /// [`GraphError`] if the graph has a cycle, or a host operator has an operand that is not on the host.
    pub fn of(graph: &Graph) -> Result<Self, GraphError> {
        let names = graph.sizes().iter().map(|size| size.name.clone()).collect();
        let mut builder = Builder {
            graph,
            program: ShapeProgram { names, ids: ids(graph), ..ShapeProgram::default() },
            inputs: Vec::new(),
            slots: HashMap::new(),
            symbols: HashMap::new(),
            known: HashMap::new(),
            checked: HashSet::new(),
        };
        builder.sizes();
        for id in graph.order()? {
            builder.node(id)?;
        }
        Ok(Self { shapes: builder.program, inputs: builder.inputs, slots: builder.slots })
    }
}

impl Builder<'_> {
    /// Defines the extents of inputs and collects the sources of the other sizes.
    fn sizes(&mut self) {
        for (symbol, size) in (0..).map(Symbol).zip(self.graph.sizes()) {
            match &size.source {
                SizeSource::Unbound => {}
                SizeSource::Extent { input, axis } => {
                    let source = SymbolSource::Extent { input: input.clone(), axis: *axis };
                    self.program.entries.push(ShapeEntry::Define { symbol, source });
                }
                SizeSource::Total(value) | SizeSource::Scalar(value) => {
                    self.symbols.entry(*value).or_default().push(symbol);
                }
            }
        }
    }

    fn node(&mut self, id: NodeId) -> Result<(), GraphError> {
        let Some(node) = self.graph.node(id) else { return Ok(()) };
        let value = Value { node: id, port: 0 };
        match node.op.role() {
            Role::Input(input) if input.ty.layout == Layout::Host => {
                let slot = self.slot();
                self.inputs.push(HostInput { name: input.name.clone(), slot, shape: input.ty.shape.clone() });
                self.fill(value, slot);
            }
            Role::Host(host) => {
                let inputs = self.host_inputs(id, node)?;
                let slot = self.compute(host, inputs);
                self.fill(value, slot);
            }
            Role::Fused(fused) => self.fused(id, fused)?,
            Role::Input(_) | Role::Parameter(_) | Role::Constant(_) => {}
            Role::Computed => {
                let inputs = self.graph.inputs(id);
                self.require(self.graph, node, &inputs, Some);
            }
        }
        Ok(())
    }

    fn host_inputs(&self, id: NodeId, node: &Node) -> Result<Vec<HostSlot>, GraphError> {
        let slot = |value: Value| {
            self.slots.get(&value).copied().ok_or_else(|| GraphError::Dangling {
                node: node.op.name().to_owned(),
                path: node.path.clone(),
                detail: format!("node {} is not on the host", value.node.number()),
            })
        };
        self.graph.inputs(id).into_iter().map(slot).collect()
    }

    /// The slot of a function's value. Equal functions of the same values share a slot; a check shares the slot of the
    /// value that it checks.
    fn compute(&mut self, op: &HostOp, inputs: Vec<HostSlot>) -> HostSlot {
        if let (HostOp::Check { check, argument }, Some(&first)) = (op, inputs.first()) {
            self.check(check.clone(), inputs, argument);
            return first;
        }
        let key = (op.clone(), inputs);
        if let Some(&slot) = self.known.get(&key) {
            return slot;
        }
        let output = self.slot();
        let (op, inputs) = key.clone();
        self.program.entries.push(ShapeEntry::Compute { op, inputs, output });
        self.known.insert(key, output);
        output
    }

    fn check(&mut self, check: Check, inputs: Vec<HostSlot>, argument: &str) {
        if self.checked.insert((check.clone(), inputs.clone())) {
            self.program.entries.push(ShapeEntry::Check { check, inputs, argument: argument.to_owned() });
        }
    }

    fn slot(&mut self) -> HostSlot {
        self.program.slots += 1;
        HostSlot(self.program.slots as u32 - 1)
    }

    /// Assigns a slot to a value, and defines the sizes that come from it.
    fn fill(&mut self, value: Value, slot: HostSlot) {
        self.slots.insert(value, slot);
        for symbol in self.symbols.remove(&value).unwrap_or_default() {
            let source = match self.graph.sizes().get(symbol.0 as usize).map(|size| &size.source) {
                Some(SizeSource::Scalar(_)) => SymbolSource::Scalar(slot),
                _ => SymbolSource::Total(slot),
            };
            self.program.entries.push(ShapeEntry::Define { symbol, source });
        }
    }

    fn fused(&mut self, id: NodeId, fused: &Fused) -> Result<(), GraphError> {
        let operands = self.graph.inputs(id);
        for inner in fused.body.order()? {
            let Some(node) = fused.body.node(inner) else { continue };
            let outer = |value: Value| {
                let placeholder = fused.body.node(value.node)?.op.as_ref();
                operands.get(Fused::operand(placeholder)?).copied()
            };
            self.require(&fused.body, node, &fused.body.inputs(inner), outer);
        }
        Ok(())
    }

    /// Adds the checks that an operator of `graph` requires for its host operands. `outer` maps values of `graph` to
    /// values of the program's graph.
    fn require(&mut self, graph: &Graph, node: &Node, inputs: &[Value], outer: impl Fn(Value) -> Option<Value>) {
        let types: Vec<&Type> = inputs.iter().filter_map(|&value| graph.ty(value)).collect();
        debug_assert_eq!(types.len(), inputs.len(), "operands of a graph exist");
        let argument = match node.path.as_str() {
            "" => node.op.name().to_owned(),
            path => format!("{} in `{path}`", node.op.name()),
        };
        for Requirement { check, operands } in requirements(node.op.as_ref(), &types) {
            let slots: Option<Vec<HostSlot>> = operands
                .into_iter()
                .map(|operand| inputs.get(operand).and_then(|&value| outer(value)))
                .map(|value| value.and_then(|value| self.slots.get(&value).copied()))
                .collect();
            if let Some(slots) = slots {
                self.check(check, slots, &argument);
            }
        }
    }
}

/// The id inputs of a graph whose sizes are all known; a part of a model may lack inputs and sizes of the whole model.
fn ids(graph: &Graph) -> Vec<Ids> {
    let inputs: HashSet<&str> =
        graph.ids().filter_map(|id| graph.op::<Input>(id)).map(|input| input.name.as_str()).collect();
    let is_bound =
        |symbol: Symbol| graph.sizes().get(symbol.0 as usize).is_some_and(|size| size.source != SizeSource::Unbound);
    let is_there = |ids: &&Ids| inputs.contains(&*ids.input) && ids.rows.terms().all(|(symbol, _)| is_bound(symbol));
    graph.id_inputs().iter().filter(is_there).cloned().collect()
}

/// All requirements of a device operator for its host operands.
fn requirements(op: &dyn Op, types: &[&Type]) -> Vec<Requirement> {
    let words = types.iter().enumerate().filter(|(_, ty)| ty.layout == Layout::Host).map(|(position, ty)| {
        let count = ty.shape.first().cloned().unwrap_or_else(|| 1.into());
        Requirement::new(Check::Words { count }, &[position])
    });
    op.requires(types).into_iter().chain(words).collect()
}
