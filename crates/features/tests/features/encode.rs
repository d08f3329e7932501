//! Columns of every type are encoded as inputs in the documented format.

use rewire_features::{Column, Data, DefaultRow, EncodeError, Features, MixedCells, Offsets, OwnedCell, Validity};
use rewire_graph::HostTensor;
use rewire_tables::{Admission, Eviction, Options, Threshold, hash};
use serde_json::{Value, json};
use std::collections::BTreeMap;

type Inputs = BTreeMap<String, HostTensor>;

fn features(configs: Value, groups: Value) -> Features {
    let config = json!({
        "data_config": {"fg_encoded_multival_sep": "|"},
        "feature_configs": configs,
        "model_config": {"feature_groups": groups},
    });
    Features::parse(&config, 0).unwrap()
}

/// Encodes one column as a feature `f` of the given kind.
fn encode(kind: &str, keys: Value, column: &Column<'_>) -> Result<Inputs, EncodeError> {
    let mut message = json!({"feature_name": "f", "embedding_dim": 4});
    message.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    let features = features(json!([{ kind: message }]), json!([]));
    Ok(features.encode(["f"], |_| Some(column), 0..column.rows())?.into_iter().collect())
}

fn ints(inputs: &Inputs, name: &str) -> Vec<i64> {
    inputs[&format!("f.{name}")].to_i64()
}

fn floats(inputs: &Inputs, name: &str) -> Vec<f32> {
    inputs[&format!("f.{name}")].to_f32()
}

fn text<'a>(offsets: &'a [i32], bytes: &'a str) -> Column<'a> {
    Column::new(Data::Text { offsets: Offsets::I32(offsets.into()), bytes: bytes.as_bytes().into() })
}

fn list<'a>(offsets: &'a [i64], items: Column<'a>) -> Column<'a> {
    Column::new(Data::List { offsets: Offsets::I64(offsets.into()), items: Box::new(items) })
}

#[test]
fn ids() {
    let buckets = json!({"num_buckets": 10});
    let default = json!({"num_buckets": 10, "fg_encoded_default_value": "1|2"});
    let some = Column {
        data: Data::I64((&[3, 0, 5]).into()),
        validity: Validity::Bits { bits: (&[0b1010]).into(), start: 1 },
    };
    let inputs = encode("id_feature", buckets.clone(), &some).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![3, 5], vec![1, 0, 1]));
    // A column of single integers only uses the first default.
    let inputs = encode("id_feature", default.clone(), &some).unwrap();
    assert_eq!(ints(&inputs, "values"), [3, 1, 5]);
    let texts = text(&[0, 3, 3, 4], "7|89");
    let inputs = encode("id_feature", default.clone(), &texts).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![7, 8, 1, 2, 9], vec![2, 2, 1]));
    let lists = list(&[0, 0, 2], Column::new(Data::I32((&[4, 5]).into())));
    let inputs = encode("id_feature", buckets, &lists).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![4, 5], vec![0, 2]));
    let inputs = encode("id_feature", default, &lists).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![1, 2, 4, 5], vec![2, 2]));
}

#[test]
fn weighted_ids() {
    let keys = json!({"num_buckets": 10, "weighted": true, "fg_encoded_default_value": "1|2"});
    let map = Column {
        data: Data::Map {
            offsets: Offsets::I32((&[0, 2, 2, 2]).into()),
            keys: Box::new(Column::new(Data::I64((&[4, 5]).into()))),
            values: Box::new(Column::new(Data::F32((&[0.5, 2.0]).into()))),
        },
        validity: Validity::Bools((&[true, true, false]).into()),
    };
    let inputs = encode("id_feature", keys.clone(), &map).unwrap();
    // An empty map stays empty.
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![4, 5, 1, 2], vec![2, 0, 2]));
    assert_eq!(floats(&inputs, "weights"), [0.5, 2.0, 1.0, 1.0]);
    let inputs = encode("id_feature", keys, &text(&[0, 11, 11], "3:0.25|4:-1")).unwrap();
    assert_eq!((ints(&inputs, "values"), floats(&inputs, "weights")), (vec![3, 4, 1, 2], vec![0.25, -1.0, 1.0, 1.0]));
    let error = encode("id_feature", json!({"num_buckets": 10}), &map).unwrap_err();
    assert!(error.to_string().contains("weighted: true"), "{error}");
}

