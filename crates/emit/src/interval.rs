//! WGSL that computes the bounds of an attention mask over a tile of rows and keys (interval arithmetic).

use super::EmitError;
use super::coords::Coords;
use super::expr::Code;
use super::function::{self, float_literal, int_literal};
use super::module::Module;
use rewire_graph::Scalar;
use rewire_graph::pointwise::functions::Declaration;
use rewire_graph::pointwise::{Algebra, BinaryOp, Expr, ExprId, Interval, UnaryOp};
use std::borrow::Cow;
use std::collections::HashMap;

/// Bounds over the tile in WGSL.
type Bounds = Interval<String>;

/// Both bounds of an integer as one WGSL value.
fn pair(bounds: &Bounds) -> String {
    format!("vec2<i32>({}, {})", bounds.low, bounds.high)
}

fn undecided() -> Bounds {
    Interval::new("false".to_owned(), "true".to_owned())
}

/// The domain of WGSL expressions of a scalar type.
struct Texts(Scalar);

/// An operand of an operator.
fn grouped(text: &str) -> Cow<'_, str> {
    let is_name = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    if is_name { text.into() } else { format!("({text})").into() }
}

impl Texts {
    /// The WGSL of a function, also for bools.
    fn text(&self, of: &Declaration, a: &str, b: &str) -> String {
        let wgsl = of.wgsl(self.0).or(of.wgsl(Scalar::Bool));
        wgsl.map_or_else(String::new, |wgsl| wgsl.text(false, &grouped(a), &grouped(b)))
    }
}

impl Algebra for Texts {
    type Value = String;

    fn constant(&mut self, scalar: Scalar, value: f64) -> String {
        match scalar {
            Scalar::F32 => float_literal(value as f32),
            Scalar::Bool => (value != 0.0).to_string(),
            Scalar::I32 | Scalar::I64 => int_literal(scalar, value as i64),
        }
    }

    fn unary(&mut self, op: UnaryOp, a: &String) -> String {
        self.text(op.declaration(), a, "")
    }

    fn binary(&mut self, op: BinaryOp, a: &String, b: &String) -> String {
        self.text(op.declaration(), a, b)
    }

    fn select(&mut self, condition: &String, a: &String, b: &String) -> String {
        format!("select({b}, {a}, {condition})")
    }

    fn known(&self, value: &String) -> Option<i64> {
        value.parse().ok()
    }
}

/// Statements that classify a tile as fully, partially or not included by the mask.
pub(super) struct TileState {
    /// Statements that evaluate values that are the same for all pairs of a sample.
    pub exact: String,
    /// Statements for each row `i` that update the minimum and maximum of values that depend on the row.
    pub rows: String,
    /// Number of these values.
    pub row_bounds: usize,
    /// Statements for each tile `i0..=i1`, `j0..=j1`: `possible` if a pair may be included, `always` if all are. They
    /// assume that no integer wraps around in the tile, which `wraps` checks.
    pub tile: String,
    /// A condition, valid after the statements of a tile, that is true if integers may wrap around in it. Empty if none
    /// can.
    pub wraps: String,
}

/// The coordinates of rows and of keys.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub row: u8,
    pub key: u8,
}

impl Pair {
    fn depends_on_row(self, module: &Module, id: ExprId) -> bool {
        module.body.dag.coords(id) >> self.row & 1 == 1
    }

    fn depends_on_key(self, module: &Module, id: ExprId) -> bool {
        module.body.dag.coords(id) >> self.key & 1 == 1
    }

    fn depends(self, module: &Module, id: ExprId) -> bool {
        self.depends_on_row(module, id) || self.depends_on_key(module, id)
    }
}

struct Analysis {
    pair: Pair,
    exact: Code,
    row: Code,
    tile: Code,
    row_bounds: usize,
    wraps: Vec<String>,
    known: HashMap<ExprId, Option<Bounds>>,
}

/// Bounds of `mask`, a boolean function of the coordinates of an `entry` and of a row and a key. Uses values that are
/// available in `exact`, the code of the entry point, instead of private variables: conditions around barriers must be
/// uniform, and browsers cannot prove that private variables are.
pub(super) fn tile_state(
    module: &mut Module,
    exact: Code,
    entry: Coords,
    pair: Pair,
    mask: ExprId,
) -> Result<TileState, EmitError> {
    let mut analysis = Analysis {
        pair,
        exact,
        row: Code::point(&entry.with(pair.row, "i"), &[]),
        tile: Code::point(&Coords::default(), &[]),
        row_bounds: 0,
        wraps: vec![],
        known: HashMap::new(),
    };
    let mut bounds = analysis.truth(module, mask)?;
    if !analysis.wraps.is_empty() {
        bounds = Interval::new(format!("!wraps && ({})", bounds.low), format!("wraps || ({})", bounds.high));
    }
    analysis.tile.line(&format!("let always = {};", bounds.low));
    analysis.tile.line(&format!("let possible = {};", bounds.high));
    Ok(TileState {
        exact: analysis.exact.take(),
        rows: analysis.row.take(),
        row_bounds: analysis.row_bounds,
        tile: analysis.tile.take(),
        wraps: analysis.wraps.join(" || "),
    })
}

