use super::lists::Lists;
use super::row::OpenRow;
use super::{Request, RequestError, Schema, User};
use std::sync::Arc;

/// Validated requests as columns: the values of all requests, concatenated, and the end offset of each request.
///
/// The model's inputs are copied from it. Requests are added one by one, as a [`Request`] or a line of JSON, or many at once, as
/// [`Columns`](super::Columns). An invalid request is an error and leaves the batch unchanged. Clones share the columns until one of
/// them changes (copy on write).
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    schema: Arc<Schema>,
    rows: Arc<Rows>,
}

/// Columns in the order of the schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rows {
    pub users: Vec<User>,
    /// One entry per request.
    pub contextual: Lists,
    pub history: Lists,
    pub candidates: Lists,
    /// One column, without entries for requests without labels.
    pub labels: Lists,
}

impl Batch {
    /// An empty batch for a model with this schema.
    pub fn new(schema: impl Into<Arc<Schema>>) -> Self {
        let schema = schema.into();
        let rows = Rows {
            users: Vec::new(),
            contextual: Lists::new(schema.contextual.len()),
            history: Lists::new(schema.history.len()),
            candidates: Lists::new(schema.candidates.len()),
            labels: Lists::new(1),
        };
        Self { schema, rows: Arc::new(rows) }
    }

    /// An empty batch with the same schema.
    pub fn emptied(&self) -> Self {
        Self::new(self.schema.clone())
    }

    /// The schema of its requests.
    pub fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Number of requests.
    pub fn len(&self) -> usize {
        self.rows.users.len()
    }

    /// True if there are no requests.
    pub fn is_empty(&self) -> bool {
        self.rows.users.is_empty()
    }

    /// The users, one per request.
    pub fn users(&self) -> &[User] {
        &self.rows.users
    }

    /// Number of past events of a request; 0 if the request does not exist.
    pub fn events(&self, request: usize) -> usize {
        self.rows.history.range(request).len()
    }

    /// Number of candidates of a request; 0 if the request does not exist.
    pub fn candidates(&self, request: usize) -> usize {
        self.rows.candidates.range(request).len()
    }

    /// Events and candidates of all requests.
    pub fn entries(&self) -> usize {
        self.rows.history.end() + self.rows.candidates.end()
    }

    /// The action bits of a request's candidates, one entry per candidate; `None` if unknown.
    pub fn labels(&self, request: usize) -> Option<&[i64]> {
        self.rows.labels.row(0, request).filter(|labels| !labels.is_empty())
    }

    /// Adds a request.
    ///
    /// # Errors
    /// All missing columns, or the first of other faults: lists of unequal length, an id beyond its table.
    pub fn push(&mut self, request: &Request) -> Result<(), RequestError> {
        let mut row = self.open();
        for (name, value) in &request.contextual {
            row.fill(Group::Contextual, name, &[*value]);
        }
        for (group, lists) in [(Group::History, &request.history), (Group::Candidates, &request.candidates)] {
            for (name, values) in lists {
                row.fill(group, name, values);
            }
        }
        if let Some(labels) = &request.labels {
            row.begin_labels().into_iter().for_each(|list| list.extend(labels));
        }
        row.finish(request.user.clone())
    }

    /// Appends a request of another batch of the same schema. Does nothing if the batch has no such request.
    pub fn append(&mut self, other: &Self, request: usize) {
        let (from, Some(user)) = (&other.rows, other.rows.users.get(request)) else { return };
        let to = Arc::make_mut(&mut self.rows);
        to.contextual.append(&from.contextual, request);
        to.history.append(&from.history, request);
        to.candidates.append(&from.candidates, request);
        to.labels.append(&from.labels, request);
        to.users.push(user.clone());
    }

    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    pub(super) fn open(&mut self) -> OpenRow<'_> {
        OpenRow::new(&self.schema, Arc::make_mut(&mut self.rows))
    }
}

/// Columns of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Contextual,
    History,
    Candidates,
}

impl Group {
    pub const ALL: [Self; 3] = [Self::Contextual, Self::History, Self::Candidates];

    /// The column's name in messages.
    pub fn title(self, column: &str) -> String {
        match self {
            Self::Contextual => column.to_owned(),
            Self::History => format!("history.{column}"),
            Self::Candidates => format!("candidates.{column}"),
        }
    }
}

