//! Recurrent cells and layers. Cells with a kernel become scans; others are unrolled over a constant number of steps.

use super::Many;
use crate::array::Array;
use crate::call::Call;
use crate::recurrent::{Layer, Scanned};
use crate::value::{Fault, Lowered, Value};
use rewire_graph::Tensor;
use rewire_graph::op::{self, Recurrence};

/// Maximum number of unrolled steps.
const MAX_STEPS: usize = 1 << 12;

pub(super) const MANY: Many = &[
    ("aten.gru", |c| layers(c, Cell::Gru)),
    ("aten.lstm", |c| layers(c, Cell::Lstm)),
    ("aten.rnn_tanh", |c| layers(c, Cell::Tanh)),
    ("aten.rnn_relu", |c| layers(c, Cell::Relu)),
    ("aten.gru_cell", |c| cell(c, Cell::Gru)),
    ("aten.lstm_cell", |c| cell(c, Cell::Lstm)),
    ("aten.rnn_tanh_cell", |c| cell(c, Cell::Tanh)),
    ("aten.rnn_relu_cell", |c| cell(c, Cell::Relu)),
];

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Gru,
    Lstm,
    Tanh,
    Relu,
}

/// Weights of a layer in one direction.
#[derive(Clone)]
struct Weights {
    input: Tensor,
    hidden: Tensor,
    biases: Option<[Tensor; 2]>,
    /// Projection of the hidden state of an LSTM; `None` without one.
    projection: Option<Tensor>,
}

/// The state of a layer: the hidden state, and the cell state of an LSTM.
#[derive(Clone)]
struct State {
    hidden: Tensor,
    cell: Option<Tensor>,
}

impl State {
    fn vectors(self) -> Vec<Tensor> {
        std::iter::once(self.hidden).chain(self.cell).collect()
    }
}

impl Weights {
    /// `W x + b` of the input, for all steps at once.
    fn projected(&self, x: &Tensor) -> Tensor {
        x.linear(&self.input, self.biases.as_ref().map(|biases| &biases[0]))
    }

    /// The scan of a layer; `None` if its cell has no kernel.
    fn scan(&self, cell: Cell, is_backward: bool) -> Option<Recurrence> {
        let (cell, order): (_, &[usize]) = match cell {
            Cell::Gru => (op::Cell::Gru, &[0, 1, 2]),
            Cell::Lstm => (op::Cell::Lstm, &[0, 1, 2, 3]),
            Cell::Tanh => (op::Cell::Tanh, &[0]),
            Cell::Relu => (op::Cell::Relu, &[0]),
        };
        if self.projection.is_none() { Layer::scan(cell, order, is_backward, self.hidden.width()) } else { None }
    }

    /// Runs the layer over `x` `[steps, batch, in]`.
    fn run(&self, c: &Call<'_>, cell: Cell, x: &Tensor, start: State, is_backward: bool) -> Lowered<Scanned> {
        if let Some(scan) = self.scan(cell, is_backward) {
            let (weights, biases) = ([self.input.clone(), self.hidden.clone()], self.biases.clone());
            return Layer { scan, weights, biases }.run(c.cx, x, &start.vectors());
        }
        let Some(steps) = c.cx.extent(x, 0).as_extent().filter(|&steps| steps <= MAX_STEPS) else {
            return Fault::unsupported("a sequence of symbolic length, or of more than 4096 steps");
        };
        let (projected, mut state, mut outputs) = (self.projected(x), start, vec![]);
        for n in 0..steps {
            let n = if is_backward { steps - 1 - n } else { n };
            state = self.step(cell, &c.cx.select(&projected, 0, &n.into())?, &state)?;
            outputs.push(c.cx.unsqueeze(&state.hidden, 0)?);
        }
        if is_backward {
            outputs.reverse();
        }
        Ok(Scanned { hidden: joined(c, outputs, 0), last: state.vectors() })
    }

    /// Computes one step from the projected input.
    fn step(&self, cell: Cell, x: &Tensor, state: &State) -> Lowered<State> {
        let hidden = state.hidden.linear(&self.hidden, self.biases.as_ref().map(|biases| &biases[1]));
        let gates = match cell {
            Cell::Gru => 3,
            Cell::Lstm => 4,
            Cell::Tanh | Cell::Relu => 1,
        };
        let width = x.width() / gates;
        let gate = |x: &Tensor, n: usize| x.slice(x.rank() - 1, n * width, width);
        let both = |n: usize| gate(x, n) + gate(&hidden, n);
        match cell {
            Cell::Gru => {
                let (reset, update) = (both(0).sigmoid(), both(1).sigmoid());
                let new = (gate(x, 2) + reset * gate(&hidden, 2)).tanh();
                let next = (&state.hidden - &new) * update + &new;
                Ok(State { hidden: next, cell: None })
            }
            Cell::Lstm => {
                let Some(own) = &state.cell else { return Fault::program("an LSTM without a cell") };
                let kept = both(1).sigmoid() * own + both(0).sigmoid() * both(2).tanh();
                let hidden = both(3).sigmoid() * kept.tanh();
                let hidden =
                    self.projection.as_ref().map_or_else(|| hidden.clone(), |matrix| hidden.linear(matrix, None));
                Ok(State { hidden, cell: Some(kept) })
            }
            Cell::Tanh => Ok(State { hidden: both(0).tanh(), cell: None }),
            Cell::Relu => Ok(State { hidden: both(0).relu(), cell: None }),
        }
    }
}

