//! Matmuls fused with the operators around them.

use super::*;
use rewire_hstu::ops::{NormMulDropout, norm_mul_dropout};
use rewire_tests::case::GraphCase;

#[test]
fn a_linear_layer_takes_its_activation() {
    for activation in [Tensor::relu, Tensor::silu, Tensor::sigmoid, Tensor::gelu_erf, Tensor::gelu_tanh] {
        let plan = plan_of(16, |scope, x| vec![activation(&linear(scope, "a", x, 8))]);
        assert_eq!(names(&plan), ["addmm"]);
    }
}

#[test]
fn a_layer_of_one_column_takes_its_bias_and_activation() {
    let plan = plan_of(16, |scope, x| vec![linear(scope, "a", x, 1).sigmoid()]);
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn an_mlp_takes_a_kernel_a_layer() {
    let plan = plan_of(16, |scope, x| {
        let a = linear(scope, "a", x, 32).relu();
        let b = linear(scope, "b", &a, 32).relu();
        vec![linear(scope, "c", &b, 1)]
    });
    assert_eq!(names(&plan), ["addmm", "addmm", "addmm"]);
}

#[test]
fn a_residual_is_added_by_the_product() {
    let plan = plan_of(16, |scope, x| vec![x + &linear(scope, "a", x, 16).silu()]);
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn parts_of_a_product_get_their_own_epilogues() {
    let plan = plan_of(16, |scope, x| {
        let parts = linear(scope, "a", x, 48).split_columns(&[16, 16, 16]);
        vec![parts[0].silu(), parts[1].clone(), parts[2].reshape(&[x.dim(0), 4.into(), 4.into()])]
    });
    assert_eq!(names(&plan), ["addmm"]);
}

#[test]
fn siblings_of_one_input_do_not_repeat_its_computation() {
    let plan = plan_of(16, |scope, x| {
        let shared = x.gelu_erf().tanh();
        vec![linear(scope, "a", &shared, 8), linear(scope, "b", &shared, 8)]
    });
    let pointwise = names(&plan).iter().filter(|name| **name == "pointwise").count();
    assert!(plan.steps.len() <= 3 && pointwise <= 1, "{:?}", names(&plan));
}

#[test]
fn linear_layers_of_one_input_are_one_product() {
    let plan = plan_of(16, |scope, x| {
        let widths = [8, 3, 25, 1];
        widths.iter().enumerate().map(|(n, &width)| linear(scope, &n.to_string(), x, width).silu()).collect()
    });
    assert_eq!(names(&plan), ["addmm"]);
    // The biases and the weights of all layers are joined once.
    assert!(plan.load.len() <= 2, "{:?}", plan.load.iter().map(|step| &step.name).collect::<Vec<_>>());
}

#[test]
fn siblings_merge_in_every_layer_of_a_deep_model() {
    let layers = 60;
    let plan = plan_of(16, |scope, x| {
        let layer = |x: Tensor, n: usize| {
            let part = |name: &str| linear(scope, &format!("{n}.{name}"), &x, 16);
            &(&part("a").silu() * &part("b")) + &(&part("c") * &x)
        };
        vec![(0..layers).fold(x.clone(), layer)]
    });
    let products = names(&plan).iter().filter(|name| **name == "addmm").count();
    assert_eq!((products, plan.steps.len()), (layers, layers + 1));
}

#[test]
fn the_norm_of_the_output_is_the_prologue_of_its_projection() {
    // More heads have more statistics than the workgroup memory of the baseline holds.
    let one = &["layer_norm_addmm"][..];
    for (heads, expected) in
        [(None, one), (Some(1), one), (Some(4), one), (Some(8), one), (Some(12), &["layer_norm", "addmm"])]
    {
        for concat_ux in [false, true] {
            let plan = plan_of(24, |scope, x| {
                let u = scope.input("u", F32, x.shape());
                let affine = ["w", "b"].map(|name| weight(scope, name, &[heads.unwrap_or(24)]));
                let options =
                    NormMulDropout { eps: 1e-6, group_norm: heads, concat_ux, dropout_ratio: 0.0, recompute_y: false };
                let gated = norm_mul_dropout(scope, x, &u, [&affine[0], &affine[1]], &options);
                vec![x + &gated.matmul(&weight(scope, "out", &[gated.width(), 24]))]
            });
            assert_eq!(names(&plan), expected, "{heads:?} heads, {concat_ux}");
            emits_for_the_baseline(&plan);
        }
    }
}

#[test]
fn a_concatenation_of_parts_of_a_product_is_read_by_all_columns_of_another_output() {
    for of_parts_first in [true, false] {
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), 24.into()]);
        let product = x.matmul(&weight(&scope, "w", &[24, 64]));
        let part = product.slice(1, 0, 32);
        let joined = scope.concat(&[&part.silu(), &part.tanh()], 1);
        let mut outputs = [("joined", joined.exp()), ("scaled", &product * &joined)];
        if !of_parts_first {
            outputs.reverse();
        }
        GraphCase::random(scope.finish(&outputs).unwrap(), &[("rows", 37)], 3).check();
    }
}
