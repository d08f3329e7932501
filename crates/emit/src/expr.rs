//! Statements that evaluate expressions at one loop point, or at four neighbouring points.

mod choice;

use super::EmitError;
use super::coords::Coords;
use super::function::{self, OperandInfo, Text};
use super::module::Module;
use super::value::{COMPONENTS, WgslValue};
use rewire_graph::pointwise::{BinaryOp, Expr, ExprId, Lanes, UnaryOp};
use rewire_graph::{Ordered, Scalar};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::rc::Rc;

/// A block of WGSL statements, and the expressions whose values are available in it.
pub(super) struct Code {
    known: HashMap<ExprId, WgslValue>,
    coords: BTreeMap<u8, WgslValue>,
    values: BTreeMap<u8, WgslValue>,
    lanes: Rc<[Lanes]>,
    valid: Option<String>,
    text: String,
}

impl Code {
    /// Code for one point. `values` are available accumulators, by position.
    pub fn point(coords: &Coords, values: &[(u8, WgslValue)]) -> Self {
        let coords = coords.iter().map(|(axis, name)| (axis, WgslValue::Uniform(name.to_owned()))).ordered_map();
        let values = values.iter().cloned().ordered_map();
        Self { known: HashMap::new(), coords, values, lanes: Rc::from([]), valid: None, text: String::new() }
    }

    /// Code for four points along coordinate `axis`. The WGSL of the coordinate is the first of them, a multiple of
    /// four. `valid`, a `vec4<bool>`, masks the points that exist; all exist if `None`.
    pub fn four(module: &Module, axis: u8, coords: &Coords, values: &[(u8, WgslValue)], valid: Option<&str>) -> Self {
        let uniform = values.iter().filter(|(_, value)| !matches!(value, WgslValue::Vector(_) | WgslValue::Split(_)));
        let uniform = uniform.fold(0, |bits, (n, _)| bits | 1 << n);
        let mut code = Self::point(coords, values);
        if let Some(WgslValue::Uniform(text)) = code.coords.get(&axis).cloned() {
            code.coords.insert(axis, WgslValue::Consecutive(text));
        }
        code.lanes = Lanes::with_uniform_values(&module.body.dag, axis, uniform).into();
        code.valid = valid.map(str::to_owned);
        code
    }

    /// An empty inner block in which the values of this block are available.
    pub fn inner(&self) -> Self {
        Self {
            known: self.known.clone(),
            coords: self.coords.clone(),
            values: self.values.clone(),
            lanes: self.lanes.clone(),
            valid: self.valid.clone(),
            text: String::new(),
        }
    }

    /// Changes the value of a coordinate that no available value depends on.
    pub fn move_to(&mut self, axis: u8, name: &str) {
        self.coords.insert(axis, WgslValue::Uniform(name.to_owned()));
    }

    /// An inner block for one of four points.
    fn lane(&self, lane: usize) -> Self {
        let only =
            |values: &BTreeMap<u8, WgslValue>| values.iter().map(|(&n, value)| (n, value.in_lane(lane))).ordered_map();
        Self {
            known: self.known.iter().map(|(&id, value)| (id, value.in_lane(lane))).collect(),
            coords: only(&self.coords),
            values: only(&self.values),
            lanes: Rc::from([]),
            valid: self.valid.as_ref().map(|valid| format!("{valid}.{}", COMPONENTS[lane & 3])),
            text: String::new(),
        }
    }

    /// Adds the next accumulator, available from here on.
    pub fn supply(&mut self, value: WgslValue) {
        self.values.insert(self.values.len() as u8, value);
    }

    /// A bit mask of the available accumulators.
    pub fn supplied_values(&self) -> u32 {
        self.values.keys().fold(0, |bits, n| bits | 1 << n)
    }

    /// Makes values of `outer` available: accumulators, and expressions that do not depend on coordinate `axis`.
    pub fn learn_from(&mut self, module: &Module, outer: &Self, axis: u8) {
        self.values = outer.values.clone();
        if !self.lanes.is_empty() {
            let supplied = self.supplied_values();
            self.lanes = Lanes::with_uniform_values(&module.body.dag, axis, supplied).into();
        }
        for (&id, value) in &outer.known {
            self.known.entry(id).or_insert_with(|| value.clone());
        }
    }

