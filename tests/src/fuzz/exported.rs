//! Programs of exported models, in an otherwise valid archive, and archives.

use rewire::import::{ImportedModel, pt2};
use rewire::{lower, optimize};
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

/// An archive without parameters.
const ARCHIVE: &[u8] = include_bytes!("../../pt2/topk_gather_scatter/model.pt2");

/// An archive with views and in-place writes.
const VIEWS: &[u8] = include_bytes!("../../pt2/index_ops/model.pt2");

/// The entry with the program.
const PROGRAM: &str = "models/model.json";

/// A parsed program has a graph, which is rewritten and lowered, or rejected.
pub(super) fn programs(data: &[u8]) {
    let read: Option<ImportedModel> = match data.starts_with(b"PK") {
        true => pt2::parse(data).ok(),
        false => pt2::parse(&with_program(data)).ok(),
    };
    let rewritten = read.and_then(|model| optimize(model.graph).ok());
    drop(rewritten.map(|(graph, _)| lower(&graph)));
}

pub(super) fn program_files() -> Vec<Vec<u8>> {
    [ARCHIVE, VIEWS].into_iter().map(program_of).chain([ARCHIVE.to_vec()]).collect()
}

fn program_of(archive: &[u8]) -> Vec<u8> {
    let mut archive = ZipArchive::new(Cursor::new(archive)).unwrap();
    let mut program = vec![];
    archive.by_name(&format!("model/{PROGRAM}")).unwrap().read_to_end(&mut program).unwrap();
    program
}

/// The archive with another program.
fn with_program(program: &[u8]) -> Vec<u8> {
    let mut from = ZipArchive::new(Cursor::new(ARCHIVE)).unwrap();
    let mut to = ZipWriter::new(Cursor::new(vec![]));
    for place in 0..from.len() {
        let mut entry = from.by_index(place).unwrap();
        let name = entry.name().unwrap().into_owned();
        let mut content = vec![];
        entry.read_to_end(&mut content).unwrap();
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        to.start_file(&name, options).unwrap();
        to.write_all(if name.ends_with(PROGRAM) { program } else { &content }).unwrap();
    }
    to.finish().unwrap().into_inner()
}