impl Analysis {
    fn truth(&mut self, module: &mut Module, id: ExprId) -> Result<Bounds, EmitError> {
        Ok(self.bounds(module, id)?.unwrap_or_else(undecided))
    }

    /// The bounds of an operand; a bool always has bounds.
    fn operand(&mut self, module: &mut Module, id: ExprId) -> Result<Option<Bounds>, EmitError> {
        if module.body.dag.scalar(id) == Scalar::Bool {
            self.truth(module, id).map(Some)
        } else {
            self.bounds(module, id)
        }
    }

    /// The bounds of `root`, computed after the bounds of its operands without recursion, since masks may be long.
    fn bounds(&mut self, module: &mut Module, root: ExprId) -> Result<Option<Bounds>, EmitError> {
        let unknown = |id: &ExprId| !self.known.contains_key(id);
        let parts = |id| combined_from(module, self.pair, id).into_iter().filter(unknown).collect();
        let order = if unknown(&root) { module.body.dag.ordered(&[root], parts) } else { vec![] };
        for id in order {
            let bounds = self.bounded(module, id)?;
            self.known.insert(id, bounds);
        }
        Ok(self.known.get(&root).cloned().flatten())
    }

    fn bounded(&mut self, module: &mut Module, id: ExprId) -> Result<Option<Bounds>, EmitError> {
        let dag = &module.body.dag;
        let (pair, scalar) = (self.pair, dag.scalar(id));
        let keyed = pair.depends_on_key(module, id);
        Ok(if is_unknown(module, pair, id) {
            None
        } else if !pair.depends(module, id) {
            Some(Interval::point(self.exact.eval_one(module, id)?.first()))
        } else if !keyed && varies_in_memory(module, pair, id) {
            Some(self.over_rows(module, id, scalar)?)
        } else {
            match self.combined(module, id)? {
                Some(bounds) => Some(self.named(module, bounds)),
                None if !keyed => Some(self.over_rows(module, id, scalar)?),
                None => None,
            }
        })
    }

    fn named(&mut self, module: &mut Module, bounds: Bounds) -> Bounds {
        let (low, high) = (module.name(), module.name());
        self.tile.line(&format!("let {low} = {};", bounds.low));
        self.tile.line(&format!("let {high} = {};", bounds.high));
        Interval::new(low, high)
    }

    /// The bounds of a value that depends only on the row: its minimum and maximum over the rows of the tile.
    fn over_rows(&mut self, module: &mut Module, id: ExprId, scalar: Scalar) -> Result<Bounds, EmitError> {
        let n = self.row_bounds;
        self.row_bounds += 1;
        let value = self.row.eval_one(module, id)?.first();
        let (low, high, read): (String, String, fn(String) -> String) = match scalar {
            // Any value may be NaN.
            Scalar::F32 => {
                let ordered =
                    |limit| format!("ordered_bits(select({value}, {}, is_nan({value})))", float_literal(limit));
                let read = |bits| format!("from_ordered_bits({bits})");
                (ordered(f32::NEG_INFINITY), ordered(f32::INFINITY), read)
            }
            Scalar::Bool => (format!("i32({value})"), format!("i32({value})"), |bits| format!("({bits} != 0)")),
            Scalar::I32 | Scalar::I64 => (value.clone(), value, |bits| bits),
        };
        self.row.line(&format!("atomicMin(&row_low[{n}], {low});"));
        self.row.line(&format!("atomicMax(&row_high[{n}], {high});"));
        Ok(Interval::new(read(format!("bounds{n}.x")), read(format!("bounds{n}.y"))))
    }

    fn combined(&mut self, module: &mut Module, id: ExprId) -> Result<Option<Bounds>, EmitError> {
        let dag = &module.body.dag;
        let scalar = dag.scalar(id);
        let may_wrap = scalar == Scalar::I32 && dag.range(id).is_none();
        match *dag.expr(id) {
            Expr::Coord(axis) if axis == self.pair.row => Ok(Some(Interval::new("i0".to_owned(), "i1".to_owned()))),
            Expr::Coord(axis) if axis == self.pair.key => Ok(Some(Interval::new("j0".to_owned(), "j1".to_owned()))),
            Expr::Unary(op, a) => {
                let Some(a) = self.operand(module, a)? else { return Ok(None) };
                if may_wrap {
                    self.wraps.extend(unary_wraps(op, &a));
                }
                Ok(op.interval(&mut Texts(scalar), scalar, &a))
            }
            Expr::Binary(op, a, b) => {
                let kind = dag.scalar(a);
                let (Some(a), Some(b)) = (self.operand(module, a)?, self.operand(module, b)?) else { return Ok(None) };
                if may_wrap {
                    self.wraps.extend(binary_wraps(op, &a, &b));
                }
                Ok(op.interval(&mut Texts(kind), kind, [&a, &b]))
            }
            Expr::Cast(to, a) => {
                let from = dag.scalar(a);
                Ok(self.bounds(module, a)?.and_then(|a| cast(from, to, &a)))
            }
            Expr::Select(condition, a, b) => self.choice(module, condition, a, b),
            _ => Ok(None),
        }
    }

