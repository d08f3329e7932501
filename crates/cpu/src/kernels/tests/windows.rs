//! Convolutions, and kernels that read shifted elements.

use super::super::border;
use super::{Data, assert_close, body, device, floats, run_on_any_threads, symbol, tensor};
use rewire_graph::pointwise::{BinaryOp, Dag, ExprId};
use rewire_graph::{DType, Dim, Scalar};
use rewire_graph_rewrite::plan::{self, Accumulation, Axis, Computation, Extent, Nest, Output, ReduceOp};

/// A convolution of images `[batch, groups * channels, height, width]`; lists are by height and width.
#[derive(Clone, Copy, Debug)]
struct Convolution {
    batch: usize,
    groups: usize,
    /// Channels and results of a group.
    channels: usize,
    rows: usize,
    image: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    dilation: [usize; 2],
}

impl Convolution {
    fn extents(&self) -> [usize; 2] {
        [0, 1].map(|n| {
            let room = self.image[n] + 2 * self.padding[n] - self.dilation[n] * (self.kernel[n] - 1) - 1;
            room / self.stride[n] + 1
        })
    }

    /// The index along an axis of the image; `None` outside.
    fn place(&self, n: usize, window: usize, within: usize) -> Option<usize> {
        let place = (window * self.stride[n] + within * self.dilation[n]).checked_sub(self.padding[n])?;
        (place < self.image[n]).then_some(place)
    }

    /// The expression of [`Convolution::place`], and the condition for it to be inside.
    fn index(&self, dag: &mut Dag, n: usize, [window, within]: [ExprId; 2]) -> [ExprId; 2] {
        let [stride, dilation, padding, end, zero] =
            [self.stride[n], self.dilation[n], self.padding[n], self.image[n], 0].map(|x| dag.int(x as i64));
        let [start, inner] = [dag.binary(BinaryOp::Mul, window, stride), dag.binary(BinaryOp::Mul, within, dilation)];
        let sum = dag.binary(BinaryOp::Add, start, inner);
        let place = dag.binary(BinaryOp::Sub, sum, padding);
        let [low, high] = [(BinaryOp::Ge, zero), (BinaryOp::Lt, end)].map(|(op, bound)| dag.binary(op, place, bound));
        [place, dag.binary(BinaryOp::And, low, high)]
    }

    fn operands(&self) -> Vec<Data> {
        let Self { batch, groups, channels, rows, image: [height, width], kernel: [kh, kw], .. } = *self;
        let weights = tensor(DType::F32, &[groups * rows, channels, kh, kw], 2);
        let images = tensor(DType::F32, &[batch, groups * channels, height, width], 1);
        vec![Data::Device(weights), Data::Device(images)]
    }

    fn declared(&self) -> Vec<plan::Operand> {
        let Self { groups, channels, rows, image: [height, width], kernel: [kh, kw], .. } = *self;
        let weights = [groups * rows, channels, kh, kw].map(Dim::from).to_vec();
        let images = vec![symbol(0), (groups * channels).into(), height.into(), width.into()];
        vec![device(DType::F32, weights), device(DType::F32, images)]
    }

