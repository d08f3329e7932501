//! Large generated graphs.

use rewire::graph::{DType, Graph, GraphError, Ragged, Scope, Tensor};

const WIDTH: usize = 64;
const HEADS: usize = 4;

/// A graph of at least `nodes` operators: blocks of attention, multi-layer perceptrons, pointwise chains and towers over
/// embedding lookups, applied in turn to the same rows.
///
/// # Errors
/// [`GraphError`] of the trace.
pub fn large(nodes: usize) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let rows = scope.offsets("offsets");
    let mut x = scope.input("x", DType::F32, &[rows.total.clone(), WIDTH.into()]);
    let ids = scope.input("ids", DType::U32, std::slice::from_ref(&rows.total));
    let mut towers = vec![];
    // A round of blocks adds about this many operators.
    for round in 0..nodes.div_ceil(OPERATORS_A_ROUND) {
        x = scope.module(&format!("rounds.{round}"), |scope| {
            let x = scope.module("attention", |scope| attention(scope, &x, &rows));
            let x = scope.module("mlp", |scope| mlp(scope, &x));
            let x = chain(scope, &x);
            let tower = scope.module("tower", |scope| tower(scope, &ids));
            towers.push(tower.clone());
            &x + &tower
        });
    }
    let sum = towers.iter().skip(1).fold(towers[0].clone(), |sum, tower| sum.maximum(tower));
    scope.finish(&[("x", x), ("towers", sum)])
}

/// Operators and parameters of one round of [`large`].
pub const OPERATORS_A_ROUND: usize = 126;

fn weight(scope: &Scope, name: &str, shape: &[usize]) -> Tensor {
    let shape: Vec<_> = shape.iter().map(|&extent| extent.into()).collect();
    scope.parameter(name, DType::F32, &shape)
}

fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize) -> Tensor {
    scope.module(name, |scope| {
        let bias = weight(scope, "bias", &[out]);
        x.linear(&weight(scope, "weight", &[out, x.width()]), Some(&bias))
    })
}

/// A layer of sequential transduction units with a causal mask.
fn attention(scope: &Scope, x: &Tensor, rows: &Ragged) -> Tensor {
    let inner = WIDTH;
    let vector = |name: &str, n: usize| weight(scope, name, &[n]);
    let normed = x.layer_norm(&vector("in_weight", WIDTH), &vector("in_bias", WIDTH), 1e-6);
    let uvqk = &normed.matmul(&weight(scope, "uvqk", &[WIDTH, 4 * inner])) + &vector("beta", 4 * inner);
    let parts = uvqk.silu().split_columns(&[inner; 4]);
    let heads = |t: &Tensor| t.reshape(&[rows.total.clone(), HEADS.into(), (WIDTH / HEADS).into()]);
    let weights = &(&heads(&parts[2]).scores(&heads(&parts[3]), rows, rows) * 0.25).silu() * 0.01;
    let mask = rows.row_index(rows, HEADS).ge(rows.key_index(rows, HEADS));
    let masked = mask.select(&weights, &scope.scalar(DType::F32, 0.0));
    let attended = masked.weighted_sum(&heads(&parts[1]), rows, rows).reshape(x.shape());
    let normed = attended.layer_norm(&vector("out_weight", inner), &vector("out_bias", inner), 1e-6);
    let joined = scope.concat(&[&parts[0], &attended, &(&parts[0] * &normed)], 1);
    x + &joined.matmul(&weight(scope, "out", &[3 * inner, WIDTH]))
}

fn mlp(scope: &Scope, x: &Tensor) -> Tensor {
    let hidden = linear(scope, "a", x, 2 * WIDTH).relu();
    let hidden = linear(scope, "b", &hidden, 2 * WIDTH).gelu_erf();
    linear(scope, "c", &hidden, WIDTH)
}

fn chain(scope: &Scope, x: &Tensor) -> Tensor {
    let row = weight(scope, "row", &[WIDTH]);
    (0..4).fold(x.clone(), |y, n| match n {
        0 => (&(&y + &row) * 1.0).tanh(),
        1 => &y * &y.sigmoid(),
        2 => &(&y - &(&row * x)).abs() + 0.5,
        _ => &y / &(&row.abs() + 1.0),
    })
}

/// A small perceptron over sums of embedding lookups.
fn tower(scope: &Scope, ids: &Tensor) -> Tensor {
    let lookups = (0..4).map(|n| weight(scope, &format!("table.{n}"), &[100, 16]).gather(ids));
    let sum = lookups.reduce(|a, b| &a + &b).unwrap_or_else(|| ids.clone());
    let hidden = linear(scope, "a", &sum, 32).relu();
    linear(scope, "b", &hidden, WIDTH).sigmoid()
}

/// A chain of `nodes` pointwise operators.
///
/// # Errors
/// [`GraphError`] of the trace.
pub fn pointwise_chain(nodes: usize) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[scope.size("rows"), WIDTH.into()]);
    let y = (0..nodes / 2).fold(x.clone(), |y, n| if n % 2 == 0 { (&y + &x).tanh() } else { (&y * &x).sigmoid() });
    scope.finish(&[("y", y)])
}

/// A transformer of at least `nodes` operators: attention and perceptrons that add to one residual stream.
///
/// # Errors
/// [`GraphError`] of the trace.
pub fn residual_stream(nodes: usize) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let rows = scope.offsets("offsets");
    let mut x = scope.input("x", DType::F32, &[rows.total.clone(), WIDTH.into()]);
    for layer in 0..nodes.div_ceil(OPERATORS_A_LAYER) {
        x = scope.module(&format!("layers.{layer}"), |scope| {
            let x = scope.module("attention", |scope| attention(scope, &x, &rows));
            let (scale, shift) = (weight(scope, "scale", &[WIDTH]), weight(scope, "shift", &[WIDTH]));
            &x + &scope.module("mlp", |scope| mlp(scope, &x.layer_norm(&scale, &shift, 1e-6)))
        });
    }
    scope.finish(&[("x", x)])
}

/// Operators and parameters of one layer of [`residual_stream`].
const OPERATORS_A_LAYER: usize = 96;

/// `nodes` operators in small independent towers with two inputs each.
///
/// # Errors
/// [`GraphError`] of the trace.
pub fn sparse_towers(nodes: usize) -> Result<Graph, GraphError> {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let mut outputs = vec![];
    for tower in 0..nodes.div_ceil(OPERATORS_A_TOWER) {
        outputs.push(scope.module(&format!("towers.{tower}"), |scope| {
            let ids = scope.input(&format!("ids.{tower}"), DType::U32, std::slice::from_ref(&rows));
            let lookups = ["a", "b"].map(|name| weight(scope, name, &[100, 16]).gather(&ids));
            let scaled = &(&lookups[0] + &lookups[1]) * 0.5;
            scaled.softmax(1)
        }));
    }
    let names: Vec<String> = (0..outputs.len()).map(|n| n.to_string()).collect();
    let outputs: Vec<(&str, Tensor)> = names.iter().map(String::as_str).zip(outputs).collect();
    scope.finish(&outputs)
}

/// Operators and parameters of one tower of [`sparse_towers`].
const OPERATORS_A_TOWER: usize = 12;
