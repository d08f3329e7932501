use rewire::rank::{Columns, Integers, User};

/// Integers of a typed array.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// `Int32Array`.
    I32(Vec<i32>),
    /// `Uint32Array`.
    U32(Vec<u32>),
    /// `BigInt64Array`.
    I64(Vec<i64>),
}

/// One list per user: the concatenated values, the start of each list, and the end of the last one.
#[derive(Clone, Debug, PartialEq)]
pub struct Lists {
    /// One entry more than users.
    pub offsets: Values,
    /// The concatenated values of all lists.
    pub values: Values,
}

/// Requests as columns, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// The users.
    pub users: Vec<User>,
    /// One value per user.
    pub contextual: Vec<(String, Values)>,
    /// Past events, oldest first.
    pub history: Vec<(String, Lists)>,
    /// The candidates to rank.
    pub candidates: Vec<(String, Lists)>,
}

impl<'a> From<&'a Values> for Integers<'a> {
    fn from(values: &'a Values) -> Self {
        match values {
            Values::I32(values) => Self::I32(values),
            Values::U32(values) => Self::U32(values),
            Values::I64(values) => Self::I64(values),
        }
    }
}

impl Requests {
    /// The columns without a copy.
    pub fn columns(&self) -> Columns<'_> {
        let mut columns = Columns::new(self.users.iter().cloned());
        for (name, values) in &self.contextual {
            columns = columns.contextual(name, values);
        }
        for (name, Lists { offsets, values }) in &self.history {
            columns = columns.history(name, offsets, values);
        }
        for (name, Lists { offsets, values }) in &self.candidates {
            columns = columns.candidates(name, offsets, values);
        }
        columns
    }
}