    /// A matmul of weights and windows.
    fn product(&self) -> Computation {
        let Self { groups, channels, rows, kernel: [kh, kw], .. } = *self;
        let [height, width] = self.extents();
        let depth = channels * kh * kw;
        let mut dag = Dag::new();
        let extents = [None, Some(groups), Some(rows), Some(height * width), Some(depth)];
        let mut coords =
            (0..).zip(extents).map(|(axis, extent)| dag.coord(axis, extent)).collect::<Vec<_>>().into_iter();
        let [batch, group, row, place, k] = std::array::from_fn(|_| coords.next().unwrap());
        let split = |dag: &mut Dag, n: ExprId, divisor: usize| {
            let divisor = dag.int(divisor as i64);
            [BinaryOp::Div, BinaryOp::Mod].map(|op| dag.binary(op, n, divisor))
        };
        let ([y, x], [rest, dx]) = (split(&mut dag, place, width), split(&mut dag, k, kw));
        let [channel, dy] = split(&mut dag, rest, kh);
        let (each, count) = (dag.int(channels as i64), dag.int(rows as i64));
        let first = dag.binary(BinaryOp::Mul, group, each);
        let image = dag.binary(BinaryOp::Add, first, channel);
        let [[y, is_y], [x, is_x]] = [self.index(&mut dag, 0, [y, dy]), self.index(&mut dag, 1, [x, dx])];
        let (inside, nothing) = (dag.binary(BinaryOp::And, is_y, is_x), dag.float(0.0));
        let pixel = dag.load(1, DType::F32, vec![batch, image, y, x]);
        let patch = dag.select(inside, pixel, nothing);
        let first = dag.binary(BinaryOp::Mul, group, count);
        let weight = dag.binary(BinaryOp::Add, first, row);
        let weight = dag.load(0, DType::F32, vec![weight, channel, dy, dx]);
        let value = dag.value(0, Scalar::F32);
        let shape: Vec<Dim> = vec![symbol(0), groups.into(), rows.into(), (height * width).into()];
        let index = vec![batch, group, row, place];
        let output = Output { target: 0, dtype: DType::F32, shape: shape.clone(), index, value, columns: None };
        let mut axes = Axis::points(shape);
        axes.push(Axis::sum(Extent::Dense(depth.into())));
        let sum = Accumulation { op: ReduceOp::Sum, axis: 4, factors: vec![weight, patch], dtype: DType::F32 };
        let body = body(dag, self.declared());
        Computation::of(Nest { body, axes, accumulations: vec![sum], outputs: vec![output] }).unwrap()
    }

    /// A pointwise loop that combines the terms of all kernel elements with `op`. Groups have one channel and one result.
    fn shifted(&self, op: BinaryOp, outside: f32) -> Nest {
        let ([height, width], [kh, kw]) = (self.extents(), self.kernel);
        let mut dag = Dag::new();
        let [batch, channel] = [(0, None), (1, Some(self.groups))].map(|(axis, extent)| dag.coord(axis, extent));
        let [row, column] = [(2, height), (3, width)].map(|(axis, extent)| dag.coord(axis, Some(extent)));
        let mut all = None;
        for [dy, dx] in (0..kh * kw).map(|n| [n / kw, n % kw]) {
            let [dy, dx, zero] = [dy, dx, 0].map(|n| dag.int(n as i64));
            let [[y, is_y], [x, is_x]] = [self.index(&mut dag, 0, [row, dy]), self.index(&mut dag, 1, [column, dx])];
            let (inside, nothing) = (dag.binary(BinaryOp::And, is_y, is_x), dag.float(outside));
            let pixel = dag.load(1, DType::F32, vec![batch, channel, y, x]);
            let weight = dag.load(0, DType::F32, vec![channel, zero, dy, dx]);
            let pixel = dag.select(inside, pixel, nothing);
            let term = if op == BinaryOp::Add { dag.binary(BinaryOp::Mul, pixel, weight) } else { pixel };
            all = Some(all.map_or(term, |all| dag.binary(op, all, term)));
        }
        let shape: Vec<Dim> = vec![symbol(0), self.groups.into(), height.into(), width.into()];
        let index = vec![batch, channel, row, column];
        let value = all.unwrap();
        let output = Output { target: 0, dtype: DType::F32, shape: shape.clone(), index, value, columns: None };
        let body = body(dag, self.declared());
        Nest { body, axes: Axis::points(shape), accumulations: vec![], outputs: vec![output] }
    }

    /// All results, from the terms of a result: weight and pixel, if it is inside.
    fn expected(&self, combine: impl Fn(&[(f64, Option<f64>)]) -> f64) -> Vec<f64> {
        let Self { batch, groups, channels, rows, image: [h, w], kernel: [kh, kw], .. } = *self;
        let (operands, [height, width]) = (self.operands(), self.extents());
        let (weights, images) = (floats(&operands[0]), floats(&operands[1]));
        let mut all = vec![];
        for [b, o, y, x] in (0..batch * groups * rows * height * width).map(|n| {
            [n / width / height / rows / groups, n / width / height % (groups * rows), n / width % height, n % width]
        }) {
            let terms = (0..channels * kh * kw).map(|k| {
                let image = (b * groups + o / rows) * channels + k / (kh * kw);
                let place = self.place(0, y, k / kw % kh).zip(self.place(1, x, k % kw));
                (weights[o * channels * kh * kw + k], place.map(|(y, x)| images[(image * h + y) * w + x]))
            });
            all.push(combine(&terms.collect::<Vec<_>>()));
        }
        all
    }
}

