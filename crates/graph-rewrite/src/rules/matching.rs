use super::Match;
use super::mismatch::{Mismatch, Reason};
use super::placeholder::{Kind, Placeholder, PlaceholderOp};
use super::unify::{fits, same};
use rewire_graph::op::Role;
use rewire_graph::{Dim, Graph, GraphError, NodeId, Ordered, Symbol, TypeError, Value, reached};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Limit of alternatives that are tried at one node of a graph.
const ALTERNATIVES: usize = 20_000;

/// Number of operators that a repeated part adds to the depth of a pattern.
const REPETITIONS: usize = 16;

/// A traced pattern, prepared for matching.
pub(super) struct CompiledPattern {
    graph: Graph,
    results: Vec<Value>,
    /// The nodes that may match different values in each repetition, by repeated result.
    locals: HashMap<Value, BTreeSet<NodeId>>,
}

/// The bindings so far.
#[derive(Clone, Default)]
struct State {
    bound: BTreeMap<Value, Value>,
    sizes: BTreeMap<Symbol, Dim>,
    /// The number of entries of [`Search::repeated`] that belong to this state.
    repeated: usize,
    operators: usize,
}

/// An alternative continuation of a comparison.
struct Branch {
    goals: Vec<Goal>,
    state: State,
}

/// The result of solving goals up to the next choice.
enum Reached<'g> {
    /// A choice between all continuations.
    Choice(Vec<Branch>),
    /// All goals are solved.
    Match(Match<'g>),
}

/// The captures of one repetition.
struct Repetition {
    /// The name of the repeated part.
    name: String,
    captured: Vec<(String, Value)>,
}

/// A pending comparison.
#[derive(Clone, Copy)]
enum Goal {
    Value(Value, Value),
    /// A result of the pattern beyond the first.
    Result(usize),
    /// The step of a repetition whose body matched.
    Repeated(Value),
}

struct Search<'a, 'g> {
    form: &'a CompiledPattern,
    graph: &'g Graph,
    accept: &'a dyn Fn(&Match) -> Result<(), String>,
    /// Repetitions on the path to the current branch; the last repetition of a sequence comes first.
    repeated: Vec<Repetition>,
    nearest: Mismatch,
}

impl CompiledPattern {
    pub fn new(graph: Graph) -> Result<Self, GraphError> {
        let results: Vec<Value> = graph.outputs().iter().map(|(_, value)| *value).collect();
        if results.is_empty() {
            let source = TypeError::new("pattern", "a function with a result", "nothing");
            return Err(GraphError::of_type("pattern", "", source));
        }
        let mut form = Self { graph, results, locals: HashMap::new() };
        form.check_connected()?;
        for id in form.graph.order()? {
            if let Some(Placeholder::Repeat { locals, .. }) = form.placeholder(id) {
                let locals = form.dependents(form.graph.inputs(id).get(1).copied(), locals);
                form.locals.insert(Value { node: id, port: 0 }, locals);
            }
        }
        Ok(form)
    }

    /// Checks that every result shares a value with an earlier one, through which it is found.
    fn check_connected(&self) -> Result<(), GraphError> {
        let mut known = BTreeSet::new();
        for (position, result) in self.results.iter().enumerate() {
            let is_computed = |id: &NodeId| !matches!(self.graph.role(*id), None | Some(Role::Constant(_)));
            let start = Some(result.node).filter(is_computed);
            let needed: BTreeSet<NodeId> =
                reached(start, |id| self.graph.producers(id).filter(is_computed)).into_iter().collect();
            if position > 0 && known.is_disjoint(&needed) {
                let source =
                    TypeError::new(format!("result {position}"), "computed from values of another one", "apart");
                return Err(GraphError::of_type("pattern", "", source));
            }
            known.extend(needed);
        }
        Ok(())
    }

    /// True if every result is an operator, not only a capture.
    pub fn is_anchored(&self) -> bool {
        self.roots().is_some()
            && self.results.iter().all(|result| {
                !matches!(self.placeholder(result.node), Some(Placeholder::Capture { .. } | Placeholder::Number { .. }))
            })
    }