    /// Adds the value of an expression.
    pub fn learn(&mut self, id: ExprId, value: WgslValue) {
        self.known.insert(id, value);
    }

    /// Adds statements.
    pub fn append(&mut self, text: &str) {
        self.text += text;
    }

    /// The mask of the points that exist; `None` if all do.
    pub fn valid(&self) -> Option<&str> {
        self.valid.as_deref()
    }

    /// Restricts the points that exist.
    pub fn restrict(&mut self, valid: String) {
        self.valid = Some(valid);
    }

    /// Adds a statement.
    pub fn line(&mut self, text: &str) {
        self.text += text;
        self.text.push('\n');
    }

    /// Adds a nested block, `head { body }`.
    pub fn block(&mut self, head: &str, body: &str) {
        let _ = writeln!(self.text, "{head} {{\n{}}}", indented(body));
    }

    /// Removes and returns the statements so far.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// The variation of an expression over the four points.
    pub fn class(&self, id: ExprId) -> Lanes {
        self.lanes.get(id.0 as usize).copied().unwrap_or(Lanes::Uniform { aligned: false })
    }

    /// Evaluates expressions.
    pub fn eval(&mut self, module: &mut Module, roots: &[ExprId]) -> Result<Vec<WgslValue>, EmitError> {
        for id in module.required(roots) {
            self.node(module, id)?;
        }
        roots
            .iter()
            .map(|root| {
                let count = module.body.dag.len();
                self.known.get(root).cloned().ok_or(EmitError::Missing {
                    what: "expression",
                    index: root.0 as usize,
                    count,
                })
            })
            .collect()
    }

    /// Evaluates the unconditional parts of `roots` that `select` accepts.
    pub fn eval_where(
        &mut self,
        module: &mut Module,
        roots: &[ExprId],
        accept: impl Fn(ExprId) -> bool,
    ) -> Result<(), EmitError> {
        module.required(roots).into_iter().filter(|&id| accept(id)).try_for_each(|id| self.node(module, id))
    }

    /// Evaluates one expression.
    pub fn eval_one(&mut self, module: &mut Module, root: ExprId) -> Result<WgslValue, EmitError> {
        self.eval(module, &[root]).map(|mut values| values.swap_remove(0))
    }

