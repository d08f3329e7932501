use super::*;
use crate::requests::Value;
use crate::tables::Nested;
use parquet::basic::{Compression, Encoding};
use parquet::column::page::{Page, PageMetadata, PageReader};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, FloatType, Int64Type};
use parquet::file::properties::{WriterProperties, WriterVersion};
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use rewire::rank::{Column, Request};
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use std::io::Read;
use std::path::PathBuf;
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

fn flat_form() -> String {
    format!(
        "message m {{ optional binary user (UTF8); optional int64 age; optional group history.item {LIST}
         optional group history.time {LIST} optional group candidates.item {LIST} optional group labels {LIST} }}"
    )
}

type LeafData<'a> = (&'a [i64], &'a [i16], &'a [i16]);

fn column<T: DataType>(group: &mut SerializedRowGroupWriter<'_, File>, leaf: (&[T::T], &[i16], &[i16])) {
    let mut column = group.next_column().unwrap().unwrap();
    let [definition, repetition] = [leaf.1, leaf.2].map(|levels| (!levels.is_empty()).then_some(levels));
    column.typed::<T>().write_batch(leaf.0, definition, repetition).unwrap();
    column.close().unwrap();
}

/// Two users: one with two events, two candidates and labels, one with no events and no labels. `depth` is the
/// number of optional groups around a list.
fn write(name: &str, message: &str, depth: i16, compression: Compression) -> PathBuf {
    write_as(name, message, depth, WriterProperties::builder().set_compression(compression).build())
}

