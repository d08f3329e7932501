use super::array::{Array, Data};
use crate::op::{Elements, Elementwise};
use crate::pointwise::{self, Dag, Expr, ExprId, Point as _};
use crate::{DType, Dim, Layout, Number, Scalar, Type};

/// Builds the definition of an operator, with its operands as loads.
struct Definition<'a> {
    dag: Dag,
    types: &'a [Type],
    sizes: Vec<Dim>,
}

impl Elements for Definition<'_> {
    fn dag(&mut self) -> &mut Dag {
        &mut self.dag
    }

    fn operands(&self) -> usize {
        self.types.len()
    }

    fn ty(&self, operand: usize) -> &Type {
        &self.types[operand]
    }

    fn load(&mut self, operand: usize, index: &[ExprId]) -> ExprId {
        let dtype = self.types.get(operand).map_or(DType::I32, |ty| ty.dtype);
        self.dag.load(operand as u16, dtype, index.to_vec())
    }

    fn sample(&mut self, operand: usize, row: ExprId) -> ExprId {
        self.dag.sample(operand as u16, row)
    }

    fn size(&mut self, dim: &Dim) -> ExprId {
        self.dag.extent(&mut self.sizes, dim)
    }
}

/// The values an operator's definition reads at one point.
struct Point<'a> {
    dag: &'a Dag,
    operands: &'a [&'a Array],
    sizes: &'a [i64],
    coords: Vec<i64>,
    /// By expression, its value at this point, if it was computed.
    memo: Vec<Option<Number>>,
    /// By axis, the expressions that read its coordinate or a later one.
    readers: Vec<Vec<usize>>,
    /// Expressions that wait for their operands.
    stack: Vec<ExprId>,
}

/// Evaluates a scalar definition at every point of `shape`.
pub(super) fn evaluate(
    op: &dyn Elementwise,
    types: &[Type],
    operands: &[&Array],
    shape: Vec<usize>,
    ty: &Type,
    size: impl Fn(&Dim) -> Option<usize>,
) -> Array {
    let mut definition = Definition { dag: Dag::new(), types, sizes: vec![] };
    let ragged = ty.layout == Layout::Scores;
    let coords: Vec<ExprId> = ty
        .shape
        .iter()
        .enumerate()
        .map(|(axis, dim)| definition.dag.coord(axis as u8, if ragged { None } else { dim.as_const() }))
        .collect();
    let root = op.element(&mut definition, &coords);
    let sizes: Vec<i64> = definition.sizes.iter().map(|dim| size(dim).unwrap_or(0) as i64).collect();
    let mut point = Point::first(&definition.dag, operands, &sizes, shape.len());
    let count: usize = shape.iter().product();
    let float = ty.dtype.is_float();
    let mut data = if float { Data::Float(vec![]) } else { Data::Integer(vec![]) };
    for _ in 0..count {
        let value = point.at(root);
        match &mut data {
            Data::Float(values) => values.push(value.float()),
            Data::Integer(values) => values.push(value.integer()),
        }
        point.advance(&shape);
    }
    Array { shape, data }
}

impl<'a> Point<'a> {
    fn first(dag: &'a Dag, operands: &'a [&'a Array], sizes: &'a [i64], rank: usize) -> Self {
        let reads = |id: usize, axis: usize| dag.coords(ExprId(id as u32)).checked_shr(axis as u32).unwrap_or(0) != 0;
        let readers = (0..rank).map(|axis| (0..dag.len()).filter(|&id| reads(id, axis)).collect()).collect();
        Self { dag, operands, sizes, coords: vec![0; rank], memo: vec![None; dag.len()], readers, stack: vec![] }
    }

    /// Goes to the next point, in row-major order.
    fn advance(&mut self, shape: &[usize]) {
        for (axis, &extent) in shape.iter().enumerate().rev() {
            self.coords[axis] += 1;
            if self.coords[axis] < extent as i64 {
                self.readers[axis].iter().for_each(|&id| self.memo[id] = None);
                return;
            }
            self.coords[axis] = 0;
        }
    }

    /// The value of an expression, computed after its operands without recursion: concatenations of many parts nest
    /// deeply.
    fn at(&mut self, root: ExprId) -> Number {
        if let Some(value) = self.known(root) {
            return value;
        }
        let below = self.stack.len();
        self.stack.push(root);
        while self.stack.len() > below {
            let id = self.stack[self.stack.len() - 1];
            if let Some(missing) = self.missing(id) {
                self.stack.push(missing);
                continue;
            }
            let value = self.value(self.dag, id, |id| self.known(id).unwrap_or(Number::Float(f64::NAN)));
            if let Some(place) = self.memo.get_mut(id.0 as usize) {
                *place = Some(value);
            }
            self.stack.pop();
        }
        self.known(root).unwrap_or(Number::Float(f64::NAN))
    }

    fn known(&self, id: ExprId) -> Option<Number> {
        self.memo.get(id.0 as usize).copied().flatten()
    }

    /// The first operand of an expression that is not computed yet. A choice needs only the side that it selects.
    fn missing(&self, id: ExprId) -> Option<ExprId> {
        let is_missing = |id: &ExprId| self.known(*id).is_none();
        match self.dag.expr(id) {
            Expr::Unary(_, a) | Expr::Cast(_, a) => Some(*a).filter(is_missing),
            Expr::Binary(_, a, b) => [*a, *b].into_iter().find(is_missing),
            Expr::Select(condition, a, b) => match self.known(*condition) {
                None => Some(*condition),
                Some(taken) => Some(if taken.integer() != 0 { *a } else { *b }).filter(is_missing),
            },
            Expr::Load { index: read, .. } | Expr::Call { arguments: read, .. } => {
                read.iter().copied().find(is_missing)
            }
            expr => expr.operands().into_iter().find(is_missing),
        }
    }
}

impl pointwise::Point for Point<'_> {
    fn coord(&self, axis: u8) -> i64 {
        self.coords[usize::from(axis)]
    }

    fn size(&self, position: u16) -> i64 {
        self.sizes[usize::from(position)]
    }

    fn accumulated(&self, _: u8) -> Number {
        Number::Float(f64::NAN)
    }

    fn load(&self, operand: u16, index: &[i64], scalar: Scalar) -> Number {
        let array = self.operands[usize::from(operand)];
        match (array.offset(index.iter().copied()), scalar) {
            (Some(offset), Scalar::F32) => Number::Float(array.float(offset)),
            (Some(offset), scalar) => Number::Integer(scalar.wrap(array.integer(offset))),
            (None, Scalar::F32) => Number::Float(0.0),
            (None, _) => Number::Integer(0),
        }
    }

    fn sample(&self, offsets: u16, row: i64) -> i64 {
        self.operands[usize::from(offsets)].count_until(row) as i64 - 1
    }
}