impl Rows {
    pub fn group(&self, group: Group) -> &Lists {
        match group {
            Group::Contextual => &self.contextual,
            Group::History => &self.history,
            Group::Candidates => &self.candidates,
        }
    }

    pub fn group_mut(&mut self, group: Group) -> &mut Lists {
        match group {
            Group::Contextual => &mut self.contextual,
            Group::History => &mut self.history,
            Group::Candidates => &mut self.candidates,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{batch, request, schema};

    fn fault(change: impl FnOnce(&mut Request)) -> String {
        let mut all = batch(&[request(1, 2)]);
        let before = all.clone();
        let mut request = request(3, 2);
        change(&mut request);
        let error = all.push(&request).unwrap_err();
        assert_eq!(all, before);
        assert_eq!(error.row, 1);
        error.to_string()
    }

    #[test]
    fn whole_requests_lie_back_to_back() {
        let labelled = request(3, 2).labels([5, 6]);
        let all = batch(&[labelled, request(0, 0), request(2, 1)]);
        assert_eq!((all.len(), all.entries()), (3, 8));
        assert_eq!([0, 1, 2, 3].map(|at| (all.events(at), all.candidates(at))), [(3, 2), (0, 0), (2, 1), (0, 0)]);
        assert_eq!([0, 1, 2].map(|at| all.labels(at)), [Some(&[5, 6][..]), None, None]);
        assert_eq!(all.rows().history.column(2), [100, 101, 102, 100, 101]);
        assert_eq!(all.rows().candidates.column(1), [0; 3], "a column that may be left out");
    }

    #[test]
    fn clones_share_until_one_grows() {
        let mut all = batch(&[request(3, 2)]);
        let before = all.clone();
        assert!(Arc::ptr_eq(&all.rows, &before.rows));
        all.push(&request(1, 1)).unwrap();
        assert_eq!((before.len(), all.len()), (1, 2));
        assert_eq!(before, batch(&[request(3, 2)]));
    }

    #[test]
    fn an_id_out_of_range_is_named() {
        let text = fault(|r| r.candidates.get_mut("item").unwrap()[1] = 10);
        assert_eq!(text, "user `u`: `candidates.item[1]` is 10, but the table `item` has 10 rows");
        let text = fault(|r| r.contextual.insert("age".into(), -1).map_or((), drop));
        assert_eq!(text, "user `u`: `age` is -1, but the table `age` has 4 rows");
    }

    #[test]
    fn ragged_lists_are_named() {
        let text = fault(|r| r.history.get_mut("action").unwrap().truncate(1));
        assert_eq!(text, "user `u`: `history.action` has length 1, but `history.item` has length 3");
        let text = fault(|r| r.labels = Some(vec![1]));
        assert_eq!(text, "user `u`: `labels` has length 1, but `candidates` has length 2");
        let text = fault(|r| r.labels = Some(vec![]));
        assert_eq!(text, "user `u`: `labels` has length 0, but `candidates` has length 2");
    }

    #[test]
    fn missing_columns_are_named_with_what_was_meant() {
        assert!(fault(|r| drop(r.history.remove("action"))).contains("`history.action` is missing; example: "));
        assert!(fault(|r| r.contextual.clear()).contains("`age` is missing; "));
        let text = fault(|r| {
            let values = r.history.remove("action").unwrap();
            r.history.extend([("actoin".to_owned(), values), ("price".to_owned(), vec![])]);
        });
        let expected = "user `u`: `history.action` (is it `history.actoin`?) is missing; example: \
            {\"user\":\"u1\",\"age\":1,\"history\":{\"action\":[1,1],\"item\":[1,2]},\"candidates\":{\"item\":[3,4]}}";
        assert_eq!(text, expected);
        let text = fault(|r| (r.history.clear(), r.contextual.clear()).1);
        assert!(text.starts_with("user `u`: `age`, `history.item`, `history.action` are missing; "), "{text}");
    }

    #[test]
    fn what_a_model_does_not_read_is_left_alone() {
        let all = batch(&[request(3, 2).history("price", [1]).candidates("price", [1]).contextual("height", 9)]);
        assert_eq!(all, batch(&[request(3, 2)]));
        assert_eq!(all.schema(), &schema());
    }
}
