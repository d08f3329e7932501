//! The sizes of a program, and their values in the shape program.

use crate::size::{AtomId, Monomial, Size};
use rewire_graph::pointwise::BinaryOp;
use rewire_graph::{Dim, Scope, Symbol, Tensor};
use std::collections::{BTreeMap, HashMap};

/// The smallest and the largest value of an integer.
type Bounds = (i128, i128);

/// Upper bound of the extents in a run.
const MAX_EXTENT: i128 = i32::MAX as i128;

/// Definition of an atom.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Definition {
    /// A symbol of the program or of the graph.
    Symbol(String),
    /// A function of two sizes.
    Binary(BinaryOp, Size, Size),
}

/// An atom with its value in the graph.
struct Atom {
    definition: Definition,
    bounds: Bounds,
    /// The value in the graph; `None` for a symbol that no input has defined.
    dim: Option<Dim>,
}

/// The sizes of a program.
pub(crate) struct Sizes {
    scope: Scope,
    atoms: Vec<Atom>,
    known: HashMap<Definition, AtomId>,
    /// Sizes of the graph that represent products of atoms.
    products: HashMap<Monomial, Dim>,
    monomials: BTreeMap<Symbol, Size>,
}

impl Sizes {
    pub fn new(scope: &Scope) -> Self {
        let (atoms, known, products, monomials) = Default::default();
        Self { scope: scope.clone(), atoms, known, products, monomials }
    }

    fn define(&mut self, definition: Definition, bounds: Bounds, dim: Option<Dim>) -> AtomId {
        let id = self.atoms.len() as AtomId;
        if let Some(symbol) = dim.as_ref().and_then(Dim::as_symbol) {
            self.monomials.insert(symbol, Size::atom(id));
        }
        self.known.insert(definition.clone(), id);
        self.atoms.push(Atom { definition, bounds, dim });
        id
    }

    /// The size of a symbol of the program.
    pub fn symbol(&mut self, name: &str) -> Size {
        let definition = Definition::Symbol(name.to_owned());
        let known = self.known.get(&definition).copied();
        Size::atom(known.unwrap_or_else(|| self.define(definition, (0, MAX_EXTENT), None)))
    }

    /// Sets the bounds of a symbol.
    pub fn constrain(&mut self, name: &str, least: Option<i64>, most: Option<i64>) {
        let size = self.symbol(name);
        let Some(id) = size.terms().next().and_then(|(monomial, _)| monomial.first().copied()) else { return };
        let bounds = &mut self.atoms[id as usize].bounds;
        *bounds = (least.map_or(0, i128::from), most.map_or(MAX_EXTENT, |most| i128::from(most).min(MAX_EXTENT)));
    }

    /// The extent of an input. If it contains one undefined symbol, the extent defines that symbol.
    pub fn bind(&mut self, size: &Size) -> Option<Dim> {
        let undefined: Vec<AtomId> = size
            .terms()
            .flat_map(|(monomial, _)| monomial.clone())
            .filter(|&id| self.atoms[id as usize].dim.is_none())
            .collect();
        let [id] = undefined.as_slice() else { return self.dim(size) };
        let Definition::Symbol(name) = self.atoms[*id as usize].definition.clone() else { return None };
        // size = symbol + rest, so the symbol is the extent minus the constant rest.
        let atom = Size::atom(*id);
        let rest = size.minus(&atom);
        let rest = rest.as_const()?;
        let name = if rest == 0 { name } else { format!("{name}{rest:+}") };
        let extent = self.scope.size(&name);
        let dim = extent.clone() - Dim::from(rest.unsigned_abs() as usize) * rest.signum();
        self.atoms[*id as usize].dim = Some(dim);
        if let Some(symbol) = extent.as_symbol() {
            self.monomials.insert(symbol, size.clone());
        }
        Some(extent)
    }

    /// A size of the graph as a polynomial of the program's sizes.
    pub fn of(&mut self, dim: &Dim) -> Size {
        let mut size = Size::from(dim.constant());
        for (symbol, factor) in dim.terms() {
            let one = match self.monomials.get(&symbol) {
                Some(one) => one.clone(),
                None => {
                    let definition = Definition::Symbol(format!("graph size {}", symbol.0));
                    let own = dim.clone() - Dim::default();
                    let own = own.terms().find(|(other, _)| *other == symbol).map(|_| Dim::symbol(symbol));
                    let id = self.define(definition, (0, MAX_EXTENT), own);
                    Size::atom(id)
                }
            };
            size = size.plus(&one.times(&Size::from(factor)));
        }
        size
    }

    /// The size as an extent of the graph; `None` if it contains an undefined symbol.
    pub fn dim(&mut self, size: &Size) -> Option<Dim> {
        let mut sum = Dim::default();
        let terms: Vec<(Monomial, i64)> = size.terms().map(|(monomial, factor)| (monomial.clone(), factor)).collect();
        for (monomial, factor) in terms {
            let one = match monomial.as_slice() {
                [] => Dim::from(1),
                [id] => self.atoms[*id as usize].dim.clone()?,
                _ => self.product(&monomial)?,
            };
            sum = sum + one * factor;
        }
        Some(sum)
    }

