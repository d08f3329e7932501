//! Recurrent layers: a cell applied step by step.

use super::custom::{Custom, Shader, View, ViewMut};
use super::gradient::Traced;
use super::{Op, arity};
use crate::pointwise::{Algebra, Numbers, UnaryOp};
use crate::{DType, Layout, Scalar, Scope, Tensor, Type, TypeError};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A recurrent cell.
///
/// Every gate `g` has an input part `x_g` and a hidden part `u_g = W_g h + b_g`; `a_g` is their sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    /// `h' = tanh(a)`
    Tanh,
    /// `h' = relu(a)`
    Relu,
    /// Gates reset, update and new: `h' = (h - n) sigmoid(a_update) + n`, `n = tanh(x_new + sigmoid(a_reset) u_new)`.
    Gru,
    /// Gates input, forget, new and output: `c' = sigmoid(a_forget) c + sigmoid(a_input) tanh(a_new)`,
    /// `h' = sigmoid(a_output) tanh(c')`. The state is `h`, then `c`.
    Lstm,
}

/// The states of a recurrent layer after each step.
///
/// Operands: `x` `[T, B, G * H]`, the input parts of all gates; `weight` `[G * H, H]` and `bias` `[G * H]` of their hidden
/// parts; `start` `[B, S * H]`, the first state. `G` and `S` are the numbers of gates and of state vectors of the cell. The
/// result is `[T, B, S * H]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recurrence {
    /// The cell.
    pub cell: Cell,
    /// For each gate of the cell, its position among the gates of the operands.
    pub order: Vec<usize>,
    /// True if the last step is computed first.
    pub is_backward: bool,
}

impl Cell {
    /// Number of gates.
    pub fn gates(self) -> usize {
        match self {
            Self::Tanh | Self::Relu => 1,
            Self::Gru => 3,
            Self::Lstm => 4,
        }
    }

    /// Number of state vectors.
    pub fn states(self) -> usize {
        match self {
            Self::Lstm => 2,
            _ => 1,
        }
    }

    /// The next state, given the input and hidden parts of the gates.
    fn next<A: Algebra>(self, at: &mut A, x: &[A::Value], u: &[A::Value], state: &[A::Value]) -> Vec<A::Value> {
        let gate = |at: &mut A, function: UnaryOp, n: usize| {
            let sum = at.add(&x[n], &u[n]);
            at.unary(function, &sum)
        };
        match self {
            Self::Tanh => vec![gate(at, UnaryOp::Tanh, 0)],
            Self::Relu => vec![gate(at, UnaryOp::Relu, 0)],
            Self::Gru => {
                let (reset, update) = (gate(at, UnaryOp::Sigmoid, 0), gate(at, UnaryOp::Sigmoid, 1));
                let hidden = at.mul(&reset, &u[2]);
                let sum = at.add(&x[2], &hidden);
                let new = at.unary(UnaryOp::Tanh, &sum);
                let rest = at.sub(&state[0], &new);
                let kept = at.mul(&rest, &update);
                vec![at.add(&kept, &new)]
            }
            Self::Lstm => {
                let (input, forget) = (gate(at, UnaryOp::Sigmoid, 0), gate(at, UnaryOp::Sigmoid, 1));
                let (new, output) = (gate(at, UnaryOp::Tanh, 2), gate(at, UnaryOp::Sigmoid, 3));
                let (kept, added) = (at.mul(&forget, &state[1]), at.mul(&input, &new));
                let cell = at.add(&kept, &added);
                let shown = at.unary(UnaryOp::Tanh, &cell);
                vec![at.mul(&output, &shown), cell]
            }
        }
    }
}

impl Recurrence {
    /// Its name in plans.
    pub const NAME: &str = "recurrence";

    /// Maximum units of a state vector: a workgroup keeps them in its memory.
    pub const MOST: usize = 1 << 10;

    /// The steps in order of computation.
    pub fn steps(&self, count: usize) -> impl Iterator<Item = usize> {
        let is_backward = self.is_backward;
        (0..count).map(move |n| if is_backward { count - 1 - n } else { n })
    }
}

