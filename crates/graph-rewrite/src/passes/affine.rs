use super::{Context, Pass};
use crate::error::RewriteError;
use crate::rules::{Attempt, Patch, Rule, rewrite_beside};
use rewire_graph::op::{MatMul, Permute, Reshape};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Dim, Graph, GraphError, NodeId, Scope, Tensor, Value};
use std::collections::HashSet;

/// Folds per-channel scales that are parameters into the weight of the matmul before them, and combines the shifts:
/// batch norm becomes part of the convolution or linear layer before it.
///
/// The new weight and shift are computed when parameters are bound. An f16 weight stays unchanged; the matmul is then
/// followed by one scale.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldAffine;

impl Pass for FoldAffine {
    fn name(&self) -> &str {
        "fold_affine"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let fixed = graph.fixed().map_err(|source| RewriteError::graph(self.name(), source))?;
        rewrite_beside(graph, &[&FoldChain { fixed, live: graph.live() }], context)
    }
}

/// The rule, with the nodes that depend only on parameters and the nodes that outputs need.
struct FoldChain {
    fixed: HashSet<NodeId>,
    live: HashSet<NodeId>,
}

impl Rule for FoldChain {
    fn name(&self) -> &str {
        Pass::name(&FoldAffine)
    }

    fn roots(&self) -> Option<Vec<String>> {
        Some(vec!["matmul".to_owned()])
    }

    fn apply(&self, graph: &Graph, root: NodeId) -> Result<Attempt, GraphError> {
        let Some(chain) = Chain::find(graph, self, root) else { return Ok(Attempt::Nothing) };
        let mut read = vec![Value { node: root, port: 0 }];
        read.extend(graph.inputs(root));
        read.extend(chain.affine.iter().map(|step| step.operand));
        let end = Value { node: chain.last(), port: 0 };
        let patch = Patch::of(graph, end, &read, |scope, read| chain.folded(graph, scope, read))?;
        Ok(patch.map_or(Attempt::Nothing, Attempt::Found))
    }
}

/// A matmul with a fixed operand, the layout changes after it, and then elementwise sums, differences, products and
/// quotients with fixed per-channel values. Channels are one or several axes of the fixed operand.
struct Chain {
    product: NodeId,
    /// Position of the fixed operand.
    weight: usize,
    moves: Vec<NodeId>,
    affine: Vec<AffineStep>,
}

struct AffineStep {
    node: NodeId,
    op: BinaryOp,
    operand: Value,
    /// True for `operand - x`.
    reversed: bool,
}

impl Chain {
    fn find(graph: &Graph, rule: &FoldChain, product: NodeId) -> Option<Self> {
        graph.op::<MatMul>(product)?;
        let operands: Vec<bool> = graph.inputs(product).iter().map(|value| rule.fixed.contains(&value.node)).collect();
        let weight = match operands[..] {
            [true, false] => 0,
            [false, true] => 1,
            _ => return None,
        };
        let mut chain = Self { product, weight, moves: vec![], affine: vec![] };
        while chain.extend(graph, rule) {}
        let scales =
            |step: &AffineStep| matches!(step.op, BinaryOp::Mul | BinaryOp::Div) && is_vector(graph, step.operand);
        // If the weight stays unchanged, the chain becomes one scale and one shift after it.
        let rest = if chain.folds(graph) { &chain.affine[..] } else { chain.affine.get(1..).unwrap_or_default() };
        (rest.iter().any(scales) || chain.affine.len() > 2).then_some(chain)
    }

    /// True if scales are folded into the weight.
    fn folds(&self, graph: &Graph) -> bool {
        let weight = graph.inputs(self.product).get(self.weight).and_then(|&weight| graph.ty(weight));
        weight.is_some_and(|ty| ty.dtype == DType::F32)
    }

    fn last(&self) -> NodeId {
        self.affine.last().map(|step| step.node).or(self.moves.last().copied()).unwrap_or(self.product)
    }

