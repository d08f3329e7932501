use super::batch::Group;
use super::row::OpenRow;
use super::{Batch, RequestError, User};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use std::borrow::Cow;
use std::fmt;
use thiserror::Error;

/// Why a line is not a valid request.
#[derive(Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonError {
    /// The line is not JSON of a request.
    #[error("{reason} (column {column})")]
    Text {
        /// The fault, with the key.
        reason: String,
        /// Byte offset in the line, from 1.
        column: usize,
    },
    /// The request does not fit the model.
    #[error(transparent)]
    Request(#[from] RequestError),
}

impl Batch {
    /// Adds a request from one line of JSON Lines. Unknown keys are skipped.
    ///
    /// ```
    /// use rewire::rank::{Batch, Column, Schema};
    /// let item = || vec![Column::ids("item", 10)];
    /// let mut batch = Batch::new(Schema { contextual: vec![], history: item(), candidates: item() });
    /// batch.push_json(br#"{"user":"u1","history":{"item":[3,4]},"candidates":{"item":[7]}}"#)?;
    /// assert_eq!((batch.events(0), batch.candidates(0)), (2, 1));
    /// # Ok::<(), rewire::rank::JsonError>(())
    /// ```
    ///
    /// # Errors
    /// [`JsonError`] if the text is not JSON, a value has a wrong type, or a key is missing or duplicated; otherwise as
    /// [`Batch::push`].
    pub fn push_json(&mut self, line: &[u8]) -> Result<(), JsonError> {
        let text = str::from_utf8(line).map_err(|error| JsonError::Text {
            reason: "invalid unicode code point".to_owned(),
            column: error.valid_up_to() + 1,
        })?;
        let mut row = self.open();
        let mut json = serde_json::Deserializer::from_str(text);
        let user = RequestSeed(&mut row).deserialize(&mut json);
        let user = user.and_then(|user| json.end().map(|()| user)).map_err(|error| {
            let text = error.to_string();
            let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
            JsonError::Text { reason, column: error.column() }
        })?;
        match user {
            Some(user) => Ok(row.finish(user)?),
            None => {
                let reason = row.missing(false).map(|fault| fault.to_string()).unwrap_or_default();
                Err(JsonError::Text { reason, column: text.len() })
            }
        }
    }
}

/// Adds a request from a part of a larger document. The value is an error if the request does not fit the model.
impl<'de> DeserializeSeed<'de> for &mut Batch {
    type Value = Result<(), RequestError>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        let mut row = self.open();
        match RequestSeed(&mut row).deserialize(deserializer)? {
            Some(user) => Ok(row.finish(user)),
            None => Err(D::Error::custom(row.missing(false).map(|fault| fault.to_string()).unwrap_or_default())),
        }
    }
}

/// Fills a row and returns the user, if given.
struct RequestSeed<'r, 'a>(&'r mut OpenRow<'a>);

impl<'de> DeserializeSeed<'de> for RequestSeed<'_, '_> {
    type Value = Option<User>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_, '_> {
    type Value = Option<User>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with `user`, `history` and `candidates`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let Self(row) = self;
        let (mut user, mut labels) = (None, false);
        let mut lists = [(Group::History, "history", false), (Group::Candidates, "candidates", false)];
        while let Some(Key(key)) = map.next_key()? {
            let twice = || A::Error::custom(format!("the key `{key}` is there twice"));
            if let Some((group, _, found)) = lists.iter_mut().find(|(_, name, _)| *name == key) {
                if std::mem::replace(found, true) {
                    return Err(twice());
                }
                map.next_value_seed(ColumnsSeed { row, group: *group, name: &key })?;
            } else if key == "user" {
                if user.replace(map.next_value_seed(UserSeed)?).is_some() {
                    return Err(twice());
                }
            } else if key == "labels" {
                if std::mem::replace(&mut labels, true) {
                    return Err(twice());
                }
                map.next_value_seed(LabelsSeed(row))?;
            } else if let Some(position) = row.schema().position(Group::Contextual, &key) {
                let value = map.next_value_seed(Integer(Title(None, &key)))?;
                row.begin(Group::Contextual, position).ok_or_else(twice)?.push(value);
            } else {
                map.next_value::<IgnoredAny>()?;
                row.skip(Group::Contextual, &key);
            }
        }
        Ok(user)
    }
}

