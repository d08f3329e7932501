//! Models of all kinds behind one server.

use super::client::{Started, on_cpu, request, start, start_with};
use super::{limits, waiting};
use crate::import::{golden, import};
use crate::predict_vectors::matching;
use crate::program::{DEMO, Folder, user};
use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int32Array, Int64Array, ListArray, RecordBatch, StringArray, StructArray,
};
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::Field;
use rewire::HostTensor;
use rewire::delta::{Delta, ModelVersion};
use rewire::generate::decoder::Decoder;
use rewire::generate::{Sampling, Trie};
use rewire::predict::{Column, OwnedCell, Predictor};
use rewire::rank::{Embedded, Embedder};
use rewire::runtime::ParameterUpdate;
use rewire::weights::{Weights, serialize};
use rewire_cli::serve::{Limits, Source};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

const ARROW: &str = "content-type: application/vnd.apache.arrow.stream\r\n";

fn decoder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders/qwen3")
}

#[test]
fn models_of_all_kinds_answer_what_the_library_answers() {
    let folder = Folder::new();
    let imported = folder.0.join("imported");
    import("dcn_v1_taobao", "model.safetensors", &imported);
    let vectors = Folder::new();
    let matching = matching(&vectors);
    let (decoder, trie) = (decoder(), decoder().join("trie.json"));
    let linear = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/pt2/linear_relu/model.pt2");
    let named = |name: &str, path: &Path| Source::parse(&format!("{name}={}", path.display()), &on_cpu(), Some(&trie));
    let sources = vec![
        named("table", &imported),
        named("vectors", Path::new(&matching)),
        named("text", &decoder),
        Source::parse(&linear.display().to_string(), &on_cpu(), None),
        Source::demo(&on_cpu()),
    ];
    let server = start(waiting(0.02), sources);
    let models = server.get("/v1/models").json();
    let operations: Vec<_> = models["models"].as_array().unwrap().iter().map(|model| &model["operations"]).collect();
    let expected =
        [json!(["predict"]), json!(["users", "items"]), json!(["generate"]), json!(["run"]), json!(["rank"])];
    assert_eq!(operations, expected.iter().collect::<Vec<_>>());
    predictions(&server, &imported);
    embeddings(&server, Path::new(&matching));
    generations(&server, &decoder, &trie);
    tensors(&server);
    tables_of_requests(&server);
    server.stop();
}

fn floats(values: &Value) -> Vec<f32> {
    values.as_array().unwrap().iter().map(|value| value.as_f64().unwrap() as f32).collect()
}

