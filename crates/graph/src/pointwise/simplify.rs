use super::affine::Affine;
use super::dag::{Dag, Expr, ExprId};
use super::functions::BinaryOp;
use crate::Scalar;

impl Dag {
    pub(super) fn simplify_bool(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (constant, other) = match (self.expr(a), self.expr(b)) {
            (&Expr::Bool(value), _) => (value, b),
            (_, &Expr::Bool(value)) => (value, a),
            _ if a == b && matches!(op, BinaryOp::And | BinaryOp::Or) => return Some(a),
            _ => return None,
        };
        match (op, constant) {
            (BinaryOp::And, true) | (BinaryOp::Or, false) => Some(other),
            (BinaryOp::And, false) | (BinaryOp::Or, true) => Some(self.constant(Scalar::Bool, i64::from(constant))),
            _ => None,
        }
    }

    pub(super) fn simplify_int(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        match op {
            BinaryOp::Add | BinaryOp::Sub => {
                let sign = if op == BinaryOp::Add { 1 } else { -1 };
                self.sum_of(self.affine(a).plus(&self.affine(b), sign)?)
            }
            BinaryOp::Mul => self.scaled(a, b),
            BinaryOp::Div | BinaryOp::Mod => self.divided(op, a, b),
            BinaryOp::Min | BinaryOp::Max => {
                let ((x0, x1), (y0, y1)) = (self.range(a)?, self.range(b)?);
                let (below, above) = if op == BinaryOp::Min { (a, b) } else { (b, a) };
                if a == b || x1 <= y0 {
                    Some(below)
                } else if y1 <= x0 {
                    Some(above)
                } else {
                    None
                }
            }
            _ if op.is_comparison() => {
                let bounds = self.interval(op, a, b)?;
                let known = if a == b { op.evaluate_int(Scalar::I32, 0, 0) } else { bounds.low };
                (a == b || bounds.low == bounds.high).then(|| self.constant(Scalar::Bool, known))
            }
            _ => None,
        }
    }

    /// Simplifies `x / c * c + x mod c` to `x`.
    pub(super) fn rejoined(&self, mut sum: Affine<ExprId>) -> Option<Affine<ExprId>> {
        while let Some((pair, x, factor)) = self.split_pair(&sum) {
            sum = sum.minus(&pair)?.plus(&self.affine(x), factor)?;
        }
        Some(sum)
    }

    /// Finds terms `f c (x / c) + f (x mod c)` of a sum, and returns `x` and `f`.
    fn split_pair(&self, sum: &Affine<ExprId>) -> Option<(Affine<ExprId>, ExprId, i128)> {
        sum.terms().find_map(|(rest, factor)| {
            let &Expr::Binary(BinaryOp::Mod, x, divisor) = self.expr(rest) else { return None };
            let &Expr::Int(_, value @ (..=-1 | 1..)) = self.expr(divisor) else { return None };
            let quotient = self.find(&Expr::Binary(BinaryOp::Div, x, divisor))?;
            let multiple = factor.checked_mul(value.into())?;
            let pair = Affine::unknown(rest).times(factor)?.plus(&Affine::unknown(quotient), multiple)?;
            (sum.multiple_of(&quotient) == multiple).then_some((pair, x, factor))
        })
    }

    fn sum_of(&mut self, sum: Affine<ExprId>) -> Option<ExprId> {
        let sum = self.rejoined(sum)?;
        let mut total: Option<ExprId> = None;
        for (unknown, multiple) in sum.terms() {
            let multiple = wrapped(multiple);
            if multiple != 0 {
                let term = self.multiple(unknown, multiple);
                total = Some(total.map_or(term, |total| self.add(total, term)));
            }
        }
        let constant = wrapped(sum.offset());
        Some(match total {
            Some(total) if constant == 0 => total,
            Some(total) => {
                let constant = self.int(constant);
                self.add(total, constant)
            }
            None => self.int(constant),
        })
    }

    fn add(&mut self, a: ExprId, b: ExprId) -> ExprId {
        let range = self.binary_range(BinaryOp::Add, a, b);
        self.push(Expr::Binary(BinaryOp::Add, a, b), Scalar::I32, range)
    }

