//! Selects: a WGSL `select` of available values, or a branch that evaluates only the selected side.

use super::{Code, indented};
use crate::EmitError;
use crate::function::{Text, type_of};
use crate::module::Module;
use crate::value::WgslValue;
use rewire_graph::Scalar;
use rewire_graph::pointwise::{Expr, ExprId, Lanes};
use std::collections::HashSet;

impl Code {
    /// Four neighbours of an expression as a `vec4<f16>`: unconverted if the expression is an f16 load, or a select
    /// among such loads.
    pub fn f16(&mut self, module: &mut Module, root: ExprId) -> Result<String, EmitError> {
        module.note_f16();
        match module.body.dag.expr(root) {
            Expr::Load { operand, index } if self.are_f16(module, root) => {
                let index = self.eval(module, index)?;
                module.load_f16(*operand, &index.iter().map(WgslValue::first).collect::<Vec<_>>())
            }
            &Expr::Select(condition, a, b) if self.are_f16(module, root) => {
                let test = self.get(module, condition)?;
                self.eval_shared(module, a, b)?;
                let name = module.name();
                self.line(&format!("var {name}: vec4<f16>;"));
                self.sides(&test.first(), [a, b], |inner, side| {
                    let value = inner.f16(module, side)?;
                    inner.line(&format!("{name} = {value};"));
                    Ok(())
                })?;
                Ok(name)
            }
            _ => {
                let value = self.eval_one(module, root)?.vector(Scalar::F32);
                let within = match module.reads_rows(root) {
                    true => format!("clamp({value}, vec4<f32>(-65504.0f), vec4<f32>(65504.0f))"),
                    false => value,
                };
                Ok(format!("vec4<f16>({within})"))
            }
        }
    }

    /// Four neighbouring signed bytes of an operand, as a word.
    pub fn word(&mut self, module: &mut Module, root: ExprId) -> Result<String, EmitError> {
        let (operand, index) = self.loaded(module, root)?;
        module.load_word(operand, &index)
    }

    /// Four neighbouring unconverted elements of an operand.
    pub fn stored(&mut self, module: &mut Module, root: ExprId) -> Result<String, EmitError> {
        let (operand, index) = self.loaded(module, root)?;
        module.load_stored(operand, &index)
    }

    /// The operand and the index of a factor that is loaded.
    fn loaded(&mut self, module: &mut Module, root: ExprId) -> Result<(u16, Vec<String>), EmitError> {
        let Expr::Load { operand, index } = module.body.dag.expr(root) else {
            return Err(EmitError::Form { reason: "a product has a right factor that is computed".to_owned() });
        };
        let index = self.eval(module, index)?;
        Ok((*operand, index.iter().map(WgslValue::first).collect()))
    }

    /// True if an expression loads four neighbouring f16 values, or selects among such loads by a condition that is the
    /// same for all four.
    pub fn are_f16(&self, module: &Module, root: ExprId) -> bool {
        match module.body.dag.expr(root) {
            Expr::Load { operand, index } => {
                module.has_f16(*operand)
                    && Lanes::is_vector_load(&index.iter().map(|&i| self.class(i)).collect::<Vec<_>>())
            }
            &Expr::Select(condition, a, b) => {
                self.class(condition).is_uniform() && [a, b].iter().all(|&side| self.are_f16(module, side))
            }
            _ => false,
        }
    }

    pub(super) fn select(
        &mut self,
        module: &mut Module,
        id: ExprId,
        condition: ExprId,
        a: ExprId,
        b: ExprId,
    ) -> Result<WgslValue, EmitError> {
        let test = self.get(module, condition)?;
        if let WgslValue::Bool(test) = test {
            return self.get(module, if test { a } else { b });
        }
        if !self.is_costly(module, a) && !self.is_costly(module, b) {
            self.eval(module, &[a, b])?;
            let wide = |text: &[String]| format!("select({}, {}, {})", text[2], text[1], text[0]);
            return self.apply(module, id, &[condition, a, b], |text, _| Ok(Text { code: wide(text), wide: true }));
        }
        self.eval_shared(module, a, b)?;
        let scalar = module.body.dag.scalar(id);
        if self.class(condition).is_uniform() {
            return self.branch(module, id, &test.first(), a, b, scalar);
        }
        if scalar != Scalar::I64 && self.loads_groups(module, a) && self.loads_groups(module, b) {
            return self.choose_lanes(module, &test.vector(Scalar::Bool), [a, b], scalar);
        }
        let mut parts = Vec::with_capacity(4);
        for l in 0..4 {
            let mut lane = self.lane(l);
            let value = lane.branch(module, id, &test.lane(l), a, b, scalar)?;
            let text = lane.take();
            self.text += &text;
            parts.push(value.first());
        }
        self.split(module, |l| Ok(parts[l].clone()))
    }

