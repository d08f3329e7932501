use super::{Scope, Shape, Tensor, operands, poison};
use crate::{DType, GraphError, TypeError};

impl Scope {
    /// What a session keeps under a name from run to run: what it holds when a run begins. It is zeros until a run or the app
    /// sets it. Its name is joined to the module path; asked for twice, it is the same.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret};
    /// use std::collections::HashMap;
    ///
    /// let scope = Scope::new();
    /// let count = scope.state("count", DType::F32, [1]);
    /// let next = &count + 1.0;
    /// scope.set_state("count", &next);
    /// let graph = scope.finish(&[("before", count)])?;
    ///
    /// // The interpreter takes states like inputs, and returns what they become.
    /// let first = interpret(&graph, &HashMap::new(), &HashMap::new())?;
    /// let held = HashMap::from([("count".to_owned(), first["count"].clone())]);
    /// let second = interpret(&graph, &held, &HashMap::new())?;
    /// assert_eq!((second["before"].to_f64(), second["count"].to_f64()), (vec![1.0], vec![2.0]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn state(&self, name: &str, dtype: DType, shape: impl Shape) -> Tensor {
        let shape = shape.dims();
        if let Some(dim) = shape.iter().find(|dim| dim.as_const().is_none()) {
            let argument = format!("the shape of `{}`", self.join(name));
            return self.fail("state", TypeError::new(argument, "constant extents", dim));
        }
        let full = self.join(name);
        let tensor = self.input(&full, dtype, shape);
        self.state.lock().graph.add_state(&full);
        tensor
    }

    /// Sets what the state `name` of this module holds after a run. All of the run reads what it held before, in whatever
    /// order; a run that fails changes no state.
    ///
    /// [`Scope::finish`] returns [`GraphError::State`] where there is no such state, it is set twice, or `value` has another
    /// type or shape.
    pub fn set_state(&self, name: &str, value: &Tensor) {
        let name = self.join(name);
        if operands::one_scope(&self.state, &format!("the state `{name}`"), &[value]).is_err() {
            return;
        }
        let mut inner = self.state.lock();
        let known = inner.named.get(&("input", name.clone())).copied().filter(|_| inner.graph.states().contains(&name));
        let declared = known.and_then(|known| inner.graph.ty(known));
        let wrong = |expected: &str, actual: String| GraphError::State {
            name: name.clone(),
            expected: expected.into(),
            actual,
        };
        let error = match declared {
            None => wrong("declared by `state`", "a name that is not".into()),
            Some(_) if inner.updates.iter().any(|(known, _)| *known == name) => wrong("set once", "two values".into()),
            Some(ty) if ty != value.ty() && !value.is_poisoned() => wrong(&ty.to_string(), value.ty().to_string()),
            Some(_) => {
                inner.updates.extend(value.value().map(|value| (name, value)));
                return;
            }
        };
        drop(inner);
        poison(&self.state, error);
    }
}