    fn multiple(&mut self, atom: ExprId, factor: i64) -> ExprId {
        if factor == 1 {
            return atom;
        }
        let factor = self.int(factor);
        let range = self.binary_range(BinaryOp::Mul, atom, factor);
        self.push(Expr::Binary(BinaryOp::Mul, atom, factor), Scalar::I32, range)
    }

    fn scaled(&mut self, a: ExprId, b: ExprId) -> Option<ExprId> {
        let (factor, other) = match (self.expr(a), self.expr(b)) {
            (&Expr::Int(_, factor), _) => (factor, b),
            (_, &Expr::Int(_, factor)) => (factor, a),
            _ => return None,
        };
        self.sum_of(self.affine(other).times(factor.into())?)
    }

    /// Splits the dividend into a multiple of the divisor and a rest, if neither wraps around.
    fn divided(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let &Expr::Int(_, divisor) = self.expr(b) else { return None };
        if divisor <= 0 {
            return None;
        }
        self.range(a)?;
        let (quotient, rest) = self.affine(a).divided(divisor.into());
        let is_whole = quotient == Affine::default();
        let rest = self.sum_of(rest)?;
        let (low, high) = self.range(rest)?;
        let is_within = low >= 0 && high < divisor;
        if !is_within && is_whole {
            return None;
        }
        if op == BinaryOp::Mod {
            return Some(if is_within { rest } else { self.binary(BinaryOp::Mod, rest, b) });
        }
        let quotient = self.sum_of(quotient)?;
        let carried = if is_within { self.int(0) } else { self.binary(BinaryOp::Div, rest, b) };
        self.sum_of(self.affine(quotient).plus(&self.affine(carried), 1)?)
    }
}