    /// Selects one of two sides in each of four lanes. A side is evaluated for all lanes if any lane selects it.
    fn choose_lanes(
        &mut self,
        module: &mut Module,
        test: &str,
        sides: [ExprId; 2],
        scalar: Scalar,
    ) -> Result<WgslValue, EmitError> {
        let within = self.valid.as_ref().map(|valid| format!(" & {valid}")).unwrap_or_default();
        let mut values = Vec::with_capacity(2);
        for (side, taken) in sides.into_iter().zip([format!("any({test}{within})"), format!("any(!{test}{within})")]) {
            if !self.is_costly(module, side) {
                values.push(self.eval_one(module, side)?.vector(scalar));
                continue;
            }
            let name = module.name();
            self.line(&format!("var {name}: vec4<{}>;", type_of(scalar)));
            let mut inner = self.inner();
            let value = inner.eval_one(module, side)?.vector(scalar);
            inner.line(&format!("{name} = {value};"));
            self.block(&format!("if ({taken})"), &inner.take());
            values.push(name);
        }
        Ok(WgslValue::Vector(self.bind(module, &format!("select({}, {}, {test})", values[1], values[0]))))
    }

    /// True if all loads needed for `root` that are not available yet load four lanes at once. Such loads are safe if
    /// any lane is in range.
    fn loads_groups(&self, module: &Module, root: ExprId) -> bool {
        let lazily = |id: &ExprId| match module.body.dag.expr(*id) {
            Expr::Load { operand, index } => {
                let classes: Vec<_> = index.iter().map(|&i| self.class(i)).collect();
                let is_group = Lanes::is_vector_load(&classes) && module.has_vector_load(*operand);
                self.class(*id).is_uniform() || is_group
            }
            _ => true,
        };
        self.needs(module, root).iter().all(lazily)
    }

    /// `if (test) { a } else { b }`; expressions that only one side needs are evaluated inside it.
    fn branch(
        &mut self,
        module: &mut Module,
        id: ExprId,
        test: &str,
        a: ExprId,
        b: ExprId,
        scalar: Scalar,
    ) -> Result<WgslValue, EmitError> {
        let name = module.name();
        let wide = self.class(id) == Lanes::Varying;
        let ty = type_of(scalar);
        let assign = |value: &WgslValue, l: Option<usize>| match l {
            Some(l) => format!("{name}_{l} = {};", value.lane(l)),
            None if wide => format!("{name} = {};", value.vector(scalar)),
            None => format!("{name} = {};", value.first()),
        };
        let split = wide && scalar == Scalar::I64;
        let places: Vec<Option<usize>> = if split { (0..4).map(Some).collect() } else { vec![None] };
        for place in &places {
            match place {
                Some(l) => self.line(&format!("var {name}_{l}: {ty};")),
                None if wide => self.line(&format!("var {name}: vec4<{ty}>;")),
                None => self.line(&format!("var {name}: {ty};")),
            }
        }
        self.sides(test, [a, b], |inner, side| {
            let value = inner.eval_one(module, side)?;
            places.iter().for_each(|&place| inner.line(&assign(&value, place)));
            Ok(())
        })?;
        Ok(match (split, wide) {
            (true, _) => WgslValue::Split([0, 1, 2, 3].map(|l| format!("{name}_{l}"))),
            (_, true) => WgslValue::Vector(name),
            _ => self.scalar_form(id, name),
        })
    }

    /// Evaluates expressions that both sides of a choice need.
    fn eval_shared(&mut self, module: &mut Module, a: ExprId, b: ExprId) -> Result<(), EmitError> {
        let shared: Vec<_> = module.required(&[a]).intersection(&module.required(&[b])).copied().collect();
        self.eval(module, &shared).map(drop)
    }

    /// `if (test) { ... } else { ... }`; `write` adds the statements of each side.
    fn sides(
        &mut self,
        test: &str,
        sides: [ExprId; 2],
        mut write: impl FnMut(&mut Self, ExprId) -> Result<(), EmitError>,
    ) -> Result<(), EmitError> {
        let mut block = |side| {
            let mut inner = self.inner();
            write(&mut inner, side)?;
            Ok::<_, EmitError>(indented(&inner.take()))
        };
        let [yes, no] = sides;
        let (yes, no) = (block(yes)?, block(no)?);
        self.line(&format!("if ({test}) {{\n{yes}}} else {{\n{no}}}"));
        Ok(())
    }

    /// True if `root` needs an unavailable expression that must not, or should not, be evaluated unconditionally.
    fn is_costly(&self, module: &Module, root: ExprId) -> bool {
        let is_costly = |expr: &Expr| {
            matches!(expr, Expr::Load { .. } | Expr::Sample { .. } | Expr::Uniform { .. } | Expr::Call { .. })
        };
        self.needs(module, root).iter().any(|id| is_costly(module.body.dag.expr(*id)))
    }

    /// The unavailable expressions that an expression depends on, itself included.
    fn needs(&self, module: &Module, root: ExprId) -> HashSet<ExprId> {
        let mut stack = vec![root];
        let mut seen = HashSet::new();
        while let Some(id) = stack.pop() {
            if !self.known.contains_key(&id) && seen.insert(id) {
                stack.extend(module.body.dag.expr(id).operands());
            }
        }
        seen
    }
}