    fn node(&mut self, module: &mut Module, id: ExprId) -> Result<(), EmitError> {
        if self.known.contains_key(&id) {
            return Ok(());
        }
        if let Some(name) = module.computed(id) {
            self.known.insert(id, WgslValue::Uniform(name.to_owned()));
            return Ok(());
        }
        let dag = &module.body.dag;
        let scalar = dag.scalar(id);
        let value = match dag.expr(id) {
            &Expr::Float(bits) => WgslValue::of_constant(Scalar::F32, f32::from_bits(bits).into()),
            &Expr::Int(scalar, value) => WgslValue::Int(scalar, value),
            &Expr::Bool(value) => WgslValue::Bool(value),
            &Expr::Coord(axis) => supplied("coordinate", &self.coords, axis)?,
            &Expr::Value(position) => supplied("value", &self.values, position)?,
            &Expr::Size(position) => {
                let sizes = &module.body.sizes;
                let missing = EmitError::Missing { what: "size", index: position.into(), count: sizes.len() };
                let dim = sizes.get(position as usize).ok_or(missing)?;
                match dim.as_const() {
                    Some(n) => WgslValue::Int(Scalar::I32, n as i64),
                    None => WgslValue::Uniform(module.dim(dim)),
                }
            }
            Expr::Load { operand, index } => self.load(module, id, *operand, index)?,
            &Expr::Sample { offsets, row } => self.sample(module, id, offsets, row)?,
            &Expr::Uniform { seed, index } => self.uniform(module, id, seed, index)?,
            Expr::Call { function, arguments } => {
                let name = module.call(function);
                let code = |text: &[String], _| Ok(Text { code: format!("{name}({})", text.join(", ")), wide: false });
                self.apply(module, id, arguments, code)?
            }
            &Expr::Unary(op, a) => {
                let argument = self.get(module, a)?;
                let kind = dag.scalar(a);
                match argument {
                    WgslValue::Float(x) => WgslValue::of_constant(scalar, op.evaluate(x.into())),
                    WgslValue::Int(_, x) => WgslValue::Int(kind, op.evaluate_int(kind, x)),
                    WgslValue::Bool(x) => WgslValue::Bool(op.evaluate_int(kind, x.into()) != 0),
                    _ if let (UnaryOp::Round, &Expr::Binary(BinaryOp::Div, x, y)) = (op, dag.expr(a)) => {
                        let exact = |text: &[String], wide| function::quotient(&text[0], (&text[1], &text[2]), wide);
                        self.apply(module, id, &[a, x, y], |text, wide| {
                            function::unary(op, kind, &exact(text, wide), wide)
                        })?
                    }
                    _ => self.apply(module, id, &[a], |text, wide| function::unary(op, kind, &text[0], wide))?,
                }
            }
            &Expr::Binary(op, a, b) => self.binary(module, id, op, a, b)?,
            &Expr::Cast(to, a) => {
                let from = dag.scalar(a);
                match self.get(module, a)? {
                    WgslValue::Float(x) if to == Scalar::F32 => WgslValue::Float(x),
                    WgslValue::Float(x) => WgslValue::of_integer(to, to.truncate(x.into())),
                    WgslValue::Int(_, x) if to == Scalar::F32 => WgslValue::Float(x as f32),
                    WgslValue::Int(_, x) => WgslValue::of_integer(to, x),
                    WgslValue::Bool(x) if to == Scalar::F32 => WgslValue::Float(f32::from(u8::from(x))),
                    WgslValue::Bool(x) => WgslValue::of_integer(to, x.into()),
                    _ => self.apply(module, id, &[a], |text, wide| Ok(function::cast(from, to, &text[0], wide)))?,
                }
            }
            &Expr::Select(condition, a, b) => self.select(module, id, condition, a, b)?,
        };
        self.known.insert(id, value);
        Ok(())
    }

    fn get(&mut self, module: &mut Module, id: ExprId) -> Result<WgslValue, EmitError> {
        if let Some(value) = self.known.get(&id) {
            return Ok(value.clone());
        }
        self.eval_one(module, id)
    }

    fn bind(&mut self, module: &mut Module, code: &str) -> String {
        let name = module.name();
        self.line(&format!("let {name} = {code};"));
        name
    }

    /// The value of `id`, computed as a scalar in lane 0, if it is the same in all lanes or consecutive.
    fn scalar_form(&self, id: ExprId, name: String) -> WgslValue {
        match self.class(id) {
            Lanes::Consecutive { .. } => WgslValue::Consecutive(name),
            _ => WgslValue::Uniform(name),
        }
    }

    /// A function of `operands`: scalar if possible, else a `vec4` if the function supports it, else lane by lane.
    fn apply(
        &mut self,
        module: &mut Module,
        id: ExprId,
        operands: &[ExprId],
        code: impl Fn(&[String], bool) -> Result<Text, EmitError>,
    ) -> Result<WgslValue, EmitError> {
        let arguments = operands.iter().map(|&o| self.get(module, o)).collect::<Result<Vec<_>, _>>()?;
        let lane = |l: usize| arguments.iter().map(|a| a.lane(l)).collect::<Vec<_>>();
        if self.class(id) != Lanes::Varying {
            let name = self.bind(module, &code(&lane(0), false)?.code);
            return Ok(self.scalar_form(id, name));
        }
        let dag = &module.body.dag;
        if operands.iter().chain([&id]).all(|&o| dag.scalar(o) != Scalar::I64) {
            let wide: Vec<_> = arguments.iter().zip(operands).map(|(a, &o)| a.vector(dag.scalar(o))).collect();
            let text = code(&wide, true)?;
            if text.wide {
                return Ok(WgslValue::Vector(self.bind(module, &text.code)));
            }
        }
        self.split(module, |l| Ok(code(&lane(l), false)?.code))
    }