    fn product(&mut self, monomial: &Monomial) -> Option<Dim> {
        if let Some(dim) = self.products.get(monomial) {
            return Some(dim.clone());
        }
        let mut factors = monomial.iter().map(|&id| self.host(&Size::atom(id)));
        let factors: Vec<Tensor> = factors.by_ref().collect::<Option<_>>()?;
        let product = factors.into_iter().reduce(|product, factor| product.binary(BinaryOp::Mul, &factor))?;
        let dim = product.as_dim();
        self.monomials.insert(dim.as_symbol()?, Size::monomial(monomial));
        self.products.insert(monomial.clone(), dim.clone());
        Some(dim)
    }

    /// The size as a value of the shape program, which may be negative.
    pub fn host(&mut self, size: &Size) -> Option<Tensor> {
        let (mut above, mut below) = (Size::default(), Size::default());
        for (monomial, factor) in size.terms() {
            let term = Size::monomial(monomial).times(&Size::from(factor.saturating_abs()));
            let part = if factor < 0 { &mut below } else { &mut above };
            *part = part.plus(&term);
        }
        let (above, below) = (self.dim(&above)?, self.dim(&below)?);
        let value = self.scope.host_size(above);
        if below == Dim::default() {
            return Some(value);
        }
        Some(value.binary(BinaryOp::Sub, &self.scope.host_size(below)))
    }

    /// The smallest and the largest value of a size.
    pub fn bounds(&self, size: &Size) -> Bounds {
        let mut sum = (0i128, 0i128);
        for (monomial, factor) in size.terms() {
            let mut term = (i128::from(factor), i128::from(factor));
            for &id in monomial {
                let (low, high) = self.atoms[id as usize].bounds;
                let corners = [term.0, term.1].map(|x| [x.saturating_mul(low), x.saturating_mul(high)]).concat();
                let (least, most) = (corners.iter().min(), corners.iter().max());
                term = (least.copied().unwrap_or(i128::MIN), most.copied().unwrap_or(i128::MAX));
            }
            sum = (sum.0.saturating_add(term.0), sum.1.saturating_add(term.1));
        }
        sum
    }

    /// The largest value of an extent; `None` if it is not bounded.
    pub fn most(&self, size: &Size) -> Option<usize> {
        let most = self.bounds(size).1;
        usize::try_from(most).ok().filter(|_| most < MAX_EXTENT)
    }

    fn binary(&mut self, op: BinaryOp, a: &Size, b: &Size, bounds: Bounds) -> Size {
        let definition = Definition::Binary(op, a.clone(), b.clone());
        if let Some(&id) = self.known.get(&definition) {
            return Size::atom(id);
        }
        let dim = self.host(a).zip(self.host(b)).map(|(a, b)| a.binary(op, &b).as_dim());
        Size::atom(self.define(definition, bounds, dim))
    }

    /// The quotient, rounded toward negative infinity; `None` if the divisor is 0.
    pub fn quotient(&mut self, a: &Size, b: &Size) -> Option<Size> {
        if let Some(quotient) = a.divided(b) {
            return Some(quotient);
        }
        let (low, high) = self.bounds(a);
        let Some(divisor) = b.as_const() else {
            let most = low.saturating_abs().max(high.saturating_abs());
            let bounds = (if low < 0 { -most } else { 0 }, most);
            return Some(self.binary(BinaryOp::Div, a, b, bounds));
        };
        if divisor == 0 {
            return None;
        }
        let (whole, rest) = a.split(divisor.saturating_abs());
        if divisor < 0 {
            return Some(self.binary(BinaryOp::Div, a, b, (-high.max(-low), high.max(-low))));
        }
        let bounds = self.bounds(&rest);
        let wide = i128::from(divisor);
        let bounds = (bounds.0.div_euclid(wide), bounds.1.div_euclid(wide));
        if bounds.0 == bounds.1 {
            return Some(whole.plus(&Size::from(i64::try_from(bounds.0).ok()?)));
        }
        Some(whole.plus(&self.binary(BinaryOp::Div, &rest, b, bounds)))
    }

    /// `a - b * quotient(a, b)`
    pub fn remainder(&mut self, a: &Size, b: &Size) -> Option<Size> {
        let quotient = self.quotient(a, b)?;
        Some(a.minus(&quotient.times(b)))
    }

    pub fn smaller(&mut self, a: &Size, b: &Size) -> Size {
        self.ordered(BinaryOp::Min, a, b)
    }

    pub fn larger(&mut self, a: &Size, b: &Size) -> Size {
        self.ordered(BinaryOp::Max, a, b)
    }

    fn ordered(&mut self, op: BinaryOp, a: &Size, b: &Size) -> Size {
        let (low, high) = self.bounds(&a.minus(b));
        let (first, second) = if op == BinaryOp::Max { (a, b) } else { (b, a) };
        if low >= 0 {
            return first.clone();
        }
        if high <= 0 {
            return second.clone();
        }
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let (x, y) = (self.bounds(a), self.bounds(b));
        let bounds = if op == BinaryOp::Max { (x.0.max(y.0), x.1.max(y.1)) } else { (x.0.min(y.0), x.1.min(y.1)) };
        self.binary(op, a, b, bounds)
    }

    /// 1 if the comparison is true, otherwise 0.
    pub fn compared(&mut self, op: BinaryOp, a: &Size, b: &Size) -> Size {
        if let Some((a, b)) = a.as_const().zip(b.as_const()) {
            return Size::from(op.evaluate_int(rewire_graph::Scalar::I64, a, b));
        }
        self.binary(op, a, b, (0, 1))
    }
}
