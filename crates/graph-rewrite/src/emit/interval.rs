//! The mask of attention over a tile of rows and keys: WGSL that computes its bounds.

use super::EmitError;
use super::coords::Coords;
use super::expr::Scope;
use super::function::float_literal;
use super::module::Module;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId, UnaryOp};
use std::collections::HashMap;

/// Smallest and largest value over the tile; of a truth value, whether it holds everywhere and anywhere.
#[derive(Clone)]
struct Bounds {
    low: String,
    high: String,
}

impl Bounds {
    fn point(text: String) -> Self {
        Self { low: text.clone(), high: text }
    }

    /// Both, of integers, as one value in WGSL.
    fn pair(&self) -> String {
        format!("vec2<i32>({}, {})", self.low, self.high)
    }

    fn undecided() -> Self {
        Self { low: "false".to_owned(), high: "true".to_owned() }
    }
}

/// Statements that decide a tile.
pub(super) struct TileState {
    /// Statements that evaluate what is the same for the whole sample.
    pub exact: String,
    /// Statements for each row `i`, which combine what is read from rows.
    pub rows: String,
    /// Number of such values.
    pub row_bounds: usize,
    /// Statements for each tile `i0..=i1`, `j0..=j1`: `possible` if a pair may count, `always` if all do. They take it that
    /// no integer wraps around in the tile, unless `wraps` says so.
    pub tile: String,
    /// Truth of whether one does, after the statements of a tile: of none within a tile in which none does. Empty where
    /// none ever does.
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
    exact: Scope,
    row: Scope,
    tile: Scope,
    row_bounds: usize,
    wraps: Vec<String>,
    known: HashMap<ExprId, Option<Bounds>>,
}

