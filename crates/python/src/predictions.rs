use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use rewire::rank::{Ranked, User};
use rewire_arrow::{ArrowArray, ArrowSchema, Column, export};
use std::sync::Arc;

/// Scores of candidates, a row each, in the order of the requests: a table for whatever takes `__arrow_c_array__`.
#[pyclass(frozen, module = "rewire")]
pub struct Predictions(Arc<Rows>);

/// The columns.
pub struct Rows {
    tasks: Vec<String>,
    users: Users,
    items: Vec<i64>,
    scores: Vec<f64>,
    logits: Vec<Vec<f32>>,
    /// The name of a column with the row of the request, and its values.
    index: Option<String>,
    requests: Vec<i64>,
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
        let users = Users::new(ranked.iter().map(|one| (&one.user, one.candidates.len())));
        let mut rows = Rows {
            users,
            items: vec![],
            scores: vec![],
            logits: vec![vec![]; tasks.len()],
            requests: vec![],
            tasks,
            index,
        };
        for (request, one) in ranked.iter_mut().enumerate() {
            one.candidates.sort_by_key(|candidate| candidate.position);
            for candidate in &one.candidates {
                rows.items.push(candidate.item);
                rows.scores.push(candidate.score);
                rows.requests.push(request as i64);
                rows.logits.iter_mut().zip(&candidate.logits).for_each(|(column, &logit)| column.push(logit));
            }
        }
        Self(Arc::new(rows))
    }

    fn export(&self) -> (ArrowSchema, ArrowArray) {
        export(&self.0, self.0.items.len(), |rows| {
            let mut columns =
                vec![rows.users.column(), Column::values("item", &rows.items), Column::values("score", &rows.scores)];
            let logits = rows.tasks.iter().zip(&rows.logits);
            columns.extend(logits.map(|(task, logits)| Column::values(&format!("logit_{task}"), logits)));
            columns.extend(rows.index.iter().map(|name| Column::values(name, &rows.requests)));
            columns
        })
    }
}

#[pymethods]
impl Predictions {
    fn __len__(&self) -> usize {
        self.0.items.len()
    }

    fn __repr__(&self) -> String {
        format!("<rewire.Predictions of {} rows>", self.0.items.len())
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
