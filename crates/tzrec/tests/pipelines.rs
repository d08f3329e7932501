//! Pipeline configurations: accepted syntax, the resulting JSON, and errors.
#![allow(clippy::unwrap_used)]

mod knobs;

use rewire_tzrec::{Pipeline, PipelineError};
use serde_json::json;
use std::path::{Path, PathBuf};

fn proto() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proto")
}

fn json(text: &str) -> serde_json::Value {
    Pipeline::parse(text).unwrap().json().clone()
}

fn error(text: &str) -> String {
    Pipeline::parse(text).unwrap_err().to_string()
}

#[test]
fn descriptors_are_those_of_the_proto_file() {
    let compiled = protox::Compiler::new([proto()])
        .unwrap()
        .include_imports(true)
        .open_file("tzrec.proto")
        .unwrap()
        .encode_file_descriptor_set();
    if std::env::var_os("UPDATE_DESCRIPTORS").is_some() {
        std::fs::write(proto().join("tzrec.bin"), &compiled).unwrap();
    }
    assert!(std::fs::read(proto().join("tzrec.bin")).unwrap() == compiled, "run with UPDATE_DESCRIPTORS=1");
}

#[test]
fn the_text_format_is_read_as_the_reference_reads_it() {
    let text = "# a comment\nmodel_config: { num_class: 2,\n feature_groups: [{group_name: 'a' feature_names: ['x', \"y\"]}, <group_name: \"b\">];\n\
                feature_groups { group_name: \"c\" group_type: JAGGED_SEQUENCE },\n }\n\
                data_config { fg_encoded_multival_sep: '\\x1d' label_fields: \"a\" label_fields: 'b' 'c' batch_size: 0x10 }";
    let expected = json!({
        "data_config": {"batch_size": 16, "fg_encoded_multival_sep": "\u{1d}", "label_fields": ["a", "bc"]},
        "model_config": {
            "feature_groups": [
                {"group_name": "a", "feature_names": ["x", "y"]},
                {"group_name": "b"},
                {"group_name": "c", "group_type": "JAGGED_SEQUENCE"},
            ],
            "num_class": 2,
        },
    });
    assert_eq!(json(text), expected);
}

#[test]
fn values_keep_their_types() {
    let text = "feature_configs { id_feature { vocab_dict { key: 'bj' value: 2 } vocab_dict { key: 'az' value: 18446744073709551615 }
                default_bucketize_value: 0 weighted: true } }
                feature_configs { raw_feature { boundaries: [0.1, 1e-10, -3] mlp {} } }
                train_config { grad_clipping { norm_type: inf } num_steps: 0 }";
    let expected = json!({
        "train_config": {"num_steps": 0, "grad_clipping": {"norm_type": "inf"}},
        "feature_configs": [
            {"id_feature": {
                "vocab_dict": {"az": u64::MAX, "bj": 2}, "default_bucketize_value": 0, "weighted": true,
            }},
            {"raw_feature": {"boundaries": [0.1, 1e-10, -3.0], "mlp": {}}},
        ],
    });
    assert_eq!(json(text), expected);
}

#[test]
fn errors_name_line_and_column() {
    assert_eq!(error("train_config {\n  é: 1"), "line 2, column 3: invalid token");
    assert_eq!(
        error("train_config {\n  num_step: 12\n}"),
        "line 2, column 3: field 'num_step' not found for message 'tzrec.TrainConfig'"
    );
    assert!(error("data_config { fg_mode: FG_SOME }").starts_with("line 1, column 24: "));
    assert!(error("data_config { batch_size: 'x' }").starts_with("line 1, column 27: "));
    assert!(error("data_config { batch_size: -1 }").starts_with("line 1, column 27: "));
    assert!(error("model_config { dlrm {}\n deepfm {} }").starts_with("line 2, "));
    assert!(error("model_config {\n").starts_with("line 2, column 1: "));
    assert!(error(&"a{".repeat(100_000)).starts_with("line 1, column 130: more than 64 nested"));
    assert!(error("model_config").contains("reached end of input"));
}

#[test]
fn fields_are_found_by_line() {
    let text = "feature_configs {\n id_feature {\n  feature_name: 'a' # b: 1\n }\n}\nfeature_configs { sequence_feature {\n sequence_name: \"}\\\"{\"\n\
                features: [{\n raw_feature {} },\n { id_feature { feature_name:\n 'x'\n 'y' } }]\n vocab: 1 } }\n";
    let valid = text.replace(" vocab: 1", "");
    let pipeline = Pipeline::parse(&valid).unwrap();
    let lines = [
        ("", 1),
        ("/feature_configs/0", 1),
        ("/feature_configs/0/id_feature/feature_name", 3),
        ("/feature_configs/1/sequence_feature", 6),
        ("/feature_configs/1/sequence_feature/sequence_name", 7),
        ("/feature_configs/1/sequence_feature/features/0/raw_feature", 9),
        ("/feature_configs/1/sequence_feature/features/1/id_feature/feature_name", 10),
        ("/feature_configs/1/sequence_feature/features/1/id_feature/absent", 10),
        ("/model_config/absent", 1),
    ];
    for (pointer, line) in lines {
        assert_eq!(pipeline.line(pointer), line, "{pointer}");
    }
}

#[test]
fn files_that_are_absent_or_too_large_are_refused() {
    let missing = Pipeline::read(Path::new("/nowhere/pipeline.config")).unwrap_err();
    assert!(matches!(missing, PipelineError::Read { .. }), "{missing}");
}