fn predictions(server: &Started, model: &Path) {
    let predictor = Predictor::load(model, &on_cpu()).unwrap();
    let path = "/v1/models/table/predict";
    let example = predictor.describe().example_row.unwrap();
    let rows = vec![example.clone(), json!({}), example];
    let answer = server.post_json(path, &json!({ "rows": rows }));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = answer.json();
    assert_eq!(answer["counts"], json!([1, 1, 1]));
    let columns: Vec<(&str, Column<'_>)> = predictor
        .columns()
        .iter()
        .map(|name| {
            let cell = |row: &Value| match &row[name.as_str()] {
                Value::String(text) => OwnedCell::Text(text.clone()),
                Value::Number(number) => {
                    number.as_i64().map_or_else(|| OwnedCell::Float(number.as_f64().unwrap()), OwnedCell::Int)
                }
                Value::Array(items) => {
                    OwnedCell::List(items.iter().map(|item| OwnedCell::Int(item.as_i64().unwrap())).collect())
                }
                _ => OwnedCell::Null,
            };
            (name.as_str(), Column::of_cells(rows.iter().map(cell).collect()).unwrap())
        })
        .collect();
    let predicted = predictor.predict(3, &columns).unwrap();
    for (output, expected) in predictor.outputs().iter().zip(&predicted.columns) {
        assert_eq!(floats(&answer["columns"][&output.name]), expected.values, "{}", output.name);
    }
    together(server, path, &rows[0]);
    let invalid = json!({ "rows": [{ "user_id": {} }, { "user_id": 7 }] });
    assert_eq!(server.post_json(path, &invalid).code(400), "request.text");
    let text = table(&rows, predictor.columns());
    let answer = server.post(path, ARROW, &text);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let [batch] = &batches(&answer.body)[..] else { panic!("several batches") };
    for (output, expected) in predictor.outputs().iter().zip(&predicted.columns) {
        let column = batch.column_by_name(&output.name).unwrap().as_primitive::<Float32Type>();
        assert_eq!(column.values().to_vec(), expected.values);
    }
    assert_eq!(batch.column_by_name("row").unwrap().as_primitive::<Int64Type>().values().to_vec(), [0, 1, 2]);
    assert_eq!(server.post(path, ARROW, &text[..text.len() / 2]).code(400), "serve.arrow");
    assert_eq!(server.post(path, ARROW, b"rows").code(400), "serve.arrow");
    damaged(server, path, &text);
}

/// A damaged stream is an error, or a table of other values.
fn damaged(server: &Started, path: &str, bytes: &[u8]) {
    let mut state = 7u64;
    let mut below = |bound: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    };
    // Sizes of messages are in their first bytes.
    for round in 0..60 {
        let mut damaged = bytes.to_vec();
        let most = if round % 2 == 0 { bytes.len() } else { bytes.len().min(400) };
        (0..1 + below(3)).for_each(|_| damaged[below(most)] = below(256) as u8);
        let answer = server.post(path, ARROW, &damaged);
        assert!([200, 400].contains(&answer.status), "{}", answer.text());
    }
}

fn batches(bytes: &[u8]) -> Vec<RecordBatch> {
    StreamReader::try_new(bytes, None).unwrap().map(Result::unwrap).collect()
}

fn written(batch: &RecordBatch) -> Vec<u8> {
    let mut bytes = vec![];
    let mut writer = StreamWriter::try_new(&mut bytes, &batch.schema()).unwrap();
    writer.write(batch).unwrap();
    writer.finish().unwrap();
    bytes
}

/// Requests as a table have the scores and vectors of the same requests as JSON.
fn tables_of_requests(server: &Started) {
    let users: Vec<Value> = [(3, 2), (25, 7), (0, 4)].into_iter().map(|(a, b)| user("u", a, b)).collect();
    let list = |group: &str, name: &str| {
        let integers = |list: &Value| list.as_array().unwrap().iter().map(|item| item.as_i64()).collect::<Vec<_>>();
        let lists = users.iter().map(|user| Some(integers(&user[group][name])));
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists)) as ArrayRef
    };
    let numbers = |name: &'static str| users.iter().map(move |user| user[name].as_i64().unwrap());
    let mut columns: Vec<(String, ArrayRef)> = vec![
        ("user".to_owned(), Arc::new(StringArray::from_iter_values(users.iter().map(|_| "u")))),
        ("age_bucket".to_owned(), Arc::new(numbers("age_bucket").map(|one| one as i32).collect::<Int32Array>())),
        ("country".to_owned(), Arc::new(numbers("country").collect::<Int64Array>())),
        ("unread".to_owned(), Arc::new(StringArray::from_iter_values(["a", "b", "c"]))),
    ];
    for name in ["item_id", "genre", "action", "watchtime", "timestamp"] {
        columns.push((format!("history.{name}"), list("history", name)));
    }
    let candidates = ["item_id", "genre", "timestamp"].map(|name| {
        let array = list("candidates", name);
        (Arc::new(Field::new(name, array.data_type().clone(), true)), array)
    });
    columns.push(("candidates".to_owned(), Arc::new(StructArray::from(candidates.to_vec()))));
    let bytes = written(&RecordBatch::try_from_iter(columns.clone()).unwrap());
    let path = "/v1/models/demo/rank";
    let json = server.post_json(path, &json!({ "requests": users })).json();
    let expected: Vec<(u64, i64, f64)> = (0..3)
        .flat_map(|request| {
            let candidates = json["ranked"][request]["candidates"].as_array().unwrap();
            let row = |one: &Value| (request as u64, one["item"].as_i64().unwrap(), one["score"].as_f64().unwrap());
            candidates.iter().map(row).collect::<Vec<_>>()
        })
        .collect();
    let answer = server.post(path, ARROW, &bytes);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let [batch] = &batches(&answer.body)[..] else { panic!("several batches") };
    let integers = |name: &str| batch.column_by_name(name).unwrap().as_primitive::<Int64Type>().values().to_vec();
    let scores = batch.column_by_name("score").unwrap().as_primitive::<Float64Type>().values().to_vec();
    let found: Vec<_> =
        integers("request").into_iter().zip(integers("item")).zip(scores).map(|((a, b), c)| (a as u64, b, c)).collect();
    assert_eq!(found, expected);
    let answer = server.post("/v1/models/vectors/items", ARROW, &bytes);
    assert_eq!((answer.status, batches(&answer.body)[0].num_rows()), (200, 13));
    let again = server.post(path, &format!("{ARROW}accept: application/json\r\n"), &bytes);
    assert_eq!(again.json(), json);
    columns[1].1 = Arc::new(StringArray::from_iter_values(["a", "b", "c"]));
    let wrong = written(&RecordBatch::try_from_iter(columns).unwrap());
    let answer = server.post(path, ARROW, &wrong);
    assert_eq!(answer.code(400), "serve.arrow");
    assert!(answer.text().contains("`age_bucket` is Utf8: expected integers"), "{}", answer.text());
    let columns = [("country", Arc::new(Int64Array::from(vec![1])) as ArrayRef)];
    let short = written(&RecordBatch::try_from_iter(columns).unwrap());
    assert_eq!(server.post(path, ARROW, &short).code(400), "rank.request");
    damaged(server, path, &bytes);
}

