//! Values of rows: reductions, norms, the largest elements.

use super::*;

/// Rows of noise with something else in one place.
fn rows(width: usize, places: &[f32]) -> Vec<f32> {
    let mut values: Vec<f32> = (0..places.len() * width).map(|n| ((n * 37 % 101) as f32 - 50.0) / 16.0).collect();
    for (row, place) in places.iter().enumerate() {
        values[row * width + (row * 7 + 3) % width] = *place;
    }
    values
}

#[test]
fn reductions_and_norms_of_rows() {
    let places = [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 1e15, 0.5, -0.0];
    for width in [1, 5, 64, 300, 1030] {
        let mut values = rows(width, &places);
        for row in [vec![f32::NEG_INFINITY; width], vec![f32::INFINITY; width], vec![f32::NAN; width]] {
            values.extend(row);
        }
        let mut mixed = rows(width, &[f32::INFINITY]);
        mixed[0] = f32::NEG_INFINITY;
        values.extend(mixed);
        let count = values.len() / width;
        let scope = Scope::new();
        let x = scope.input("x", F32, &[scope.size("rows"), width.into()]);
        let (w, b) = (scope.input("w", F32, &[width.into()]), scope.input("b", F32, &[width.into()]));
        let mut outputs = vec![
            ("max".to_owned(), x.max(1)),
            ("min".to_owned(), x.min(1)),
            ("sum".to_owned(), x.sum(1)),
            ("shifted".to_owned(), &x - &x.max(1)),
            ("rms norm".to_owned(), x.rms_norm(&w, 1e-5)),
        ];
        // Drivers treat the difference of an element and the only one of its row as 0.
        if width > 1 {
            outputs.push(("softmax".to_owned(), x.softmax(1)));
            outputs.push(("layer norm".to_owned(), x.layer_norm(&w, &b, 1e-5)));
        }
        let affine = tensor(&[width], &rows(width, &[0.5]));
        let inputs = Tensors::from([
            ("x".to_owned(), tensor(&[count, width], &values)),
            ("w".to_owned(), affine.clone()),
            ("b".to_owned(), affine),
        ]);
        hold(
            scope,
            outputs,
            &inputs,
            |_, _, a, b| differs(a, b, false),
            |n| format!("[{n}] of {count} rows of {width}"),
        );
    }
}

/// NaN is never among the largest elements.
#[test]
fn the_largest_of_rows() {
    let values = [
        [0.5, f32::NAN, -1.0, f32::INFINITY, 2.0],
        [f32::NAN, f32::NAN, f32::NAN, -f32::NAN, f32::NAN],
        [f32::NEG_INFINITY, f32::NAN, f32::NEG_INFINITY, -3.0, f32::NAN],
    ];
    let scope = Scope::new();
    let x = scope.input("x", F32, &[scope.size("rows"), 5.into()]);
    let (best, columns) = scope.top_k(&x, 4);
    let graph = scope.finish(&[("best", best), ("columns", columns)]).unwrap();
    let inputs = Tensors::from([("x".to_owned(), tensor(&[3, 5], values.as_flattened()))]);
    let none = f32::MIN;
    let best =
        [f32::INFINITY, 2.0, 0.5, -1.0, none, none, none, none, -3.0, f32::NEG_INFINITY, f32::NEG_INFINITY, none];
    let columns = [3, 4, 0, 2, -1, -1, -1, -1, 3, 0, 2, -1];
    let holds = |kernel: &str, found: &Results| {
        assert_eq!(found["best"].to_f32(), best, "{kernel}");
        assert_eq!(found["columns"].to_i64(), columns, "{kernel}");
    };
    holds("interpreter", &oracle(&graph, &inputs, &Tensors::new()).unwrap());
    for (name, options) in kernels() {
        holds(&name, &run(&mut load(&graph, &Tensors::new(), options).unwrap(), &inputs).unwrap());
    }
}
