use super::columns::{Column, Role, extend};
use super::{Carry, Cell, ColumnFault, InputError, LARGEST, Progress, Requests, Value, missing_column};
use csv::{ByteRecord, ErrorKind, Reader, ReaderBuilder};
use rewire::rank::{Batch, ColumnsError, Schema, User, whole};
use std::borrow::Cow;
use std::io::{self, BufRead, Read};

/// Requests from CSV: a header with the names of columns, `user`, `country`, `history.item_id`, and one record per user. Each list
/// is a field, with a separator between the values.
pub struct Records<R> {
    file: String,
    reader: Reader<Limited<R>>,
    length: Option<u64>,
    /// The model's columns, with the positions of their fields.
    columns: Vec<(usize, Column)>,
    /// Positions of the fields of copied columns.
    carried: Vec<usize>,
    carry: Carry,
    record: ByteRecord,
    /// Records that were read.
    row: u64,
    /// By column, the cells of the added requests.
    cells: Vec<Vec<Cell>>,
}

/// Text whose records have a maximum length.
struct Limited<R> {
    text: R,
    /// Bytes that may be read before the next record.
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.text.read(buffer)?;
        self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("a record has more than {LARGEST} bytes"))
        })?;
        Ok(read)
    }
}

impl<R: BufRead> Records<R> {
    pub fn new(file: String, text: R, length: Option<u64>, schema: &Schema, carry: Carry) -> Result<Self, InputError> {
        let text = Limited { text, left: LARGEST };
        let mut reader = ReaderBuilder::new().buffer_capacity(1 << 16).from_reader(text);
        let header = reader.headers().map_err(|error| unread(&file, 0, error))?.clone();
        let names: Vec<&str> = header.iter().map(|name| name.trim_start_matches('\u{feff}').trim()).collect();
        let table = |reason: String| InputError::Table { file: file.clone(), reason };
        if names.iter().all(|name| name.is_empty()) {
            return Err(InputError::Empty { file });
        }
        let mut columns: Vec<(usize, Column)> = Vec::new();
        for (place, name) in names.iter().enumerate() {
            let Some((role, 1)) = Role::of(&[(*name).to_owned()], schema) else { continue };
            if columns.iter().any(|(_, known)| known.role == role) {
                return Err(table(format!("the column `{name}` is there twice")));
            }
            columns.push((place, Column::new(role)));
        }
        schema.check_names(names.iter().copied()).map_err(|fault| table(fault.to_string()))?;
        let place = |name: &String| {
            let place = names.iter().position(|known| known == name);
            place.ok_or_else(|| table(missing_column(name, names.iter().copied())))
        };
        let carried = carry.names.iter().map(place).collect::<Result<_, _>>()?;
        let cells = vec![Vec::new(); carry.names.len()];
        Ok(Self { file, reader, length, columns, carried, carry, record: ByteRecord::new(), row: 0, cells })
    }

    /// Reads a record; false at the end.
    fn read_record(&mut self) -> Result<bool, InputError> {
        self.reader.get_mut().left = LARGEST;
        let read = self.reader.read_byte_record(&mut self.record);
        if !matches!(read, Ok(false)) {
            self.row += 1;
        }
        read.map_err(|error| unread(&self.file, self.row, error))
    }

    /// Adds the request of the record.
    fn add(&mut self, batch: &mut Batch) -> Result<(), InputError> {
        let (file, row) = (&self.file, self.row);
        let fault = |column: String, fault| InputError::Column { file: file.clone(), row, column, fault };
        for (place, column) in &mut self.columns {
            column.truncate(0);
            let field = self.record.get(*place).unwrap_or_default().trim_ascii();
            parse(field, self.carry.separator, column).map_err(|error| fault(column.role.title(), error))?;
        }
        let columns = self.columns.iter().map(|(_, column)| column);
        let lists = columns.clone().filter(|column| matches!(column.role, Role::Candidates(_)));
        let candidates = lists.map(|column| column.values.len()).next().unwrap_or(0);
        let mut users = columns.clone().flat_map(|column| &column.users);
        users.try_for_each(|user| self.carry.check_user(user)).map_err(|error| fault("user".into(), error))?;
        let mut taken = Vec::with_capacity(self.carried.len());
        for (column, place) in self.carried.iter().enumerate() {
            let name = || self.carry.names.get(column).cloned().unwrap_or_default();
            let cell = cell(self.record.get(*place).unwrap_or_default(), self.carry.separator, &name());
            let name = name();
            let cell = cell.and_then(|cell| self.carry.take(column, cell, candidates));
            taken.push(cell.map_err(|error| fault(name, error))?);
        }
        extend(batch, columns, 0..1).map_err(|error| match error {
            ColumnsError::Request(source) => InputError::Row { file: file.clone(), row, source: Box::new(source) },
            error => InputError::Table { file: file.clone(), reason: error.to_string() },
        })?;
        self.cells.iter_mut().zip(taken).for_each(|(cells, cell)| cells.push(cell));
        Ok(())
    }
}