/// Rows of equal and of other types run together with an invalid one; each has the bits of one alone.
fn together(server: &Started, path: &str, example: &Value) {
    let mut texts = example.clone();
    texts.as_object_mut().unwrap().values_mut().for_each(|value| {
        if value.is_i64() {
            *value = value.to_string().into();
        }
    });
    let mut invalid = example.clone();
    invalid.as_object_mut().unwrap().values_mut().for_each(|value| *value = json!({ "x": "y" }));
    let all = [json!([example]), json!([example, {}]), json!([texts]), json!([{}]), json!([invalid])];
    let send = |rows: &Value| {
        let answer = server.post_json(path, &json!({ "rows": rows }));
        (answer.status, answer.text())
    };
    let answers: Vec<_> = std::thread::scope(|scope| {
        let sent: Vec<_> = all.iter().map(|rows| scope.spawn(|| send(rows))).collect();
        sent.into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (rows, answer) in all.iter().zip(&answers) {
        assert_eq!(send(rows), *answer, "{rows}");
    }
    assert_eq!(answers.iter().map(|(status, _)| *status).collect::<Vec<_>>(), [200, 200, 200, 200, 400]);
}

/// Rows as a stream of Arrow: integers, floats, strings and lists of integers with nulls.
fn table(rows: &[Value], names: &[String]) -> Vec<u8> {
    let column = |name: &String| {
        let values = || rows.iter().map(|row| row.get(name).filter(|value| !value.is_null()));
        let array: ArrayRef = match &rows[0][name.as_str()] {
            Value::String(_) => Arc::new(StringArray::from_iter(values().map(|value| value.and_then(Value::as_str)))),
            Value::Array(_) => {
                let list = |value: Option<&Value>| {
                    let items = value?.as_array()?.iter().map(|item| item.as_i64());
                    Some(items.collect::<Vec<_>>())
                };
                Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(values().map(list)))
            }
            Value::Number(number) if number.is_f64() => {
                Arc::new(values().map(|value| value.and_then(Value::as_f64)).collect::<Float64Array>())
            }
            _ => Arc::new(values().map(|value| Some(value?.as_i64()? as i32)).collect::<Int32Array>()),
        };
        (name.clone(), array, true)
    };
    written(&RecordBatch::try_from_iter_with_nullable(names.iter().map(column)).unwrap())
}

fn embeddings(server: &Started, model: &Path) {
    let users: Vec<Value> = [(3, 2), (25, 7), (0, 4)].into_iter().map(|(a, b)| user("u", a, b)).collect();
    for (path, embedded) in [("users", Embedded::Users), ("items", Embedded::Items)] {
        let embedder = Embedder::load(model, embedded, &on_cpu()).unwrap();
        let mut batch = embedder.batch();
        users.iter().for_each(|user| batch.push_json(user.to_string().as_bytes()).unwrap());
        let expected = embedder.embed(&batch).unwrap();
        let answer = server.post_json(&format!("/v1/models/vectors/{path}"), &json!({ "requests": users })).json();
        let vectors = answer["vectors"].as_array().unwrap();
        assert_eq!(vectors.len(), expected.of.len());
        for ((one, vector), (request, item)) in
            vectors.iter().zip(expected.values.chunks(expected.width)).zip(&expected.of)
        {
            assert_eq!((&one["request"], &one["item"]), (&json!(request), &json!(item)));
            assert_eq!(floats(&one["vector"]), vector);
        }
    }
}

fn generations(server: &Started, model: &Path, trie: &Path) {
    let mut decoder = Decoder::open(model, &on_cpu()).unwrap();
    let items = rewire::generate::decoder::read_items(trie).unwrap();
    let trie = Trie::of_tokens(decoder.config().vocabulary(), (0i64..).zip(items)).unwrap();
    let prompts = [vec![300u32, 305, 310], vec![7]];
    let borrowed: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
    let sampling = Sampling { tokens: 5, temperature: 0.7, seed: 3, ..Sampling::default() };
    let searched = decoder.search(&borrowed, &trie, 3).unwrap();
    let sampled: Vec<_> = decoder.sample(&borrowed, &sampling).unwrap().into_iter().map(|one| vec![one]).collect();
    let path = "/v1/models/text/generate";
    let bodies = [
        json!({ "prompts": prompts, "beams": 3 }),
        json!({ "prompts": prompts, "tokens": 5, "temperature": 0.7, "seed": 3 }),
    ];
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let send = |body| scope.spawn(move || server.post_json(path, body).json());
        bodies.iter().map(send).collect::<Vec<_>>().into_iter().map(|one| one.join().unwrap()).collect()
    });
    for (answer, expected) in answers.iter().zip([searched, sampled]) {
        let sequences: Vec<Value> = expected
            .iter()
            .map(|found| {
                let (items, scores): (Vec<_>, Vec<_>) = found.iter().map(|one| (&one.codes, one.score)).unzip();
                json!({ "items": items, "scores": scores })
            })
            .collect();
        assert_eq!(*answer, json!({ "generated": sequences }));
    }
    let code = |body: Value| server.post_json(path, &body).code(400);
    assert_eq!(code(json!({ "prompts": [[1], [4000]] })), "generate.token");
    assert_eq!(code(json!({ "prompts": [[]] })), "generate.prompt");
    assert_eq!(code(json!({ "prompts": [[1]], "top_p": 0.0 })), "generate.sampling");
    assert_eq!(code(json!({ "prompts": [[1]], "beams": 2, "seed": 1 })), "request.text");
    assert_eq!(code(json!({ "prompts": [vec![1; 400]], "tokens": 400 })), "generate.rows");
}

