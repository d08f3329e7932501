//! Requests and predictions in files of every format.
#![allow(dead_code, clippy::panic, clippy::unwrap_used)]

use crate::program::jsonl;
use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::record::Field;
use parquet::schema::parser::parse_message_type;
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// A row of predictions, numbers by their bits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    pub user: String,
    pub item: i64,
    pub score: u64,
    pub logits: Vec<u32>,
    pub carried: Vec<String>,
}

const LISTS: [(&str, &str); 8] = [
    ("history", "item_id"),
    ("history", "genre"),
    ("history", "action"),
    ("history", "watchtime"),
    ("history", "timestamp"),
    ("candidates", "item_id"),
    ("candidates", "genre"),
    ("candidates", "timestamp"),
];

/// Writes users in the format of the file's ending, `rows` a row group in Parquet.
pub fn write(path: &Path, users: &[Value], rows: usize) -> String {
    match path.extension().unwrap().to_str().unwrap() {
        "csv" => std::fs::write(path, csv(users)).unwrap(),
        "parquet" => parquet(path, users, rows),
        _ => std::fs::write(path, jsonl(users)).unwrap(),
    }
    path.display().to_string()
}

fn integers(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|value| value.as_i64().unwrap()).collect()
}

fn csv(users: &[Value]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(vec![]);
    let lists = LISTS.map(|(group, name)| format!("{group}.{name}"));
    let names = ["user", "age_bucket", "country", "note"].map(str::to_owned);
    writer.write_record(names.iter().chain(&lists)).unwrap();
    for user in users {
        let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let single = ["user", "age_bucket", "country", "note"].map(|name| text(&user[name]));
        let list = |(group, name): (&str, &str)| {
            integers(&user[group][name]).iter().map(i64::to_string).collect::<Vec<_>>().join(";")
        };
        writer.write_record(single.into_iter().chain(LISTS.map(list))).unwrap();
    }
    writer.into_inner().unwrap()
}

fn put<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, values: &[T::T], levels: Option<(&[i16], &[i16])>) {
    let mut column = group.next_column().unwrap().unwrap();
    let (definitions, repetitions) = (levels.map(|levels| levels.0), levels.map(|levels| levels.1));
    column.typed::<T>().write_batch(values, definitions, repetitions).unwrap();
    column.close().unwrap();
}

fn parquet(path: &Path, users: &[Value], rows: usize) {
    let lists = LISTS.map(|(group, name)| {
        format!("required group {group}.{name} (LIST) {{ repeated group list {{ required int64 element; }} }}")
    });
    let message = format!(
        "message m {{ required binary user (UTF8); required int64 age_bucket; required int64 country; required binary note (UTF8); {} }}",
        lists.join(" ")
    );
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let message = Arc::new(parse_message_type(&message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(path).unwrap(), message, properties.into()).unwrap();
    for users in users.chunks(rows) {
        let mut group = file.next_row_group().unwrap();
        let text =
            |name: &str| users.iter().map(|user| ByteArray::from(user[name].as_str().unwrap())).collect::<Vec<_>>();
        let numbers = |name: &str| users.iter().map(|user| user[name].as_i64().unwrap()).collect::<Vec<_>>();
        put::<ByteArrayType>(&mut group, &text("user"), None);
        put::<Int64Type>(&mut group, &numbers("age_bucket"), None);
        put::<Int64Type>(&mut group, &numbers("country"), None);
        put::<ByteArrayType>(&mut group, &text("note"), None);
        for (name, column) in LISTS {
            let (mut values, mut definitions, mut repetitions) = (vec![], vec![], vec![]);
            for user in users {
                let list = integers(&user[name][column]);
                definitions.extend(if list.is_empty() { vec![0] } else { vec![1; list.len()] });
                repetitions.extend((0..list.len().max(1)).map(|at| i16::from(at > 0)));
                values.extend(list);
            }
            put::<Int64Type>(&mut group, &values, Some((&definitions, &repetitions)));
        }
        group.close().unwrap();
    }
    file.close().unwrap();
}

/// The rows of a file of predictions, and the names of its columns.
pub fn read(path: &Path) -> (Vec<String>, Vec<Row>) {
    match path.extension().unwrap().to_str().unwrap() {
        "csv" => read_csv(path),
        "parquet" => read_parquet(path),
        _ => read_jsonl(path),
    }
}

/// A row of texts and numbers; both carry the same bits.
fn row(values: &[Value]) -> Row {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let number = |value: &Value| value.as_f64().unwrap_or_else(|| text(value).parse().unwrap());
    Row {
        user: text(&values[0]),
        item: text(&values[1]).parse().unwrap(),
        score: number(&values[2]).to_bits(),
        logits: values[3..5].iter().map(|value| (number(value) as f32).to_bits()).collect(),
        carried: values[5..].iter().map(text).collect(),
    }
}

fn read_jsonl(path: &Path) -> (Vec<String>, Vec<Row>) {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: Vec<serde_json::Map<String, Value>> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names = lines.first().map(|line| line.keys().cloned().collect()).unwrap_or_default();
    let rows = lines.iter().map(|line| row(&line.values().cloned().collect::<Vec<_>>())).collect();
    (names, rows)
}

fn read_csv(path: &Path) -> (Vec<String>, Vec<Row>) {
    let mut reader = csv::Reader::from_path(path).unwrap();
    let names = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let values = |record: csv::StringRecord| record.iter().map(Value::from).collect::<Vec<_>>();
    (names, reader.records().map(|record| row(&values(record.unwrap()))).collect())
}

fn read_parquet(path: &Path) -> (Vec<String>, Vec<Row>) {
    let reader = SerializedFileReader::new(File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr();
    let names = schema.columns().iter().map(|column| column.name().to_owned()).collect();
    let value = |field: &Field| match field {
        Field::Str(text) => json!(text),
        Field::Long(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Float(number) => json!(number),
        Field::Bool(value) => json!(value),
        Field::Null => Value::Null,
        other => panic!("{other:?}"),
    };
    let rows = reader.get_row_iter(None).unwrap();
    let rows =
        rows.map(|found| row(&found.unwrap().get_column_iter().map(|(_, field)| value(field)).collect::<Vec<_>>()));
    (names, rows.collect())
}