    /// The bounds of a select. A side that reads memory may only be evaluated if it is selected, so its bounds are
    /// unknown.
    fn choice(
        &mut self,
        module: &mut Module,
        condition: ExprId,
        a: ExprId,
        b: ExprId,
    ) -> Result<Option<Bounds>, EmitError> {
        let scalar = module.body.dag.scalar(a);
        let c = self.truth(module, condition)?;
        let mut sides = Vec::with_capacity(2);
        for side in [a, b] {
            let bounds = if reads_memory(module, side) { None } else { self.bounds(module, side)? };
            sides.push(if scalar == Scalar::Bool { Some(bounds.unwrap_or_else(undecided)) } else { bounds });
        }
        let [Some(a), Some(b)] = &sides[..] else { return Ok(None) };
        Ok(Some(Interval::select(&mut Texts(scalar), scalar, &c, [a, b])))
    }
}

/// True for expressions without bounds. Functions of a loaded float, which may be NaN, have none.
fn is_unknown(module: &Module, pair: Pair, id: ExprId) -> bool {
    let dag = &module.body.dag;
    let scalar = dag.scalar(id);
    // Functions of a loaded float, which may be NaN, have no bounds.
    let may_be_nan = || match *dag.expr(id) {
        Expr::Float(bits) => f32::from_bits(bits).is_nan(),
        _ => scalar == Scalar::F32 && pair.depends_on_key(module, id) && reads_memory(module, id),
    };
    dag.values(id) != 0 || scalar == Scalar::I64 || may_be_nan()
}

/// The expressions from which bounds are computed, in order.
fn combined_from(module: &Module, pair: Pair, id: ExprId) -> Vec<ExprId> {
    let dag = &module.body.dag;
    let is_combined = !is_unknown(module, pair, id)
        && pair.depends(module, id)
        && (pair.depends_on_key(module, id) || !varies_in_memory(module, pair, id));
    match *dag.expr(id) {
        _ if !is_combined => vec![],
        Expr::Unary(_, a) | Expr::Cast(_, a) => vec![a],
        Expr::Binary(_, a, b) => vec![a, b],
        Expr::Select(condition, a, b) => {
            let sides = [a, b].into_iter().filter(|&side| !reads_memory(module, side));
            std::iter::once(condition).chain(sides).collect()
        }
        _ => vec![],
    }
}

fn reads_memory(module: &Module, root: ExprId) -> bool {
    let dag = &module.body.dag;
    dag.reachable(&[root]).into_iter().any(|id| is_read(dag.expr(id)))
}

/// True if the bounds of a row's value do not follow from bounds of the row's position.
fn varies_in_memory(module: &Module, pair: Pair, root: ExprId) -> bool {
    let dag = &module.body.dag;
    let parts = dag.reachable(&[root]);
    let chooses = parts.iter().any(|&id| matches!(dag.expr(id), Expr::Select(..)));
    let varies = parts.iter().any(|&id| pair.depends_on_row(module, id) && is_read(dag.expr(id)));
    varies || chooses && reads_memory(module, root)
}

fn is_read(expr: &Expr) -> bool {
    matches!(expr, Expr::Load { .. } | Expr::Sample { .. } | Expr::Uniform { .. })
}

/// The WGSL condition under which an integer function wraps around; `None` if it never does.
fn unary_wraps(op: UnaryOp, a: &Bounds) -> Option<String> {
    match op {
        UnaryOp::Neg => Some(format!("sub_wraps(vec2<i32>(0), {})", pair(a))),
        UnaryOp::Abs => Some(format!("{} == i32(-2147483648)", a.low)),
        _ => None,
    }
}

/// The WGSL condition under which an integer function wraps around; `None` if it never does.
fn binary_wraps(op: BinaryOp, a: &Bounds, b: &Bounds) -> Option<String> {
    let name = match op {
        BinaryOp::Add => "add_wraps",
        BinaryOp::Sub => "sub_wraps",
        BinaryOp::Mul => "mul_wraps",
        _ => return None,
    };
    Some(format!("{name}({}, {})", pair(a), pair(b)))
}

fn cast(from: Scalar, to: Scalar, a: &Bounds) -> Option<Bounds> {
    use Scalar::{Bool, F32, I32};
    let grows = matches!((from, to), (I32 | Bool, F32) | (F32 | Bool, I32));
    grows.then(|| a.map(|end| function::cast(from, to, end, false).code))
}
