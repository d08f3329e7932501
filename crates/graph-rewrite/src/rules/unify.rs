//! Compares operators, types and sizes with those of a pattern.

use rewire_graph::op::{Constant, Op, Role};
use rewire_graph::{Dim, Layout, Symbol, Type};
use std::collections::BTreeMap;

/// Compares operators, with sizes of the pattern bound to those of the graph. Constants are compared by value,
/// including the sign of zero, regardless of their type.
pub(super) fn same(pattern: &dyn Op, op: &dyn Op, sizes: &mut BTreeMap<Symbol, Dim>) -> bool {
    if let (Role::Constant(a), Role::Constant(b)) = (pattern.role(), op.role()) {
        let bits = |constant: &Constant| constant.tensor.to_f64().into_iter().map(f64::to_bits);
        return a.tensor.shape() == b.tensor.shape() && bits(a).eq(bits(b));
    }
    if pattern.name() != op.name() {
        return false;
    }
    let (wanted, found) = (pattern.sizes(), op.sizes());
    if wanted.len() != found.len() || !wanted.iter().zip(&found).all(|(wanted, found)| unify(wanted, found, sizes)) {
        return false;
    }
    let (mut pattern, mut found) = (pattern.boxed(), found.into_iter());
    pattern.resize(&mut |size| found.next().into_iter().for_each(|found| *size = found));
    pattern.same(op)
}

/// Compares types up to sizes; shapes are compared if `shaped`.
pub(super) fn fits(wanted: &Type, found: &Type, shaped: bool, sizes: &mut BTreeMap<Symbol, Dim>) -> bool {
    if (found.layout == Layout::Host) != (wanted.layout == Layout::Host)
        || wanted.dtype.scalar() != found.dtype.scalar()
    {
        return false;
    }
    !shaped
        || (found.layout == wanted.layout
            && wanted.rank() == found.rank()
            && wanted.shape.iter().zip(&found.shape).all(|(wanted, found)| unify(wanted, found, sizes)))
}

/// Binds a size of a pattern to one of a graph.
fn unify(wanted: &Dim, found: &Dim, sizes: &mut BTreeMap<Symbol, Dim>) -> bool {
    match wanted.as_symbol() {
        Some(symbol) if !sizes.contains_key(&symbol) => {
            sizes.insert(symbol, found.clone());
            true
        }
        _ => substitute(wanted, sizes).as_ref() == Some(found),
    }
}

/// A size of a pattern in terms of the graph's sizes; `None` if one is not bound.
pub(super) fn substitute(dim: &Dim, sizes: &BTreeMap<Symbol, Dim>) -> Option<Dim> {
    let constant = Dim::from(1) * dim.constant();
    dim.terms().try_fold(constant, |sum, (symbol, factor)| sizes.get(&symbol).map(|value| sum + value.clone() * factor))
}