#[test]
fn numbers() {
    let one = json!({"fg_encoded_default_value": "0.5"});
    let column = Column { data: Data::I64((&[7, 0]).into()), validity: Validity::Bools((&[true, false]).into()) };
    assert_eq!(floats(&encode("raw_feature", one, &column).unwrap(), "values"), [7.0, 0.5]);
    let two = json!({"value_dim": 2, "fg_encoded_default_value": "1|2"});
    let inputs = encode("raw_feature", two, &text(&[0, 7, 7], "0.5|1.5")).unwrap();
    assert_eq!((floats(&inputs, "values"), inputs["f.values"].shape()), (vec![0.5, 1.5, 1.0, 2.0], &[2, 2][..]));
    let ragged = list(&[0, 1, 3], Column::new(Data::F32((&[1.0, 2.0, 3.0]).into())));
    let error = encode("raw_feature", json!({"value_dim": 2}), &ragged).unwrap_err();
    let cell = EncodeError::Cell { column: "f".into(), row: 0, expected: "2 numbers".into(), actual: "1".into() };
    assert_eq!(error, cell);
    assert!(encode("raw_feature", json!({}), &column).is_err(), "a missing number without a default");
}

#[test]
fn sequences_of_ids() {
    let plain = json!({"num_buckets": 10, "sequence_delim": ";"});
    let inputs = encode("sequence_id_feature", plain.clone(), &text(&[0, 5, 5], "1;2;3")).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![1, 2, 3], vec![3, 0]));
    assert!(!inputs.contains_key("f.key_lengths"));
    let several = json!({"num_buckets": 10, "value_dim": 0, "fg_encoded_default_value": "8|9"});
    let inputs = encode("sequence_id_feature", several.clone(), &text(&[0, 5, 5], "1|2;3")).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![1, 2, 3, 8, 9], vec![2, 1]));
    assert_eq!(ints(&inputs, "key_lengths"), [2, 1, 2]);
    let steps = list(&[0, 3, 3], list(&[0, 2, 2, 3], Column::new(Data::I64((&[1, 2, 3]).into()))));
    let inputs = encode("sequence_id_feature", several.clone(), &steps).unwrap();
    assert_eq!((ints(&inputs, "lengths"), ints(&inputs, "key_lengths")), (vec![3, 1], vec![2, 0, 1, 2]));
    // In a flat list every default is a separate step.
    let inputs =
        encode("sequence_id_feature", several, &list(&[0, 1, 1], Column::new(Data::I64((&[1]).into())))).unwrap();
    assert_eq!((ints(&inputs, "lengths"), ints(&inputs, "key_lengths")), (vec![1, 2], vec![1, 1, 1]));
    let negative = list(&[0, 1], Column::new(Data::I64((&[-1]).into())));
    assert!(encode("sequence_id_feature", plain, &negative).is_err());
}

#[test]
fn sequences_of_numbers() {
    let pairs = json!({"value_dim": 2, "fg_encoded_default_value": "1|2"});
    let column = text(&[0, 7, 7], "1|2;3|4");
    let inputs = encode("sequence_raw_feature", pairs, &column).unwrap();
    assert_eq!((floats(&inputs, "values"), ints(&inputs, "lengths")), (vec![1.0, 2.0, 3.0, 4.0, 1.0, 2.0], vec![2, 1]));
    assert!(encode("sequence_raw_feature", json!({"value_dim": 3}), &column).is_err());
}

#[test]
fn ragged_groups_share_lengths() {
    let id = |name: &str| json!({"id_feature": {"feature_name": name, "embedding_dim": 4, "num_buckets": 9}});
    let configs = json!([{"sequence_feature": {"sequence_name": "s", "features": [id("a"), id("b")]}}]);
    let groups = json!([{"group_name": "g", "group_type": "JAGGED_SEQUENCE", "feature_names": ["s__a", "s__b"]}]);
    let features = features(configs, groups);
    let (long, short) = (text(&[0, 3], "1;2"), text(&[0, 1], "1"));
    let inputs = features.encode(["s__a", "s__b"], |_| Some(&long), 0..1).unwrap();
    let names: Vec<&str> = inputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["s__a.lengths", "s__a.values", "s__b.values"]);
    let column = |name: &str| Some(if name == "s__a" { &long } else { &short });
    let error = features.encode(["s__a", "s__b"], column, 0..1).unwrap_err();
    assert!(matches!(error, EncodeError::Lengths { row: 0, lengths: (2, 1), .. }), "{error}");
}