    /// Adds the only reader of the chain's end, if it continues the chain.
    fn extend(&mut self, graph: &Graph, rule: &FoldChain) -> bool {
        let end = Value { node: self.last(), port: 0 };
        let mut users = graph.users(end.node);
        users.retain(|id| rule.live.contains(id));
        let [user] = users[..] else { return false };
        let (Some(node), Some(ty)) = (graph.node(user), graph.ty(end)) else { return false };
        if graph.outputs().iter().any(|(_, value)| *value == end) {
            return false;
        }
        if graph.op::<Permute>(user).is_some() || graph.op::<Reshape>(user).is_some() {
            let moves = self.affine.is_empty();
            self.moves.extend(moves.then_some(user));
            return moves;
        }
        let Some(&op) = graph.op::<BinaryOp>(user) else { return false };
        let [a, b] = graph.inputs(user)[..] else { return false };
        let reversed = b == end;
        let operand = if reversed { a } else { b };
        let takes = match op {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Sub => true,
            BinaryOp::Div => !reversed,
            _ => false,
        };
        let fits = takes
            && rule.fixed.contains(&operand.node)
            && node.types.first().is_some_and(|result| result.shape == ty.shape)
            && graph.ty(operand).is_some_and(|ty| self.in_weight(graph, &ty.shape).is_some());
        if fits {
            self.affine.push(AffineStep { node: user, op, operand, reversed: reversed && op == BinaryOp::Sub });
        }
        fits
    }

    /// The shapes of a per-channel value before each layout change, traced from the last one back to the matmul.
    fn back(&self, graph: &Graph, shape: &[Dim]) -> Option<Vec<Vec<Dim>>> {
        let at = |id: NodeId| graph.ty(Value { node: id, port: 0 }).map(|ty| ty.shape.clone());
        let end = at(self.moves.last().copied().unwrap_or(self.product))?;
        let missing = end.len().checked_sub(shape.len())?;
        let one: Dim = 1.into();
        let mut shapes = vec![[vec![one.clone(); missing], shape.to_vec()].concat()];
        for (n, &id) in self.moves.iter().enumerate().rev() {
            let from = at(if n == 0 { self.product } else { self.moves[n - 1] })?;
            let (after, to) = (shapes.last()?, at(id)?);
            shapes.push(match graph.op::<Permute>(id) {
                Some(permute) => inverse(&permute.axes).into_iter().map(|axis| after[axis].clone()).collect(),
                None => regrouped(after, &from, &to)?,
            });
        }
        Some(shapes)
    }

    /// The shape in which a per-channel value multiplies the weight; `None` if its channels are not axes of the weight.
    fn in_weight(&self, graph: &Graph, shape: &[Dim]) -> Option<Vec<Dim>> {
        let mut shape = self.back(graph, shape)?.pop()?;
        let weight = graph.ty(*graph.inputs(self.product).get(self.weight)?)?.shape.clone();
        let one: Dim = 1.into();
        let (rank, leading) = (shape.len(), shape.len().checked_sub(weight.len())?);
        let (summed, other) = if self.weight == 0 { (rank - 1, rank - 1) } else { (rank - 2, rank - 2) };
        // The weight has no axis for the rows or columns of the other operand; the reduced axis replaces it.
        if shape[other] != one || shape[..leading].iter().any(|dim| *dim != one) {
            return None;
        }
        shape[summed] = one.clone();
        let own = shape.split_off(leading);
        let fits = own.iter().zip(&weight).all(|(scale, extent)| scale == extent || *scale == one);
        fits.then_some(own)
    }

