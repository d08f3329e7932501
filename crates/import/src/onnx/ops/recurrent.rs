//! Recurrent layers. Cells with a kernel become scans; others are unrolled over a constant number of steps.

use super::Many;
use crate::ScalarType;
use crate::array::Array;
use crate::onnx::item::Item;
use crate::onnx::node::Node;
use crate::recurrent::{Layer, Scanned};
use crate::value::{Fault, Lowered};
use rewire_graph::Tensor;
use rewire_graph::op::{self, Recurrence};

pub(super) const MANY: Many =
    &[("RNN", |n| layer(n, Cell::Rnn)), ("GRU", |n| layer(n, Cell::Gru)), ("LSTM", |n| layer(n, Cell::Lstm))];

/// Maximum number of unrolled steps.
const MAX_STEPS: usize = 1 << 12;

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Rnn,
    Gru,
    Lstm,
}

impl Cell {
    fn gates(self) -> usize {
        match self {
            Self::Rnn => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }
}

/// One direction of a layer.
struct Direction<'a> {
    node: &'a Node<'a>,
    cell: Cell,
    width: usize,
    /// Input weights `[gates, in]` and hidden weights `[gates, hidden]`.
    input: Tensor,
    hidden: Tensor,
    biases: Option<[Tensor; 2]>,
    peepholes: Option<[Tensor; 3]>,
    functions: Vec<(String, [f64; 2])>,
    is_backward: bool,
}

struct State {
    hidden: Tensor,
    /// The cell state of an LSTM.
    cell: Option<Tensor>,
}

