use super::input::{InputError, Requests};
use parquet::basic::ConvertedType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::record::{Field, Row};
use parquet::schema::types::{Type, TypePtr};
use rewire::rank::{Column, Columns, Place, Request, Schema, User, whole};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Once;

/// Requests of a Parquet file with the columns of the JSON Lines form.
///
/// `history` and `candidates` are structs of lists, or each list is a column of its own, `history.item_id`.
pub struct Rows {
    file: String,
    rows: RowIter<'static>,
    row: u64,
    total: u64,
}

impl Rows {
    pub fn open(name: String, path: PathBuf, schema: &Schema) -> Result<Self, InputError> {
        let file = File::open(&path).map_err(|source| InputError::Read { file: name.clone(), source })?;
        let table = |reason: String| InputError::Table { file: name.clone(), reason };
        let opened = guarded(|| {
            let reader = SerializedFileReader::new(file)?;
            let metadata = reader.metadata().file_metadata();
            let wanted = projection(metadata.schema(), schema)?;
            let total = u64::try_from(metadata.num_rows()).unwrap_or(0);
            Ok((RowIter::from_file_into(Box::new(reader)).project(Some(wanted))?, total))
        });
        let (rows, total) = opened.map_err(table)?;
        Ok(Self { file: name, rows, row: 0, total })
    }

    fn read(&mut self, schema: &Schema) -> Result<Option<Request>, String> {
        let rows = &mut self.rows;
        match guarded(|| rows.next().transpose())? {
            Some(row) => request(row, schema, Place::Row(self.row)).map(Some),
            None if self.row <= self.total => Err(format!("the table ends early: {} rows are announced", self.total)),
            None => Ok(None),
        }
    }
}

impl Requests for Rows {
    fn next(&mut self, schema: &Schema) -> Option<Result<Request, InputError>> {
        self.row += 1;
        let request = self.read(schema).transpose()?;
        Some(request.map_err(|reason| InputError::Row { file: self.file.clone(), row: self.row, reason }))
    }

    fn progress(&self) -> Option<(u64, u64)> {
        Some((self.row, self.total))
    }
}

/// The part of a file's schema that holds what the model reads.
fn projection(root: &Type, schema: &Schema) -> Result<Type, ParquetError> {
    let mut fields = Vec::new();
    for field in root.get_fields() {
        let name = field.name();
        let own = ["user", "labels"].contains(&name) || schema.contextual.iter().any(|column| column.name == name);
        let group = group(name, schema);
        if own || matches!(group, Some((_, Some(_)))) {
            fields.push(field.clone());
        } else if let Some((columns, None)) = group {
            fields.push(project_struct(field, columns)?);
        }
    }
    Type::group_type_builder(root.name()).with_fields(fields).build()
}

fn project_struct(field: &TypePtr, columns: &[Column]) -> Result<TypePtr, ParquetError> {
    if field.is_primitive() || field.get_basic_info().converted_type() != ConvertedType::NONE {
        return Err(ParquetError::General(format!("`{}` is not a struct of lists", field.name())));
    }
    let known = |child: &&TypePtr| columns.iter().any(|column| column.name == child.name());
    let children: Vec<TypePtr> = field.get_fields().iter().filter(known).cloned().collect();
    if children.is_empty() {
        return Err(ParquetError::General(format!("`{}` has none of the lists that the model reads", field.name())));
    }
    let built = Type::group_type_builder(field.name())
        .with_repetition(field.get_basic_info().repetition())
        .with_fields(children)
        .build()?;
    Ok(built.into())
}

/// The columns that a column of the file belongs to, and its name among them if it is one list.
fn group<'a>(name: &'a str, schema: &'a Schema) -> Option<(&'a [Column], Option<&'a str>)> {
    for (group, columns) in [("history", &schema.history), ("candidates", &schema.candidates)] {
        if name == group {
            return Some((columns, None));
        }
        let list = name.strip_prefix(group).and_then(|rest| rest.strip_prefix('.'));
        if let Some(list) = list.filter(|list| columns.iter().any(|column| column.name == *list)) {
            return Some((columns, Some(list)));
        }
    }
    None
}