    fn placeholder(&self, id: NodeId) -> Option<&Placeholder> {
        Some(&self.graph.op::<PlaceholderOp>(id)?.placeholder)
    }

    /// The nodes that are captures with these names, or depend on them or on `carried`.
    fn dependents(&self, carried: Option<Value>, names: &[String]) -> BTreeSet<NodeId> {
        let named = |id: &NodeId| {
            let captured = self.placeholder(*id).and_then(Placeholder::captured);
            captured.is_some_and(|captured| names.iter().any(|name| name == captured))
        };
        let passes = |id: &NodeId| !matches!(self.placeholder(*id), Some(Placeholder::Repeat { .. }));
        let starts = self.graph.ids().filter(named).chain(carried.map(|carried| carried.node)).filter(passes);
        reached(starts, |id| self.graph.users(id).into_iter().filter(passes)).into_iter().ordered_set()
    }

    /// An upper bound of the number of operators on the longest path through the pattern.
    pub fn depth(&self) -> usize {
        let repeats = self.locals.len() * REPETITIONS;
        self.graph.len() + repeats
    }

    /// The names of operators that the first result can be; `None` if it can be any.
    pub fn roots(&self) -> Option<Vec<String>> {
        let mut names = vec![];
        let mut stack = vec![*self.results.first()?];
        while let Some(value) = stack.pop() {
            let inputs = self.graph.inputs(value.node);
            match self.placeholder(value.node) {
                None => names.push(self.graph.node(value.node)?.op.name().to_owned()),
                Some(Placeholder::Operator { kind: Kind::Name(name), .. }) => names.push(name.clone()),
                Some(Placeholder::Either) => stack.extend(inputs),
                Some(Placeholder::Repeat { .. }) => stack.extend(inputs.get(2)),
                Some(_) => return None,
            }
        }
        Some(names)
    }

    pub fn find<'g>(
        &self,
        graph: &'g Graph,
        node: NodeId,
        accept: &dyn Fn(&Match) -> Result<(), String>,
    ) -> Result<Match<'g>, Mismatch> {
        let mut search = Search { form: self, graph, accept, repeated: vec![], nearest: Mismatch::default() };
        let mut goals: Vec<Goal> = (1..self.results.len()).rev().map(Goal::Result).collect();
        if let Some(&first) = self.results.first() {
            goals.push(Goal::Value(first, Value { node, port: first.port }));
        }
        search.solve(goals, State::default()).ok_or(search.nearest)
    }
}