impl Op for Recurrence {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn attributes(&self) -> Value {
        json!(self)
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [x, weight, bias, start] = arity(inputs)?;
        let (gates, states) = (self.cell.gates(), self.cell.states());
        let mut order = self.order.clone();
        order.sort_unstable();
        if !order.iter().copied().eq(0..gates) {
            return Err(TypeError::new("order", format!("the places of {gates} gates"), format!("{:?}", self.order)));
        }
        let Some(width @ 1..=Self::MOST) = weight.width().filter(|_| weight.rank() == 2) else {
            return Err(TypeError::new("weight", format!("a matrix of at most {} columns", Self::MOST), &weight));
        };
        let rows = gates * width;
        let [time, batch] = [0, 1].map(|axis| x.shape.get(axis).cloned());
        let (Some(time), Some(batch)) = (time, batch) else {
            return Err(TypeError::new("x", "of three axes", &x));
        };
        let expected = [
            ("x", &x, vec![time.clone(), batch.clone(), rows.into()]),
            ("weight", &weight, vec![rows.into(), width.into()]),
            ("bias", &bias, vec![rows.into()]),
            ("start", &start, vec![batch.clone(), (states * width).into()]),
        ];
        for (argument, ty, shape) in expected {
            if ty.shape != shape || !ty.dtype.is_float() || ty.layout != Layout::Device {
                let expected = Type::device(DType::F32, shape);
                return Err(TypeError::new(argument, format!("floats as {expected}"), ty));
            }
        }
        Ok(vec![Type::device(DType::F32, vec![time, batch, (states * width).into()])])
    }

    fn custom(&self) -> Option<&dyn Custom> {
        Some(self)
    }

    fn decompose(&self, scope: &Scope, operands: &[Tensor]) -> Option<Tensor> {
        let [x, weight, bias, start] = operands else { return None };
        let (steps, width) = (x.ty().extent(0)?, weight.width());
        let parts = |x: &Tensor, order: &[usize]| -> Vec<Tensor> {
            order.iter().map(|&place| x.slice(1, place * width, width)).collect()
        };
        let mut states = parts(start, &[0, 1][..self.cell.states()]);
        let mut results = vec![None; steps];
        for step in self.steps(steps) {
            let row = x.slice(0, step, 1).reshape(&x.shape()[1..]);
            let hidden = states[0].linear(weight, Some(bias));
            let [x, u] = [row, hidden].map(|x| parts(&x, &self.order));
            states = self.cell.next(&mut Traced(start), &x, &u, &states);
            results[step] = Some(scope.concat(&states, 1));
        }
        let results: Vec<Tensor> = results.into_iter().flatten().collect();
        (!results.is_empty()).then(|| scope.stack(&results, 0))
    }
}

impl Custom for Recurrence {
    fn shader(&self, operands: &[&Type], _: &Type) -> Shader {
        let width = operands[1].constant_extent(1);
        let threads = width.next_multiple_of(32).min(256);
        let direction = if self.is_backward { "steps - 1 - n" } else { "n" };
        let cell = match self.cell {
            Cell::Tanh => include_str!("../../shaders/cell_tanh.wgsl"),
            Cell::Relu => include_str!("../../shaders/cell_relu.wgsl"),
            Cell::Gru => include_str!("../../shaders/cell_gru.wgsl"),
            Cell::Lstm => include_str!("../../shaders/cell_lstm.wgsl"),
        };
        let places = self.order.iter().enumerate().map(|(gate, place)| format!("const PLACE_{gate} = {place};\n"));
        let states = self.cell.states();
        let constants = format!("const WIDTH = {width};\nconst STATES = {states};\nconst THREADS = {threads};\n");
        let step = format!("fn step(n: i32, steps: i32) -> i32 {{\n    return {direction};\n}}\n");
        let parts =
            [&constants, &places.collect::<String>(), &step, cell, include_str!("../../shaders/recurrence.wgsl")];
        Shader {
            operands: ["x", "weight", "bias", "start"].map(str::to_owned).to_vec(),
            result: "y".to_owned(),
            wgsl: parts.join("\n"),
            threads: threads as u32,
            extents: vec![operands[0].shape[1].clone()],
            tile: 1,
        }
    }

