//! Kernels that cannot be emitted return errors with the reason.

use crate::build::{Build, output, own};
use crate::{attention, matmul};
use rewire_emit::{EmitError, emit};
use rewire_graph::pointwise::{BinaryOp, ExprId};
use rewire_graph::{DType, Dim};
use rewire_graph_rewrite::device::{ProductTile, ReductionTile, SubgroupProductTile, Target, Tile, Tuning};
use rewire_graph_rewrite::lower::NotLowerable;
use rewire_graph_rewrite::plan::{Computation, Extent, Nest};

fn sum_of(count: usize) -> (Build, Vec<Dim>, Vec<ExprId>, ExprId) {
    let mut b = Build::default();
    let shape: Vec<Dim> = vec![4usize.into(), 8usize.into()];
    let (i, j) = (b.coord(0, &shape[0]), b.coord(1, &shape[1]));
    let mut sum = b.float(0.0);
    for _ in 0..count {
        let x = b.operand(DType::F32, shape.clone());
        let x = b.load(x, &[i, j]);
        sum = b.bin(BinaryOp::Add, sum, x);
    }
    (b, shape, vec![i, j], sum)
}

fn emit_map(b: Build, extents: Vec<Dim>, dtype: DType, index: Vec<ExprId>, value: ExprId) -> Result<(), EmitError> {
    let outputs = own(vec![output(dtype, extents.clone(), index, value)]);
    let kernel = Computation::of(Nest::map(b.body, extents, outputs)).unwrap();
    emit(&kernel, &Target::BASELINE, &Tuning::default()).map(|_| ())
}

#[test]
fn too_many_buffers() {
    let (b, shape, index, sum) = sum_of(7);
    assert_eq!(emit_map(b, shape, DType::F32, index, sum), Ok(()));
    let (b, shape, index, sum) = sum_of(8);
    let error = emit_map(b, shape, DType::F32, index, sum).unwrap_err();
    assert_eq!(error, EmitError::Limit { what: "storage buffers", needed: 9, limit: 8 });
}

#[test]
fn malformed_kernels() {
    let (b, shape, index, sum) = sum_of(1);
    let error = emit_map(b, shape, DType::I32, index, sum).unwrap_err();
    assert!(matches!(error, EmitError::Type { .. }), "{error}");
    let (b, shape, mut index, sum) = sum_of(1);
    index.pop();
    let error = emit_map(b, shape, DType::F32, index, sum).unwrap_err();
    assert!(matches!(error, EmitError::Rank { expected: 2, got: 1, .. }), "{error}");
    let (b, shape, index, _) = sum_of(1);
    let outputs = own(vec![output(DType::F32, shape.clone(), index, ExprId(99))]);
    let error = Computation::of(Nest::map(b.body, shape, outputs)).unwrap_err();
    assert_eq!(error.to_string(), "refers to expression 99, there are 5");
    let (mut b, shape, index, sum) = sum_of(1);
    b.body.operands.clear();
    let error = emit_map(b, shape, DType::F32, index, sum).unwrap_err();
    assert!(matches!(error, EmitError::Missing { what: "operand", .. }), "{error}");
    let (mut b, shape, index, _) = sum_of(1);
    let beyond = b.coord(2, &5usize.into());
    let beyond = b.body.dag.cast(rewire_graph::Scalar::F32, beyond);
    let error = emit_map(b, shape, DType::F32, index, beyond).unwrap_err();
    assert!(matches!(error, EmitError::Missing { what: "coordinate", .. }), "{error}");
}

#[test]
fn heads_beyond_any() {
    let case = attention::AttentionCase {
        mask: attention::Mask::None,
        heads: 2,
        qk: 8,
        v: 8,
        dtype: DType::F32,
        softmax: false,
    };
    let (mut kernel, ..) = attention::kernel(&case, &[5, 2], None);
    let Computation::Nest(own) = &mut kernel else { panic!("attention is a nest") };
    let unchanged = own.clone();
    let error = own.edit(|nest| nest.axes[3].extent = Extent::Dense((1usize << 31).into())).unwrap_err();
    assert!(matches!(error, NotLowerable::Limit(_)), "{error}");
    assert_eq!(*own, unchanged);
}

#[test]
fn tilings_that_do_not_fit() {
    let kernel = matmul::dense(64usize.into(), 64usize.into(), 64usize.into(), DType::F32, (false, false));
    let fits = ProductTile { rows: 64, columns: 64, depth: 16, rows_per_thread: 4, parts: 1 };
    let error = |tile: Tile| emit(&kernel, &Target::BASELINE, &tile.into()).map(drop).err();
    assert_eq!(error(Tile::Product(fits)), None);
    for tile in [
        ProductTile { rows: 3, ..fits },
        ProductTile { depth: 0, ..fits },
        ProductTile { rows_per_thread: 0, ..fits },
        ProductTile { rows: 256, columns: 256, ..fits },
    ] {
        assert!(error(Tile::Product(tile)).is_some(), "{tile:?}");
    }
    for tile in [
        Tile::Reduction(ReductionTile { threads: 64 }),
        Tile::SubgroupProduct(SubgroupProductTile { rows: 64, columns: 64 }),
    ] {
        assert_eq!(error(tile), Some(EmitError::Tile { expected: "product", got: tile }));
    }
}
