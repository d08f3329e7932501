//! Operators without a result: checks of sizes, which always hold, checks of values, and tokens that order them.

use super::Many;
use crate::call::Call;
use crate::value::{Fault, Lowered, Value};

pub(super) const MANY: Many = &[
    ("aten._assert_async", nothing),
    ("aten._assert_scalar", nothing),
    ("aten._assert_tensor_metadata", nothing),
    ("aten._linalg_check_errors", nothing),
    ("aten._print", nothing),
    ("aten.sym_constrain_range", nothing),
    ("aten.sym_constrain_range_for_size", nothing),
    ("higher_order.with_effects", |c| match c.order.get(1) {
        Some(Value::String(op)) if is_check(op) => Ok(c.declared.iter().map(|_| Value::None).collect()),
        Some(Value::String(op)) => Fault::unsupported(format!("the effect of {op}")),
        _ => Fault::program("an effect of no operator"),
    }),
];

fn nothing(_: &Call<'_>) -> Lowered<Vec<Value>> {
    Ok(vec![])
}

/// True for an operator, with namespace and overload, that only checks something.
fn is_check(op: &str) -> bool {
    let name = op.strip_prefix("torch.ops.").unwrap_or(op);
    let base = name.rsplit_once('.').map_or(name, |(base, _)| base);
    MANY.iter().any(|(check, _)| *check == base)
}