fn request(row: Row, schema: &Schema, place: Place) -> Result<Request, String> {
    let (mut user, mut labels, mut contextual) = (None, None, BTreeMap::new());
    let mut groups: BTreeMap<String, Columns> = BTreeMap::new();
    for (name, field) in row.into_columns() {
        let twice = match (name.as_str(), name.split_once('.')) {
            ("user", _) => user.replace(read_user(field)?).is_some(),
            ("labels", _) if field == Field::Null => false,
            ("labels", _) => labels.replace(list("labels", &field)?).is_some(),
            ("history" | "candidates", _) => insert_struct(&name, field, groups.entry(name.clone()).or_default())?,
            (_, Some((group @ ("history" | "candidates"), column))) => {
                let columns = groups.entry(group.to_owned()).or_default();
                columns.insert(column.to_owned(), list(&name, &field)?).is_some()
            }
            _ => contextual.insert(name.clone(), integer(&name, &field)?).is_some(),
        };
        if twice {
            return Err(format!("the column `{name}` is there twice"));
        }
    }
    let user = user.ok_or("the column `user` is missing")?;
    let mut take = |group: &str, columns: &[Column]| match groups.remove(group) {
        None if columns.iter().any(|column| column.required) => Err(format!("the column `{group}` is missing")),
        lists => Ok(lists.unwrap_or_default()),
    };
    let history = take("history", &schema.history)?;
    let candidates = take("candidates", &schema.candidates)?;
    Ok(Request { user, place, contextual, history, candidates, labels })
}

fn insert_struct(name: &str, field: Field, columns: &mut Columns) -> Result<bool, String> {
    let Field::Group(row) = field else { return Err(unexpected(name, "a struct of lists", &field)) };
    let mut twice = false;
    for (column, field) in row.into_columns() {
        let values = list(&format!("{name}.{column}"), &field)?;
        twice |= columns.insert(column, values).is_some();
    }
    Ok(twice)
}

fn read_user(field: Field) -> Result<User, String> {
    match field {
        Field::Str(name) => Ok(User::Name(name)),
        Field::Bytes(name) => {
            let name = String::from_utf8(name.data().to_vec());
            name.map(User::Name).map_err(|_| "`user` is not UTF-8".to_owned())
        }
        field => integer("user", &field).map(User::Number),
    }
}

fn list(name: &str, field: &Field) -> Result<Vec<i64>, String> {
    match field {
        Field::ListInternal(list) => list.elements().iter().map(|element| integer(name, element)).collect(),
        _ => Err(unexpected(name, "a list of integers", field)),
    }
}

fn integer(name: &str, field: &Field) -> Result<i64, String> {
    let value = match *field {
        Field::Byte(value) => Some(value.into()),
        Field::Short(value) => Some(value.into()),
        Field::Int(value) => Some(value.into()),
        Field::Long(value) => Some(value),
        Field::UByte(value) => Some(value.into()),
        Field::UShort(value) => Some(value.into()),
        Field::UInt(value) => Some(value.into()),
        Field::ULong(value) => value.try_into().ok(),
        Field::Float(value) => whole(value.into()),
        Field::Double(value) => whole(value),
        _ => None,
    };
    value.ok_or_else(|| unexpected(name, "an integer", field))
}

fn unexpected(name: &str, expected: &str, field: &Field) -> String {
    let mut shown = field.to_string();
    if let Some((end, _)) = shown.char_indices().nth(40) {
        shown.truncate(end);
        shown.push('…');
    }
    format!("`{name}` is {shown}: expected {expected}")
}

