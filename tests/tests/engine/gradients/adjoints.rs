//! The adjoints of operators that only move or sum elements: `sum(A(x) dy) = sum(x A'(dy))`.

use rewire_graph::op::{ReduceOp, Unfold, Window};
use rewire_graph::{DType, Dim, HostTensor, Ragged, Scope, Tensor};
use rewire_tests::backend::{Tensors, oracle};
use rewire_tests::noise::Noise;

const F32: DType = DType::F32;
const LENGTHS: [&[i64]; 5] = [&[3, 0, 5, 1], &[7], &[1], &[0, 0, 0], &[]];

/// Both sums are computed in f64 and rounded to f32 once.
const TOLERANCE: f64 = 1e-6;

/// Inputs by name, drawn as they are traced.
struct Model {
    scope: Scope,
    inputs: Tensors,
}

impl Model {
    fn new() -> Self {
        Self { scope: Scope::new(), inputs: Tensors::new() }
    }

    fn floats(&mut self, name: &str, shape: &[Dim], extents: &[usize]) -> Tensor {
        self.inputs.insert(name.to_owned(), Noise::new(7, name).floats(F32, extents, 1.0));
        self.scope.input(name, F32, shape)
    }

    fn lengths(&mut self, name: &str, lengths: &[i64]) -> Ragged {
        self.inputs.insert(name.to_owned(), HostTensor::lengths(lengths));
        self.scope.lengths(name, &self.scope.size("batch"))
    }

    fn zeros(&self, shape: &[Dim]) -> Tensor {
        self.scope.scalar(F32, 0.0).broadcast(shape)
    }

    /// Checks that `back` of `dy` is the adjoint of the function from `x` to `y`.
    fn hold(self, [x, y]: [&Tensor; 2], [dy, back]: [&Tensor; 2]) {
        assert_eq!((y.shape(), x.shape()), (dy.shape(), back.shape()));
        let sum = |a: &Tensor, b: &Tensor| (0..a.rank()).fold(a * b, |all, axis| all.sum(axis));
        let outputs = [("there", sum(y, dy)), ("back", sum(x, back))];
        let graph = self.scope.finish(&outputs).unwrap();
        let sums = oracle(&graph, &self.inputs, &Tensors::new()).unwrap();
        let (there, back) = (sums["there"].to_f64()[0], sums["back"].to_f64()[0]);
        let empty = self.inputs["x"].is_empty() || self.inputs["dy"].is_empty();
        assert_eq!(empty, there == 0.0, "{}", graph.text());
        assert!((there - back).abs() <= TOLERANCE * there.abs().max(0.1), "{there} {back} {}", graph.text());
    }
}

fn total(lengths: &[i64]) -> usize {
    lengths.iter().sum::<i64>() as usize
}

#[test]
fn parts_of_samples_go_back_between_zeros() {
    for lengths in LENGTHS {
        let starts: Vec<i64> = lengths.iter().map(|n| n / 3).collect();
        let counts: Vec<i64> = lengths.iter().map(|n| (n + 1) / 2).collect();
        let mut model = Model::new();
        let [rows, before, kept] =
            [("rows", lengths), ("starts", &starts), ("kept", &counts)].map(|(name, n)| model.lengths(name, n));
        let x = model.floats("x", &[rows.total.clone(), 3.into()], &[total(lengths), 3]);
        let dy = model.floats("dy", &[kept.total.clone(), 3.into()], &[total(&counts), 3]);
        let y = x.jagged_slice(&rows, &before.lengths, &kept);
        let after = Ragged::from_lengths(&(&(&rows.lengths - &before.lengths) - &kept.lengths));
        let [first, last] = [&before, &after].map(|part| model.zeros(&[part.total.clone(), 3.into()]));
        let (moved, both) = first.jagged_concat(&before, &dy, &kept);
        let back = moved.jagged_concat(&both, &last, &after).0;
        model.hold([&x, &y], [&dy, &back]);
    }
}

#[test]
fn parts_of_an_axis_go_back_between_zeros() {
    let mut model = Model::new();
    let rows = model.scope.size("rows");
    let x = model.floats("x", &[rows.clone(), 7.into()], &[4, 7]);
    let dy = model.floats("dy", &[rows.clone(), 3.into()], &[4, 3]);
    let y = x.slice(1, 2, 3);
    let [first, last] = [2, 2].map(|width: usize| model.zeros(&[rows.clone(), width.into()]));
    let back = model.scope.concat(&[&first, &dy, &last], 1);
    model.hold([&x, &y], [&dy, &back]);
}

#[test]
fn rows_that_follow_others_go_back_as_a_part_of_one_sample() {
    for (n, m) in [(3, 4), (0, 2)] {
        let mut model = Model::new();
        let (a, b) = (model.scope.size("a"), model.scope.size("b"));
        let x = model.floats("x", &[b.clone(), 2.into()], &[m, 2]);
        let other = model.floats("other", &[a.clone(), 2.into()], &[n, 2]);
        let dy = model.floats("dy", &[a.clone() + b.clone(), 2.into()], &[n + m, 2]);
        // The other part counts for nothing.
        let y = model.scope.concat(&[&(&other * 0.0), &x], 0);
        let one = |model: &Model, rows: Dim| Ragged::dense(&model.scope, 1, &model.scope.host_size(rows));
        let (all, kept) = (one(&model, a + b.clone()), one(&model, b));
        let back = dy.jagged_tail(&all, &kept);
        model.hold([&x, &y], [&dy, &back]);
    }
}

