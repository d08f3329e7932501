//! Expressions that only one side of a select needs.

use rewire_graph::pointwise::functions::FUNCTION;
use rewire_graph::pointwise::{Dag, Expr, ExprId};
use std::collections::{HashMap, HashSet};

/// One side of a select. `parent` is the enclosing side.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Branch {
    parent: Option<usize>,
    depth: usize,
    condition: ExprId,
    side: bool,
}

/// For every expression, the innermost side of a select that contains all its users.
#[derive(Clone, Debug, Default)]
pub(super) struct Branches {
    branches: Vec<Branch>,
    of: HashMap<ExprId, Option<usize>>,
    conditions: HashSet<ExprId>,
}

impl Branches {
    /// `order` lists the dependencies of `roots`, operands before users; `reads` returns the operands of an expression.
    pub(super) fn new(dag: &Dag, order: &[ExprId], roots: &[ExprId], reads: &dyn Fn(ExprId) -> Vec<ExprId>) -> Self {
        let spread = |is: &dyn Fn(&Expr) -> bool| {
            let mut found: HashSet<ExprId> = HashSet::new();
            for &id in order {
                if is(dag.expr(id)) || reads(id).iter().any(|read| found.contains(read)) {
                    found.insert(id);
                }
            }
            found
        };
        // Adjacent points take different sides of a random select, so a branch would not save work.
        let random = spread(&|expr| matches!(expr, Expr::Uniform { .. }));
        let costly = spread(&is_costly);
        let mut this = Self::default();
        roots.iter().for_each(|&root| this.join(root, None));
        for &id in order.iter().rev() {
            let own = this.of.get(&id).copied().flatten();
            match *dag.expr(id) {
                Expr::Select(c, a, b) if reads(id).len() == 3 => {
                    this.join(c, own);
                    for (branch, side) in [(a, true), (b, false)] {
                        let pays = costly.contains(&branch) && !random.contains(&c);
                        let within = if pays { Some(this.enter(own, c, side)) } else { own };
                        this.join(branch, within);
                    }
                }
                _ => reads(id).into_iter().for_each(|read| this.join(read, own)),
            }
        }
        this.conditions = this.of.values().flat_map(|&branch| this.path(branch)).map(|b| b.condition).collect();
        this
    }

    /// True if some expression is needed for only one value of this condition.
    pub(super) fn decides(&self, condition: ExprId) -> bool {
        self.conditions.contains(&condition)
    }

    /// True if two expressions are needed for the same values of all conditions.
    pub(super) fn are_together(&self, a: ExprId, b: ExprId) -> bool {
        self.of.get(&a) == self.of.get(&b)
    }

    /// The innermost condition that `known` accepts, with its value for which `id` is needed.
    pub(super) fn innermost(&self, id: ExprId, known: impl Fn(ExprId) -> bool) -> Option<(ExprId, bool)> {
        let branch = self.of.get(&id).copied().flatten();
        self.path(branch).find(|branch| known(branch.condition)).map(|branch| (branch.condition, branch.side))
    }

    fn path(&self, from: Option<usize>) -> impl Iterator<Item = Branch> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let branch = *self.branches.get(at?)?;
            at = branch.parent;
            Some(branch)
        })
    }

    fn enter(&mut self, parent: Option<usize>, condition: ExprId, side: bool) -> usize {
        let depth = self.depth(parent) + 1;
        let branch = Branch { parent, depth, condition, side };
        self.branches.iter().position(|known| *known == branch).unwrap_or_else(|| {
            self.branches.push(branch);
            self.branches.len() - 1
        })
    }

    fn depth(&self, branch: Option<usize>) -> usize {
        branch.and_then(|at| self.branches.get(at)).map_or(0, |branch| branch.depth)
    }

    fn parent(&self, branch: Option<usize>) -> Option<usize> {
        branch.and_then(|at| self.branches.get(at)).and_then(|branch| branch.parent)
    }

    /// Records a use of `id` in `branch`.
    fn join(&mut self, id: ExprId, branch: Option<usize>) {
        let common = match self.of.get(&id) {
            None => branch,
            Some(&(mut a)) => {
                let mut b = branch;
                while a != b {
                    if self.depth(a) >= self.depth(b) { a = self.parent(a) } else { b = self.parent(b) }
                }
                a
            }
        };
        self.of.insert(id, common);
    }
}

fn is_costly(expr: &Expr) -> bool {
    match expr {
        Expr::Load { .. } | Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. } => true,
        Expr::Unary(op, _) => op.declaration().cost >= FUNCTION,
        _ => false,
    }
}
