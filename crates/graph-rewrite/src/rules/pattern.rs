use super::matching::CompiledPattern;
use super::placeholder::{Kind, Placeholder, PlaceholderOp};
use super::{Match, Mismatch};
use rewire_graph::op::Op;
use rewire_graph::{DType, Dim, Graph, GraphError, NodeId, Scope, Tensor, Type, TypeError};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;

/// A small graph to be found in others.
///
/// It is traced once, from a function that uses a [`PatternScope`], and matched in two forms: as written, and in the
/// canonical form of the simplification rules. It is therefore found in graphs before and after simplification.
pub struct Pattern {
    forms: Vec<CompiledPattern>,
}

impl Pattern {
    /// Traces a pattern. Several results are matched together; each must share a value with an earlier one.
    ///
    /// # Errors
    /// [`GraphError`] from tracing.
    pub fn trace(function: impl Fn(&PatternScope) -> Vec<Tensor>) -> Result<Self, GraphError> {
        let written = trace(function)?;
        let canonical = super::canonical(&written).ok().filter(|canonical| canonical.text() != written.text());
        let canonical =
            canonical.and_then(|canonical| CompiledPattern::new(canonical).ok()).filter(CompiledPattern::is_anchored);
        Ok(Self { forms: std::iter::once(CompiledPattern::new(written)?).chain(canonical).collect() })
    }

    /// A pattern that is only matched as written, for the rules that define the canonical form.
    pub(super) fn literal(function: impl Fn(&PatternScope) -> Vec<Tensor>) -> Result<Self, GraphError> {
        Ok(Self { forms: vec![CompiledPattern::new(trace(function)?)?] })
    }

    /// The names of operators that the first result can be; `None` for any.
    pub fn roots(&self) -> Option<Vec<String>> {
        let mut names = vec![];
        for form in &self.forms {
            names.extend(form.roots()?);
        }
        Some(names)
    }

    /// An upper bound of the number of operators on the longest path through the pattern.
    pub fn depth(&self) -> usize {
        self.forms.iter().map(CompiledPattern::depth).max().unwrap_or(1)
    }

    /// The match whose first result is computed by `node`, if `accept` accepts it; otherwise `accept` returns the
    /// reason.
    ///
    /// # Errors
    /// [`Mismatch`] describes the longest partial match.
    pub fn find<'g>(
        &self,
        graph: &'g Graph,
        node: NodeId,
        accept: &dyn Fn(&Match) -> Result<(), String>,
    ) -> Result<Match<'g>, Mismatch> {
        let mut nearest = Mismatch::default();
        for form in &self.forms {
            match form.find(graph, node, accept) {
                Ok(found) => return Ok(found),
                Err(mismatch) => nearest = nearest.nearer(mismatch),
            }
        }
        Err(nearest)
    }
}

fn trace(function: impl Fn(&PatternScope) -> Vec<Tensor>) -> Result<Graph, GraphError> {
    let pattern = PatternScope {
        scope: Scope::new(),
        captures: RefCell::default(),
        created: RefCell::default(),
        placeholders: Cell::default(),
    };
    let results = function(&pattern);
    let names: Vec<String> = (0..results.len()).map(|n| n.to_string()).collect();
    let outputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(results).collect();
    pattern.scope.finish_within(&outputs)
}

/// The scope in which a pattern is traced: ordinary operators on captures and other placeholders.
///
/// Repeated calls with a name return the same placeholder, which matches only one value.
pub struct PatternScope {
    scope: Scope,
    captures: RefCell<HashMap<String, Tensor>>,
    created: RefCell<Vec<String>>,
    placeholders: Cell<usize>,
}

impl PatternScope {
    /// The scope, for constants, concatenations and custom operators.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// A placeholder for a size of the graph. All uses of it match the same size.
    pub fn size(&self, name: &str) -> Dim {
        self.scope.size(name)
    }

    /// Any tensor or attention scores of any shape with the arithmetic type of `dtype`: `F32` also matches `F16`.
    ///
    /// It traces like a scalar. Use [`PatternScope::tensor`] if an operator's attributes depend on the rank.
    pub fn any(&self, name: &str, dtype: DType) -> Tensor {
        self.capture(name, Type::device(dtype, vec![]), false)
    }

