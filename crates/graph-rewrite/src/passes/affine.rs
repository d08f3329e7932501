use super::{Context, Pass};
use crate::error::RewriteError;
use rewire_graph::op::{Constant, MatMul, Op, Permute, Reshape, ViewProps};
use rewire_graph::pointwise::{BinaryOp, UnaryOp};
use rewire_graph::{DType, Dim, Graph, GraphError, NodeId, Value};
use std::collections::HashSet;
use std::sync::Arc;

/// Folds scales of a matmul's rows or columns that are parameters into its weight, and sums its shifts: batch norm
/// becomes part of the convolution or linear layer before it.
///
/// Both are computed when parameters are bound. f16 weights stay unchanged and get one scale after the matmul.
#[derive(Clone, Copy, Debug, Default)]
pub struct FoldAffine;

impl Pass for FoldAffine {
    fn name(&self) -> &str {
        "fold_affine"
    }

    fn run(&self, graph: &Graph, context: &mut Context) -> Result<Graph, RewriteError> {
        let failed = |source| RewriteError::graph(self.name(), source);
        let fixed = graph.fixed().map_err(failed)?;
        let live = graph.live();
        let unread: HashSet<NodeId> = graph.ids().filter(|id| !live.contains(id)).collect();
        let mut folded = graph.clone();
        for id in graph.order().map_err(failed)?.into_iter().filter(|id| live.contains(id)) {
            let Some(chain) = Chain::find(&folded, &fixed, &unread, id) else { continue };
            if context.permits(self.name(), graph, id) {
                chain.fold(&mut folded).map_err(failed)?;
            }
        }
        Ok(folded)
    }
}