    /// The result of the chain with all steps folded. `read` holds the matmul, its operands, and the operands of the
    /// steps.
    fn folded(&self, graph: &Graph, scope: &Scope, read: &[Tensor]) -> Option<Tensor> {
        let [product, left, right, operands @ ..] = read else { return None };
        let (scale, shift) = self.combined(scope, operands);
        let folds = self.folds(graph);
        let mut value = match scale.as_ref().filter(|_| folds) {
            Some(scale) if self.weight == 0 => (left * &self.to_weight(graph, scale)?).matmul(right),
            Some(scale) => left.matmul(&(right * &self.to_weight(graph, scale)?)),
            None => product.clone(),
        };
        for &id in &self.moves {
            value = match graph.op::<Permute>(id) {
                Some(permute) => value.permute(&permute.axes),
                None => value.reshape(&graph.ty(Value { node: id, port: 0 })?.shape),
            };
        }
        if let Some(scale) = scale.filter(|_| !folds) {
            value = &value * &scale;
        }
        Some(shift.map_or(value.clone(), |shift| &value + &shift))
    }

    /// All steps combined into one scale, followed by one shift.
    fn combined(&self, scope: &Scope, operands: &[Tensor]) -> (Option<Tensor>, Option<Tensor>) {
        let (mut scale, mut shift): (Option<Tensor>, Option<Tensor>) = (None, None);
        for (step, operand) in self.affine.iter().zip(operands) {
            match (step.op, step.reversed) {
                (op @ (BinaryOp::Mul | BinaryOp::Div), _) => {
                    let one = || scope.scalar(DType::F32, 1.0);
                    scale = Some(match scale {
                        None if op == BinaryOp::Mul => operand.clone(),
                        scale => scale.unwrap_or_else(one).binary(op, operand),
                    });
                    shift = shift.map(|shift| shift.binary(op, operand));
                }
                (BinaryOp::Sub, true) => {
                    scale =
                        Some(scale.map_or_else(|| scope.scalar(DType::F32, -1.0), |scale| scale.unary(UnaryOp::Neg)));
                    shift = Some(shift.map_or_else(|| operand.clone(), |shift| operand - &shift));
                }
                (op, _) => {
                    shift = Some(match shift {
                        Some(shift) => shift.binary(op, operand),
                        None if op == BinaryOp::Sub => operand.unary(UnaryOp::Neg),
                        None => operand.clone(),
                    });
                }
            }
        }
        (scale, shift)
    }

    /// A per-channel scale, in the shape in which it multiplies the weight.
    fn to_weight(&self, graph: &Graph, scale: &Tensor) -> Option<Tensor> {
        let (shapes, own) = (self.back(graph, scale.shape())?, self.in_weight(graph, scale.shape())?);
        let moves = self.moves.iter().rev().map(|&id| graph.op::<Permute>(id));
        let value =
            std::iter::once(None).chain(moves).zip(shapes).fold(
                scale.clone(),
                |value, (permute, shape)| match permute {
                    Some(permute) => value.permute(&inverse(&permute.axes)),
                    None => value.reshape(&shape),
                },
            );
        Some(value.reshape(&own))
    }
}

fn inverse(axes: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; axes.len()];
    for (to, &from) in axes.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}

/// Converts the shape of a value: `value` broadcasts to `to`, the result broadcasts to `from`, and `to` is a reshape of
/// `from`.
fn regrouped(value: &[Dim], from: &[Dim], to: &[Dim]) -> Option<Vec<Dim>> {
    let one: Dim = 1.into();
    let mut shape = vec![];
    let (mut i, mut j) = (0, 0);
    for (next_i, next_j) in Reshape::runs(from, to)? {
        let run = &value[j..next_j];
        if run.iter().all(|dim| *dim == one) {
            shape.extend(std::iter::repeat_n(one.clone(), next_i - i));
        } else if run == &to[j..next_j] {
            shape.extend_from_slice(&from[i..next_i]);
        } else {
            return None;
        }
        (i, j) = (next_i, next_j);
    }
    Some(shape)
}

fn is_vector(graph: &Graph, value: Value) -> bool {
    let one: Dim = 1.into();
    graph.ty(value).is_some_and(|ty| ty.shape.iter().any(|dim| *dim != one))
}