impl Direction<'_> {
    fn activated(&self, place: usize, x: &Tensor) -> Lowered<Tensor> {
        let cx = self.node.cx;
        let Some((name, [alpha, beta])) = self.functions.get(place) else {
            return Fault::program("too few activations");
        };
        Ok(match name.to_lowercase().as_str() {
            "sigmoid" => x.sigmoid(),
            "tanh" => x.tanh(),
            "relu" => x.relu(),
            "affine" => x * *alpha + *beta,
            "leakyrelu" => x.gt(0.0).select(x, &(x * *alpha)),
            "thresholdedrelu" => x.gt(*alpha).select(x, &cx.f(0.0)),
            "scaledtanh" => (x * *beta).tanh() * *alpha,
            "hardsigmoid" => (x * *alpha + *beta).maximum(0.0).minimum(1.0),
            "elu" => x.gt(0.0).select(x, &(cx.expm1(x) * *alpha)),
            "softsign" => x / (x.abs() + 1.0),
            "softplus" => x.softplus(),
            other => return Fault::unsupported(format!("the activation `{other}`")),
        })
    }

    fn clipped(&self, x: Tensor) -> Tensor {
        match self.node.float("clip", 0.0) {
            0.0 => x,
            limit => x.maximum(-limit).minimum(limit),
        }
    }

    fn gate(&self, x: &Tensor, place: usize) -> Tensor {
        x.slice(x.rank() - 1, place * self.width, self.width)
    }

    /// The scan of the layer; `None` if its cell has no kernel.
    fn scan(&self) -> Option<Recurrence> {
        let n = self.node;
        let names: Vec<String> = self.functions.iter().map(|(name, _)| name.to_lowercase()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (cell, order): (_, &[usize]) = match (self.cell, names.as_slice()) {
            (Cell::Rnn, ["tanh"]) => (op::Cell::Tanh, &[0]),
            (Cell::Rnn, ["relu"]) => (op::Cell::Relu, &[0]),
            (Cell::Gru, ["sigmoid", "tanh"]) if n.is("linear_before_reset") => (op::Cell::Gru, &[1, 0, 2]),
            (Cell::Lstm, ["sigmoid", "tanh", "tanh"]) if !n.is("input_forget") => (op::Cell::Lstm, &[0, 2, 3, 1]),
            _ => return None,
        };
        let is_plain = n.float("clip", 0.0) == 0.0 && self.peepholes.is_none() && !n.has(4);
        if is_plain { Layer::scan(cell, order, self.is_backward, self.width) } else { None }
    }

    /// Runs the layer over all steps of `x`.
    fn run(&self, x: &Tensor, start: State) -> Lowered<Scanned> {
        let cx = self.node.cx;
        if let Some(scan) = self.scan() {
            let (weights, biases) = ([self.input.clone(), self.hidden.clone()], self.biases.clone());
            let start: Vec<Tensor> = std::iter::once(start.hidden).chain(start.cell).collect();
            return Layer { scan, weights, biases }.run(cx, x, &start);
        }
        let Some(steps) = cx.extent(x, 0).as_extent().filter(|&steps| steps <= MAX_STEPS && steps > 0) else {
            return Fault::unsupported("a sequence of symbolic length, or of more than 4096 steps");
        };
        let lengths = self.node.optional(4)?;
        let projected = x.linear(&self.input, self.biases.as_ref().map(|biases| &biases[0]));
        let (mut state, mut outputs) = (start, vec![]);
        for step in 0..steps {
            let step = if self.is_backward { steps - 1 - step } else { step };
            let next = self.step(&cx.select(&projected, 0, &step.into())?, &state)?;
            state = match &lengths {
                Some(lengths) => kept(self.node, lengths, step, next, &state, &mut outputs)?,
                None => {
                    outputs.push(cx.unsqueeze(&next.hidden, 0)?);
                    next
                }
            };
        }
        if self.is_backward {
            outputs.reverse();
        }
        let last = std::iter::once(state.hidden).chain(state.cell).collect();
        Ok(Scanned { hidden: joined(self.node, outputs), last })
    }

    fn step(&self, x: &Tensor, state: &State) -> Lowered<State> {
        let bias = self.biases.as_ref().map(|biases| &biases[1]);
        match self.cell {
            Cell::Rnn => {
                let sum = x + state.hidden.linear(&self.hidden, bias);
                let hidden = self.activated(0, &self.clipped(sum))?;
                Ok(State { hidden, cell: None })
            }
            Cell::Gru => {
                let own = state.hidden.linear(&self.hidden, bias);
                let both = |place: usize| self.clipped(self.gate(x, place) + self.gate(&own, place));
                let (update, reset) = (self.activated(0, &both(0))?, self.activated(0, &both(1))?);
                let inner = if self.node.is("linear_before_reset") {
                    &reset * self.gate(&own, 2)
                } else {
                    let weight = self.hidden.slice(0, 2 * self.width, self.width);
                    let bias = bias.map(|bias| self.gate(bias, 2));
                    (&reset * &state.hidden).linear(&weight, bias.as_ref())
                };
                let new = self.activated(1, &self.clipped(self.gate(x, 2) + inner))?;
                let hidden = (&state.hidden - &new) * update + &new;
                Ok(State { hidden, cell: None })
            }
            Cell::Lstm => {
                let Some(own) = &state.cell else { return Fault::program("an LSTM without a cell") };
                let sum = x + state.hidden.linear(&self.hidden, bias);
                let gate = |place: usize, peephole: usize, cell: &Tensor| {
                    let sum = self.gate(&sum, place);
                    self.clipped(match &self.peepholes {
                        Some(weights) => sum + &weights[peephole] * cell,
                        None => sum,
                    })
                };
                let input = self.activated(0, &gate(0, 0, own))?;
                let forget = match self.node.is("input_forget") {
                    true => self.node.cx.f(1.0) - &input,
                    false => self.activated(0, &gate(2, 2, own))?,
                };
                let new = self.activated(1, &self.clipped(self.gate(&sum, 3)))?;
                let cell = forget * own + input * new;
                let output = self.activated(0, &gate(1, 1, &cell))?;
                let hidden = output * self.activated(2, &cell)?;
                Ok(State { hidden, cell: Some(cell) })
            }
        }
    }
}

/// The activation functions of a direction, with their parameters.
fn functions(n: &Node<'_>, cell: Cell, directions: usize, direction: usize) -> Vec<(String, [f64; 2])> {
    let defaults: &[&str] = match cell {
        Cell::Rnn => &["Tanh"],
        Cell::Gru => &["Sigmoid", "Tanh"],
        Cell::Lstm => &["Sigmoid", "Tanh", "Tanh"],
    };
    let mut names = n.texts("activations");
    if names.is_empty() {
        names = (0..directions).flat_map(|_| defaults.iter().map(|name| (*name).to_owned())).collect();
    }
    let (mut alphas, mut betas) = (
        n.floats("activation_alpha").unwrap_or_default().into_iter(),
        n.floats("activation_beta").unwrap_or_default().into_iter(),
    );
    let with_parameters = names.into_iter().map(|name| {
        let [alpha, beta] = match name.to_lowercase().as_str() {
            "affine" => [Some(1.0), Some(0.0)],
            "leakyrelu" => [Some(0.01), None],
            "thresholdedrelu" | "elu" => [Some(1.0), None],
            "scaledtanh" => [Some(1.0), Some(1.0)],
            "hardsigmoid" => [Some(0.2), Some(0.5)],
            _ => [None, None],
        };
        let alpha = alpha.map(|default| alphas.next().unwrap_or(default));
        let beta = beta.map(|default| betas.next().unwrap_or(default));
        (name, [alpha.unwrap_or(0.0), beta.unwrap_or(0.0)])
    });
    let all: Vec<_> = with_parameters.collect();
    let each = all.len() / directions.max(1);
    all.into_iter().skip(direction * each).take(each).collect()
}

