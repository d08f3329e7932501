use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rewire::rank::{Ranked, RankedColumns, User};
use rewire_arrow::{ArrowArray, ArrowSchema, Column, export};
use std::sync::Arc;

/// Scores of candidates, a row each, in the order of the requests: a table for whatever takes `__arrow_c_array__`.
#[pyclass(frozen, module = "rewire")]
pub struct Predictions(Arc<Rows>);

/// The columns.
struct Rows {
    columns: RankedColumns,
    users: Users,
    /// The name of a task, and its logits.
    tasks: Vec<(String, Vec<f32>)>,
    /// The name of a column with the row of the request, and its values.
    index: Option<(String, Vec<i64>)>,
}

enum Users {
    Numbers(Vec<i64>),
    Texts { offsets: Vec<i64>, text: String },
}

impl Users {
    /// A user a row: numbers if all are.
    fn new<'a>(rows: impl Iterator<Item = (&'a User, usize)> + Clone) -> Self {
        let repeated = || rows.clone().flat_map(|(user, count)| std::iter::repeat_n(user, count));
        let number = |user: &User| if let User::Number(number) = user { Some(*number) } else { None };
        if let Some(numbers) = repeated().map(number).collect() {
            return Self::Numbers(numbers);
        }
        let (mut offsets, mut text) = (vec![0], String::new());
        for user in repeated() {
            text.push_str(&user.to_string());
            offsets.push(text.len() as i64);
        }
        Self::Texts { offsets, text }
    }

    fn column(&self) -> Column<'_> {
        match self {
            Self::Numbers(numbers) => Column::values("user", numbers),
            Self::Texts { offsets, text } => Column::texts("user", offsets, text),
        }
    }
}

impl Predictions {
    /// The candidates of requests in their order. `index` names a column with the row of each one's request.
    pub fn new(tasks: Vec<String>, mut ranked: Vec<Ranked>, index: Option<String>) -> Self {
        ranked.iter_mut().for_each(|one| one.candidates.sort_by_key(|candidate| candidate.position));
        let counts: Vec<usize> = ranked.iter().map(|one| one.candidates.len()).collect();
        let columns: RankedColumns = ranked.into_iter().collect();
        let logits = |task: usize| columns.logits.iter().copied().skip(task).step_by(tasks.len()).collect();
        let of_requests = || {
            let rows = counts.iter().enumerate();
            rows.flat_map(|(row, &count)| std::iter::repeat_n(row as i64, count)).collect()
        };
        Self(Arc::new(Rows {
            users: Users::new(columns.users.iter().zip(counts.iter().copied())),
            tasks: tasks.iter().enumerate().map(|(task, name)| (name.clone(), logits(task))).collect(),
            index: index.map(|name| (name, of_requests())),
            columns,
        }))
    }

    fn export(&self) -> (ArrowSchema, ArrowArray) {
        export(&self.0, self.0.columns.items.len(), |Rows { columns, users, tasks, index }| {
            let mut all =
                vec![users.column(), Column::values("item", &columns.items), Column::values("score", &columns.scores)];
            all.extend(tasks.iter().map(|(task, logits)| Column::values(&format!("logit_{task}"), logits)));
            all.extend(index.iter().map(|(name, rows)| Column::values(name, rows)));
            all
        })
    }
}

#[pymethods]
impl Predictions {
    fn __len__(&self) -> usize {
        self.0.columns.items.len()
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Predictions of {} rows>", self.0.columns.items.len())
    }

    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        PyCapsule::new_with_value(py, self.export().0, c"arrow_schema")
    }

    #[pyo3(signature = (requested_schema = None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // A producer may leave a request for other types alone.
        let _ = requested_schema;
        let (schema, array) = self.export();
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}
