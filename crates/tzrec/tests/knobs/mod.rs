//! Every key of a pipeline has a row in `proto/knobs.tsv`, from which `docs/knobs.md` is generated.

use prost_reflect::{DescriptorPool, MessageDescriptor};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// States in the table, and their names on the page.
const STATES: [(&str, &str); 3] = [("acts", "supported"), ("ignored", "no effect"), ("refused", "error")];

const BEGIN: &str = "\
# Keys of a pipeline

Every key of TorchEasyRec's pipeline configuration, by message. Defaults are those of TorchEasyRec (*the reference*).

- *supported*: the key has the same effect as in the reference.
- *no effect*: the key is accepted, and results do not depend on it. The remark has the reason or the replacement.
- *error*: a configuration with the key is an error that names the key and its line.

Options of the program replace `kernel`, TF32, sorting by length and the sizes of batches: see `rewire --help`. The size of batches is not limited.

The rows are in `crates/tzrec/proto/knobs.tsv`; tests compare them with the descriptions of all messages, and run its
examples.
";

struct Row<'a> {
    key: &'a str,
    state: &'a str,
    remark: &'a str,
}

fn rows(text: &str) -> Vec<Row<'_>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let row = |line| {
        let mut fields = str::split(line, '\t');
        let mut next = || fields.next().unwrap_or_default();
        Row { key: next(), state: next(), remark: next() }
    };
    lines.map(row).collect()
}

/// All messages of the configuration, in order of first use.
fn messages() -> Vec<MessageDescriptor> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/tzrec.bin");
    let pool = DescriptorPool::decode(std::fs::read(path).unwrap().as_slice()).unwrap();
    let is_own = |message: &MessageDescriptor| message.package_name() == "tzrec" && !message.is_map_entry();
    pool.all_messages().filter(is_own).collect()
}

/// Finds the row of a key.
fn find<'a, 'r>(rows: &'a [Row<'r>], message: &str, key: &str) -> Option<&'a Row<'r>> {
    let of = |name: String| rows.iter().find(|row| row.key == name);
    of(format!("{message}.{key}")).or_else(|| of(format!("{message}.*"))).or_else(|| of(format!("*.{key}")))
}

/// The page: one table per message. Keys with equal state and remark share a row.
fn page(rows: &[Row]) -> String {
    let mut page = BEGIN.to_owned();
    for message in messages() {
        let mut groups: Vec<(&Row, Vec<String>)> = vec![];
        for field in message.fields() {
            let row = find(rows, message.name(), field.name()).unwrap();
            let key = format!("`{}`", field.name());
            match groups.iter_mut().find(|(known, _)| (known.state, known.remark) == (row.state, row.remark)) {
                Some((_, keys)) => keys.push(key),
                None => groups.push((row, vec![key])),
            }
        }
        if groups.is_empty() {
            continue;
        }
        write!(page, "\n## {}\n\n| keys | | |\n| --- | --- | --- |\n", message.name()).unwrap();
        for (row, keys) in groups {
            let (_, state) = STATES.iter().find(|(state, _)| *state == row.state).unwrap();
            writeln!(page, "| {} | {state} | {} |", keys.join(", "), row.remark).unwrap();
        }
    }
    page
}

#[test]
fn every_key_has_a_row() {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/knobs.tsv")).unwrap();
    let rows = rows(&text);
    let (mut without, mut used) = (vec![], BTreeSet::new());
    for message in messages() {
        for field in message.fields() {
            match find(&rows, message.name(), field.name()) {
                Some(row) => drop(used.insert(row.key)),
                None => without.push(field.full_name().to_owned()),
            }
        }
    }
    assert!(without.is_empty(), "no row for {without:?}");
    let unused: Vec<&str> = rows.iter().map(|row| row.key).filter(|key| !used.contains(key)).collect();
    assert!(unused.is_empty() && used.len() == rows.len(), "no key, or a second row, for {unused:?}");
    for row in &rows {
        assert!(STATES.iter().any(|(state, _)| *state == row.state), "{}: {}", row.key, row.state);
        assert!(row.state == "acts" || !row.remark.is_empty(), "{}: why?", row.key);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/knobs.md");
    if std::env::var_os("UPDATE_KNOBS").is_some() {
        std::fs::write(&file, page(&rows)).unwrap();
    }
    assert!(std::fs::read_to_string(file).unwrap() == page(&rows), "run with UPDATE_KNOBS=1");
}
