use super::{Scope, Shape, Tensor, apply, operands, poison, poisoned};
use crate::op::SetRows;
use crate::{DType, GraphError, Type, TypeError};
use std::sync::Arc;

impl Scope {
    /// What a session keeps under a name from run to run: what it holds when a run begins. It is zeros until a run or the app
    /// sets it. Its name is joined to the module path; asked for twice, it is the same.
    ///
    /// An extent is a constant or a [`Scope::size`]: one of at least 1 that the app chooses when it sets the
    /// state; 1 until then.
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
        if let Some(dim) = shape.iter().find(|dim| dim.as_const().is_none() && dim.as_symbol().is_none()) {
            let argument = format!("the shape of `{}`", self.join(name));
            return self.fail("state", TypeError::new(argument, "extents that are constants or sizes", dim));
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
        self.update(&name, &[value], |ty| match ty == value.ty() || value.is_poisoned() {
            true => Ok(value.clone()),
            false => Err(value.ty().to_string()),
        });
    }

    /// Sets rows of the state `name` of this module, `[V, D..]`, in place: after a run row `index[u]` is `rows[u]`, and all others
    /// are what they were. `index` is `[U]` of integers, `rows` is `[U, D..]` of the state's type. All of the run reads what the state
    /// held before. A kernel takes as long as there are rows to set, however many the state has.
    ///
    /// Indices are all different; of rows with one index any one is kept. An index outside the state sets the nearest row, and where
    /// an input of the run holds the index unchanged, the run checks it first, as that of [`Tensor::gather`].
    ///
    /// A run that fails before its kernels were submitted changes no state. One that fails later, as its device is lost, loses those
    /// on the device. On the CPU rows are set when all else is computed: if there is no memory then, some of the states may have
    /// their new rows.
    ///
    /// [`Scope::finish`] returns the errors of [`Scope::set_state`], and [`GraphError::Type`] where index or rows have another type or
    /// shape. Lowering returns one where the state itself is an output of the graph or what another state is set to, since
    /// it changes in place: give a value that is computed from it.
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
    pub fn set_state_rows(&self, name: &str, index: &Tensor, rows: &Tensor) {
        let name = self.join(name);
        let table = self.state.lock().named.get(&("input", name.clone())).copied();
        let set = |table| apply(&self.state, Arc::new(SetRows), &[&self.value(table), index, rows]);
        self.update(&name, &[index, rows], |_| Ok(table.map_or_else(|| poisoned(&self.state), set)));
    }

    /// Notes what a state becomes: `value`, which is given its type, or what is wrong with it.
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