/// A matmul with a fixed operand, the layout changes after it, and then sums, differences, products and quotients with
/// fixed per-channel values. Channels are one or several axes of that operand.
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
    /// `unread` are nodes that no output needs.
    fn find(graph: &Graph, fixed: &HashSet<NodeId>, unread: &HashSet<NodeId>, product: NodeId) -> Option<Self> {
        graph.op::<MatMul>(product)?;
        let operands: Vec<bool> = graph.inputs(product).iter().map(|value| fixed.contains(&value.node)).collect();
        let weight = match operands[..] {
            [true, false] => 0,
            [false, true] => 1,
            _ => return None,
        };
        let mut chain = Self { product, weight, moves: vec![], affine: vec![] };
        while chain.extend(graph, fixed, unread) {}
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
    fn extend(&mut self, graph: &Graph, fixed: &HashSet<NodeId>, unread: &HashSet<NodeId>) -> bool {
        let end = Value { node: self.last(), port: 0 };
        let mut users = graph.users(end.node);
        users.retain(|id| !unread.contains(id));
        let [user] = users[..] else { return false };
        let (Some(node), Some(ty)) = (graph.node(user), graph.ty(end)) else { return false };
        if graph.outputs().iter().any(|(_, value)| *value == end) {
            return false;
        }
        let op = node.op.as_ref();
        let is_rearranged = |movement: ViewProps| movement.is_complete && movement.is_unique;
        if graph.inputs(user).len() == 1 && op.movement().is_some_and(is_rearranged) {
            let moves = self.affine.is_empty();
            self.moves.extend(moves.then_some(user));
            return moves;
        }
        let Some(&op) = op.downcast_ref::<BinaryOp>() else { return false };
        let [a, b] = graph.inputs(user)[..] else { return false };
        let reversed = b == end;
        let operand = if reversed { a } else { b };
        let takes = match op {
            BinaryOp::Add | BinaryOp::Mul | BinaryOp::Sub => true,
            BinaryOp::Div => !reversed,
            _ => false,
        };
        let fits = takes
            && fixed.contains(&operand.node)
            && node.types.first().is_some_and(|result| result.shape == ty.shape)
            && graph.ty(operand).is_some_and(|ty| self.in_weight(graph, &ty.shape).is_some());
        if fits {
            self.affine.push(AffineStep { node: user, op, operand, reversed: reversed && op == BinaryOp::Sub });
        }
        fits
    }

    /// The shapes of a per-channel value on its way back from the end of the layout changes to the matmul.
    fn back(&self, graph: &Graph, shape: &[Dim]) -> Option<Vec<Vec<Dim>>> {
        let at = |id: NodeId| graph.ty(Value { node: id, port: 0 }).map(|ty| ty.shape.clone());
        let end = at(self.moves.last().copied().unwrap_or(self.product))?;
        let missing = end.len().checked_sub(shape.len())?;
        let one: Dim = 1.into();
        let mut shapes = vec![[vec![one.clone(); missing], shape.to_vec()].concat()];
        for (n, &id) in self.moves.iter().enumerate().rev() {
            let from = at(if n == 0 { self.product } else { self.moves[n - 1] })?;
            let (op, after, to) = (graph.node(id)?.op.as_ref(), shapes.last()?, at(id)?);
            shapes.push(match op.downcast_ref::<Permute>() {
                Some(permute) => inverse(&permute.axes).into_iter().map(|axis| after[axis].clone()).collect(),
                None => regrouped(after, &from, &to)?,
            });
        }
        Some(shapes)
    }

    /// The shape in which a per-channel value multiplies the weight; `None` if its channels are not the weight's.
    fn in_weight(&self, graph: &Graph, shape: &[Dim]) -> Option<Vec<Dim>> {
        let mut shape = self.back(graph, shape)?.pop()?;
        let weight = graph.ty(*graph.inputs(self.product).get(self.weight)?)?.shape.clone();
        let one: Dim = 1.into();
        let (rank, leading) = (shape.len(), shape.len().checked_sub(weight.len())?);
        let (summed, other) = if self.weight == 0 { (rank - 1, rank - 1) } else { (rank - 2, rank - 2) };
        // The weight has no axis for the rows or columns of the other operand; the reduced axis takes their place.
        if shape[other] != one || shape[..leading].iter().any(|dim| *dim != one) {
            return None;
        }
        shape[summed] = one.clone();
        let own = shape.split_off(leading);
        let fits = own.iter().zip(&weight).all(|(scale, extent)| scale == extent || *scale == one);
        fits.then_some(own)
    }

    fn fold(&self, graph: &mut Graph) -> Result<(), GraphError> {
        let path = graph.node(self.last()).map_or_else(String::new, |node| node.path.clone());
        let mut building = Building { graph, path };
        let (scale, shift) = self.combine(&mut building)?;
        let inputs = building.graph.inputs(self.product);
        let Some(&weight) = inputs.get(self.weight) else { return Ok(()) };
        let folds = self.folds(building.graph);
        let mut value = Value { node: self.product, port: 0 };
        if let Some(scale) = scale.filter(|_| folds) {
            let scale = self.to_weight(&mut building, scale)?;
            let mut operands = inputs.clone();
            operands[self.weight] = building.binary(BinaryOp::Mul, weight, scale)?;
            value = building.add(Arc::new(MatMul), &operands)?;
        }
        for &id in &self.moves {
            let Some(op) = building.graph.node(id).map(|node| node.op.clone()) else { continue };
            value = building.add(op, &[value])?;
        }
        if let Some(scale) = scale.filter(|_| !folds) {
            value = building.binary(BinaryOp::Mul, value, scale)?;
        }
        if let Some(shift) = shift {
            value = building.binary(BinaryOp::Add, value, shift)?;
        }
        building.graph.replace_except(Value { node: self.last(), port: 0 }, value, &[]);
        Ok(())
    }

    /// All steps as one scale and one shift after it.
    fn combine(&self, building: &mut Building<'_>) -> Result<(Option<Value>, Option<Value>), GraphError> {
        let (mut scale, mut shift): (Option<Value>, Option<Value>) = (None, None);
        for step in &self.affine {
            let operand = step.operand;
            match (step.op, step.reversed) {
                (BinaryOp::Mul | BinaryOp::Div, _) => {
                    let first = match (scale, step.op) {
                        (None, BinaryOp::Mul) => operand,
                        (scale, op) => {
                            let scale = scale.map_or_else(|| building.scalar(1.0), Ok)?;
                            building.binary(op, scale, operand)?
                        }
                    };
                    scale = Some(first);
                    shift = shift.map(|shift| building.binary(step.op, shift, operand)).transpose()?;
                }
                (BinaryOp::Sub, true) => {
                    scale = Some(match scale {
                        Some(scale) => building.add(Arc::new(UnaryOp::Neg), &[scale])?,
                        None => building.scalar(-1.0)?,
                    });
                    shift = Some(match shift {
                        Some(shift) => building.binary(BinaryOp::Sub, operand, shift)?,
                        None => operand,
                    });
                }
                (op, _) => {
                    shift = Some(match (shift, op) {
                        (Some(shift), op) => building.binary(op, shift, operand)?,
                        (None, BinaryOp::Sub) => building.add(Arc::new(UnaryOp::Neg), &[operand])?,
                        (None, _) => operand,
                    });
                }
            }
        }
        Ok((scale, shift))
    }

    /// A per-channel scale, in the shape in which it multiplies the weight.
    fn to_weight(&self, building: &mut Building<'_>, scale: Value) -> Result<Value, GraphError> {
        let shape = building.graph.ty(scale).map_or_else(Vec::new, |ty| ty.shape.clone());
        let (Some(shapes), Some(own)) = (self.back(building.graph, &shape), self.in_weight(building.graph, &shape))
        else {
            return Ok(scale);
        };
        let mut value = scale;
        let moves: Vec<Option<NodeId>> =
            std::iter::once(None).chain(self.moves.iter().rev().copied().map(Some)).collect();
        for (id, shape) in moves.into_iter().zip(shapes) {
            let axes = id
                .and_then(|id| building.graph.node(id))
                .and_then(|node| node.op.downcast_ref::<Permute>())
                .map(|permute| inverse(&permute.axes));
            value = match axes {
                Some(axes) => building.add(Arc::new(Permute { axes }), &[value])?,
                None => building.add(Arc::new(Reshape { shape }), &[value])?,
            };
        }
        building.add(Arc::new(Reshape { shape: own }), &[value])
    }
}

fn inverse(axes: &[usize]) -> Vec<usize> {
    let mut inverse = vec![0; axes.len()];
    for (to, &from) in axes.iter().enumerate() {
        inverse[from] = to;
    }
    inverse
}

/// The shape, broadcastable to `from`, of a value of shape `value`, broadcastable to its regrouping `to`.
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

struct Building<'a> {
    graph: &'a mut Graph,
    path: String,
}

impl Building<'_> {
    fn add(&mut self, op: Arc<dyn Op>, inputs: &[Value]) -> Result<Value, GraphError> {
        Ok(Value { node: self.graph.add(op, inputs, &self.path)?, port: 0 })
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Result<Value, GraphError> {
        self.add(Arc::new(op), &[a, b])
    }

    fn scalar(&mut self, value: f64) -> Result<Value, GraphError> {
        let constant = Constant::scalar(DType::F32, value).map_err(|error| GraphError::Type {
            op: "constant".to_owned(),
            path: self.path.clone(),
            source: rewire_graph::TypeError::new("value", "a scalar", error),
        })?;
        self.add(Arc::new(constant), &[])
    }
}
