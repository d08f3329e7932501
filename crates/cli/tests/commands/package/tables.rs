//! Packages with tables in a separate file.

use super::*;
use crate::program::{self, DEMO, Folder, run};

const NAME: &str = "tables.safetensors";

/// A package of the demo's model and its tables.
fn apart(folder: &Folder, name: &str, options: &[&str]) -> PathBuf {
    let file = folder.0.join(name);
    package(&file, &[&["--model", &format!("{DEMO}/model"), "--tables-file", NAME], options].concat());
    file
}

#[test]
fn of_packages_that_create_tables_at_once_all_that_exit_with_0_are_whole() {
    let folder = Folder::new();
    for round in 0..4 {
        let tables = format!("tables-{round}.safetensors");
        let start = |dtype: &str| {
            let file = folder.0.join(format!("{round}-{dtype}.rewire"));
            let args = ["package", "--tables", dtype, "--tables-file", &tables, "--out", file.to_str().unwrap()];
            let mut command = program::command(&args);
            (
                file.clone(),
                command.stderr(std::process::Stdio::null()).stdout(std::process::Stdio::null()).spawn().unwrap(),
            )
        };
        let started = ["f32", "f16", "int8"].map(start);
        let mut whole = 0;
        for (file, mut child) in started {
            if child.wait().unwrap().success() {
                let check = run(&["package", "--check", "--model", file.to_str().unwrap()]);
                assert_eq!(check.code, Some(0), "{}", check.stderr);
                whole += 1;
            }
        }
        assert_eq!(whole, 1, "one type of tables fits the file");
    }
    assert!(!folder.names().iter().any(|name| name.ends_with(".tmp")), "{:?}", folder.names());
}

fn logits_of(file: &Path, options: &[&str]) -> Vec<Value> {
    ranked(&rank(&file.display().to_string(), options))
}

#[test]
fn packages_share_tables_and_rank_as_their_folder_to_the_bit() {
    let folder = Folder::new();
    let one = apart(&folder, "one.rewire", &[]);
    let tables = std::fs::read(folder.0.join(NAME)).unwrap();
    let two = apart(&folder, "two.rewire", &["--dtype", "f16", "--tables", "f32"]);
    assert!(std::fs::read(folder.0.join(NAME)).unwrap() == tables);
    let whole = folder.0.join("whole.rewire");
    package(&whole, &["--dtype", "f16", "--tables", "f32"]);
    let of_program = ranked(&run(&["rank", "--kernel", "cpu", "--json", "--top", "1000"]));
    let of_f16 = logits_of(&whole, &[]);
    for place in ["auto", "device", "host"] {
        assert!(logits_of(&one, &["--tables-on", place]) == of_program, "{place}");
        assert!(logits_of(&two, &["--tables-on", place]) == of_f16, "{place}");
    }
    assert!(logits_of(&one, &["--parameter-bytes", "1"]) == of_program);
    let less = |file: &Path| std::fs::metadata(file).unwrap().len() as usize;
    assert!(less(&whole) > less(&two) + tables.len() / 2);
}

#[test]
fn tables_that_others_read_are_not_replaced() {
    let folder = Folder::new();
    apart(&folder, "one.rewire", &[]);
    let before = std::fs::read(folder.0.join(NAME)).unwrap();
    let other = folder.0.join("other.rewire").display().to_string();
    let with = ["package", "--tables", "int8", "--tables-file", NAME, "--out", &other];
    run(&with).failed_with(&[NAME, "does not hold the tables of the package", "its tables differ"]);
    folder.write(NAME, "something else");
    run(&with).failed_with(&[NAME, "does not hold the tables of the package", "expected a complete safetensors file"]);
    assert!(!Path::new(&other).exists());
    folder.write(NAME, before);
    assert_eq!(run(&["package", "--tables-file", "a/b", "--out", &other]).code, Some(2));
}