    fn compute(&self, operands: &[View<'_>], result: &mut ViewMut<'_>) -> Result<(), String> {
        let [x, weight, bias, start] = operands else { return Err(format!("{} operands", operands.len())) };
        let (&[steps, batch, rows], &[_, width]) = (x.shape, weight.shape) else {
            return Err("operands of other axes".to_owned());
        };
        let columns = self.cell.states() * width;
        let mut states: Vec<f64> = start.floats().iter().map(|&x| f64::from(x)).collect();
        let result = result.floats();
        for step in self.steps(steps) {
            for row in 0..batch {
                let at = step * batch + row;
                let x = &x.floats()[at * rows..][..rows];
                let state = &mut states[row * columns..][..columns];
                let next = self.next(x, (weight.floats(), bias.floats()), state, width);
                result[at * columns..][..columns].iter_mut().zip(&next).for_each(|(y, &next)| *y = next as f32);
                state.copy_from_slice(&next);
            }
        }
        Ok(())
    }
}

impl Recurrence {
    /// The next state of a row.
    fn next(&self, x: &[f32], (weight, bias): (&[f32], &[f32]), state: &[f64], width: usize) -> Vec<f64> {
        let mut next = vec![0.0; state.len()];
        for unit in 0..width {
            let places = self.order.iter().map(|place| place * width + unit);
            let u: Vec<f64> = places
                .clone()
                .map(|row| {
                    let terms = weight[row * width..][..width].iter().zip(state);
                    terms.fold(f64::from(bias[row]), |sum, (&w, &h)| sum + f64::from(w) * h)
                })
                .collect();
            let x: Vec<f64> = places.map(|row| f64::from(x[row])).collect();
            let own: Vec<f64> = (unit..state.len()).step_by(width).map(|at| state[at]).collect();
            let found = self.cell.next(&mut Numbers(Scalar::F32), &x, &u, &own);
            next.iter_mut().skip(unit).step_by(width).zip(found).for_each(|(next, found)| *next = found);
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::{Cell, Recurrence};
    use crate::op::Op;
    use crate::{DType, Graph, HostTensor, Scope, Seed, differentiate, interpret};
    use std::collections::HashMap;

    const STEPS: usize = 3;
    const BATCH: usize = 2;
    const WIDTH: usize = 5;
    const ALL: [(Cell, &[usize]); 4] =
        [(Cell::Tanh, &[0]), (Cell::Relu, &[0]), (Cell::Gru, &[1, 2, 0]), (Cell::Lstm, &[2, 0, 3, 1])];

    /// A layer as one operator and as several, with the gradients of all operands.
    fn layer(op: &Recurrence, is_decomposed: bool) -> Graph {
        let scope = Scope::new();
        let rows = op.cell.gates() * WIDTH;
        let operands = [
            scope.input("x", DType::F32, [STEPS, BATCH, rows]),
            scope.input("weight", DType::F32, [rows, WIDTH]),
            scope.input("bias", DType::F32, [rows]),
            scope.input("start", DType::F32, [BATCH, op.cell.states() * WIDTH]),
        ];
        let y = match is_decomposed {
            true => op.decompose(&scope, &operands).unwrap(),
            false => scope.apply(op.clone(), &operands.each_ref()),
        };
        let graph = scope.finish(&[("y", &y * &y)]).unwrap();
        differentiate(&graph, &[("y", Seed::One)], &["x", "weight", "bias", "start"]).unwrap()
    }

    fn operands(op: &Recurrence) -> HashMap<String, HostTensor> {
        let rows = op.cell.gates() * WIDTH;
        let mut state = 7u32;
        let mut tensor = |shape: &[usize]| {
            let values: Vec<f32> = (0..shape.iter().product::<usize>())
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 8) as f32 / (1 << 23) as f32 - 0.8
                })
                .collect();
            HostTensor::f32(shape, &values).unwrap()
        };
        let start = [BATCH, op.cell.states() * WIDTH];
        let shapes =
            [("x", &[STEPS, BATCH, rows][..]), ("weight", &[rows, WIDTH]), ("bias", &[rows]), ("start", &start)];
        shapes.into_iter().map(|(name, shape)| (name.to_owned(), tensor(shape))).collect()
    }

    #[test]
    fn states_and_gradients_are_those_of_the_decomposition() {
        for ((cell, order), is_backward) in ALL.into_iter().flat_map(|cell| [(cell, false), (cell, true)]) {
            let op = Recurrence { cell, order: order.to_vec(), is_backward };
            let inputs = operands(&op);
            let [own, expected] = [false, true]
                .map(|is_decomposed| interpret(&layer(&op, is_decomposed), &inputs, &HashMap::new()).unwrap());
            for (name, expected) in expected {
                let pairs = own[&name].to_f64().into_iter().zip(expected.to_f64());
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(worst < 1e-5, "{name} of {cell:?}, backward: {is_backward}: {worst}");
            }
        }
    }

    #[test]
    fn operands_are_checked() {
        let op = |order: &[usize]| Recurrence { cell: Cell::Gru, order: order.to_vec(), is_backward: false };
        let infer = |op: Recurrence, start: usize| {
            let scope = Scope::new();
            let operands = [
                scope.input("x", DType::F32, [3, 2, 15]),
                scope.input("weight", DType::F32, [15, 5]),
                scope.input("bias", DType::F32, [15]),
                scope.input("start", DType::F32, [2, start]),
            ];
            let y = scope.apply(op, &operands.each_ref());
            scope.finish(&[("y", y)]).map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(infer(op(&[0, 1, 2]), 5).is_ok());
        assert!(infer(op(&[0, 1, 1]), 5).unwrap_err().contains("the places of 3 gates"));
        assert!(infer(op(&[0, 1, 2]), 6).unwrap_err().contains("start"));
    }
}