#[test]
fn all_problems_are_listed() {
    let config = json!({
        "feature_configs": [
            {"id_feature": {"feature_name": "a", "embedding_dim": 4, "num_buckets": 3, "colour": 1, "size": 2}},
            {"tokenize_feature": {"feature_name": "b"}},
            {"id_feature": {"feature_name": "c", "embedding_dim": 4}},
        ],
        "model_config": {"feature_groups": [{"group_name": "g", "feature_names": ["a", "missing"]}]},
    });
    let problems = Features::parse(&config, 0).unwrap_err();
    let keys: Vec<&str> = problems.0.iter().map(|problem| problem.key.as_str()).collect();
    let expected = [
        "/feature_configs/0/id_feature/colour",
        "/feature_configs/0/id_feature/size",
        "/feature_configs/1/tokenize_feature",
        "/feature_configs/2/id_feature",
        "/model_config/feature_groups/0/feature_names/1",
    ];
    assert_eq!(keys, expected, "{problems}");
}

#[test]
fn rows_of_tables() {
    let cases = [
        ("id_feature", json!({"vocab_list": ["a", "b"]}), 4),
        ("id_feature", json!({"vocab_list": ["a", "b"], "default_bucketize_value": 1}), 2),
        ("match_feature", json!({"vocab_list": ["a", "b"]}), 5),
        ("id_feature", json!({"vocab_dict": {"a": 2, "b": 7}}), 8),
        ("id_feature", json!({"num_buckets": 3, "hash_bucket_size": 9}), 9),
        ("raw_feature", json!({"boundaries": [0.5, 1.5]}), 3),
        ("id_feature", json!({"zch": {"zch_size": 11}}), 11),
        ("lookup_feature", json!({"dynamicemb": {"max_capacity": 11}}), 12),
        ("id_feature", json!({"dynamicemb": {"max_bytes": 4 * 4 * 9 + 1}}), 9),
        ("id_feature", json!({"data_type": "FP16", "dynamicemb": {"max_capacity": 5, "max_bytes": 4 * 2 * 9}}), 6),
    ];
    for (kind, keys, expected) in cases {
        let mut message = json!({"feature_name": "f", "embedding_dim": 4});
        message.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let features = features(json!([{ kind: message }]), json!([]));
        let rewire_features::FeatureValues::Ids { rows, .. } = features.features["f"].values else { panic!("{kind}") };
        assert_eq!(rows, expected, "{kind} {keys}");
    }
}

#[test]
fn cells_of_rows_become_columns() {
    use OwnedCell::{Float, Int, List, Map, Null, Text};
    let several = json!({"num_buckets": 10, "weighted": true});
    let map = Map(vec![(Text("4".into()), Float(0.5)), (Text("5".into()), Int(2))]);
    let maps = Column::of_cells(vec![map.clone(), Null, Map(vec![])]).unwrap();
    let inputs = encode("id_feature", several.clone(), &maps).unwrap();
    assert_eq!((ints(&inputs, "values"), ints(&inputs, "lengths")), (vec![4, 5], vec![2, 0, 0]));
    assert_eq!(floats(&inputs, "weights"), [0.5, 2.0]);
    let texts = Column::of_cells(vec![Text("1:0.5|2".into()), Int(3)]).unwrap();
    assert_eq!(ints(&encode("id_feature", several, &texts).unwrap(), "values"), [1, 2, 3]);
    let steps = Column::of_cells(vec![List(vec![List(vec![Int(1), Int(2)]), List(vec![])]), Null]).unwrap();
    let inputs = encode("sequence_id_feature", json!({"num_buckets": 10, "value_dim": 0}), &steps).unwrap();
    assert_eq!((ints(&inputs, "lengths"), ints(&inputs, "key_lengths")), (vec![2, 0], vec![2, 0]));
    let numbers = Column::of_cells(vec![Int(1), Float(0.5)]).unwrap();
    assert_eq!(floats(&encode("raw_feature", json!({}), &numbers).unwrap(), "values"), [1.0, 0.5]);
    for mixed in [vec![Int(1), List(vec![])], vec![map.clone(), Int(1)], vec![map, List(vec![])]] {
        assert_eq!(Column::of_cells(mixed).unwrap_err(), MixedCells);
    }
}