/// A multiple wrapped to 32 bits.
fn wrapped(multiple: i128) -> i64 {
    i64::from(multiple as i32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;
    use crate::pointwise::UnaryOp;

    /// Integers near which sums, products and quotients wrap around or change sign.
    const EXTREMES: [i64; 16] = [
        0,
        1,
        -1,
        2,
        -3,
        4,
        7,
        -25,
        100,
        65_536,
        -46_341,
        (1 << 30) + 1,
        i32::MAX as i64,
        i32::MAX as i64 - 1,
        i32::MIN as i64,
        i32::MIN as i64 + 1,
    ];

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % n
        }
    }

    /// Evaluates an expression at a point: the value of each coordinate, and of the elements of operand 0.
    fn evaluate(dag: &Dag, id: ExprId, coords: &[i64], elements: &[i64]) -> i64 {
        let at = |id| evaluate(dag, id, coords, elements);
        match *dag.expr(id) {
            Expr::Int(_, value) => value,
            Expr::Bool(value) => value.into(),
            Expr::Coord(axis) => coords[usize::from(axis)],
            Expr::Load { operand, .. } => elements[usize::from(operand)],
            Expr::Unary(op, a) => op.evaluate_int(dag.scalar(a), at(a)),
            Expr::Binary(op, a, b) => op.evaluate_int(dag.scalar(a), at(a), at(b)),
            Expr::Select(c, a, b) => at(if at(c) != 0 { a } else { b }),
            Expr::Cast(to, a) => to.wrap(at(a)),
            ref other => panic!("{other:?}"),
        }
    }

    /// An expression with its values at all points, computed independently.
    type Known = (ExprId, Vec<i64>);

    fn grow(dag: &mut Dag, random: &mut Random, known: &[Known]) -> Known {
        use BinaryOp::*;
        const OPS: [BinaryOp; 15] = [Add, Sub, Mul, Div, Mod, Min, Max, And, Or, Eq, Ne, Lt, Le, Gt, Ge];
        let pick = |random: &mut Random, dag: &Dag, scalar: Option<Scalar>| -> Known {
            let fits = |known: &&Known| scalar.is_none_or(|scalar| dag.scalar(known.0) == scalar);
            let fitting: Vec<&Known> = known.iter().filter(fits).collect();
            fitting[random.below(fitting.len())].clone()
        };
        let (a, x) = pick(random, dag, None);
        let scalar = dag.scalar(a);
        let (b, y) = pick(random, dag, Some(scalar));
        match random.below(8) {
            0 => {
                let op = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Not][random.below(3)];
                if !op.accepts(scalar) {
                    return (a, x);
                }
                (dag.unary(op, a), x.iter().map(|&x| op.evaluate_int(scalar, x)).collect())
            }
            1 => {
                let to = [Scalar::I32, Scalar::I64, Scalar::Bool][random.below(3)];
                (dag.cast(to, a), x.iter().map(|&x| to.wrap(x)).collect())
            }
            2 => {
                let (c, z) = pick(random, dag, Some(Scalar::Bool));
                let chosen = z.iter().zip(x.iter().zip(&y)).map(|(&z, (&x, &y))| if z != 0 { x } else { y });
                (dag.select(c, a, b), chosen.collect())
            }
            _ => {
                let op = OPS[random.below(OPS.len())];
                if !op.accepts(scalar) {
                    return (a, x);
                }
                let values = x.iter().zip(&y).map(|(&x, &y)| op.evaluate_int(scalar, x, y)).collect();
                (dag.binary(op, a, b), values)
            }
        }
    }

    #[test]
    fn simplified_expressions_keep_their_values_and_bounds() {
        for seed in 0..400 {
            let random = &mut Random(seed);
            let mut dag = Dag::new();
            let extents = [Some(5), None, Some([1, 25, 100, 1 << 20, i32::MAX as usize][random.below(5)])];
            let points: Vec<Vec<i64>> = (0..24)
                .map(|_| {
                    let coordinate = |random: &mut Random, extent: Option<usize>| {
                        let most = extent.map_or(i64::from(i32::MAX), |n| n as i64 - 1);
                        let any = [0, 1, most - 1, most, most / 2, random.below(most as usize + 1) as i64];
                        any[random.below(6)].clamp(0, most)
                    };
                    let mut point: Vec<i64> = extents.iter().map(|&extent| coordinate(random, extent)).collect();
                    point.extend([0, 1].map(|_| EXTREMES[random.below(16)]));
                    point.push([EXTREMES[random.below(16)], i64::MIN, i64::MAX, 1 << 53][random.below(4)]);
                    point
                })
                .collect();
            let mut known: Vec<Known> = vec![];
            for (axis, &extent) in extents.iter().enumerate() {
                known.push((dag.coord(axis as u8, extent), points.iter().map(|point| point[axis]).collect()));
            }
            let index = known[0].0;
            for (operand, dtype) in [DType::I32, DType::I32, DType::I64].into_iter().enumerate() {
                let load = dag.load(operand as u16, dtype, vec![index]);
                known.push((load, points.iter().map(|point| point[3 + operand]).collect()));
            }
            for value in [EXTREMES[random.below(16)], EXTREMES[random.below(9)], EXTREMES[random.below(9)]] {
                known.push((dag.int(value), vec![value; points.len()]));
            }
            known.push((dag.constant(Scalar::I64, i64::MIN + 1), vec![i64::MIN + 1; points.len()]));
            known.push((dag.constant(Scalar::Bool, 1), vec![1; points.len()]));
            for _ in 0..40 {
                let new = grow(&mut dag, random, &known);
                known.push(new);
            }
            for (id, values) in known {
                for (point, value) in points.iter().zip(values) {
                    let (coords, elements) = point.split_at(3);
                    let got = evaluate(&dag, id, coords, elements);
                    assert_eq!(got, value, "seed {seed}, expression {} at {point:?}: {dag:?}", id.0);
                    let (low, high) = dag.range(id).unwrap_or((i64::MIN, i64::MAX));
                    assert!((low..=high).contains(&value), "seed {seed}, expression {} is {value}: {dag:?}", id.0);
                }
            }
        }
    }

    #[test]
    fn products_that_may_wrap_around_are_not_divided() {
        let mut dag = Dag::new();
        let four = dag.int(4);
        let (any, few) = (dag.coord(0, None), dag.coord(1, Some(1 << 20)));
        let [divided, exact] = [any, few].map(|x| {
            let product = dag.binary(BinaryOp::Mul, x, four);
            dag.binary(BinaryOp::Div, product, four)
        });
        assert_ne!(divided, any);
        assert_eq!(exact, few);
    }
}
