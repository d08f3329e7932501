//! Lowers recurrent layers to scans.

use crate::context::Context;
use crate::size::Size;
use crate::value::Lowered;
use rewire_graph::Tensor;
use rewire_graph::op::{Cell, Recurrence};

/// One direction of a recurrent layer.
pub(crate) struct Layer {
    pub scan: Recurrence,
    /// Input weights `[gates, in]` and hidden weights `[gates, hidden]`.
    pub weights: [Tensor; 2],
    /// Biases of the input and of the hidden state.
    pub biases: Option<[Tensor; 2]>,
}

/// Hidden states of all steps, `[steps, batch, hidden]`, and the state vectors after the last step.
pub(crate) struct Scanned {
    pub hidden: Tensor,
    pub last: Vec<Tensor>,
}

impl Layer {
    /// The scan of a cell, whose weights have the gates in this order. `None` if no kernel supports the width.
    pub fn scan(cell: Cell, order: &[usize], is_backward: bool, width: usize) -> Option<Recurrence> {
        (1..=Recurrence::MOST).contains(&width).then(|| Recurrence { cell, order: order.to_vec(), is_backward })
    }

    /// Runs the scan over `x` `[steps, batch, in]` from the initial states `start`.
    pub fn run(&self, cx: &Context, x: &Tensor, start: &[Tensor]) -> Lowered<Scanned> {
        let [input, hidden] = &self.weights;
        let projected = x.linear(input, self.biases.as_ref().map(|biases| &biases[0]));
        let bias = match &self.biases {
            Some([_, bias]) => bias.clone(),
            None => cx.expand(&cx.f(0.0), &[cx.extent(hidden, 0)])?,
        };
        let first = cx.concat(start, 1);
        let states = cx.scope.apply(self.scan.clone(), &[&projected, hidden, &bias, &first]);
        // Without steps, the last state is the initial one.
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
