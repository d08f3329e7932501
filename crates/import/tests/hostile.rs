//! Archives that are truncated, modified or malicious.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

use rewire_import::{ImportError, pt2};
use std::io::{Cursor, Read, Write};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

fn archive() -> Vec<u8> {
    std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pt2/linear_relu/model.pt2")).unwrap()
}

/// The archive with one entry modified; `None` removes it.
fn changed(name: &str, change: impl Fn(Vec<u8>) -> Option<Vec<u8>>) -> Vec<u8> {
    let bytes = archive();
    let mut from = ZipArchive::new(Cursor::new(bytes.as_slice())).unwrap();
    let mut to = ZipWriter::new(Cursor::new(vec![]));
    for place in 0..from.len() {
        let mut entry = from.by_index(place).unwrap();
        let mut content = vec![];
        entry.read_to_end(&mut content).unwrap();
        let own = entry.name().unwrap().into_owned();
        let content = if own.ends_with(name) { change(content) } else { Some(content) };
        if let Some(content) = content {
            to.start_file(own, SimpleFileOptions::default().compression_method(CompressionMethod::Stored)).unwrap();
            to.write_all(&content).unwrap();
        }
    }
    to.finish().unwrap().into_inner()
}

/// The archive with some text in its program replaced.
fn program(from: &str, to: &str) -> Vec<u8> {
    changed("models/model.json", |content| {
        let text = String::from_utf8(content).unwrap();
        assert!(text.contains(from), "{from}");
        Some(text.replace(from, to).into_bytes())
    })
}

fn error(bytes: &[u8]) -> ImportError {
    pt2::parse(bytes).err().unwrap()
}

#[test]
fn the_archive_itself_is_read() {
    assert_eq!(pt2::parse(&archive()).unwrap().inputs.len(), 1);
    assert_eq!(pt2::parse(&changed("serialization_id", |_| None)).unwrap().inputs.len(), 1);
}

#[test]
fn every_prefix_is_an_error() {
    let bytes = archive();
    for len in (0..bytes.len()).step_by(97) {
        error(&bytes[..len]);
    }
}

#[test]
fn no_changed_byte_is_a_panic() {
    let bytes = archive();
    for place in (0..bytes.len()).step_by(53) {
        for value in [0, 0xff, bytes[place] ^ 0x20] {
            let mut changed = bytes.clone();
            changed[place] = value;
            drop(pt2::parse(&changed));
        }
    }
}

#[test]
fn other_versions_are_named() {
    for (entry, content) in [("archive_version", "1"), ("byteorder", "big"), ("archive_format", "pt3")] {
        let error = error(&changed(entry, |_| Some(content.as_bytes().to_vec())));
        assert!(matches!(&error, ImportError::Version { what, .. } if *what == entry), "{error}");
    }
    let bytes = changed("models/model.json", |content| {
        let text = String::from_utf8(content).unwrap();
        let place = text.find("\"major\"").unwrap();
        Some(format!("{}\"major\": 9, \"was\"{}", &text[..place], &text[place + 7..]).into_bytes())
    });
    assert!(matches!(error(&bytes), ImportError::Version { what: "schema", .. }));
}

#[test]
fn missing_and_short_payloads_are_named() {
    let missing = error(&changed("weights/weight_0", |_| None));
    assert!(matches!(&missing, ImportError::Archive { entry, .. } if entry.ends_with("weight_0")), "{missing}");
    let short = error(&changed("weights/weight_0", |content| Some(content[..content.len() - 4].to_vec())));
    assert!(short.to_string().contains("beyond its storage"), "{short}");
}

#[test]
fn pickles_are_refused() {
    let bytes = changed("model_weights_config.json", |content| {
        let text = String::from_utf8(content).unwrap();
        Some(text.replace("\"use_pickle\": false", "\"use_pickle\": true").into_bytes())
    });
    assert!(matches!(error(&bytes), ImportError::Pickle { .. }));
}

#[test]
fn tensors_larger_than_the_archive_are_refused() {
    for stride in ["0", "1"] {
        let bytes = changed("model_weights_config.json", |content| {
            let mut config: serde_json::Value = serde_json::from_slice(&content).unwrap();
            for (_, payload) in config["config"].as_object_mut().unwrap() {
                let meta = &mut payload["tensor_meta"];
                meta["sizes"] = serde_json::json!([{ "as_int": 1i64 << 40 }]);
                meta["strides"] = serde_json::from_str(&format!("[{{\"as_int\": {stride}}}]")).unwrap();
            }
            Some(config.to_string().into_bytes())
        });
        assert!(error(&bytes).to_string().contains("larger than the archive"));
    }
}

#[test]
fn compressed_entries_are_refused() {
    // The central directory contains the compression method of every entry; deflate is 8.
    let mut bytes = archive();
    let headers = bytes.windows(4).enumerate().filter(|(_, window)| window == b"PK\x01\x02").map(|(place, _)| place);
    for place in headers.collect::<Vec<_>>() {
        bytes[place + 10] = 8;
    }
    error(&bytes);
}

#[test]
fn deep_expressions_are_refused() {
    let symbol = "Symbol('s77', positive=True, integer=True)";
    let deep = format!("{}{symbol}{}", "Add(".repeat(5000), ")".repeat(5000));
    assert!(error(&program(symbol, &deep)).to_string().contains("levels"));
}

#[test]
fn sizes_that_depend_on_data_are_refused() {
    let error = error(&program("Symbol('s77', positive=True, integer=True)", "Symbol('u0', integer=True)"));
    assert!(error.to_string().contains("depends on data"), "{error}");
}

#[test]
fn unsupported_operators_are_all_listed() {
    let bytes = program("torch.ops.aten.linear.default", "torch.ops.aten.fold.default");
    let ImportError::Unsupported(unsupported) = error(&bytes) else { panic!("another error") };
    assert_eq!(unsupported.operators.len(), 1);
    let modules: Vec<&str> =
        unsupported.operators.values().flat_map(|modules| modules.keys().map(String::as_str)).collect();
    assert_eq!(modules, ["net.0", "net.2"]);
    assert!(unsupported.to_string().contains("torch.ops.aten.fold.default (2)"));
}
