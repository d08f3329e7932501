use crate::{BenchError, Lengths, Shape};
use rewire_graph::DType;

/// Names of the suites of workloads.
pub const SUITES: [&str; 3] = ["standard", "matrices", "cpu"];

/// Operators and modules whose f16 kernels use matrix hardware.
const ON_MATRICES: [&str; 5] = ["attention", "addmm", "stu", "transducer", "ranking"];

/// The workloads of a suite. `standard` has every operator at sizes for a server GPU, and layers, stack and transducer at the
/// standard shapes. `matrices` are those of `standard` that depend on the tier of matrix hardware. `cpu` has sizes for a processor
/// with few cores.
///
/// # Errors
/// [`BenchError::UnknownSuite`] lists the names.
pub fn suite(name: &str) -> Result<Vec<(&'static str, Shape)>, BenchError> {
    match name {
        "standard" => Ok(standard()),
        "matrices" => {
            let is_on_matrices = |(op, shape): &(&str, Shape)| shape.dtype == DType::F16 && ON_MATRICES.contains(op);
            Ok(standard().into_iter().filter(is_on_matrices).collect())
        }
        "cpu" => Ok(cpu()),
        _ => Err(BenchError::UnknownSuite { name: name.to_owned(), known: SUITES.join(", ") }),
    }
}

fn standard() -> Vec<(&'static str, Shape)> {
    let training = named("training");
    let base = Shape { dtype: DType::F16, ..training.clone() };
    let narrow = Shape { attn_dim: 64, hidden_dim: 64, ..base.clone() };
    let mut set = vec![
        ("attention", base.clone()),
        ("attention", narrow.clone()),
        ("attention", Shape { batch: 64, max_len: 512, ..narrow }),
        ("attention", Shape { batch: 16, max_len: 4096, ..base.clone() }),
        ("attention", Shape { window: 256, context: 8, ..base.clone() }),
        ("attention", training),
        ("delta-attention", Shape { batch: 8, targets: exactly(100), ..base.clone() }),
    ];
    set.extend(full_attention(&base).map(|shape| ("attention", shape)));
    for [m, k, n] in [
        [65536, 512, 2048],
        [65536, 1536, 512],
        [65536, 256, 1024],
        [4096, 4096, 4096],
        [1, 512, 2048],
        [64, 512, 2048],
    ] {
        set.extend([DType::F16, DType::F32].map(|dtype| ("addmm", Shape { m, k, n, dtype, ..base.clone() })));
    }
    set.push(("addmm", Shape { m: 65536, k: 512, n: 2048, epilogue: true, ..base.clone() }));
    for [m, k, n] in [[65536, 512, 2048], [65536, 1536, 512], [4096, 4096, 4096]] {
        set.push(("addmm", Shape { m, k, n, weights: Some(DType::Rows8), ..base.clone() }));
        set.push(("addmm", Shape { m, k, n, sums: Some(DType::I32), ..base.clone() }));
    }
    for dtype in [DType::F16, DType::F32] {
        let rows = Shape { rows: 262_144, width: 512, dtype, ..base.clone() };
        set.extend([
            ("layer-norm", rows.clone()),
            ("norm-mul-dropout", rows.clone()),
            ("norm-mul-dropout", Shape { concat: true, ..rows.clone() }),
            ("norm-mul-dropout", Shape { concat: true, train: true, ..rows.clone() }),
            ("pointwise", Shape { rows: 131_072, ..rows.clone() }),
            ("embedding", rows.clone()),
        ]);
        set.extend(["jagged-concat", "jagged-split", "positions"].map(|op| (op, Shape { width: 512, ..rows.clone() })));
    }
    set.push(("stu", Shape { backward: true, ..base }));
    set.push(("stu", Shape { dtype: DType::F16, weights: Some(DType::Rows8), ..named("published") }));
    for name in ["published", "training"] {
        let integers = Shape { dtype: DType::F16, sums: Some(DType::I32), ..named(name) };
        set.extend(["stu", "ranking"].map(|op| (op, integers.clone())));
    }
    // Measures the fixed cost of a run with one kernel.
    set.push(("pointwise", Shape { rows: 1, width: 4, ..Shape::default() }));
    for name in ["on-device", "on-device-8", "match", "server", "published", "training"] {
        for dtype in [DType::F16, DType::F32] {
            let shape = Shape { dtype, ..named(name) };
            set.extend(["stu-layer", "stu"].map(|op| (op, shape.clone())));
            set.extend(match shape.targets != Lengths::NONE {
                true => vec![("transducer", shape.clone()), ("ranking", shape)],
                false => vec![("matching", shape)],
            });
        }
    }
    set
}

/// Attention over sequences of equal length, with and without gradients.
fn full_attention(base: &Shape) -> impl Iterator<Item = Shape> {
    let full = Shape { len_dist: Lengths::Full, targets: Lengths::NONE, ..base.clone() };
    let narrow = Shape { attn_dim: 64, hidden_dim: 64, ..full.clone() };
    let sizes = [full.clone(), narrow.clone(), Shape { batch: 64, max_len: 512, ..narrow }];
    let both = sizes.into_iter().flat_map(|shape| [false, true].map(|backward| Shape { backward, ..shape.clone() }));
    let short = Shape { batch: 8, attn_dim: 32, hidden_dim: 32, max_len: 4096, ..full.clone() };
    let targets = Shape { max_len: 1088, targets: exactly(64), ..full.clone() };
    both.chain([short, targets, Shape { dtype: DType::F32, backward: true, ..full }])
}

fn cpu() -> Vec<(&'static str, Shape)> {
    let base = Shape::default();
    let rows = Shape { rows: 16384, width: 512, ..base.clone() };
    let jagged = Shape { batch: 32, max_len: 512, len_dist: Lengths::Uniform(50, 512), ..base.clone() };
    let layer = Shape { batch: 16, max_len: 256, len_dist: Lengths::Uniform(50, 256), ..base.clone() };
    let mut set = vec![
        ("attention", jagged.clone()),
        (
            "attention",
            Shape {
                batch: 8,
                attn_dim: 128,
                hidden_dim: 128,
                max_len: 1024,
                len_dist: Lengths::Uniform(100, 1024),
                ..base.clone()
            },
        ),
        ("attention", Shape { batch: 1, max_len: 256, ..base.clone() }),
        ("delta-attention", Shape { targets: exactly(20), ..jagged.clone() }),
        ("addmm", Shape { m: 1024, k: 1024, n: 1024, ..base.clone() }),
        ("addmm", Shape { m: 4096, k: 512, n: 2048, ..base.clone() }),
        ("addmm", Shape { m: 4096, k: 512, n: 2048, epilogue: true, ..base.clone() }),
        ("layer-norm", rows.clone()),
        ("norm-mul-dropout", rows.clone()),
        ("norm-mul-dropout", Shape { train: true, ..rows.clone() }),
        ("norm-mul-dropout", Shape { train: true, concat: true, ..rows.clone() }),
        ("pointwise", rows.clone()),
        ("embedding", rows),
        ("stu-layer", layer.clone()),
        ("stu-layer", Shape { backward: true, ..layer.clone() }),
        ("stu", layer),
    ];
    set.extend(["jagged-concat", "jagged-split", "positions"].map(|op| (op, jagged.clone())));
    set.extend(["on-device", "on-device-8"].map(|name| ("transducer", named(name))));
    set
}

fn named(name: &str) -> Shape {
    Shape::named(name).unwrap_or_default()
}

fn exactly(n: usize) -> Lengths {
    Lengths::Uniform(n, n)
}
