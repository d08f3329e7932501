//! Turns long chains of selects, `c1 ? a1 : c2 ? a2 : ..`, into trees.

use crate::error::NotLowerable;
use crate::plan::Computation;
use rewire_graph::pointwise::{BinaryOp, Dag, Expr, ExprId};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// Length of the longest chain that kernels nest. On an NVIDIA H100 (driver 580), attention with a select between two
/// chains of 13 nested branches with loads returns NaN; chains of 11, and trees of the same selects, are correct.
const LONGEST: usize = 8;

/// A chain of selects: conditions with their values, and the final value.
#[derive(Clone)]
struct Chain {
    choices: Vec<(ExprId, ExprId)>,
    last: ExprId,
}

/// A computation in which the nesting depth of branches is logarithmic in the length of chains. A condition is
/// evaluated before earlier ones only if it reads nothing more than they do.
///
/// # Errors
/// [`NotLowerable`] if no schedule supports the nest.
pub fn with_shallow_choices(computation: Cow<'_, Computation>) -> Result<Cow<'_, Computation>, NotLowerable> {
    let Computation::Nest(kernel) = computation.as_ref() else { return Ok(computation) };
    let heads = long_chains(&kernel.body.dag, &kernel.roots());
    if heads.is_empty() {
        return Ok(computation);
    }
    let mut own = kernel.clone();
    own.edit(|nest| {
        let mut chains: HashMap<ExprId, Chain> = HashMap::new();
        nest.rebuild(|dag, expr, copies| {
            let (Expr::Select(..), &[condition, chosen, rest]) = (expr, copies) else { return None };
            let tail = chains
                .get(&rest)
                .filter(|tail| tail.choices.iter().take(1).all(|next| follows(dag, condition, next.0)));
            let tail = tail.cloned().unwrap_or(Chain { choices: vec![], last: rest });
            let chain = Chain { choices: [vec![(condition, chosen)], tail.choices].concat(), last: tail.last };
            if heads.contains(expr) {
                return Some(tree(dag, &chain.choices, chain.last));
            }
            let copy = dag.select(condition, chosen, rest);
            chains.insert(copy, chain);
            Some(copy)
        });
        // Removes the selects of replaced chains, which are no longer reachable.
        nest.rebuild(|_, _, _| None);
    })?;
    Ok(Cow::Owned(Computation::Nest(own)))
}

/// The first select of each long chain.
fn long_chains(dag: &Dag, roots: &[ExprId]) -> HashSet<Expr> {
    let mut lengths: HashMap<ExprId, usize> = HashMap::new();
    let mut continued = HashSet::new();
    for id in dag.reachable(roots) {
        let Expr::Select(condition, _, rest) = *dag.expr(id) else { continue };
        let behind = match *dag.expr(rest) {
            Expr::Select(next, ..) if follows(dag, condition, next) => lengths.get(&rest).copied().unwrap_or(0),
            _ => 0,
        };
        lengths.insert(id, 1 + behind);
        if behind > 0 {
            continued.insert(rest);
        }
    }
    let is_head = |(id, length): &(ExprId, usize)| *length > LONGEST && !continued.contains(id);
    lengths.into_iter().filter(is_head).map(|(id, _)| dag.expr(id).clone()).collect()
}

/// Selects the value of the first condition that holds, by bisection.
fn tree(dag: &mut Dag, choices: &[(ExprId, ExprId)], last: ExprId) -> ExprId {
    if choices.len() <= LONGEST / 2 {
        return choices.iter().rev().fold(last, |rest, &(condition, chosen)| dag.select(condition, chosen, rest));
    }
    let (first, second) = choices.split_at(choices.len() / 2);
    let [any @ .., (condition, chosen)] = first else { return last };
    let among = any.iter().fold(*condition, |among, (condition, _)| dag.binary(BinaryOp::Or, *condition, among));
    let (yes, no) = (tree(dag, any, *chosen), tree(dag, second, last));
    dag.select(among, yes, no)
}

/// True if a kernel that evaluates `condition` may also evaluate `next` speculatively, since `next` reads nothing more.
fn follows(dag: &Dag, condition: ExprId, next: ExprId) -> bool {
    let reads = |expr: &Expr| {
        matches!(expr, Expr::Load { .. } | Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. })
    };
    let known: HashSet<ExprId> = dag.reachable(&[condition]).into_iter().collect();
    dag.reachable(&[next]).into_iter().all(|id| known.contains(&id) || !reads(dag.expr(id)))
}