    fn split(
        &mut self,
        module: &mut Module,
        mut code: impl FnMut(usize) -> Result<String, EmitError>,
    ) -> Result<WgslValue, EmitError> {
        let mut part = |l| Ok::<_, EmitError>(self.bind(module, &code(l)?));
        Ok(WgslValue::Split([part(0)?, part(1)?, part(2)?, part(3)?]))
    }

    fn binary(
        &mut self,
        module: &mut Module,
        id: ExprId,
        op: BinaryOp,
        a: ExprId,
        b: ExprId,
    ) -> Result<WgslValue, EmitError> {
        let dag = &module.body.dag;
        let scalar = dag.scalar(a);
        if dag.scalar(b) != scalar {
            let place = format!("the right side of {}", op.name());
            return Err(EmitError::Type { place, expected: format!("{scalar:?}"), got: dag.scalar(b) });
        }
        let (left, right) = (self.get(module, a)?, self.get(module, b)?);
        match (&left, &right) {
            (&WgslValue::Float(x), &WgslValue::Float(y)) => {
                return Ok(WgslValue::of_constant(op.result(scalar), op.evaluate(x.into(), y.into())));
            }
            (&WgslValue::Int(_, x), &WgslValue::Int(_, y)) => {
                return Ok(WgslValue::of_integer(op.result(scalar), op.evaluate_int(scalar, x, y)));
            }
            (&WgslValue::Bool(x), &WgslValue::Bool(y)) => {
                return Ok(WgslValue::of_integer(Scalar::Bool, op.evaluate_int(scalar, x.into(), y.into())));
            }
            _ => {}
        }
        if scalar == Scalar::F32
            && let Some(value) = self.with_zero(module, id, op, (a, &left), (b, &right))?
        {
            return Ok(value);
        }
        if op == BinaryOp::Pow
            && let Some(power) = self.constant_power(module, id, a, &right)?
        {
            return Ok(power);
        }
        // The emitted code checks the second operand for NaN.
        let limits = scalar == Scalar::F32 && matches!(op, BinaryOp::Min | BinaryOp::Max);
        let (a, b) = if limits && matches!(right, WgslValue::Float(_)) { (b, a) } else { (a, b) };
        let natural = |id| dag.range(id).is_some_and(|(low, _)| low >= 0);
        let divisor = if let WgslValue::Int(_, n) = right { Some(n) } else { None };
        let facts = OperandInfo { natural: natural(a) && natural(b), divisor };
        self.apply(module, id, &[a, b], |text, wide| function::binary(op, scalar, (&text[0], &text[1]), facts, wide))
    }

    /// Sums, differences, products and quotients with a constant zero, quotients by infinity, and the difference of a
    /// float and itself, which compilers may fold.
    fn with_zero(
        &mut self,
        module: &mut Module,
        id: ExprId,
        op: BinaryOp,
        (a, left): (ExprId, &WgslValue),
        (b, right): (ExprId, &WgslValue),
    ) -> Result<Option<WgslValue>, EmitError> {
        let (op, right) = match *right {
            // Compilers may fold the quotient by infinity to 0.
            WgslValue::Float(y) if op == BinaryOp::Div && y.is_infinite() => {
                (BinaryOp::Mul, &WgslValue::Float(0.0f32.copysign(y)))
            }
            _ => (op, right),
        };
        let sign = match op {
            BinaryOp::Add => "+",
            BinaryOp::Sub => "-",
            BinaryOp::Mul => "*",
            BinaryOp::Div => "/",
            _ => return Ok(None),
        };
        let mut zero = |value: &WgslValue| match *value {
            WgslValue::Float(zero) if zero.to_bits() == (-0.0f32).to_bits() => Some(format!("(-{})", module.zero())),
            WgslValue::Float(0.0) => Some(module.zero()),
            _ => None,
        };
        let zeros = (zero(left), zero(right));
        let both = |code: String| Ok(Text { code, wide: true });
        Ok(match zeros {
            (Some(zero), _) => {
                Some(self.apply(module, id, &[b], |text, _| both(format!("{zero} {sign} {}", text[0])))?)
            }
            (_, Some(zero)) => {
                Some(self.apply(module, id, &[a], |text, _| both(format!("{} {sign} {zero}", text[0])))?)
            }
            _ if op == BinaryOp::Sub && a == b => {
                let zero = module.zero();
                Some(self.apply(module, id, &[a], |text, _| both(format!("abs({}) * {zero}", text[0])))?)
            }
            _ => None,
        })
    }