#[test]
fn ids_of_growing_tables_are_raw() {
    use OwnedCell::{Int, List, Null, Text};
    let keys = json!({"zch": {"zch_size": 4}, "fg_encoded_default_value": "-7"});
    let values = |cells| {
        let inputs = encode("id_feature", keys.clone(), &Column::of_cells(cells).unwrap()).unwrap();
        inputs["f.values"].values::<i64>().unwrap()
    };
    let expected = [i64::MIN, 8, hash("new"), -7];
    assert_eq!(values(vec![Int(i64::MIN), Text("8|new".into()), Null]), expected);
    assert_eq!(values(vec![List(vec![Int(1 << 40), Int(-1)])]), [1 << 40, -1]);
}

#[test]
fn options_of_growing_tables() {
    let parsed = |keys: Value| {
        let feature = json!({"feature_name": "f", "embedding_dim": 4});
        let message = Value::Object(
            feature
                .as_object()
                .unwrap()
                .iter()
                .chain(keys.as_object().unwrap())
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
        );
        let config = json!({"feature_configs": [{"id_feature": message}], "model_config": {"feature_groups": []}});
        Features::parse(&config, 0).map(|features| features.features["f"].clone())
    };
    let growing = |keys: Value| parsed(keys).unwrap().growing.unwrap();
    let zch = |keys: &str| serde_json::from_str(&format!(r#"{{"zch": {{"zch_size": 9, {keys}}}}}"#)).unwrap();
    let options = |keys| growing(zch(keys)).options;
    assert_eq!(options(r#""lfu": {}"#), Options { rows: 8, ..Options::default() });
    assert_eq!(
        options(r#""lru": {}, "eviction_interval": 5"#),
        Options { rows: 8, eviction: Eviction::Lru, interval: 5, ..Options::default() }
    );
    let filter = options(
        r#""distance_lfu": {"decay_exponent": 0.5}, "threshold_filtering_func": "lambda ids: average_threshold_filter(ids)""#,
    );
    assert_eq!(
        (filter.eviction, filter.admission),
        (Eviction::DistanceLfu { decay_exponent: 0.5 }, Admission::Filter(Threshold::AboveMean(1.0)))
    );
    let dynamic = json!({"dynamicemb": {"max_capacity": 20, "score_strategy": "TIMESTAMP",
        "initializer_args": {"mode": "NORMAL"}, "eval_initializer_args": {"mode": "CONSTANT", "value": 0.5},
        "frequency_admission_strategy": {"threshold": 3}}});
    let feature = parsed(dynamic).unwrap();
    let own = feature.growing.unwrap();
    let admission = Admission::Count { threshold: 3, capacity: 20 };
    assert_eq!(own.options, Options { rows: 20, eviction: Eviction::Lru, admission, interval: 1 });
    assert_eq!((own.default, feature.init_fn.as_str()), (DefaultRow::Constant(0.5), "nn.init.normal_,mean=0,std=0.5"));
    let wrong = [
        (zch(r#""lfu": {}, "lru": {}"#), "/zch"),
        (zch(r#""eviction_interval": 0"#), "/zch/eviction_interval"),
        (zch(r#""threshold_filtering_func": "lambda x: exit()""#), "/zch/threshold_filtering_func"),
        (json!({"zch": {"zch_size": 1}}), "/zch/zch_size"),
        (json!({"dynamicemb": {"max_bytes": 31}}), "/dynamicemb/max_bytes"),
        (json!({"dynamicemb": {"max_capacity": 4, "score_strategy": "FIFO"}}), "/dynamicemb/score_strategy"),
        (json!({"dynamicemb": {"max_capacity": 4, "eval_initializer_args": {"mode": "UNIFORM"}}}), "/dynamicemb"),
    ];
    for (keys, key) in wrong {
        let problems = parsed(keys.clone()).unwrap_err();
        assert_eq!(problems.0[0].key, format!("/feature_configs/0/id_feature{key}"), "{keys}");
    }
}

#[test]
fn features_that_share_a_table_grow_it_alike() {
    let feature = |name: &str, size: usize| json!({"id_feature": {"feature_name": name, "embedding_dim": 4, "embedding_name": "e", "zch": {"zch_size": size}}});
    let parsed = |sizes: [usize; 2]| {
        let features = json!([feature("a", sizes[0]), feature("b", sizes[1])]);
        Features::parse(&json!({"feature_configs": features, "model_config": {"feature_groups": []}}), 0)
    };
    assert_eq!(parsed([9, 9]).unwrap().growing()["e"].1.len(), 2);
    assert_eq!(parsed([9, 8]).unwrap_err().0[0].key, "/feature_configs/1/id_feature");
}
