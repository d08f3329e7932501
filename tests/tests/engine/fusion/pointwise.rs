//! Pointwise operators and lookups.

use super::*;

#[test]
fn thirty_pointwise_operators_over_broadcast_shapes_are_one_kernel() {
    let plan = plan_of(24, |scope, x| {
        let (row, column) = (weight(scope, "row", &[24]), scope.input("column", F32, &[x.dim(0), 1.into()]));
        let mut y = x.clone();
        for n in 0..10 {
            y = match n % 5 {
                0 => (&y + &row).tanh(),
                1 => (&y * &column).silu(),
                2 => &(&y - &(&row * &column)).abs() + 0.5,
                3 => (&y * x).maximum(&row),
                _ => (&y / &(&column.abs() + 1.0)).sigmoid(),
            };
            y = &y * 1.25;
        }
        vec![y]
    });
    assert_eq!(names(&plan), ["pointwise"]);
}

#[test]
fn pointwise_results_of_one_shape_share_a_kernel() {
    let plan = plan_of(16, |_, x| vec![x.silu(), x.tanh(), &x.exp() + 1.0]);
    assert_eq!(names(&plan), ["pointwise"]);
}

#[test]
fn a_lookup_is_the_prologue_of_its_reader() {
    let scope = Scope::new();
    let ids = scope.input("ids", DType::U32, &[scope.size("rows")]);
    let rows = weight(&scope, "table", &[100, 16]).gather(&ids);
    let y = linear(&scope, "a", &rows, 8).relu();
    assert_eq!(names(&finish(scope, vec![y])), ["addmm"]);
}

#[test]
fn a_sum_of_lookups_is_one_kernel() {
    let scope = Scope::new();
    let rows = scope.size("rows");
    let sum = (0..3)
        .map(|n| {
            let ids = scope.input(&format!("ids{n}"), DType::U32, std::slice::from_ref(&rows));
            weight(&scope, &format!("table{n}"), &[100, 16]).gather(&ids)
        })
        .reduce(|a, b| &a + &b)
        .unwrap();
    assert_eq!(names(&finish(scope, vec![sum])), ["pointwise"]);
}
