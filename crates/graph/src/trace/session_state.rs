use super::{Scope, Shape, Tensor, apply, operands, poison, poisoned};
use crate::op::SetRows;
use crate::{DType, GraphError, Type, TypeError};
use std::sync::Arc;

impl Scope {
    /// A named value that a session keeps between runs, with its value at the start of the run. It is zeros until a run
    /// or the app sets it. The name is joined to the module path; repeated calls return the same value.
    ///
    /// An extent is a constant or a [`Scope::size`]. The app chooses such a size, at least 1, when it sets the state;
    /// until then it is 1.
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
    #[track_caller]
    pub fn state(&self, name: &str, dtype: DType, shape: impl Shape) -> Tensor {
        let shape = shape.dims();
        if let Some(dim) = shape.iter().find(|dim| dim.as_const().is_none() && dim.as_symbol().is_none()) {
            let argument = format!("the shape of `{}`", self.join(name));
            return self.fail("state", TypeError::new(argument, "extents that are constants or sizes", dim));
        }
        let full = self.join(name);
        let tensor = self.input(&full, dtype, shape);
        self.state.lock().graph.add_state(&full);
        tensor
    }

    /// Sets the value of the state `name` of this module after a run. The whole run reads the previous value,
    /// regardless of order. A run that fails changes no state.
    ///
    /// [`Scope::finish`] returns [`GraphError::State`] if the state does not exist, is set twice, or `value` has
    /// another type or shape.
    #[track_caller]
    pub fn set_state(&self, name: &str, value: impl AsRef<Tensor>) {
        let value = value.as_ref();
        let name = self.join(name);
        self.update(&name, &[value], |ty| match ty == value.ty() || value.is_poisoned() {
            true => Ok(value.clone()),
            false => Err(value.ty().to_string()),
        });
    }

    /// Sets rows of the state `name` of this module, `[V, D..]`, in place: after a run row `index[u]` is `rows[u]`, and
    /// all other rows are unchanged. `index` is `[U]` of integers, `rows` is `[U, D..]` of the state's type. The whole
    /// run reads the previous state. The cost depends on the number of rows set, not on the size of the state.
    ///
    /// Indices must be distinct; if several rows have the same index, one of them is kept, and it is unspecified which.
    /// An index outside the state is clamped. If the index is an unchanged input of the run, the run checks its range
    /// first, as for [`Tensor::gather`].
    ///
    /// A run that fails before its kernels are submitted changes no state. If a run fails later because its device is
    /// lost, the states on the device are lost. On the CPU, rows are set after everything else is computed: if memory
    /// runs out then, some states may already have their new rows.
    ///
    /// [`Scope::finish`] returns the errors of [`Scope::set_state`], and [`GraphError::Type`] if index or rows have
    /// another type or shape. Lowering fails if the state itself is an output of the graph or the new value of another
    /// state, since it changes in place: use a value computed from it instead.
    ///
    /// ```
    /// use rewire_graph::{DType, HostTensor, Scope, interpret};
    /// use std::collections::HashMap;
    ///
    /// let scope = Scope::new();
    /// let ids = scope.input("ids", DType::I32, [scope.size("ids")]);
    /// let seen = scope.state("seen", DType::F32, (3, 2));
    /// scope.set_state_rows("seen", &ids, &(seen.gather(&ids) + 1.0));
    /// let graph = scope.finish(&[])?;
    ///
    /// let ids = HashMap::from([("ids".to_owned(), HostTensor::new([2], &[2i32, 0])?)]);
    /// assert_eq!(interpret(&graph, &ids, &HashMap::new())?["seen"].to_f64(), [1.0, 1.0, 0.0, 0.0, 1.0, 1.0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn set_state_rows(&self, name: &str, index: impl AsRef<Tensor>, rows: impl AsRef<Tensor>) {
        let (index, rows) = (index.as_ref(), rows.as_ref());
        let name = self.join(name);
        let table = self.state.lock().named.get(&("input", name.clone())).copied();
        let set = |table| apply(&self.state, Arc::new(SetRows), &[&self.value(table), index, rows]);
        self.update(&name, &[index, rows], |_| Ok(table.map_or_else(|| poisoned(&self.state), set)));
    }

    /// Records the new value of a state, computed from its type, or the error.
    #[track_caller]
    fn update(&self, name: &str, operands: &[&Tensor], value: impl FnOnce(&Type) -> Result<Tensor, String>) {
        if operands::one_scope(&self.state, &format!("the state `{name}`"), operands).is_err() {
            return;
        }
        let declared = {
            let inner = self.state.lock();
            let known = inner
                .named
                .get(&("input", name.to_owned()))
                .filter(|_| inner.graph.states().iter().any(|state| state == name));
            match known.and_then(|known| inner.graph.ty(*known)) {
                None => Err(("declared by `state`".to_owned(), "a name that is not".to_owned())),
                Some(_) if inner.updates.iter().any(|(known, _)| known == name) => {
                    Err(("set once".to_owned(), "two values".to_owned()))
                }
                Some(ty) => Ok(ty.clone()),
            }
        };
        let value = declared.and_then(|ty| value(&ty).map_err(|actual| (ty.to_string(), actual)));
        match value {
            Ok(value) => {
                let update = value.value().map(|value| (name.to_owned(), value));
                self.state.lock().updates.extend(update);
            }
            Err((expected, actual)) => {
                poison(&self.state, GraphError::State { name: name.to_owned(), expected, actual });
            }
        }
    }
}