/// A key, borrowed from the text if it has no escapes.
struct Key<'de>(Cow<'de, str>);

impl<'de> serde::Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E>(self, key: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(key)))
            }

            fn visit_str<E>(self, key: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(key.to_owned())))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

struct UserSeed;

impl<'de> DeserializeSeed<'de> for UserSeed {
    type Value = User;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<User, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for UserSeed {
    type Value = User;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or an integer for `user`")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<User, E> {
        Ok(User::Name(text.to_owned()))
    }

    fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<User, E> {
        Ok(User::Number(number))
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<User, E> {
        i64::try_from(number).map(User::Number).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
    }
}

/// Fills the columns of a group.
struct ColumnsSeed<'r, 'a> {
    row: &'r mut OpenRow<'a>,
    group: Group,
    name: &'r str,
}

impl<'de> DeserializeSeed<'de> for ColumnsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ColumnsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of lists for `{}`", self.name)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { row, group, .. } = self;
        while let Some(Key(key)) = map.next_key()? {
            let Some(position) = row.schema().position(group, &key) else {
                map.next_value::<IgnoredAny>()?;
                row.skip(group, &key);
                continue;
            };
            let twice = || A::Error::custom(format!("the key `{}` is there twice", group.title(&key)));
            let values = row.begin(group, position).ok_or_else(twice)?;
            map.next_value_seed(List { title: Title(Some(group), &key), values })?;
        }
        Ok(())
    }
}

/// Fills the labels, unless they are null.
struct LabelsSeed<'r, 'a>(&'r mut OpenRow<'a>);

impl<'de> DeserializeSeed<'de> for LabelsSeed<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for LabelsSeed<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of integers or null for `labels`")
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        match self.0.begin_labels() {
            Some(values) => List { title: Title(None, "labels"), values }.deserialize(deserializer),
            None => Err(D::Error::custom("the key `labels` is there twice")),
        }
    }
}

/// Appends a list of integers.
struct List<'r> {
    title: Title<'r>,
    values: &'r mut Vec<i64>,
}

/// The column's name in messages.
#[derive(Clone, Copy)]
struct Title<'r>(Option<Group>, &'r str);

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(group) => f.write_str(&group.title(self.1)),
            None => f.write_str(self.1),
        }
    }
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of integers for `{}`", self.title)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(value) = seq.next_element_seed(Integer(self.title))? {
            if self.values.len() == self.values.capacity() {
                let no_memory = |_| A::Error::custom(format!("no memory for `{}`", self.title));
                self.values.try_reserve(1).map_err(no_memory)?;
            }
            self.values.push(value);
        }
        Ok(())
    }
}

struct Integer<'r>(Title<'r>);

