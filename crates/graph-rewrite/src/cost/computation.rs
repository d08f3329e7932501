use crate::count::{Count, Sizes};
use crate::plan::{Binding, Body, Computation, Custom, HostSlot, MemorySpace, ShapeValues, Step};
use rewire_graph::{DType, Dim};

impl Count {
    /// Counts a kernel at some sizes.
    ///
    /// A load counts once for every distinct value of the coordinates in its index, up to the bytes of its operand: a
    /// broadcast counts each element once, a lookup counts the rows that it finds. Data that tiles reread or recompute
    /// is counted for the default tile sizes of kernels.
    ///
    /// ```
    /// use rewire_graph::{DType, Scope};
    /// use rewire_graph_rewrite::cost::{Count, Sizes};
    /// let scope = Scope::new();
    /// let x = scope.input("x", DType::F32, &[scope.size("rows"), 8.into()]);
    /// let weight = scope.parameter("weight", DType::F32, &[8.into(), 16.into()]);
    /// let (graph, _) = rewire_graph_rewrite::optimize(scope.finish(&[("y", x.matmul(&weight))])?)?;
    /// let plan = rewire_graph_rewrite::lower(&graph)?;
    /// let count = Count::of(&plan.steps[0].computation, &Sizes::uniform(100, 0));
    /// assert_eq!(count.products, 2 * 100 * 8 * 16);
    /// assert_eq!((count.read, count.written), (4 * (100 * 8 + 8 * 16), 4 * 100 * 16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn of(computation: &Computation, sizes: &Sizes) -> Self {
        match computation {
            Computation::Nest(nest) => nest.scheduled(|schedule| schedule.count(sizes)),
            Computation::Custom(own) => custom(own, sizes),
        }
    }
}

impl Sizes {
    /// The sizes of a step in a run.
    pub fn of_run(step: &Step, values: &ShapeValues) -> Self {
        let entries = |slot: HostSlot| values.slots.get(slot.0 as usize).cloned();
        let reads = (0..).zip(&step.reads).filter_map(|(operand, binding)| match binding {
            Binding::Host(slot) => Some((operand, entries(*slot)?)),
            Binding::Buffer(_) => None,
        });
        Self::with_host(values, reads.collect())
    }
}

/// Assumes that operands are read once and the result is written once, with one operation per element, since the cost
/// of the shader is unknown.
fn custom(kernel: &Custom, sizes: &Sizes) -> Count {
    let written = bytes(kernel.dtype, &kernel.shape, sizes);
    Count { read: read(&kernel.body, sizes), written, scalar: sizes.product(&kernel.shape), ..Count::default() }
}

/// Bytes of all operands on the device.
fn read(body: &Body, sizes: &Sizes) -> u64 {
    let operands = body.operands.iter().filter(|operand| operand.space != MemorySpace::Host);
    operands.map(|operand| bytes(operand.dtype, &operand.shape, sizes)).fold(0, u64::saturating_add)
}

fn bytes(dtype: DType, shape: &[Dim], sizes: &Sizes) -> u64 {
    dtype.format().bytes(sizes.product(shape))
}