fn write_as(name: &str, message: &str, depth: i16, properties: WriterProperties) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rewire-{}-{name}.parquet", std::process::id()));
    let message = Arc::new(parse_message_type(message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, properties.into()).unwrap();
    let mut group = file.next_row_group().unwrap();
    let (full, empty) = (depth + 3, depth + 1);
    column::<ByteArrayType>(&mut group, (&[ByteArray::from("a"), ByteArray::from("b")], &[1, 1], &[]));
    column::<Int64Type>(&mut group, (&[4, 5], &[1, 1], &[]));
    let leaves: [LeafData<'_>; 4] = [
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

fn read(path: PathBuf, schema: &Schema) -> Result<Batch, InputError> {
    let batch = read_all(&path, schema);
    std::fs::remove_file(path).unwrap();
    batch
}

/// All requests of a file, in batches of a row.
fn read_all(path: &Path, schema: &Schema) -> Result<Batch, InputError> {
    let mut rows = Rows::open("x".into(), path, schema, Carry::default())?;
    let mut batch = Batch::new(schema.clone());
    while rows.read(&mut batch, 1)? {}
    Ok(batch)
}

fn batch(schema: &Schema, requests: &[Request]) -> Batch {
    let mut batch = Batch::new(schema.clone());
    requests.iter().for_each(|request| batch.push(request).unwrap());
    batch
}

#[test]
fn structs_of_lists_and_lists_of_their_own_are_read() {
    let nested = read(write("nested", &nested(), 1, Compression::SNAPPY), &schema()).unwrap();
    let flat = read(write("flat", &flat_form(), 0, Compression::ZSTD(Default::default())), &schema()).unwrap();
    assert_eq!(nested, flat);
    for compression in [Compression::UNCOMPRESSED, Compression::SNAPPY, Compression::ZSTD(Default::default())] {
        let second = WriterProperties::builder().set_writer_version(WriterVersion::PARQUET_2_0);
        let properties = second.set_compression(compression).build();
        assert_eq!(read(write_as("second", &flat_form(), 0, properties), &schema()).unwrap(), flat, "{compression}");
    }
    let none: [i64; 0] = [];
    let first = Request::new("a").contextual("age", 4).history("item", [1, 2]).history("time", [10, 20]);
    let second = Request::new("b").contextual("age", 5).history("item", none).history("time", none);
    let requests = [first.candidates("item", [7, 8]).labels([1, 0]), second.candidates("item", [3])];
    assert_eq!(nested, batch(&schema(), &requests));
}

#[test]
fn rows_are_read_no_further_than_they_are_asked_for() {
    let path = write("some", &nested(), 1, Compression::SNAPPY);
    let mut rows = Rows::open("x".into(), &path, &schema(), Carry::default()).unwrap();
    let mut all = Batch::new(schema());
    assert!(rows.read(&mut all, 1).unwrap());
    assert_eq!((all.len(), rows.row), (1, 1));
    assert!(!rows.read(&mut all, 1000).unwrap());
    assert_eq!((all.len(), rows.row), (2, 2));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_does_not_fit_the_model_is_named() {
    let mut schema = schema();
    schema.candidates = vec![Column::ids("item", 8)];
    let path = write("ids", &nested(), 1, Compression::UNCOMPRESSED);
    let mut rows = Rows::open("x".into(), &path, &schema, Carry::default()).unwrap();
    let error = rows.read(&mut Batch::new(schema.clone()), 1000).unwrap_err();
    let text = "x, row 1: user `a`: `candidates.item[1]` is 8, but the table `item` has 8 rows";
    assert_eq!(rewire::describe(&error), text);
    schema.candidates = vec![Column::ids("item", 9)];
    schema.contextual = vec![Column::ids("age", 5)];
    let mut rows = Rows::open("x".into(), &path, &schema, Carry::default()).unwrap();
    let mut good = Batch::new(schema.clone());
    let error = rows.read(&mut good, 1000).unwrap_err();
    let text = "x, row 2: user `b`: `age` is 5, but the table `age` has 5 rows";
    assert_eq!((rewire::describe(&error).as_str(), good.len()), (text, 1));
    schema.contextual = vec![Column::ids("ages", 5)];
    let error = Rows::open("x".into(), &path, &schema, Carry::default()).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("x: `ages` (is it `age`?) is missing; example: {"), "{error}");
    schema.contextual = vec![];
    schema.history = vec![Column::ids("film", 3)];
    let error = read(path, &schema).unwrap_err().to_string();
    assert!(error.starts_with("x: `history.film` is missing; example: {"), "{error}");
}

#[test]
fn a_cut_or_damaged_file_is_an_error() {
    let whole = write("whole", &nested(), 1, Compression::SNAPPY);
    let bytes = std::fs::read(&whole).unwrap();
    std::fs::remove_file(whole).unwrap();
    let path = std::env::temp_dir().join(format!("rewire-{}-damaged.parquet", std::process::id()));
    for end in (4..bytes.len()).step_by(7) {
        std::fs::write(&path, &bytes[..end]).unwrap();
        assert!(Rows::open("x".into(), &path, &schema(), Carry::default()).is_err(), "cut at {end}");
    }
    for at in 4..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x55;
        std::fs::write(&path, damaged).unwrap();
        // It returns a value, and does not panic.
        let _ = read_all(&path, &schema());
    }
    std::fs::remove_file(path).unwrap();
}

/// A file with the columns `user` and `history.item` of another form; `leaf` has a row for each of two users.
fn with_items(name: &str, items: &str, leaf: LeafData<'_>) -> PathBuf {
    let path = std::env::temp_dir().join(format!("rewire-{}-{name}.parquet", std::process::id()));
    let message = format!("message m {{ required int64 user; {items} }}");
    let message = Arc::new(parse_message_type(&message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, Default::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    column::<Int64Type>(&mut group, (&[7, -8], &[], &[]));
    column::<Int64Type>(&mut group, leaf);
    group.close().unwrap();
    file.close().unwrap();
    path
}

fn items_alone() -> Schema {
    Schema { history: vec![Column::ids("item", 9)], candidates: vec![], contextual: vec![] }
}

#[test]
fn lists_of_every_form_are_read() {
    for (name, form, full) in [
        ("repeated", "repeated int64 history.item;", 1),
        ("two", "required group history.item (LIST) { repeated int64 array; }", 1),
        ("three", "required group history.item (LIST) { repeated group bag { required int64 x; } }", 1),
        ("nested", "required group history { optional group item (LIST) { repeated int64 array; } }", 2),
    ] {
        let path = with_items(name, form, (&[3, 4, 5], &[full, full, full], &[0, 1, 0]));
        let requests = [Request::new(7).history("item", [3, 4]), Request::new(-8).history("item", [5])];
        assert_eq!(read(path, &items_alone()).unwrap(), batch(&items_alone(), &requests), "{name}");
    }
}

#[test]
fn values_that_are_missing_or_no_lists_are_named() {
    let fault = |name: &str, form: &str, leaf: LeafData<'_>| {
        let fault = read(with_items(name, form, leaf), &items_alone()).unwrap_err();
        fault.to_string()
    };
    let list = format!("optional group history.item {LIST}");
    let null = fault("null-list", &list, (&[3], &[3, 0], &[0, 0]));
    assert_eq!(null, "x, row 2: `history.item` is null: expected a list of integers");
    let null = fault("null-entry", &list, (&[3, 4], &[3, 3, 2], &[0, 0, 1]));
    assert_eq!(null, "x, row 2: `history.item` is null: expected an integer");
    let single = fault("single", "required int64 history.item;", (&[3, 4], &[], &[]));
    assert_eq!(single, "x: `history.item` is not a list of integers");
    let times = "repeated int64 history.item (TIMESTAMP_MILLIS);";
    let times = fault("times", times, (&[3, 4], &[1, 1], &[0, 0]));
    assert_eq!(times, "x: the column `history.item` is of TIMESTAMP_MILLIS: expected integers");
    let deep = "repeated group history.item { repeated int64 array; }";
    let deep = fault("deep", deep, (&[3, 4], &[2, 2], &[0, 0]));
    assert_eq!(deep, "x: `history.item` is not a list of integers");
}

#[test]
fn unsigned_integers_are_read_as_such() {
    let path = with_items("unsigned", "repeated int64 history.item (UINT_64);", (&[3, -1], &[1, 1], &[0, 0]));
    let mut rows = Rows::open("x".into(), &path, &items_alone(), Carry::default()).unwrap();
    let mut good = Batch::new(items_alone());
    let fault = rows.read(&mut good, 1000).unwrap_err().to_string();
    assert_eq!(good, batch(&items_alone(), &[Request::new(7).history("item", [3])]));
    assert_eq!(fault, "x, row 2: `history.item` is 18446744073709551615: expected an integer");
    std::fs::remove_file(path).unwrap();
}

/// Pages of a file with arbitrary claims about itself.
struct Claims(Vec<Page>);

impl Iterator for Claims {
    type Item = parquet::errors::Result<Page>;

    fn next(&mut self) -> Option<Self::Item> {
        self.get_next_page().transpose()
    }
}

impl PageReader for Claims {
    fn get_next_page(&mut self) -> parquet::errors::Result<Option<Page>> {
        Ok(self.0.pop())
    }

    fn peek_next_page(&mut self) -> parquet::errors::Result<Option<PageMetadata>> {
        let metadata = |page: &Page| PageMetadata {
            num_rows: None,
            num_levels: page.is_data_page().then(|| page.num_values() as usize),
            is_dict: page.is_dictionary_page(),
        };
        Ok(self.0.last().map(metadata))
    }

    fn skip_next_page(&mut self) -> parquet::errors::Result<()> {
        drop(self.0.pop());
        Ok(())
    }
}

#[test]
fn empty_pages_are_passed_over() {
    let data = |num_values: u32| Page::DataPage {
        buf: [7, 0, 0, 0, 0, 0, 0, 0].repeat(num_values as usize).into(),
        num_values,
        encoding: Encoding::PLAIN,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let message = Arc::new(parse_message_type("message m { required int64 a; }").unwrap());
    let column = parquet::schema::types::SchemaDescriptor::new(message).column(0);
    let claims = Claims(vec![data(0), data(3), data(0), data(0), data(2), data(0)]);
    let pages = pages::Pages::new(Box::new(claims), Compression::UNCOMPRESSED, Arc::default());
    let reader = parquet::column::reader::get_column_reader(column, Box::new(pages));
    let parquet::column::reader::ColumnReader::Int64ColumnReader(mut reader) = reader else { panic!("another type") };
    let mut values = vec![];
    assert_eq!(reader.read_records(10, None, None, &mut values).unwrap().0, 5);
    assert_eq!(values, [7; 5]);
}

#[test]
fn pages_that_claim_more_than_a_row_may_take_are_refused() {
    let data = |num_values: u32, encoding: Encoding| Page::DataPage {
        buf: vec![0; 16].into(),
        num_values,
        encoding,
        def_level_encoding: Encoding::RLE,
        rep_level_encoding: Encoding::RLE,
        statistics: None,
    };
    let read = |claims: Vec<Page>| {
        let mut pages = pages::Pages::new(Box::new(Claims(claims)), Compression::UNCOMPRESSED, Arc::default());
        let mut all = std::iter::from_fn(move || pages.get_next_page().transpose());
        all.find_map(Result::err).map_or_else(String::new, |error| error.to_string())
    };
    let half = (MOST_VALUES / 2) as u32;
    assert_eq!(read(vec![data(half, Encoding::PLAIN), data(half, Encoding::PLAIN)]), "");
    assert!(read(vec![data(u32::MAX, Encoding::PLAIN)]).contains("more than 33554432 entries"));
    assert!(read(vec![data(half, Encoding::PLAIN); 3]).contains("more than 33554432 entries"));
    assert!(read(vec![data(2, Encoding::DELTA_BYTE_ARRAY)]).contains("expected PLAIN or a dictionary"));
    let dictionary = Page::DictionaryPage {
        buf: vec![0; 16].into(),
        num_values: 1 << 31,
        encoding: Encoding::PLAIN,
        is_sorted: false,
    };
    assert!(read(vec![dictionary]).contains("a dictionary has 2147483648 entries in 16 bytes"));
}

#[test]
fn pages_are_decompressed_no_further_than_they_may_be() {
    let whole = |compression: Compression, content: Vec<u8>, levels: Option<u32>| {
        let (buf, num_values, encoding) = (content.into(), 2, Encoding::PLAIN);
        let (def_level_encoding, rep_level_encoding) = (Encoding::RLE, Encoding::RLE);
        let page = match levels {
            None => {
                Page::DataPage { buf, num_values, encoding, def_level_encoding, rep_level_encoding, statistics: None }
            }
            Some(levels) => Page::DataPageV2 {
                buf,
                num_values,
                encoding,
                num_nulls: 0,
                num_rows: 2,
                def_levels_byte_len: levels,
                rep_levels_byte_len: levels,
                is_compressed: true,
                statistics: None,
            },
        };
        decompress::decompress(page, compression).map(|page| page.buffer().to_vec()).map_err(|error| error.to_string())
    };
    let zeros = |bytes: u64| compress_to_vec(std::io::repeat(0).take(bytes), CompressionLevel::Fastest);
    // A handwritten frame of 128 KiB blocks that repeat a byte: compressing hundreds of megabytes would be slow.
    let repeated = |bytes: u64| {
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 7 << 3];
        for start in (0..bytes).step_by(1 << 17) {
            let (length, is_last) = ((bytes - start).min(1 << 17), start + (1 << 17) >= bytes);
            frame.extend(&(length << 3 | 1 << 1 | u64::from(is_last)).to_le_bytes()[..3]);
            frame.push(0);
        }
        frame
    };
    let (snappy, zstd) = (Compression::SNAPPY, Compression::ZSTD(Default::default()));
    let too_large = Err("Parquet error: a page has more than 268435456 bytes".to_owned());
    assert_eq!(whole(zstd, zeros(1000), None), Ok(vec![0; 1000]));
    assert_eq!(whole(zstd, repeated(300_000), None), Ok(vec![0; 300_000]));
    assert_eq!(whole(zstd, repeated(LARGEST + 1), None), too_large);
    assert_eq!(whole(zstd, [vec![7, 8], zeros(3)].concat(), Some(1)), Ok(vec![7, 8, 0, 0, 0]));
    assert_eq!(whole(zstd, [vec![7, 8], repeated(LARGEST - 1)].concat(), Some(1)), too_large);
    let text = snap::raw::Encoder::new().compress_vec(&[5; 300]).unwrap();
    assert_eq!(whole(snappy, text.clone(), None), Ok(vec![5; 300]));
    // The length comes first: 4,294,967,295 in place of 300.
    assert_eq!(whole(snappy, [&[0xff, 0xff, 0xff, 0xff, 0x0f], &text[2..]].concat(), None), too_large);
    assert!(whole(snappy, text, Some(1 << 31)).unwrap_err().contains("bytes of levels"));
    assert_eq!(whole(snappy, vec![1, 2], Some(1)), Ok(vec![1, 2]));
    assert!(
        whole(Compression::LZO, vec![1], None)
            .unwrap_err()
            .contains("expected snappy, gzip, brotli, lz4, zstd or none")
    );
}

#[test]
fn tables_hold_maps_and_lists_of_lists() {
    let message = "message m {
        optional group m (MAP) { repeated group key_value { required int64 key; optional float value; } }
        optional group n (LIST) { repeated group list { optional group element (LIST) { repeated group list { optional int64 element; } } } }
        required int64 plain; }";
    let path = std::env::temp_dir().join(format!("rewire-{}-nested.parquet", std::process::id()));
    let message = Arc::new(parse_message_type(message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, Arc::default()).unwrap();
    let mut group = file.next_row_group().unwrap();
    column::<Int64Type>(&mut group, (&[1, 2], &[2, 2, 0, 1], &[0, 1, 0, 0]));
    column::<FloatType>(&mut group, (&[0.5], &[3, 2, 0, 1], &[0, 1, 0, 0]));
    column::<Int64Type>(&mut group, (&[1, 2, 3], &[5, 5, 3, 0, 5], &[0, 2, 1, 0, 0]));
    column::<Int64Type>(&mut group, (&[7, 8, 9], &[], &[]));
    group.close().unwrap();
    file.close().unwrap();
    let names = ["plain", "n", "m"].map(str::to_owned);
    let rows = crate::tables::open(&path, &names).unwrap().read(10).unwrap();
    let missing = crate::tables::open(&path, &["other".to_owned()]).map(drop).unwrap_err();
    std::fs::remove_file(&path).unwrap();
    let one = |value: i64| Nested::One(Value::Integer(value));
    let list = |values: &[i64]| Nested::List(values.iter().map(|value| one(*value)).collect());
    let null = Nested::One(Value::Null);
    assert_eq!(rows.count, 3);
    assert_eq!(rows.columns[0], [one(7), one(8), one(9)]);
    assert_eq!(
        rows.columns[1],
        [Nested::List(vec![list(&[1, 2]), list(&[])]), null.clone(), Nested::List(vec![list(&[3])])]
    );
    let entries = vec![(Value::Integer(1), Value::Float(0.5)), (Value::Integer(2), Value::Null)];
    assert_eq!(rows.columns[2], [Nested::Map(entries), null, Nested::Map(vec![])]);
    assert!(missing.to_string().ends_with("the column `other` is missing"));
}

#[test]
fn numbers_are_read_ahead_within_their_pages() {
    const GROUP: i64 = 400;
    let path = std::env::temp_dir().join(format!("rewire-{}-ahead.parquet", std::process::id()));
    let message = "message m { optional int64 some; required int64 unsigned (INTEGER(64, false)); }";
    let pages = WriterProperties::builder().set_data_page_row_count_limit(300).set_write_batch_size(60).build();
    let message = Arc::new(parse_message_type(message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, pages.into()).unwrap();
    let is_there = |row: &i64| row * 5 % 7 > 2;
    for rows in [0..GROUP, GROUP..2 * GROUP] {
        let mut group = file.next_row_group().unwrap();
        let definitions: Vec<i16> = rows.clone().map(|row| is_there(&row).into()).collect();
        column::<Int64Type>(&mut group, (&rows.clone().filter(is_there).collect::<Vec<_>>(), &definitions, &[]));
        let numbers: Vec<i64> = rows.map(|row| if row == 450 { -1 } else { row }).collect();
        column::<Int64Type>(&mut group, (&numbers, &[], &[]));
        group.close().unwrap();
    }
    file.close().unwrap();
    let open = |name: &str| crate::tables::open(&path, &[name.to_owned()]).unwrap();
    let (mut some, mut unsigned) = (open("some"), open("unsigned"));
    let parts = std::iter::repeat_with(|| some.read(7).unwrap()).take_while(|rows| rows.count > 0);
    let cells: Vec<Nested> = parts.flat_map(|rows| rows.columns.into_iter().flatten()).collect();
    let cell = |row| Nested::One(if is_there(&row) { Value::Integer(row) } else { Value::Null });
    assert_eq!(cells, (0..2 * GROUP).map(cell).collect::<Vec<_>>());
    assert_eq!(unsigned.read(450).unwrap().count, 450);
    let fault = unsigned.read(1).unwrap_err().to_string();
    std::fs::remove_file(&path).unwrap();
    assert!(fault.contains("row 451: `unsigned`"), "{fault}");
}

#[test]
fn skipped_row_groups_are_not_read() {
    const GROUP: i64 = 50;
    let path = std::env::temp_dir().join(format!("rewire-{}-skipped.parquet", std::process::id()));
    let message = format!("message m {{ optional int64 some; required int64 plain; optional group list {LIST} }}");
    let pages = WriterProperties::builder().set_data_page_row_count_limit(16).set_write_batch_size(4).build();
    let message = Arc::new(parse_message_type(&message).unwrap());
    let mut file = SerializedFileWriter::new(File::create(&path).unwrap(), message, pages.into()).unwrap();
    for first in (0..4 * GROUP).step_by(GROUP as usize) {
        let rows: Vec<i64> = (first..first + GROUP).collect();
        let mut group = file.next_row_group().unwrap();
        let definitions: Vec<i16> = rows.iter().map(|row| (row % 3 > 0).into()).collect();
        column::<Int64Type>(
            &mut group,
            (&rows.iter().copied().filter(|row| row % 3 > 0).collect::<Vec<_>>(), &definitions, &[]),
        );
        column::<Int64Type>(&mut group, (&rows, &[], &[]));
        // A row has two elements or none.
        let full = |row: &i64| row % 4 > 0;
        let elements: Vec<i64> = rows.iter().filter(|row| full(row)).flat_map(|row| [*row, -row]).collect();
        let levels: Vec<(i16, i16)> =
            rows.iter().flat_map(|row| if full(row) { vec![(3, 0), (3, 1)] } else { vec![(1, 0)] }).collect();
        let (definitions, repetitions): (Vec<i16>, Vec<i16>) = levels.into_iter().unzip();
        column::<Int64Type>(&mut group, (&elements, &definitions, &repetitions));
        group.close().unwrap();
    }
    let metadata = file.close().unwrap();
    let names = ["some", "plain", "list"].map(str::to_owned);
    let all = crate::tables::open(&path, &names).unwrap().read(1000).unwrap();
    assert_eq!(all.count, 4 * GROUP as usize);
    for (skipped, read) in [(0, 3), (1, 1), (7, 11), (16, 1), (49, 2), (50, 1), (60, 45), (101, 3), (199, 1)] {
        let mut table = crate::tables::open(&path, &names).unwrap();
        let mut row = 0;
        loop {
            let passed = table.skip(skipped).unwrap();
            assert_eq!(passed, skipped.min(4 * GROUP as u64 - row), "{skipped}, {read}");
            row += passed;
            let rows = table.read(read).unwrap();
            for (own, expected) in rows.columns.iter().zip(&all.columns) {
                assert_eq!(own[..], expected[row as usize..row as usize + rows.count], "{skipped}, {read} at {row}");
            }
            row += rows.count as u64;
            if rows.count < read {
                break;
            }
        }
        assert_eq!(row, 4 * GROUP as u64);
    }
    // The second row group is damaged, which readers that skip it do not notice.
    let mut bytes = std::fs::read(&path).unwrap();
    let damaged = metadata.row_group(1).column(1);
    let begin = damaged.data_page_offset() as usize;
    bytes[begin..begin + damaged.compressed_size() as usize].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let mut table = crate::tables::open(&path, &names).unwrap();
    assert_eq!((table.read(30).unwrap().count, table.skip(90).unwrap()), (30, 90));
    assert_eq!(table.read(1).unwrap().columns[1], [Nested::One(Value::Integer(120))]);
    assert!(crate::tables::open(&path, &names).unwrap().read(60).is_err());
    std::fs::remove_file(&path).unwrap();
}
