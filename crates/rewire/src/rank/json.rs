use super::{Column, Columns, Place, Request, Schema, User};
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use std::collections::BTreeMap;
use std::fmt;
use thiserror::Error;

/// A text that is no request.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{reason} (column {column})")]
pub struct JsonError {
    /// What is wrong.
    pub reason: String,
    /// Bytes into the line, from 1.
    pub column: usize,
}

impl Schema {
    /// Reads a request from one line of JSON Lines. Keys that the model does not read are skipped.
    ///
    /// ```
    /// use rewire::rank::{Column, Place, Schema};
    /// let schema = Schema {
    ///     contextual: vec![],
    ///     history: vec![Column::ids("item", 10)],
    ///     candidates: vec![Column::ids("item", 10)],
    /// };
    /// let line = br#"{"user":"u1","history":{"item":[3,4]},"candidates":{"item":[7]}}"#;
    /// let request = schema.request_from_json(line, Place::Line(1))?;
    /// assert_eq!(request.history["item"], [3, 4]);
    /// # Ok::<(), rewire::rank::JsonError>(())
    /// ```
    ///
    /// # Errors
    /// [`JsonError`] where the text is not JSON, or a value has another type, or a key is missing or there twice.
    pub fn request_from_json(&self, line: &[u8], place: Place) -> Result<Request, JsonError> {
        let mut json = serde_json::Deserializer::from_slice(line);
        let request = RequestSeed { schema: self, place }.deserialize(&mut json);
        request.and_then(|request| json.end().map(|()| request)).map_err(|error| {
            let text = error.to_string();
            let reason = text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason).to_owned();
            JsonError { reason, column: error.column() }
        })
    }
}

struct RequestSeed<'a> {
    schema: &'a Schema,
    place: Place,
}

impl<'de> DeserializeSeed<'de> for RequestSeed<'_> {
    type Value = Request;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Request, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for RequestSeed<'_> {
    type Value = Request;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object with `user`, `history` and `candidates`")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Request, A::Error> {
        let (mut user, mut history, mut candidates, mut labels) = (None, None, None, None);
        let mut contextual = BTreeMap::new();
        while let Some(key) = map.next_key::<String>()? {
            let twice = match key.as_str() {
                "user" => user.replace(map.next_value_seed(UserSeed)?).is_some(),
                "history" => {
                    let seed = ColumnsSeed { group: "history", columns: &self.schema.history };
                    history.replace(map.next_value_seed(seed)?).is_some()
                }
                "candidates" => {
                    let seed = ColumnsSeed { group: "candidates", columns: &self.schema.candidates };
                    candidates.replace(map.next_value_seed(seed)?).is_some()
                }
                "labels" => labels.replace(map.next_value_seed(Optional(List("labels")))?).is_some(),
                name if self.schema.contextual.iter().any(|column| column.name == name) => {
                    let value = map.next_value_seed(Integer(name))?;
                    contextual.insert(key.clone(), value).is_some()
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    false
                }
            };
            if twice {
                return Err(A::Error::custom(format!("the key `{key}` is there twice")));
            }
        }
        let missing = |name| A::Error::custom(format!("the key `{name}` is missing"));
        Ok(Request {
            user: user.ok_or_else(|| missing("user"))?,
            place: self.place,
            contextual,
            history: history.ok_or_else(|| missing("history"))?,
            candidates: candidates.ok_or_else(|| missing("candidates"))?,
            labels: labels.flatten(),
        })
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

struct ColumnsSeed<'a> {
    group: &'static str,
    columns: &'a [Column],
}

impl<'de> DeserializeSeed<'de> for ColumnsSeed<'_> {
    type Value = Columns;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Columns, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for ColumnsSeed<'_> {
    type Value = Columns;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object of lists for `{}`", self.group)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Columns, A::Error> {
        let mut lists = Columns::new();
        while let Some(key) = map.next_key::<String>()? {
            if !self.columns.iter().any(|column| column.name == key) {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let name = format!("{}.{key}", self.group);
            if lists.insert(key, map.next_value_seed(List(&name))?).is_some() {
                return Err(A::Error::custom(format!("the key `{name}` is there twice")));
            }
        }
        Ok(lists)
    }
}

struct Optional<S>(S);

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Optional<S> {
    type Value = Option<S::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Optional<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

struct List<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Vec<i64>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<i64>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<i64>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a list of integers for `{}`", self.0)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<i64>, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = seq.next_element_seed(Integer(self.0))? {
            if values.len() == values.capacity() {
                values.try_reserve(1).map_err(|_| A::Error::custom(format!("no memory for `{}`", self.0)))?;
            }
            values.push(value);
        }
        Ok(values)
    }
}

struct Integer<'a>(&'a str);

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
    use crate::rank::{Place, Request, User};

    fn read(line: &str) -> Result<Request, String> {
        schema().request_from_json(line.as_bytes(), Place::Line(1)).map_err(|error| error.to_string())
    }

    const TAIL: &str = r#""history":{"item":[],"action":[]},"candidates":{"item":[1]}"#;

    #[test]
    fn a_line_is_read() {
        let request = read(
            r#"{"user":7,"age":1,"more":[{"a":null}],"labels":null,"candidates":{"title":["x"],"item":[1,2.0]},
               "history":{"item":[3],"action":[4]}}"#,
        )
        .unwrap();
        assert_eq!(request.user, User::Number(7));
        assert_eq!(request.contextual["age"], 1);
        assert_eq!(request.candidates["item"], [1, 2]);
        assert_eq!(request.history["action"], [4]);
        assert_eq!(request.labels, None);
        assert_eq!(request.place, Place::Line(1));
    }

    #[test]
    fn faults_are_named() {
        let cases = [
            ("", "EOF"),
            ("[]", "expected a JSON object"),
            ("{", "EOF"),
            ("\u{1}", "expected value"),
            (r#"{"user":"u"}"#, "`history` is missing"),
            (r#"{"user":"u","history":{}}"#, "`candidates` is missing"),
            (&format!("{{{TAIL}}}"), "`user` is missing"),
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
        assert!(schema().request_from_json(b"{\"user\":\"\xff\"}", Place::Line(1)).is_err());
    }
}