fn tensors(values: &[Array]) -> Vec<Tensor> {
    values.iter().map(|x| x.tensor.clone()).collect()
}

fn layers(c: &Call<'_>, kind: Cell) -> Lowered<Vec<Value>> {
    if c.overload != "input" {
        return Fault::unsupported("packed sequences");
    }
    if c.bool_or("train", false)? && c.float_or("dropout", 0.0)? != 0.0 {
        return Fault::unsupported("training");
    }
    let initial = if kind == Cell::Lstm { c.tensors("hx")? } else { vec![c.tensor("hx")?] };
    let (biased, directions) = (c.bool_or("has_biases", true)?, 1 + usize::from(c.bool_or("bidirectional", false)?));
    let parameters = tensors(&c.tensors("params")?);
    let count = usize::try_from(c.int_or("num_layers", 1)?).unwrap_or(0);
    let own = if biased { 4 } else { 2 };
    let is_projected = kind == Cell::Lstm && parameters.len() == (own + 1) * count * directions;
    let each = own + usize::from(is_projected);
    if parameters.len() != each * count * directions {
        return Fault::program("another number of weights than layers have");
    }
    let is_batch_first = c.bool_or("batch_first", false)?;
    let x = c.x()?;
    let is_batched = x.rank() == 3;
    let mut x = if is_batched { x.tensor } else { c.cx.unsqueeze(&x.tensor, usize::from(is_batch_first))? };
    if is_batch_first {
        x = x.transpose(0, 1);
    }
    // For each layer and direction, the final state vectors.
    let mut finals: Vec<Vec<Tensor>> = vec![];
    for layer in 0..count {
        let mut sides = vec![];
        for direction in 0..directions {
            let place = layer * directions + direction;
            let own = &parameters[place * each..(place + 1) * each];
            let biases = biased.then(|| [own[2].clone(), own[3].clone()]);
            let projection = if is_projected { own.last().cloned() } else { None };
            let weights = Weights { input: own[0].clone(), hidden: own[1].clone(), biases, projection };
            let start = |x: &Array| {
                let x = if is_batched { x.tensor.clone() } else { c.cx.unsqueeze(&x.tensor, 1)? };
                c.cx.select(&x, 0, &place.into())
            };
            let cell = initial.get(1).map(start).transpose()?;
            let Some(hidden) = initial.first() else { return Fault::program("no initial state") };
            let first = State { hidden: start(hidden)?, cell };
            let scanned = weights.run(c, kind, &x, first, direction == 1)?;
            sides.push(scanned.hidden);
            finals.push(scanned.last);
        }
        x = joined(c, sides, 2);
    }
    let mut y = if is_batch_first { x.transpose(0, 1) } else { x };
    if !is_batched {
        y = c.cx.squeeze(&y, usize::from(is_batch_first))?;
    }
    let stacked = |parts: Vec<Tensor>| {
        let parts = parts.iter().map(|x| c.cx.unsqueeze(x, 0)).collect::<Lowered<Vec<_>>>()?;
        let all = joined(c, parts, 0);
        if is_batched { Ok(all) } else { c.cx.squeeze(&all, 1) }
    };
    let mut results = vec![c.nth(0, &y)?, c.nth(1, &stacked(finals.iter().map(|last| last[0].clone()).collect())?)?];
    if kind == Cell::Lstm {
        results.push(c.nth(2, &stacked(finals.iter().filter_map(|last| last.get(1).cloned()).collect())?)?);
    }
    Ok(results)
}

/// Concatenates tensors along an axis, a few at a time.
fn joined(c: &Call<'_>, mut parts: Vec<Tensor>, axis: usize) -> Tensor {
    while parts.len() > 1 {
        parts = parts.chunks(8).map(|parts| c.cx.concat(parts, axis)).collect();
    }
    parts.pop().unwrap_or_else(|| c.cx.f(0.0))
}

fn cell(c: &Call<'_>, kind: Cell) -> Lowered<Vec<Value>> {
    let x = c.tensor("input")?.tensor;
    let initial = if kind == Cell::Lstm { c.tensors("hx")? } else { vec![c.tensor("hx")?] };
    let biases = match (c.optional_tensor("b_ih")?, c.optional_tensor("b_hh")?) {
        (Some(a), Some(b)) => Some([a.tensor, b.tensor]),
        _ => None,
    };
    let weights =
        Weights { input: c.tensor("w_ih")?.tensor, hidden: c.tensor("w_hh")?.tensor, biases, projection: None };
    let Some(hidden) = initial.first() else { return Fault::program("no initial state") };
    let state = State { hidden: hidden.tensor.clone(), cell: initial.get(1).map(|x| x.tensor.clone()) };
    let next = weights.step(kind, &weights.projected(&x), &state)?;
    let results = std::iter::once(next.hidden).chain(next.cell);
    results.enumerate().map(|(output, x)| c.nth(output, &x)).collect()
}