/// Bounds of `mask`, a truth value of the coordinates of an `entry` and of a row and a key.
pub(super) fn tile_state(module: &mut Module, entry: Coords, pair: Pair, mask: ExprId) -> Result<TileState, EmitError> {
    let mut analysis = Analysis {
        pair,
        exact: Scope::point(&entry, &[]),
        row: Scope::point(&entry.with(pair.row, "i"), &[]),
        tile: Scope::point(&Coords::default(), &[]),
        row_bounds: 0,
        wraps: vec![],
        known: HashMap::new(),
    };
    let mut bounds = analysis.truth(module, mask)?;
    if !analysis.wraps.is_empty() {
        bounds = Bounds { low: format!("!wraps && ({})", bounds.low), high: format!("wraps || ({})", bounds.high) };
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
        Ok(self.bounds(module, id)?.unwrap_or_else(Bounds::undecided))
    }

    /// The bounds of `root`, after those that they are combined from: long masks do not nest calls.
    fn bounds(&mut self, module: &mut Module, root: ExprId) -> Result<Option<Bounds>, EmitError> {
        let mut stack = vec![root];
        while let Some(&id) = stack.last() {
            let is_known = self.known.contains_key(&id);
            let parts = if is_known { vec![] } else { combined_from(module, self.pair, id) };
            let before = stack.len();
            stack.extend(parts.into_iter().rev().filter(|part| !self.known.contains_key(part)));
            if stack.len() == before {
                if !is_known {
                    let bounds = self.bounded(module, id)?;
                    self.known.insert(id, bounds);
                }
                stack.pop();
            }
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
            Some(Bounds::point(self.exact.eval_one(module, id)?.first()))
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
        Bounds { low, high }
    }

    /// A value of the row alone: its extremes over the rows of the tile.
    fn over_rows(&mut self, module: &mut Module, id: ExprId, scalar: Scalar) -> Result<Bounds, EmitError> {
        let n = self.row_bounds;
        self.row_bounds += 1;
        let value = self.row.eval_one(module, id)?.first();
        let (low, high, read): (String, String, fn(String) -> String) = match scalar {
            // NaN may be anywhere.
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
        Ok(Bounds { low: read(format!("bounds{n}.x")), high: read(format!("bounds{n}.y")) })
    }

    fn combined(&mut self, module: &mut Module, id: ExprId) -> Result<Option<Bounds>, EmitError> {
        let dag = &module.body.dag;
        let scalar = dag.scalar(id);
        let may_wrap = scalar == Scalar::I32 && dag.range(id).is_none();
        match *dag.expr(id) {
            Expr::Coord(axis) if axis == self.pair.row => {
                Ok(Some(Bounds { low: "i0".to_owned(), high: "i1".to_owned() }))
            }
            Expr::Coord(axis) if axis == self.pair.key => {
                Ok(Some(Bounds { low: "j0".to_owned(), high: "j1".to_owned() }))
            }
            Expr::Unary(op, a) => {
                let Some(a) = self.bounds(module, a)? else { return Ok(None) };
                if may_wrap {
                    self.wraps.extend(unary_wraps(op, &a));
                }
                Ok(unary(op, scalar, &a))
            }
            Expr::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) if scalar == Scalar::Bool => {
                let (a, b) = (self.truth(module, a)?, self.truth(module, b)?);
                let sign = if op == BinaryOp::And { "&&" } else { "||" };
                Ok(Some(Bounds {
                    low: format!("{} {sign} {}", a.low, b.low),
                    high: format!("{} {sign} {}", a.high, b.high),
                }))
            }
            Expr::Binary(op, a, b) => {
                let kind = dag.scalar(a);
                let constant = match *dag.expr(b) {
                    Expr::Int(_, value) => Some(value),
                    _ => None,
                };
                let (Some(a), Some(b)) = (self.bounds(module, a)?, self.bounds(module, b)?) else { return Ok(None) };
                if may_wrap {
                    self.wraps.extend(binary_wraps(op, &a, &b));
                }
                Ok(binary(op, kind, constant, &a, &b))
            }
            Expr::Cast(to, a) => {
                let from = dag.scalar(a);
                Ok(self.bounds(module, a)?.and_then(|a| cast(from, to, &a)))
            }
            Expr::Select(condition, a, b) => self.choice(module, condition, a, b),
            _ => Ok(None),
        }
    }

    /// A side that reads memory may be read only where it is taken, so it stays unknown.
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
            sides.push(if scalar == Scalar::Bool { Some(bounds.unwrap_or_else(Bounds::undecided)) } else { bounds });
        }
        let (Some(Some(b)), Some(Some(a))) = (sides.pop(), sides.pop()) else { return Ok(None) };
        Ok(Some(match scalar {
            Scalar::Bool => Bounds {
                low: format!("({0} && {1}) || (!{2} && {3}) || ({1} && {3})", c.low, a.low, c.high, b.low),
                high: format!("({} && {}) || (!{} && {})", c.high, a.high, c.low, b.high),
            },
            _ => {
                let pick = |both: &str, a: &str, b: &str| {
                    format!("select(select({both}({a}, {b}), {b}, !{}), {a}, {})", c.high, c.low)
                };
                Bounds { low: pick("min", &a.low, &b.low), high: pick("max", &a.high, &b.high) }
            }
        }))
    }
}

/// True for what has no bounds. What is made of a float that is read, and may be NaN, has none.
fn is_unknown(module: &Module, pair: Pair, id: ExprId) -> bool {
    let dag = &module.body.dag;
    let scalar = dag.scalar(id);
    // What is made of a float that is read, and may be NaN, has no bounds.
    let may_be_nan = || match *dag.expr(id) {
        Expr::Float(bits) => f32::from_bits(bits).is_nan(),
        _ => scalar == Scalar::F32 && pair.depends_on_key(module, id) && reads_memory(module, id),
    };
    dag.values(id) != 0 || scalar == Scalar::I64 || may_be_nan()
}

/// What the bounds of an expression are combined from, in the order in which they are.
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

/// True if bounds of a row's value do not follow from bounds of the row's position.
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

/// Whether a function of integers wraps around; `None` of functions that never do.
fn unary_wraps(op: UnaryOp, a: &Bounds) -> Option<String> {
    match op {
        UnaryOp::Neg => Some(format!("sub_wraps(vec2<i32>(0), {})", a.pair())),
        UnaryOp::Abs => Some(format!("{} == i32(-2147483648)", a.low)),
        _ => None,
    }
}

