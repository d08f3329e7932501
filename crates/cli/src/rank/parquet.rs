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
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err("the file is damaged, or has a column of a type that cannot be read".into()),
    }
}
