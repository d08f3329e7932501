//! Products of sizes. Indices of tensors whose axes are joined into one: products of a coordinate and a size, and quotients by a size.

use super::super::facts::When;
use super::super::form::{LinearExpr, VarDef};
use super::{Analysis, MOST};
use rewire_graph::Dim;
use rewire_graph::pointwise::{BinaryOp, ExprId};

/// A size that the shape program computes as the product of two values.
struct Product {
    size: LinearExpr,
    /// The factor that an expression contains; it is not negative.
    factor: LinearExpr,
    other: LinearExpr,
}

impl Analysis<'_> {
    /// Records bounds of `x * factor`, if `x` is below the other factor of a size.
    pub(super) fn multiplied(&mut self, id: ExprId, a: ExprId, b: ExprId) {
        let (a, b, when) = (self.exact(a, id), self.exact(b, id), self.when(id));
        for (x, factor) in [(&a, &b), (&b, &a)] {
            for Product { size, factor, other } in self.products(factor, &when) {
                if self.is_below(x, &other, &when) {
                    let value = self.atoms.form(VarDef::Value(id));
                    let above = size.minus(&factor).and_then(|rest| rest.minus(&value));
                    self.facts.extend([above, Some(value)], &when);
                }
            }
        }
    }

    /// Records bounds of `x / factor` or `x mod factor`, if `x` is below a size with this factor.
    pub(super) fn split(&mut self, id: ExprId, op: BinaryOp, x: ExprId, divisor: &LinearExpr) {
        let (x, when) = (self.exact(x, id), self.when(id));
        for Product { size, factor, other } in self.products(divisor, &when) {
            if self.is_below(&x, &size, &when) {
                // The product is positive, and so are its factors.
                self.facts.extend([factor.shifted(-1), other.shifted(-1)], &when);
                let value = self.atoms.form(VarDef::Value(id));
                let end = if op == BinaryOp::Div { &other } else { &factor };
                let above = end.minus(&value).and_then(|rest| rest.shifted(-1));
                self.facts.extend([above, Some(value)], &when);
            }
        }
    }

    /// The sizes that are products of a form and another value.
    fn products(&mut self, factor: &LinearExpr, when: &When) -> Vec<Product> {
        let mut found = vec![];
        for (symbol, slots) in self.host.products() {
            let [a, b] = slots.map(|slot| self.at(Default::default(), when, |entries| entries.scalar(slot)));
            let other = match (a == *factor, b == *factor) {
                (true, _) => b,
                (_, true) => a,
                _ => continue,
            };
            let size = self.atoms.form(VarDef::Symbol(symbol));
            let fits = size.times(-1).and_then(|size| size.shifted(MOST));
            if fits.is_some_and(|fits| self.facts.prove(&fits, when)) && self.facts.prove(factor, when) {
                found.push(Product { size, factor: factor.clone(), other });
            }
        }
        found
    }
}

/// The number of elements of a tensor with padded rows, if at most one extent is symbolic.
pub(super) fn elements(shape: &[Dim]) -> Option<Dim> {
    let (last, outer) = shape.split_last()?;
    let pitch = last.as_const().map_or(last.clone(), |width| width.next_multiple_of(4).into());
    outer.iter().try_fold(pitch, |product, dim| product.product(dim))
}
