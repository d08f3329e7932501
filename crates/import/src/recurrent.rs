//! Recurrent layers as scans.

use crate::context::Context;
use crate::size::Size;
use crate::value::Lowered;
use rewire_graph::Tensor;
use rewire_graph::op::{Cell, Recurrence};

/// A layer in one direction.
pub(crate) struct Layer {
    pub scan: Recurrence,
    /// `[gates, in]`, `[gates, hidden]`
    pub weights: [Tensor; 2],
    /// Those of the input and of the hidden state.
    pub biases: Option<[Tensor; 2]>,
}

/// The hidden states after all steps, `[steps, batch, hidden]`, and the state vectors after the last one.
pub(crate) struct Scanned {
    pub hidden: Tensor,
    pub last: Vec<Tensor>,
}

impl Layer {
    /// The scan of a cell whose gates have these places, if a kernel exists for its width.
    pub fn scan(cell: Cell, order: &[usize], is_backward: bool, width: usize) -> Option<Recurrence> {
        (1..=Recurrence::MOST).contains(&width).then(|| Recurrence { cell, order: order.to_vec(), is_backward })
    }

    /// The states of `x`, `[steps, batch, in]`, given the first ones.
    pub fn run(&self, cx: &Context, x: &Tensor, start: &[Tensor]) -> Lowered<Scanned> {
        let [input, hidden] = &self.weights;
        let projected = x.linear(input, self.biases.as_ref().map(|biases| &biases[0]));
        let bias = match &self.biases {
            Some([_, bias]) => bias.clone(),
            None => cx.expand(&cx.f(0.0), &[cx.extent(hidden, 0)])?,
        };
        let first = cx.concat(start, 1);
        let states = cx.scope.apply(self.scan.clone(), &[&projected, hidden, &bias, &first]);
        // Without steps the last state is the first.
        let (begin, steps) = (cx.unsqueeze(&first, 0)?, cx.extent(x, 0));
        let (all, end) = match self.scan.is_backward {
            true => (cx.concat(&[states.clone(), begin], 0), Size::from(0)),
            false => (cx.concat(&[begin, states.clone()], 0), steps),
        };
        let (last, width) = (cx.select(&all, 0, &end)?, hidden.width());
        let last = (0..start.len()).map(|n| last.slice(1, n * width, width)).collect();
        Ok(Scanned { hidden: states.slice(2, 0, width), last })
    }
}