/// Whether a function of integers wraps around; `None` of functions that never do.
fn binary_wraps(op: BinaryOp, a: &Bounds, b: &Bounds) -> Option<String> {
    let name = match op {
        BinaryOp::Add => "add_wraps",
        BinaryOp::Sub => "sub_wraps",
        BinaryOp::Mul => "mul_wraps",
        _ => return None,
    };
    Some(format!("{name}({}, {})", a.pair(), b.pair()))
}

fn unary(op: UnaryOp, scalar: Scalar, a: &Bounds) -> Option<Bounds> {
    let monotone = |name: &str| Bounds { low: format!("{name}({})", a.low), high: format!("{name}({})", a.high) };
    Some(match op {
        UnaryOp::Not => Bounds { low: format!("!{}", a.high), high: format!("!{}", a.low) },
        UnaryOp::Neg => Bounds { low: format!("-{}", a.high), high: format!("-{}", a.low) },
        UnaryOp::Abs => {
            let zero = if scalar == Scalar::F32 { "0.0f" } else { "0" };
            Bounds {
                low: format!("max({zero}, max({}, -{}))", a.low, a.high),
                high: format!("max(abs({}), abs({}))", a.low, a.high),
            }
        }
        UnaryOp::Relu => Bounds { low: format!("max({}, 0.0f)", a.low), high: format!("max({}, 0.0f)", a.high) },
        UnaryOp::Floor => monotone("floor"),
        UnaryOp::Ceil => monotone("ceil"),
        UnaryOp::Trunc => monotone("trunc"),
        UnaryOp::Round => monotone("round"),
        _ => return None,
    })
}

fn binary(op: BinaryOp, kind: Scalar, constant: Option<i64>, a: &Bounds, b: &Bounds) -> Option<Bounds> {
    use BinaryOp::*;
    let (al, ah, bl, bh) = (&a.low, &a.high, &b.low, &b.high);
    if kind == Scalar::Bool {
        return None;
    }
    let both = |low: String, high: String| Some(Bounds { low, high });
    match op {
        Add => both(format!("{al} + {bl}"), format!("{ah} + {bh}")),
        Sub => both(format!("{al} - {bh}"), format!("{ah} - {bl}")),
        Mul => {
            let corners = |f: &str| format!("{f}({f}({al} * {bl}, {al} * {bh}), {f}({ah} * {bl}, {ah} * {bh}))");
            both(corners("min"), corners("max"))
        }
        Div if kind == Scalar::I32 && constant.is_some_and(|n| n > 0) => {
            both(format!("floor_div({al}, {bl})"), format!("floor_div({ah}, {bl})"))
        }
        Min => both(format!("min({al}, {bl})"), format!("min({ah}, {bh})")),
        Max => both(format!("max({al}, {bl})"), format!("max({ah}, {bh})")),
        Lt => both(format!("{ah} < {bl}"), format!("{al} < {bh}")),
        Le => both(format!("{ah} <= {bl}"), format!("{al} <= {bh}")),
        Gt => both(format!("{al} > {bh}"), format!("{ah} > {bl}")),
        Ge => both(format!("{al} >= {bh}"), format!("{ah} >= {bl}")),
        Eq => both(format!("{al} == {ah} && {bl} == {bh} && {al} == {bl}"), format!("{al} <= {bh} && {bl} <= {ah}")),
        Ne => both(format!("{al} > {bh} || {bl} > {ah}"), format!("!({al} == {ah} && {bl} == {bh} && {al} == {bl})")),
        _ => None,
    }
}

fn cast(from: Scalar, to: Scalar, a: &Bounds) -> Option<Bounds> {
    let name = match (from, to) {
        (Scalar::I32 | Scalar::Bool, Scalar::F32) => "f32",
        (Scalar::F32, Scalar::I32) => "i32_from_f32",
        (Scalar::Bool, Scalar::I32) => "i32",
        _ => return None,
    };
    Some(Bounds { low: format!("{name}({})", a.low), high: format!("{name}({})", a.high) })
}