fn tensors(server: &Started) {
    let described = server.get("/v1/models/model").json();
    let input = &described["inputs"][0];
    assert_eq!((&input["dtype"], &input["shape"][1]), (&"f32".into(), &16.into()), "{described}");
    let values: Vec<f32> = (0..32).map(|n| (n as f32 * 0.37).sin()).collect();
    let name = input["name"].as_str().unwrap();
    let inputs = |dtype: &str, values: &[f32]| json!({ "inputs": { name: { "dtype": dtype, "shape": [2, 16], "values": values } } });
    let path = "/v1/models/model/run";
    let answer = server.post_json(path, &inputs("f32", &values));
    assert_eq!(answer.status, 200, "{}", answer.text());
    let outputs = answer.json()["outputs"].clone();
    let output = outputs.as_object().unwrap().values().next().unwrap().clone();
    assert_eq!((&output["dtype"], &output["shape"]), (&"f32".into(), &json!([2, 4])));
    let file = rewire::program::ModelFile::open(&golden("../pt2/linear_relu/model.pt2"), Default::default()).unwrap();
    let mut program = rewire::program::Program::load(&file, &on_cpu()).unwrap();
    let tensor = HostTensor::f32([2, 16], &values).unwrap().into();
    let expected = program.run([(name.to_owned(), tensor)].into()).unwrap().tensors();
    assert_eq!(floats(&output["values"]), expected.values().next().unwrap().tensor.to_f32());
    assert_eq!(server.post_json(path, &inputs("i64", &values)).code(400), "request.text");
    assert_eq!(server.post_json(path, &inputs("f32", &values[1..])).code(400), "request.text");
    assert_eq!(server.post_json(path, &json!({ "inputs": {} })).code(400), "run.missing_input");
}