#[test]
fn repeated_rows_go_back_as_sums() {
    for lengths in LENGTHS {
        let mut model = Model::new();
        let rows = model.lengths("rows", lengths);
        let x = model.floats("x", &[rows.batch.clone(), 3.into()], &[lengths.len(), 3]);
        let dy = model.floats("dy", &[rows.total.clone(), 3.into()], &[total(lengths), 3]);
        let (y, back) = (x.jagged_broadcast(&rows), dy.segment_reduce(ReduceOp::Sum, &rows));
        model.hold([&x, &y], [&dy, &back]);
    }
}

#[test]
fn padded_rows_go_back_as_jagged_rows() {
    for lengths in LENGTHS {
        let mut model = Model::new();
        let rows = model.lengths("rows", lengths);
        let x = model.floats("x", &[rows.total.clone(), 3.into()], &[total(lengths), 3]);
        let dy = model.floats("dy", &[rows.batch.clone(), 4.into(), 3.into()], &[lengths.len(), 4, 3]);
        let (y, back) = (x.jagged_to_padded(&rows, &4.into(), 0.0), dy.padded_to_jagged(&rows));
        model.hold([&x, &y], [&dy, &back]);
    }
}

#[test]
fn rows_that_are_looked_up_go_back_as_sums_by_index() {
    let mut model = Model::new();
    let x = model.floats("x", &[5.into(), 3.into()], &[5, 3]);
    let ids = model.scope.input("ids", DType::I64, &[model.scope.size("n"), 2.into()]);
    model.inputs.insert("ids".to_owned(), HostTensor::i64(vec![4, 2], &[0, 4, 4, 1, 4, 0, 2, 1]).unwrap());
    let dy = model.floats("dy", &[ids.dim(0), 2.into(), 3.into()], &[4, 2, 3]);
    let (y, back) = (x.gather(&ids), dy.index_add(&ids, &5.into()));
    model.hold([&x, &y], [&dy, &back]);
}

/// By element of a patch matrix `[groups, patch, places]` the pixel of the image, as `channel * height * width + y * width + x`;
/// one past the last beyond the border.
fn pixels(unfold: &Unfold, [channels, height, width]: [usize; 3]) -> Vec<f64> {
    let Window { stride, padding, dilation, groups } = unfold.window.clone();
    let [kh, kw] = unfold.kernel;
    let [rows, columns] = unfold.extents(height, width).unwrap();
    let mut pixels = vec![];
    for channel in 0..channels {
        for (dy, dx) in (0..kh).flat_map(|dy| (0..kw).map(move |dx| (dy, dx))) {
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                let y = (row * stride[0] + dy * dilation[0]).checked_sub(padding[0]).filter(|&y| y < height);
                let x = (column * stride[1] + dx * dilation[1]).checked_sub(padding[1]).filter(|&x| x < width);
                let pixel = y.zip(x).map(|(y, x)| (channel * height + y) * width + x);
                pixels.push(pixel.unwrap_or(channels * height * width) as f64);
            }
        }
    }
    assert_eq!(channels % groups, 0);
    pixels
}

#[test]
fn patches_of_images_go_back_as_sums_by_index() {
    let windows = [
        Window::default(),
        Window { stride: [2, 1], padding: [1, 2], dilation: [1, 2], groups: 2 },
        Window { stride: [3, 2], padding: [2, 0], ..Window::default() },
    ];
    for window in windows {
        let (groups, [channels, height, width]) = (window.groups, [4usize, 7, 6]);
        let unfold = Unfold { kernel: [3, 2], window };
        let places: usize = unfold.extents(height, width).unwrap().iter().product();
        let patch = channels / groups * 6;
        let mut model = Model::new();
        let images = model.scope.size("images");
        let shape: Vec<Dim> = [images.clone()].into_iter().chain([channels, height, width].map(Dim::from)).collect();
        let x = model.floats("x", &shape, &[2, channels, height, width]);
        let columns: Vec<Dim> = [images].into_iter().chain([groups, patch, places].map(Dim::from)).collect();
        let dy = model.floats("dy", &columns, &[2, groups, patch, places]);
        let index = pixels(&unfold, [channels, height, width]);
        let index = HostTensor::from_f64(DType::I32, vec![groups, patch, places], &index).unwrap();
        let y = model.scope.apply(unfold, &[&x]);
        let size = channels * height * width;
        let sums = dy.permute(&[1, 2, 3, 0]).index_add(&model.scope.constant(index), &(size + 1).into());
        let back = sums.slice(0, 0, size).transpose(0, 1).reshape(&shape);
        model.hold([&x, &y], [&dy, &back]);
    }
}