impl<'de> DeserializeSeed<'de> for Integer<'_> {
    type Value = i64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<i64, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Integer<'_> {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an integer for `{}`", self.0)
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<i64, E> {
        Ok(value)
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<i64, E> {
        i64::try_from(value).map_err(|_| E::invalid_value(Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<i64, E> {
        whole(value).ok_or_else(|| E::invalid_value(Unexpected::Float(value), &self))
    }
}

/// The integer that a double holds exactly, and no other integer rounds to.
///
/// ```
/// use rewire::rank::whole;
/// assert_eq!(whole(-3.0), Some(-3));
/// assert_eq!([0.5, f64::NAN, f64::INFINITY, (1_u64 << 53) as f64].map(whole), [None; 4]);
/// ```
pub fn whole(value: f64) -> Option<i64> {
    (value.fract() == 0.0 && value.abs() < (1u64 << 53) as f64).then_some(value as i64)
}

#[cfg(test)]
mod tests {
    use crate::rank::testing::schema;
    use crate::rank::{Batch, User};

    fn read(line: &str) -> Result<Batch, String> {
        let mut batch = Batch::new(schema());
        let pushed = batch.push_json(line.as_bytes()).map_err(|error| error.to_string());
        assert_eq!(batch.len(), usize::from(pushed.is_ok()));
        pushed.map(|()| batch)
    }

    const TAIL: &str = r#""history":{"item":[],"action":[]},"candidates":{"item":[1]}"#;

    #[test]
    fn a_line_is_read() {
        let batch = read(
            r#"{"user":7,"age":1,"more":[{"a":null}],"labels":null,"candidates":{"title":["x"],"item":[1,2.0]},
               "history":{"item":[3],"action":[4]}}"#,
        )
        .unwrap();
        assert_eq!(batch.users(), [User::Number(7)]);
        assert_eq!(batch.rows().contextual.column(0), [1]);
        assert_eq!(batch.rows().candidates.column(0), [1, 2]);
        assert_eq!(batch.rows().history.column(1), [4]);
        assert_eq!(batch.labels(0), None);
    }

    #[test]
    fn faults_are_named() {
        let cases = [
            ("", "EOF"),
            ("[]", "expected a JSON object"),
            ("{", "EOF"),
            ("\u{1}", "expected value"),
            (r#"{"user":"u"}"#, "`age`, `history.item`, `history.action`, `candidates.item` are missing; example: {"),
            (r#"{"age":1,"history":{}}"#, "`user`, `history.item`, `history.action`, `candidates.item` are missing; "),
            (&format!(r#"{{"age":1,{TAIL}}}"#), "`user` is missing; example: {"),
            (&format!(r#"{{"user":"u",{TAIL},{TAIL}}}"#), "`history` is there twice"),
            (&format!(r#"{{"user":"u","age":1,"age":2,{TAIL}}}"#), "`age` is there twice"),
            (r#"{"history":{"item":[],"item":[]}}"#, "`history.item` is there twice"),
            (&format!(r#"{{"user":null,{TAIL}}}"#), "string or an integer for `user`"),
            (&format!(r#"{{"user":"u","age":"old",{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":1.5,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":1e999,{TAIL}}}"#), "out of range"),
            (&format!(r#"{{"user":"u","age":18446744073709551615,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":1e300,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":9007199254740993.0,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":9223372036854775808,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":-9223372036854775809,{TAIL}}}"#), "an integer for `age`"),
            (&format!(r#"{{"user":"u","age":NaN,{TAIL}}}"#), "expected value"),
            (&format!(r#"{{"user":"u","\u0075ser":"v",{TAIL}}}"#), "`user` is there twice"),
            (&format!(r#"{{"user":"u","labels":null,"labels":[1],{TAIL}}}"#), "`labels` is there twice"),
            (r#"{"history":{"item":3}}"#, "a list of integers for `history.item`"),
            (r#"{"history":{"item":[null]}}"#, "an integer for `history.item`"),
            (r#"{"history":null}"#, "an object of lists for `history`"),
            (&format!(r#"{{"user":"u",{TAIL}}} x"#), "trailing characters"),
            (&format!(r#"{{"user":"u","ages":1,{TAIL}}}"#), "`age` (is it `ages`?) is missing; "),
        ];
        for (line, expected) in cases {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }

    #[test]
    fn deep_nesting_is_no_trouble() {
        let deep = "[".repeat(1_000_000);
        assert!(read(&deep).is_err());
        assert!(read(&format!(r#"{{"other":{deep}"#)).is_err());
        assert!(read(&format!(r#"{{"history":{{"item":{deep}"#)).is_err());
    }

    #[test]
    fn bytes_that_are_not_utf8_are_an_error() {
        assert!(Batch::new(schema()).push_json(b"{\"user\":\"\xff\"}").is_err());
    }
}