impl<'g> Search<'_, 'g> {
    /// Solves all goals, last first. At a choice, the rest is tried with each alternative.
    fn solve(&mut self, goals: Vec<Goal>, state: State) -> Option<Match<'g>> {
        let mut branches = vec![Branch { goals, state }];
        let mut failed = 0;
        while let Some(branch) = branches.pop() {
            self.repeated.truncate(branch.state.repeated);
            match self.follow(branch) {
                Some(Reached::Match(found)) => return Some(found),
                Some(Reached::Choice(ways)) => branches.extend(ways.into_iter().rev()),
                None => failed += 1,
            }
            if failed == ALTERNATIVES {
                let all = State { operators: usize::MAX, ..State::default() };
                return self.fail(&all, Reason::Alternatives);
            }
        }
        None
    }

    /// Solves goals up to the next choice.
    fn follow(&mut self, Branch { mut goals, mut state }: Branch) -> Option<Reached<'g>> {
        while let Some(goal) = goals.pop() {
            let choices = match goal {
                Goal::Value(pattern, value) => match self.value(pattern, value, &mut state)? {
                    Subgoals::Known => continue,
                    Subgoals::All(more) => {
                        goals.extend(more.into_iter().rev());
                        continue;
                    }
                    Subgoals::One(choices) => choices,
                },
                Goal::Repeated(repeat) => self.again(repeat, &mut state)?,
                Goal::Result(position) => {
                    let &wanted = self.form.results.get(position)?;
                    if state.bound.contains_key(&wanted) {
                        continue;
                    }
                    goals.push(goal);
                    self.toward(wanted, &state)
                }
            };
            let ways = choices.into_iter().map(|choice| Branch {
                goals: goals.iter().copied().chain(choice.into_iter().rev()).collect(),
                state: state.clone(),
            });
            return Some(Reached::Choice(ways.collect()));
        }
        self.accepted(state).map(Reached::Match)
    }

    fn fail<T>(&mut self, state: &State, reason: Reason) -> Option<T> {
        let mismatch = Mismatch { operators: state.operators, reason: Some(reason) };
        self.nearest = std::mem::take(&mut self.nearest).nearer(mismatch);
        None
    }

    fn accepted(&mut self, state: State) -> Option<Match<'g>> {
        let found = self.matched(&state)?;
        match (self.accept)(&found) {
            Ok(()) => Some(found),
            Err(reason) => {
                let state = State { operators: usize::MAX, ..state };
                self.fail(&state, Reason::Condition(reason))
            }
        }
    }

    fn matched(&self, state: &State) -> Option<Match<'g>> {
        let named = |(pattern, value): (&Value, &Value)| {
            let name = self.form.placeholder(pattern.node)?.captured()?;
            Some((name.to_owned(), *value))
        };
        let mut captures: BTreeMap<String, Value> = state.bound.iter().filter_map(named).ordered_map();
        let mut repetitions: BTreeMap<String, usize> = BTreeMap::new();
        for Repetition { name: repeat, captured } in self.repeated.iter().rev() {
            let number = repetitions.entry(repeat.clone()).or_default();
            captures.extend(captured.iter().map(|(name, value)| (format!("{repeat}.{number}.{name}"), *value)));
            *number += 1;
        }
        let results = self.form.results.iter().map(|result| state.bound.get(result).copied()).collect::<Option<_>>()?;
        Some(Match { graph: self.graph, results, captures, repetitions, sizes: state.sizes.clone() })
    }

    fn value(&mut self, pattern: Value, value: Value, state: &mut State) -> Option<Subgoals> {
        if let Some(&known) = state.bound.get(&pattern) {
            if known == value {
                return Some(Subgoals::Known);
            }
            let [first, second] = [known, value].map(|value| self.describe(value));
            return self.fail(state, Reason::Shared { first, second });
        }
        let (form, graph) = (self.form, self.graph);
        let (wanted, node) = (form.graph.node(pattern.node)?, graph.node(value.node)?);
        let inputs = form.graph.inputs(pattern.node);
        let Some(wanted_op) = wanted.op.downcast_ref::<PlaceholderOp>() else {
            if pattern.port != value.port || !same(wanted.op.as_ref(), node.op.as_ref(), &mut state.sizes) {
                return self.other_operator(wanted.op.name(), value, state);
            }
            // Equal constants may be one node or several.
            if matches!(node.op.role(), Role::Constant(_)) {
                return Some(Subgoals::Known);
            }
            return self.operands(pattern, value, inputs, state);
        };
        match &wanted_op.placeholder {
            Placeholder::Capture { name, shaped } => {
                let found = graph.ty(value)?;
                if !fits(&wanted_op.ty, found, *shaped, &mut state.sizes) {
                    let (capture, wanted) = (name.clone(), wanted_op.ty.clone());
                    return self.fail(state, Reason::Type { capture, wanted, found: found.to_string() });
                }
            }
            Placeholder::Number { .. } => {
                let is_number =
                    |tensor: &rewire_graph::HostTensor| tensor.shape().is_empty() && tensor.dtype().is_float();
                if !matches!(node.op.role(), Role::Constant(constant) if is_number(&constant.tensor)) {
                    return self.other_operator("a scalar constant", value, state);
                }
            }
            Placeholder::Operator { name, kind } => {
                if !kind.accepts(node.op.as_ref()) {
                    return self.other_operator(name, value, state);
                }
                return self.operands(pattern, value, inputs, state);
            }
            Placeholder::Carried { .. } => {}
            Placeholder::Either => {
                state.bound.insert(pattern, value);
                return Some(Subgoals::One(inputs.iter().map(|&input| vec![Goal::Value(input, value)]).collect()));
            }
            Placeholder::Repeat { .. } => {
                state.bound.insert(pattern, value);
                return Some(Subgoals::All(vec![Goal::Value(*inputs.get(2)?, value), Goal::Repeated(pattern)]));
            }
        }
        state.bound.insert(pattern, value);
        Some(Subgoals::Known)
    }

    fn operands(&mut self, pattern: Value, value: Value, wanted: Vec<Value>, state: &mut State) -> Option<Subgoals> {
        let found = self.graph.inputs(value.node);
        if wanted.len() != found.len() {
            return None;
        }
        state.bound.insert(pattern, value);
        state.operators += 1;
        let pair = |(&pattern, &value): (&Value, &Value)| Goal::Value(pattern, value);
        let in_order: Vec<Goal> = wanted.iter().zip(&found).map(pair).collect();
        let op = &self.graph.node(value.node)?.op;
        if !op.is_commutative() {
            return Some(Subgoals::All(in_order));
        }
        let reversed = wanted.iter().zip(found.iter().rev()).map(pair).collect();
        Some(Subgoals::One(vec![in_order, reversed]))
    }

    /// Records the captures of one repetition. The next one is either another repetition or the start value.
    fn again(&mut self, repeat: Value, state: &mut State) -> Option<Vec<Vec<Goal>>> {
        let form = self.form;
        let [start, carried, body] = form.graph.inputs(repeat.node)[..] else { return None };
        let Some(Placeholder::Repeat { name, .. }) = form.placeholder(repeat.node) else { return None };
        let &before = state.bound.get(&carried)?;
        let locals = form.locals.get(&repeat)?;
        let mut captured = vec![];
        for &id in locals {
            let local = Value { node: id, port: 0 };
            if let Some(value) = state.bound.remove(&local)
                && let Some(name) = form.placeholder(id).and_then(Placeholder::captured)
            {
                captured.push((name.to_owned(), value));
            }
        }
        self.repeated.push(Repetition { name: name.clone(), captured });
        state.repeated = self.repeated.len();
        Some(vec![vec![Goal::Value(body, before), Goal::Repeated(repeat)], vec![Goal::Value(start, before)]])
    }

    /// The alternatives for a result that is not bound yet: readers of a bound value that the result depends on.
    fn toward(&self, result: Value, state: &State) -> Vec<Vec<Goal>> {
        let mut stack = vec![result];
        let mut seen = BTreeSet::new();
        while let Some(wanted) = stack.pop() {
            for input in self.form.graph.inputs(wanted.node) {
                let Some(bound) = state.bound.get(&input) else {
                    if seen.insert(input) {
                        stack.push(input);
                    }
                    continue;
                };
                let taken: BTreeSet<Value> =
                    self.form.results.iter().filter_map(|result| state.bound.get(result)).copied().collect();
                let mut readers = self.graph.users(bound.node);
                readers.dedup();
                let readers = readers.into_iter().map(|node| Value { node, port: wanted.port });
                return readers
                    .filter(|reader| !taken.contains(reader))
                    .map(|r| vec![Goal::Value(wanted, r)])
                    .collect();
            }
        }
        vec![]
    }

    fn other_operator<T>(&mut self, wanted: &str, found: Value, state: &State) -> Option<T> {
        if state.operators == 0 {
            return None;
        }
        let (wanted, found) = (wanted.to_owned(), self.describe(found));
        self.fail(state, Reason::Operator { wanted, found })
    }

    fn describe(&self, value: Value) -> String {
        let name = self.graph.node(value.node).map_or("", |node| node.op.name());
        format!("{name} %{}", value.node.number())
    }
}

/// The comparisons that follow from comparing two values.
enum Subgoals {
    Known,
    All(Vec<Goal>),
    One(Vec<Vec<Goal>>),
}