#[test]
fn a_generation_whose_client_is_gone_ends_and_frees_its_rows() {
    let source = Source::parse(&format!("text={}", decoder().display()), &on_cpu(), None);
    let server = start(Limits { cache_rows: 20_000, ..limits() }, vec![source]);
    let path = "/v1/models/text/generate";
    let body = |stop: Vec<u32>| json!({ "prompts": [[1, 2, 3]], "tokens": 19_000, "stop": stop });
    let mut gone = server.connect();
    gone.write_all(&request(path, "", body(vec![]).to_string().as_bytes())).unwrap();
    let begun = Instant::now();
    while server.metric("rewire_batch_requests_count") < 3.0 {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not run");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(gone);
    server.wait_for("rewire_cancelled_total", 1.0);
    // It needs as many rows, and ends at its first token.
    let answer = server.post_json(path, &body((0..400).collect()));
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.json()["generated"][0]["items"][0].as_array().unwrap().len(), 1);
    server.stop();
}

#[test]
fn deltas_of_a_folder_change_the_scores() {
    const BIAS: &str = "_multitask_module.linear.bias";
    let (folder, deltas) = (Folder::new(), Folder::new());
    let demo = Path::new(DEMO).join("model");
    let weights = Weights::read(&demo.join("model.safetensors")).unwrap();
    let tensor = |name: &str| (name.to_owned(), weights.get(name).unwrap().unwrap());
    let tensors: BTreeMap<String, HostTensor> = weights.names().map(tensor).collect();
    let version = ModelVersion::base(&tensors);
    folder.write("config.json", std::fs::read(demo.join("config.json")).unwrap());
    folder.write("model.safetensors", serialize(&tensors, &version.metadata()).unwrap());
    let source = Source::parse(&format!("m={}", folder.0.display()), &on_cpu(), None);
    let server = start_with(limits(), vec![source], Some(deltas.0.clone()));
    let rank = || {
        let answer = server.post_json("/v1/models/m/rank", &json!({ "requests": [user("u", 5, 1)] })).json();
        answer["ranked"][0]["candidates"][0]["logits"]["is_click"].as_f64().unwrap()
    };
    let before = rank();
    let bias = tensors[BIAS].to_f32();
    let moved = HostTensor::f32([2], &[bias[0] + 0.5, bias[1]]).unwrap();
    let changes = BTreeMap::from([(BIAS.to_owned(), ParameterUpdate::Whole(moved))]);
    let (first, bytes) = Delta::new(version, 1, changes.clone().into()).unwrap();
    let (_, second) = Delta::new(first.version(), 2, changes.into()).unwrap();
    deltas.write("2.safetensors", second);
    deltas.write("0.safetensors", b"no delta");
    deltas.write("1.safetensors", bytes);
    server.wait_for("rewire_model_delta", 2.0);
    assert!((rank() - before - 0.5).abs() < 1e-5);
    server.stop();
}