const PLAIN: Convolution = Convolution {
    batch: 2,
    groups: 1,
    channels: 3,
    rows: 5,
    image: [6, 6],
    kernel: [3, 3],
    stride: [1, 1],
    padding: [1, 1],
    dilation: [1, 1],
};

fn sum(terms: &[(f64, Option<f64>)]) -> f64 {
    terms.iter().map(|(weight, pixel)| weight * pixel.unwrap_or(0.0)).sum()
}

#[test]
fn convolutions_of_any_geometry_meet_plain_loops() {
    let cases = [
        PLAIN,
        Convolution { batch: 1, channels: 1, rows: 1, ..PLAIN },
        Convolution { batch: 3, rows: 50, image: [9, 7], stride: [2, 2], ..PLAIN },
        Convolution { image: [5, 13], kernel: [5, 2], padding: [0, 3], stride: [1, 3], ..PLAIN },
        Convolution { image: [12, 11], dilation: [2, 3], padding: [2, 0], ..PLAIN },
        Convolution { image: [12, 11], dilation: [2, 3], padding: [2, 3], stride: [3, 2], ..PLAIN },
        Convolution { groups: 4, channels: 2, rows: 3, ..PLAIN },
        Convolution { groups: 7, channels: 1, rows: 1, image: [8, 9], ..PLAIN },
        Convolution { image: [1, 40], kernel: [1, 7], padding: [0, 3], ..PLAIN },
        Convolution { image: [40, 1], kernel: [7, 1], padding: [3, 0], ..PLAIN },
        Convolution { image: [3, 3], padding: [0, 0], ..PLAIN },
        Convolution { batch: 1, channels: 70, rows: 6, image: [5, 5], ..PLAIN },
        Convolution { image: [30, 37], kernel: [2, 2], stride: [2, 2], padding: [0, 0], ..PLAIN },
    ];
    for case in cases {
        let out = run_on_any_threads(&case.product(), &case.operands(), &vec![case.batch as i64]);
        assert_close(&out[0], &case.expected(sum), 3e-6);
    }
}

#[test]
fn shifted_elements_are_read_from_a_copy_with_a_border() {
    let single = Convolution { groups: 5, channels: 1, rows: 1, ..PLAIN };
    let cases = [
        (single, [1, 1]),
        (Convolution { image: [16, 16], ..single }, [1, 1]),
        (Convolution { batch: 1, image: [7, 33], kernel: [5, 5], padding: [2, 2], stride: [2, 1], ..single }, [2, 2]),
        (Convolution { image: [9, 10], dilation: [2, 2], padding: [0, 2], ..single }, [0, 2]),
        (Convolution { groups: 130, image: [20, 20], ..single }, [1, 1]),
    ];
    for (case, border) in cases {
        let operands = case.operands();
        for (op, outside) in [(BinaryOp::Add, 0.0), (BinaryOp::Max, f32::NEG_INFINITY)] {
            let nest = case.shifted(op, outside);
            let copies = border::borders(&nest);
            let [(_, found)] = &copies[..] else { panic!("{} copies", copies.len()) };
            assert_eq!([found[2].0, found[3].0], border, "{case:?}");
            let out = run_on_any_threads(&Computation::of(nest).unwrap(), &operands, &vec![case.batch as i64]);
            let expected = match op {
                BinaryOp::Add => case.expected(sum),
                _ => case.expected(|terms| terms.iter().filter_map(|term| term.1).fold(f64::NEG_INFINITY, f64::max)),
            };
            assert_close(&out[0], &expected, 1e-6);
        }
    }
}

#[test]
fn elements_read_once_or_apart_or_in_whole_rows_are_not_copied() {
    let case = Convolution { groups: 5, channels: 1, rows: 1, ..PLAIN };
    let cases = [
        Convolution { kernel: [1, 1], ..case },
        Convolution { kernel: [5, 1], padding: [2, 0], ..case },
        Convolution { stride: [1, 2], ..case },
    ];
    for case in cases {
        assert_eq!(border::borders(&case.shifted(BinaryOp::Add, 0.0)), [], "{case:?}");
    }
}