fn layer(n: &Node<'_>, cell: Cell) -> Lowered<Vec<Item>> {
    let (x, input, hidden) = (n.x()?, n.array(1)?, n.array(2)?);
    let ty = x.ty;
    let is_batch_first = n.is("layout");
    let x = if is_batch_first { x.tensor.transpose(0, 1) } else { x.tensor };
    let shape = n.cx.shape(&x);
    let weights = n.extents(&hidden)?;
    let (&[directions, _, width], [_, batch, _]) = (weights.as_slice(), shape.as_slice()) else {
        return Fault::program(format!("{}: weights of other axes", n.op));
    };
    let side = n.text("direction", "forward");
    let mut sides = vec![];
    // For each state vector, its final values in all directions.
    let mut last: Vec<Vec<Tensor>> = vec![vec![]; if cell == Cell::Lstm { 2 } else { 1 }];
    for direction in 0..directions {
        let is_backward = side == "reverse" || direction == 1;
        let one = |x: &Tensor| n.cx.select(x, 0, &direction.into());
        let rows = cell.gates() * width;
        let biases = match n.optional(3)? {
            None => None,
            Some(biases) => {
                let own = one(&biases.tensor)?;
                Some([own.slice(0, 0, rows), own.slice(0, rows, rows)])
            }
        };
        let peepholes = match n.optional(7)? {
            None => None,
            Some(weights) => {
                let own = one(&weights.tensor)?;
                Some([0, 1, 2].map(|place| own.slice(0, place * width, width)))
            }
        };
        let this = Direction {
            node: n,
            cell,
            width,
            input: one(&input.tensor)?,
            hidden: one(&hidden.tensor)?,
            biases,
            peepholes,
            functions: functions(n, cell, directions, direction),
            is_backward,
        };
        let start = |place: usize| -> Lowered<Tensor> {
            match n.optional(place)? {
                Some(state) if is_batch_first => n.cx.select(&state.tensor, 1, &direction.into()),
                Some(state) => one(&state.tensor),
                None => n.cx.expand(&n.cx.f(0.0), &[batch.clone(), width.into()]),
            }
        };
        let first = State { hidden: start(5)?, cell: if cell == Cell::Lstm { Some(start(6)?) } else { None } };
        let scanned = this.run(&x, first)?;
        sides.push(n.cx.unsqueeze(&scanned.hidden, 1)?);
        for (last, state) in last.iter_mut().zip(scanned.last) {
            last.push(n.cx.unsqueeze(&state, 0)?);
        }
    }
    // Axes: `[steps, directions, batch, hidden]`.
    let y = if sides.len() == 1 { sides.remove(0) } else { n.cx.concat(&sides, 1) };
    let y = if is_batch_first { y.permute(&[2, 0, 1, 3]) } else { y };
    let stacked = |parts: Vec<Tensor>| -> Lowered<Item> {
        let all = joined(n, parts);
        let all = if is_batch_first { all.transpose(0, 1) } else { all };
        Ok(n.stored(&all, ty)?.into())
    };
    let y: Item = n.stored(&y, ty)?.into();
    std::iter::once(Ok(y)).chain(last.into_iter().map(stacked)).collect()
}

/// One step for samples of different lengths. Samples that have ended keep their state, and return zeros.
fn kept(
    n: &Node<'_>,
    lengths: &Array,
    step: usize,
    next: State,
    state: &State,
    outputs: &mut Vec<Tensor>,
) -> Lowered<State> {
    let lengths = n.cx.cast(lengths, ScalarType::I64).tensor;
    let runs = n.cx.unsqueeze(&lengths.gt(step as i64), 1)?;
    outputs.push(n.cx.unsqueeze(&runs.select(&next.hidden, &n.cx.f(0.0)), 0)?);
    let hidden = runs.select(&next.hidden, &state.hidden);
    let cell = next.cell.zip(state.cell.as_ref()).map(|(next, cell)| runs.select(&next, cell));
    Ok(State { hidden, cell })
}

/// Concatenates tensors along the first axis, a few at a time.
fn joined(n: &Node<'_>, mut parts: Vec<Tensor>) -> Tensor {
    while parts.len() > 1 {
        parts = parts
            .chunks(8)
            .map(|parts| if parts.len() == 1 { parts[0].clone() } else { n.cx.concat(parts, 0) })
            .collect();
    }
    parts.pop().unwrap_or_else(|| n.cx.f(0.0))
}