#[test]
fn a_package_of_a_package_takes_its_tables() {
    let folder = Folder::new();
    let one = apart(&folder, "one.rewire", &["--tables", "int8"]);
    let (two, whole) = (folder.0.join("two.rewire"), folder.0.join("whole.rewire"));
    let model = one.display().to_string();
    package(&two, &["--model", &model, "--tables", "int8", "--tables-file", NAME]);
    assert!(std::fs::read(&one).unwrap() == std::fs::read(two).unwrap());
    package(&whole, &["--model", &model, "--tables", "int8"]);
    assert!(logits_of(&whole, &[]) == logits_of(&one, &["--tables-on", "host"]));
}

#[test]
fn a_file_of_other_tables_is_an_error() {
    let folder = Folder::new();
    let file = apart(&folder, "x.rewire", &[]);
    let path = folder.0.join(NAME);
    let tables = std::fs::read(&path).unwrap();
    let model = file.display().to_string();
    let fails = |bytes: &[u8], parts: &[&str]| {
        std::fs::write(&path, bytes).unwrap();
        rank(&model, &[]).failed_with(&[&[NAME, "does not hold the tables of the package"], parts].concat());
    };
    let length = tables.len();
    for end in [0, 7, 8, 100, length / 2, length - 1] {
        fails(&tables[..end], &[&format!("{end} bytes: expected {length}")]);
    }
    fails(&[&tables[..], &[0]].concat(), &[&format!("{} bytes: expected {length}", length + 1)]);
    let header = 8 + u64::from_le_bytes(tables[..8].try_into().unwrap()) as usize;
    for at in (0..header).step_by(17) {
        let mut changed = tables.clone();
        changed[at] ^= 1;
        fails(&changed, &["its tables differ"]);
    }
    let text = String::from_utf8_lossy(&tables[8..header]).into_owned();
    for (from, to) in [("[1500,32]", "[3000,16]"), ("F32", "I32"), ("item_id", "item_ie")] {
        assert!(text.contains(from), "{text}");
        let changed = [&tables[..8], text.replace(from, to).as_bytes(), &tables[header..]].concat();
        fails(&changed, &["its tables differ"]);
    }
    // The same shapes, of a model that was trained otherwise.
    let other = Folder::new();
    let trained = |bytes: &mut Vec<u8>| {
        let start = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let header: Value = serde_json::from_slice(&bytes[8..start]).unwrap();
        let first = header["embedding.item_id.weight"]["data_offsets"][0].as_u64().unwrap() as usize;
        bytes[start + first] ^= 1;
    };
    let trained = other.model(|_| {}, trained);
    package(&other.0.join("x.rewire"), &["--model", &trained, "--tables-file", NAME]);
    fails(&std::fs::read(other.0.join(NAME)).unwrap(), &["its tables differ"]);
    std::fs::remove_file(&path).unwrap();
    rank(&model, &[]).failed_with(&["cannot read", NAME, "No such file"]);
}

#[test]
fn bytes_of_tables_are_checked_when_asked() {
    let folder = Folder::new();
    let file = apart(&folder, "x.rewire", &[]);
    let model = file.display().to_string();
    let check = || run(&["package", "--model", &model, "--check", "--json"]);
    assert_eq!(check().json()[0]["tables_file"], NAME);
    let path = folder.0.join(NAME);
    let mut tables = std::fs::read(&path).unwrap();
    let length = tables.len();
    for at in [length - 1, length / 2, length - 100_000] {
        tables[at] ^= 1;
        std::fs::write(&path, &tables).unwrap();
        assert_eq!(rank(&model, &["--tables-on", "host"]).code, Some(0));
        check().failed_with(&[NAME, "its content is damaged"]);
        tables[at] ^= 1;
    }
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    check().failed_with(&["x.rewire is not a valid package"]);
    assert_eq!(run(&["package", "--model", &kept("format-1.rewire"), "--check"]).code, Some(0));
    assert_eq!(run(&["package", "--check"]).code, Some(2));
}