    fn constant_power(
        &mut self,
        module: &mut Module,
        id: ExprId,
        a: ExprId,
        exponent: &WgslValue,
    ) -> Result<Option<WgslValue>, EmitError> {
        let factors: usize = match exponent {
            WgslValue::Float(2.0) => 2,
            WgslValue::Float(3.0) => 3,
            _ => return Ok(None),
        };
        let product = |text: &[String], _| Ok(Text { code: vec![text[0].as_str(); factors].join(" * "), wide: true });
        self.apply(module, id, &[a], product).map(Some)
    }

    fn load(
        &mut self,
        module: &mut Module,
        id: ExprId,
        operand: u16,
        index: &[ExprId],
    ) -> Result<WgslValue, EmitError> {
        let indices = index.iter().map(|&i| self.get(module, i)).collect::<Result<Vec<_>, _>>()?;
        let lane = |l: usize| indices.iter().map(|i| i.lane(l)).collect::<Vec<_>>();
        if self.class(id) != Lanes::Varying {
            let guard = if self.lanes.is_empty() { self.valid.clone() } else { None };
            let code = module.load(operand, &lane(0), guard.as_deref())?;
            let name = self.bind(module, &code);
            return Ok(self.scalar_form(id, name));
        }
        let classes: Vec<_> = index.iter().map(|&i| self.class(i)).collect();
        if Lanes::is_vector_load(&classes) && module.has_vector_load(operand) {
            let code = module.load4(operand, &lane(0))?;
            return Ok(WgslValue::Vector(self.bind(module, &code)));
        }
        let mut codes = Vec::with_capacity(4);
        for (l, component) in COMPONENTS.iter().enumerate() {
            let guard = self.valid.as_ref().map(|valid| format!("{valid}.{component}"));
            codes.push(module.load(operand, &lane(l), guard.as_deref())?);
        }
        self.split(module, |l| Ok(codes[l].clone()))
    }

    fn sample(&mut self, module: &mut Module, id: ExprId, offsets: u16, row: ExprId) -> Result<WgslValue, EmitError> {
        let row = self.get(module, row)?;
        if self.class(id) != Lanes::Varying {
            let code = module.sample(offsets, &row.first())?;
            let name = self.bind(module, &code);
            return Ok(self.scalar_form(id, name));
        }
        let mut codes = Vec::with_capacity(4);
        for l in 0..4 {
            codes.push(module.sample(offsets, &row.lane(l))?);
        }
        self.split(module, |l| Ok(codes[l].clone()))
    }

    fn uniform(
        &mut self,
        module: &mut Module,
        id: ExprId,
        seed: ExprId,
        index: ExprId,
    ) -> Result<WgslValue, EmitError> {
        let aligned = self.class(index) == Lanes::Consecutive { aligned: true };
        if self.class(id) == Lanes::Varying && aligned && self.class(seed).is_uniform() {
            let (seed, index) = (self.get(module, seed)?.first(), self.get(module, index)?.first());
            return Ok(WgslValue::Vector(self.bind(module, &format!("uniform_random4({seed}, {index})"))));
        }
        self.apply(module, id, &[seed, index], |text, _| {
            Ok(Text { code: format!("uniform_random({}, {})", text[0], text[1]), wide: false })
        })
    }
}

fn supplied(what: &'static str, values: &BTreeMap<u8, WgslValue>, index: u8) -> Result<WgslValue, EmitError> {
    values.get(&index).cloned().ok_or(EmitError::Missing { what, index: index.into(), count: values.len() })
}

/// Statements indented by one level.
pub(super) fn indented(text: &str) -> String {
    text.lines().map(|line| if line.is_empty() { "\n".to_owned() } else { format!("    {line}\n") }).collect()
}