/// Adds a field's row to a column.
fn parse(field: &[u8], separator: u8, column: &mut Column) -> Result<(), ColumnFault> {
    match column.role {
        Role::User => column.users.push(user(field)?),
        Role::Contextual(_) => column.values.push(integer(field)?),
        Role::Labels | Role::History(_) | Role::Candidates(_) => {
            if !field.is_empty() {
                for value in field.split(|&byte| byte == separator) {
                    column.values.push(integer(value.trim_ascii())?);
                }
            }
            column.offsets.push(column.values.len() as i64);
        }
    }
    Ok(())
}

fn user(field: &[u8]) -> Result<User, ColumnFault> {
    let text = std::str::from_utf8(field).map_err(|_| ColumnFault::NotUtf8)?;
    match Value::of_field(text) {
        Value::Null => Err(ColumnFault::Null { expected: "a text or an integer" }),
        Value::Integer(number) => Ok(User::Number(number)),
        _ => Ok(User::Name(text.to_owned())),
    }
}

fn integer(field: &[u8]) -> Result<i64, ColumnFault> {
    if let Some(number) = small(field) {
        return Ok(number);
    }
    let text = std::str::from_utf8(field).map_err(|_| ColumnFault::NotUtf8)?;
    let number = text.parse().ok().or_else(|| text.parse().ok().and_then(whole));
    match number {
        Some(number) => Ok(number),
        None if text.is_empty() => Err(ColumnFault::Null { expected: "an integer" }),
        None => Err(ColumnFault::NoInteger { value: text.chars().take(40).collect() }),
    }
}

/// A number with few digits and no sign.
fn small(field: &[u8]) -> Option<i64> {
    let digit = |number: i64, byte: &u8| byte.is_ascii_digit().then(|| number * 10 + i64::from(byte - b'0'));
    (1..=18).contains(&field.len()).then(|| field.iter().try_fold(0, digit)).flatten()
}

/// The copied value of a field. Lists belong to candidates or to the history; nothing is copied from histories.
fn cell(field: &[u8], separator: u8, name: &str) -> Result<Cell, ColumnFault> {
    let text = std::str::from_utf8(field).map_err(|_| ColumnFault::NotUtf8)?;
    let is_list = name == "labels" || name.starts_with("candidates.") || name.starts_with("history.");
    Ok(match is_list {
        false => Cell::One(Value::of_field(text)),
        true if text.is_empty() => Cell::Each(Vec::new()),
        true => Cell::Each(text.split(char::from(separator)).map(|value| Value::of_field(value.trim())).collect()),
    })
}

fn unread(file: &str, row: u64, error: csv::Error) -> InputError {
    let file = file.to_owned();
    match error.into_kind() {
        ErrorKind::Io(source) => InputError::Read { file, source },
        ErrorKind::UnequalLengths { expected_len, len, .. } => {
            InputError::Fields { file, row, actual: len, expected: expected_len }
        }
        ErrorKind::Utf8 { .. } => InputError::Table { file, reason: "the header is not UTF-8".into() },
        kind => InputError::Table { file, reason: format!("row {row} cannot be read: {kind:?}") },
    }
}

impl<R: BufRead + Send> Requests for Records<R> {
    fn read(&mut self, batch: &mut Batch, entries: usize) -> Result<bool, InputError> {
        let end = batch.len() + batch.entries() + entries;
        while batch.len() + batch.entries() < end {
            if !self.read_record()? {
                return Ok(false);
            }
            self.add(batch)?;
        }
        Ok(true)
    }

    fn take_carried(&mut self) -> Vec<Vec<Cell>> {
        self.cells.iter_mut().map(std::mem::take).collect()
    }

    fn carry(&self) -> &Carry {
        &self.carry
    }

    fn row(&self) -> u64 {
        self.row
    }