    /// Any device tensor of a shape. Constants in the shape must agree; a [`PatternScope::size`] matches any extent.
    pub fn tensor(&self, name: &str, dtype: DType, shape: &[Dim]) -> Tensor {
        self.capture(name, Type::device(dtype, shape.to_vec()), true)
    }

    /// Any host vector, such as offsets.
    pub fn host(&self, name: &str) -> Tensor {
        self.capture(name, Type::host(vec![self.size(name)]), false)
    }

    /// Any scalar float constant; conditions and replacements read it by [`Match::number`].
    pub fn number(&self, name: &str) -> Tensor {
        let ty = Type::device(DType::F32, vec![]);
        self.named(name, || self.placeholder(Placeholder::Number { name: name.to_owned() }, ty, &[]))
    }

    /// An operator of the type `T` with any attributes; conditions and replacements read it by [`Match::op`]. It
    /// traces like its first operand.
    pub fn operator<T: Op>(&self, name: &str, operands: &[&Tensor]) -> Tensor {
        self.kind(name, Kind::Type(|op| op.downcast_ref::<T>().is_some()), operands)
    }

    /// An operator by its name, for instance a custom one, with any attributes; conditions and replacements read them
    /// by [`Match::attributes`]. It traces like its first operand.
    pub fn operator_named(&self, op: &str, name: &str, operands: &[&Tensor]) -> Tensor {
        self.kind(name, Kind::Name(op.to_owned()), operands)
    }

    fn kind(&self, name: &str, kind: Kind, operands: &[&Tensor]) -> Tensor {
        let ty = operands.first().map_or_else(|| Type::device(DType::F32, vec![]), |first| first.ty().clone());
        self.named(name, || self.placeholder(Placeholder::Operator { name: name.to_owned(), kind }, ty, operands))
    }

    /// `first`, or `second` if `first` does not match. Captures of the other alternative are missing in the match.
    pub fn either(&self, first: &Tensor, second: &Tensor) -> Tensor {
        self.placeholder(Placeholder::Either, first.ty().clone(), &[first, second])
    }

    /// `node(x)`, or `x` itself.
    pub fn optional(&self, x: &Tensor, node: impl Fn(&Tensor) -> Tensor) -> Tensor {
        self.either(&node(x), x)
    }

    /// `step` applied to `start` one or more times, as often as possible.
    ///
    /// Captures first used in `step` are separate for every repetition, with names `name.0.capture`, `name.1.capture`
    /// and so on; repetition 0 reads `start`. [`Match::repetitions`] counts the repetitions.
    pub fn repeat(&self, name: &str, start: &Tensor, step: impl Fn(&Self, &Tensor) -> Tensor) -> Tensor {
        let before = self.created.borrow().len();
        let ty = start.ty().clone();
        let carried = self.placeholder(Placeholder::Carried { name: name.to_owned() }, ty.clone(), &[]);
        let body = step(self, &carried);
        let locals = self.created.borrow().get(before..).unwrap_or_default().to_vec();
        if body.value() == carried.value() && !body.is_poisoned() {
            let source = TypeError::new("step", "at least one operator", "none");
            return self.scope.fail("repeat", source);
        }
        self.placeholder(Placeholder::Repeat { name: name.to_owned(), locals }, ty, &[start, &carried, &body])
    }

    fn capture(&self, name: &str, ty: Type, shaped: bool) -> Tensor {
        self.named(name, || self.placeholder(Placeholder::Capture { name: name.to_owned(), shaped }, ty, &[]))
    }

    fn named(&self, name: &str, make: impl FnOnce() -> Tensor) -> Tensor {
        if let Some(known) = self.captures.borrow().get(name) {
            return known.clone();
        }
        let tensor = make();
        self.captures.borrow_mut().insert(name.to_owned(), tensor.clone());
        self.created.borrow_mut().push(name.to_owned());
        tensor
    }

    fn placeholder(&self, placeholder: Placeholder, ty: Type, operands: &[&Tensor]) -> Tensor {
        let number = self.placeholders.replace(self.placeholders.get() + 1);
        self.scope.apply(PlaceholderOp { number, placeholder, ty }, operands)
    }
}
