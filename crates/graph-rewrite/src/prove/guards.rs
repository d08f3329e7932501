//! The conditions under which expressions are evaluated.

use super::facts::Guard;
use rewire_graph::Ordered;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use std::collections::HashMap;
use std::rc::Rc;

/// The conditions that hold wherever an expression is evaluated, for every expression that `roots` depend on.
pub(super) fn guards(dag: &Dag, roots: &[ExprId]) -> HashMap<ExprId, Guard> {
    let none = Guard::default();
    let mut guards: HashMap<ExprId, Guard> = roots.iter().map(|&root| (root, none.clone())).collect();
    for id in dag.reachable(roots).into_iter().rev() {
        let own = guards.get(&id).cloned().unwrap_or_default();
        let with = |literal: (ExprId, bool)| Rc::new(own.iter().copied().chain([literal]).ordered_set());
        let reads: Vec<(ExprId, Guard)> = match *dag.expr(id) {
            Expr::Select(c, a, b) => vec![(c, own.clone()), (a, with((c, true))), (b, with((c, false)))],
            _ => dag.expr(id).operands().into_iter().map(|read| (read, own.clone())).collect(),
        };
        for (read, guard) in reads {
            guards
                .entry(read)
                .and_modify(|known| {
                    if **known != *guard {
                        *known = Rc::new(known.intersection(&guard).copied().ordered_set());
                    }
                })
                .or_insert(guard);
        }
    }
    guards
}