    fn skip(&mut self, rows: u64) -> Result<(), InputError> {
        for _ in 0..rows {
            match self.read_record() {
                Err(error) if !error.is_of_row() => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn text(&self) -> Option<Cow<'_, str>> {
        let fields: Vec<Cow<'_, str>> = self.record.iter().map(String::from_utf8_lossy).collect();
        Some(fields.join(",").into())
    }

    fn progress(&self) -> Option<Progress> {
        self.length.map(|length| Progress { done: self.reader.position().byte().min(length), all: length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rewire::rank::{Column, Request};

    fn schema() -> Schema {
        Schema {
            contextual: vec![Column::ids("age", 9)],
            history: vec![Column::ids("item", 9)],
            candidates: vec![Column::ids("item", 9)],
        }
    }

    fn open<'a>(text: &'a str, names: &[&str]) -> Result<Records<&'a [u8]>, InputError> {
        let carry = Carry { names: names.iter().map(|name| (*name).to_owned()).collect(), ..Carry::default() };
        Records::new("x".into(), text.as_bytes(), None, &schema(), carry)
    }

    const HEADER: &str = "age,user,more,history.item,candidates.item,labels,candidates.title\n";

    #[test]
    fn lists_are_fields() {
        let text = format!("\u{feff}{HEADER}4,a,7,1; 2,3,1,\"x, \"\"y\"\"\"\r\n5,12,,,8;1,,p;q\n");
        let mut records = open(&text, &["more", "candidates.title"]).unwrap();
        let mut batch = Batch::new(schema());
        assert!(!records.read(&mut batch, 100).unwrap());
        let none: [i64; 0] = [];
        let first = Request::new("a").contextual("age", 4).history("item", [1, 2]).candidates("item", [3]).labels([1]);
        let second = Request::new(12).contextual("age", 5).history("item", none).candidates("item", [8, 1]);
        let mut expected = Batch::new(schema());
        [first, second].iter().for_each(|request| expected.push(request).unwrap());
        assert_eq!(batch, expected);
        let text = |text: &str| Value::Text(text.into());
        let titles = vec![Cell::Each(vec![text("x, \"y\"")]), Cell::Each(vec![text("p"), text("q")])];
        let more = vec![Cell::One(Value::Integer(7)), Cell::One(Value::Null)];
        assert_eq!(records.take_carried(), [more, titles]);
    }

    #[test]
    fn faults_name_row_and_column_and_reading_goes_on() {
        let rows =
            ["1,a,,,1,,", "1,b,,x,1,,", "1,c,,9,1,,", "1,d", "9999999999999999999,e,,,1,,", ",f,,,1,,", "2,g,,,1,,"];
        let text = format!("{HEADER}{}", rows.map(|row| format!("{row}\n")).concat());
        let mut records = open(&text, &[]).unwrap();
        let (mut batch, mut faults) = (Batch::new(schema()), vec![]);
        loop {
            match records.read(&mut batch, 100) {
                Ok(more) => break assert!(!more),
                Err(error) => {
                    assert!(error.is_of_row());
                    faults.push(rewire::describe(&error));
                }
            }
        }
        assert_eq!(batch.len(), 2);
        let expected = [
            "x, row 2: `history.item` is x: expected an integer",
            "x, row 3: user `c`: `history.item[0]` is 9, but the table `item` has 9 rows",
            "x, row 4 has 2 fields: expected 7, as in the header",
            "x, row 5: `age` is 9999999999999999999: expected an integer",
            "x, row 6: `age` is null: expected an integer",
        ];
        assert_eq!(faults, expected);
        assert_eq!(records.row(), 7);
    }

    #[test]
    fn headers_are_checked() {
        let fault = |text: &str, names: &[&str]| open(text, names).map(drop).unwrap_err().to_string();
        assert!(fault("", &[]).contains("holds no users"));
        assert!(fault("age\n", &[]).contains(": `user`, `history.item`, `candidates.item` are missing; example: {"));
        assert!(fault("user,age,history.item\n", &[]).contains(": `candidates.item` is missing; example: {"));
        assert!(fault("user,user\n", &[]).ends_with("the column `user` is there twice"));
        assert!(fault(HEADER, &["price"]).ends_with("the column `price` is missing"));
        assert!(fault(HEADER, &["agee"]).ends_with("the column `agee` (is it `age`?) is missing"));
    }
}