thread_local! {
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read` on content of a file. The parquet crate panics on some damaged files; that becomes an error.
fn guarded<T>(read: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !GUARDED.get() {
                print(info);
            }
        }));
    });
    GUARDED.set(true);
    let result = catch_unwind(AssertUnwindSafe(read));
    GUARDED.set(false);
    match result {
        Ok(result) => result.map_err(|error| reason(&error)),
        Err(_) => Err("the file is damaged, or has a column of a type that cannot be read".into()),
    }
}

fn reason(error: &ParquetError) -> String {
    let text = error.to_string();
    match text.contains("Disabled feature at compile time") {
        true => "the compression is not supported: expected snappy, zstd or none".into(),
        false => text.strip_prefix("Parquet error: ").unwrap_or(&text).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parquet::basic::Compression;
    use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
    use parquet::file::properties::WriterProperties;
    use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
    use parquet::schema::parser::parse_message_type;
    use std::sync::Arc;

    fn schema() -> Schema {
        Schema {
            contextual: vec![Column::ids("age", 9)],
            history: vec![Column::ids("item", 9), Column::numbers("time", true)],
            candidates: vec![Column::ids("item", 9)],
        }
    }

    const LIST: &str = "(LIST) { repeated group list { optional int64 element; } }";

    fn nested() -> String {
        format!(
            "message m {{ optional binary user (UTF8); optional int64 age;
             optional group history {{ optional group item {LIST} optional group time {LIST} }}
             optional group candidates {{ optional group item {LIST} }} optional group labels {LIST} }}"
        )
    }

    fn flat() -> String {
        format!(
            "message m {{ optional binary user (UTF8); optional int64 age; optional group history.item {LIST}
             optional group history.time {LIST} optional group candidates.item {LIST} optional group labels {LIST} }}"
        )
    }

    type Leaf<'a> = (&'a [i64], &'a [i16], &'a [i16]);

    fn column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, leaf: (&[T::T], &[i16], &[i16])) {
        let mut column = group.next_column().unwrap().unwrap();
        let repetition = (!leaf.2.is_empty()).then_some(leaf.2);
        column.typed::<T>().write_batch(leaf.0, Some(leaf.1), repetition).unwrap();
        column.close().unwrap();
    }

    /// Two users: one with two events, two candidates and labels, one with no events and no labels. `depth` is the
    /// number of optional groups around a list.
    fn write(name: &str, message: &str, depth: i16, compression: Compression) -> PathBuf {
        let path = std::env::temp_dir().join(format!("rewire-{}-{name}.parquet", std::process::id()));
        let properties = Arc::new(WriterProperties::builder().set_compression(compression).build());
        let message = Arc::new(parse_message_type(message).unwrap());
        let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, properties).unwrap();
        let mut group = file.next_row_group().unwrap();
        let (full, empty) = (depth + 3, depth + 1);
        column::<ByteArrayType>(&mut group, (&[ByteArray::from("a"), ByteArray::from("b")], &[1, 1], &[]));
        column::<Int64Type>(&mut group, (&[4, 5], &[1, 1], &[]));
        let leaves: [Leaf<'_>; 4] = [
            (&[1, 2], &[full, full, empty], &[0, 1, 0]),
            (&[10, 20], &[full, full, empty], &[0, 1, 0]),
            (&[7, 8, 3], &[full, full, full], &[0, 1, 0]),
            (&[1, 0], &[3, 3, 0], &[0, 1, 0]),
        ];
        for leaf in leaves {
            column::<Int64Type>(&mut group, leaf);
        }
        group.close().unwrap();
        file.close().unwrap();
        path
    }

    fn read(path: PathBuf, schema: &Schema) -> Result<Vec<Request>, InputError> {
        let mut rows = Rows::open("x".into(), path.clone(), schema)?;
        let requests = std::iter::from_fn(|| rows.next(schema)).collect();
        std::fs::remove_file(path).unwrap();
        requests
    }

    #[test]
    fn structs_of_lists_and_lists_of_their_own_are_read() {
        let nested = read(write("nested", &nested(), 1, Compression::SNAPPY), &schema()).unwrap();
        let flat = read(write("flat", &flat(), 0, Compression::ZSTD(Default::default())), &schema()).unwrap();
        assert_eq!(nested, flat);
        let [first, second] = &nested[..] else { panic!("{nested:?}") };
        assert_eq!((&first.user, first.place, first.contextual["age"]), (&"a".into(), Place::Row(1), 4));
        assert_eq!((&first.history["item"][..], &first.history["time"][..]), (&[1, 2][..], &[10, 20][..]));
        assert_eq!((&first.candidates["item"][..], first.labels.as_deref()), (&[7, 8][..], Some(&[1, 0][..])));
        assert_eq!((second.events(), second.len(), &second.labels), (0, 1, &None));
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut schema = schema();
        schema.contextual.push(Column::ids("country", 3));
        let requests = read(write("missing", &nested(), 1, Compression::UNCOMPRESSED), &schema).unwrap();
        let error = requests[0].check(&schema).unwrap_err().to_string();
        assert_eq!(error, "user `a` (row 1): `country` is missing");
        schema.history = vec![Column::ids("film", 3)];
        let error = read(write("film", &nested(), 1, Compression::UNCOMPRESSED), &schema).unwrap_err().to_string();
        assert_eq!(error, "x: `history` has none of the lists that the model reads");
    }

    #[test]
    fn a_cut_or_damaged_file_is_an_error() {
        let whole = write("whole", &nested(), 1, Compression::SNAPPY);
        let bytes = std::fs::read(&whole).unwrap();
        std::fs::remove_file(whole).unwrap();
        let path = std::env::temp_dir().join(format!("rewire-{}-damaged.parquet", std::process::id()));
        for end in (4..bytes.len()).step_by(7) {
            std::fs::write(&path, &bytes[..end]).unwrap();
            assert!(Rows::open("x".into(), path.clone(), &schema()).is_err(), "cut at {end}");
        }
        for at in 4..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x55;
            std::fs::write(&path, damaged).unwrap();
            // Whatever comes of it, it comes as a value.
            let _ = read_all(&path);
        }
        std::fs::remove_file(path).unwrap();
    }

    fn read_all(path: &std::path::Path) -> Result<Vec<Request>, InputError> {
        let schema = schema();
        let mut rows = Rows::open("x".into(), path.to_owned(), &schema)?;
        std::iter::from_fn(|| rows.next(&schema)).collect()
    }
}
