use super::{Elements, Elementwise, Op, arity};
use crate::pointwise::{BinaryOp, ExprId};
use crate::{DType, Layout, Scalar, Type, TypeError};

/// Rows of a table: `out[i.., c..] = table[index[i..], c..]`. An index outside the table takes the nearest row.
/// Where an input of a run holds the index unchanged, the run checks it first, unless its options say otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gather;

impl Op for Gather {
    fn name(&self) -> &str {
        "gather"
    }

    fn infer(&self, inputs: &[&Type]) -> Result<Vec<Type>, TypeError> {
        let [table, index] = arity(inputs)?;
        if table.rank() == 0 || table.layout == Layout::Scores {
            return Err(TypeError::new("table", "a tensor with rows", table));
        }
        if table.extent(0) == Some(0) {
            return Err(TypeError::new("table", "a tensor with at least one row", table));
        }
        if !matches!(index.dtype, DType::I32 | DType::I64 | DType::U32) || index.layout != Layout::Device {
            return Err(TypeError::new("index", "a device tensor of integers", index));
        }
        let shape = index.shape.into_iter().chain(table.shape.into_iter().skip(1)).collect();
        Ok(vec![Type::device(table.dtype, shape)])
    }

    fn elementwise(&self) -> Option<&dyn Elementwise> {
        Some(self)
    }
}

impl Elementwise for Gather {
    fn element(&self, at: &mut dyn Elements, coords: &[ExprId]) -> ExprId {
        let (outer, inner) = coords.split_at(at.ty(1).rank());
        let rows = at.ty(0).shape[0].clone();
        let index = at.load(1, outer);
        let (rows, one) = (at.size(&rows), at.dag().int(1));
        let last = at.dag().binary(BinaryOp::Sub, rows, one);
        // Limited in its own type: a 64-bit index would wrap around.
        let scalar = at.dag().scalar(index);
        let (zero, last) = (at.dag().constant(scalar, 0), at.dag().cast(scalar, last));
        let row = at.dag().binary(BinaryOp::Min, index, last);
        let row = at.dag().binary(BinaryOp::Max, row, zero);
        let row = at.dag().cast(Scalar::I32, row);
        let index: Vec<ExprId> = std::iter::once(row).chain(inner.iter().copied()).collect();
        at.load(0, &index)
    }
}
