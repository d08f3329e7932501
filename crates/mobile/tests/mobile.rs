//! The API of Kotlin and Swift, called from Rust. `cargo xtask bindings kotlin swiftc` calls it from there.
#![allow(clippy::unwrap_used, clippy::panic)]

use rewire::program::{ModelFile, Program};
use rewire::rank::RankOptions;
use rewire_mobile::{
    CancellationToken, Decoder, Elements, Generated, Kernel, KernelRule, Mapping, Model, NamedTensor, Options, Ranker,
    Ranking, Request, RewireError, TokenListener,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn kept(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/packages").join(name).to_string_lossy().into_owned()
}

fn on_cpu() -> Option<Options> {
    let (kernel, mapping) = (Kernel::Cpu, Some(Mapping::Never));
    Some(Options { kernel, adapter: None, pipelines: None, mapping, kernel_for: vec![] })
}

/// Steps that match a pattern run on the CPU, others where they can.
fn ruled(pattern: &str) -> Option<Options> {
    let rule = KernelRule { pattern: pattern.to_owned(), kernel: Kernel::Cpu };
    Some(Options { kernel: Kernel::Auto, kernel_for: vec![rule], ..on_cpu()? })
}

fn ranker() -> Ranker {
    Ranker::load(kept("format-1.rewire"), on_cpu()).unwrap()
}

fn lists(lists: &[(&str, &[i64])]) -> HashMap<String, Vec<i64>> {
    lists.iter().map(|(name, values)| ((*name).to_owned(), values.to_vec())).collect()
}

/// The second user of the package, who has done nothing.
fn request() -> Request {
    let history = ["item_id", "genre", "action", "watchtime", "timestamp"].map(|name| (name, &[][..]));
    Request {
        user: "u1".to_owned(),
        contextual: [("age_bucket".to_owned(), 3), ("country".to_owned(), 0)].into(),
        history: lists(&history),
        candidates: lists(&[("item_id", &[24]), ("genre", &[0]), ("timestamp", &[1_738_040_000])]),
    }
}

fn users() -> String {
    std::fs::read_to_string(kept("users.jsonl")).unwrap()
}

#[test]
fn records_and_json_are_ranked_alike() {
    let ranker = ranker();
    let description = ranker.describe();
    assert!(description.contains("ids 0 to") && description.contains("is_like"), "{description}");
    let example = description.lines().last().unwrap();
    assert!(!ranker.rank_json(example.to_owned(), None).unwrap().items.is_empty(), "{example}");
    assert_eq!((ranker.tasks(), ranker.device()), (vec!["is_click".to_owned(), "is_like".to_owned()], "cpu".into()));
    assert_eq!(ranker.schema().contextual, ["age_bucket", "country"]);
    let one = ranker.rank(vec![request()], None).unwrap();
    let Ranking { users: names, offsets, items, positions, scores, logits, dropped_events } = one.clone();
    assert_eq!((names, offsets, items, positions), (vec!["u1".to_owned()], vec![0, 1], vec![24], vec![0]));
    assert_eq!((scores.len(), dropped_events), (1, vec![0]));
    assert!((logits[0] + 0.5783202).abs() < 1e-5 && (logits[1] + 0.19326858).abs() < 1e-5, "{logits:?}");
    let text = users();
    let line = text.lines().nth(1).unwrap();
    assert_eq!(ranker.rank_json(format!("\n{line}\n\n"), None).unwrap(), one);
    let bytes = std::fs::read(kept("format-1.rewire")).unwrap();
    let of_bytes = Ranker::from_bytes(bytes, on_cpu()).unwrap();
    assert_eq!(of_bytes.rank_json(text.clone(), None), ranker.rank_json(text, None));
    ranker.trim();
    let by_rule = Ranker::load(kept("format-1.rewire"), ruled("*")).unwrap();
    assert_eq!((by_rule.rank(vec![request()], None).unwrap(), by_rule.device()), (one, "cpu".into()));
    assert!(ranker.rank(vec![], None).unwrap().users.is_empty());
}

#[test]
fn models_run_on_named_tensors() {
    let file = |path: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(path).display().to_string();
    let run = |model: &Model, shape: Vec<u64>, values: Vec<f32>| {
        let name = model.inputs()[0].name.clone();
        let tensor = NamedTensor { shape, elements: Elements::Floats { values } };
        model.run([(name, tensor)].into()).unwrap().into_values().next().unwrap()
    };
    let exported = Model::open(file("pt2/linear_relu/model.pt2"), on_cpu()).unwrap();
    assert_eq!((exported.inputs()[0].dtype.as_str(), &exported.inputs()[0].shape[..]), ("f32", &[None, Some(16)][..]));
    let given: Vec<f32> = (0..48).map(|n| n as f32 / 8.0).collect();
    let result = run(&exported, vec![3, 16], given.clone());
    let source = ModelFile::open(file("pt2/linear_relu/model.pt2").as_ref(), rewire::Mapping::Never).unwrap();
    let mut program =
        Program::load(&source, &RankOptions { kernel: rewire::Kernel::Cpu, ..RankOptions::default() }).unwrap();
    let x = rewire::HostTensor::f32([3, 16], &given).unwrap();
    let expected = program.run([(program.inputs()[0].name.clone(), x.into())].into()).unwrap().tensors();
    let values = expected.into_values().next().unwrap().tensor.to_f32();
    assert_eq!(result, NamedTensor { shape: vec![3, 4], elements: Elements::Floats { values } });

    let onnx = Model::open(file("onnx/test_leakyrelu_example/model.onnx"), on_cpu()).unwrap();
    let result = run(&onnx, vec![3], vec![-1.0, 0.0, 2.0]);
    assert!(
        matches!(&result.elements, Elements::Floats { values } if values[1..] == [0.0, 2.0] && (values[0] + 0.1).abs() < 1e-6)
    );

    let error = onnx.run([].into()).unwrap_err();
    assert!(matches!(&error, RewireError::Run { .. }), "{error:?}");
    assert!(matches!(Model::from_bytes(b"rewire".to_vec(), None), Err(RewireError::Model { .. })));
}

#[test]
fn the_version_is_that_of_the_package() {
    assert_eq!(rewire_mobile::version(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn errors_tell_what_was_wrong() {
    let model = Ranker::load("/nowhere".to_owned(), on_cpu()).unwrap_err();
    let RewireError::Model { code, reason } = &model else { panic!("{model:?}") };
    assert!(code == "rank.read" && reason.contains("/nowhere") && model.to_string() == *reason, "{model:?}");
    let bytes = Ranker::from_bytes(b"rewire".to_vec(), None).unwrap_err();
    assert!(matches!(&bytes, RewireError::Model { code, .. } if code.starts_with("package.")), "{bytes:?}");
    let absent = Options {
        kernel: Kernel::Wgpu,
        adapter: Some("no such adapter".into()),
        pipelines: Some("/tmp".into()),
        mapping: Some(Mapping::Large),
        kernel_for: vec![],
    };
    let rule = Ranker::load(kept("format-1.rewire"), ruled("nowhere*")).unwrap_err();
    assert!(matches!(&rule, RewireError::Model { reason, .. } if reason.contains("nowhere*")), "{rule:?}");
    let device = Ranker::load(kept("format-1.rewire"), Some(absent)).unwrap_err();
    assert!(matches!(&device, RewireError::Model { reason, .. } if reason.contains("no such adapter")), "{device:?}");

    let ranker = ranker();
    let mut request = request();
    request.contextual.remove("country");
    let unknown = users().replace("[0, 23, 6]", "[0, 99999, 6]");
    for (fault, what) in [
        (ranker.rank(vec![request], None), "user `u1`: `country` is missing"),
        (ranker.rank_json(unknown, None), "user `u0`: `candidates.item_id[1]` is 99999"),
    ] {
        let fault = fault.unwrap_err();
        let RewireError::Request { code, reason } = &fault else { panic!("{fault:?}") };
        assert!(code == "rank.request" && reason.contains(what), "{fault:?}");
    }
    let text = ranker.rank_json("{}".to_owned(), None).unwrap_err();
    assert!(matches!(&text, RewireError::Request { code, .. } if code == "request.text"), "{text:?}");
}

#[test]
fn a_token_ends_what_was_given_it() {
    let (ranker, token) = (ranker(), Arc::new(CancellationToken::new()));
    let expected = ranker.rank(vec![request()], None);
    assert_eq!(ranker.rank(vec![request()], Some(token.clone())), expected);
    token.cancel();
    assert!(token.is_cancelled());
    assert_eq!(ranker.rank(vec![request()], Some(token.clone())), Err(RewireError::Cancelled));
    assert_eq!(ranker.rank_json(users(), Some(token)), Err(RewireError::Cancelled));
    assert_eq!(ranker.rank(vec![request()], None), expected);
}

fn decoder() -> Decoder {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders/qwen3");
    Decoder::load(folder.to_string_lossy().into_owned(), on_cpu()).unwrap()
}

/// Hears of tokens, and ends the prompt at a place.
struct Listener {
    ended: u32,
    heard: Mutex<Vec<(u32, Vec<u32>)>>,
}

impl TokenListener for Listener {
    fn on_token(&self, prompt: u32, tokens: Vec<u32>) -> bool {
        self.heard.lock().unwrap().push((prompt, tokens));
        prompt != self.ended
    }
}

/// Three tokens of each prompt, with their progress.
fn drawn(decoder: &Decoder, listener: Option<Arc<dyn TokenListener>>) -> Result<Vec<Vec<Generated>>, RewireError> {
    decoder.generate(vec![vec![3, 1, 7], vec![9]], None, 10, 3, 0.0, None, 1.0, 0, vec![], listener, None)
}

#[test]
fn decoders_search_items_and_draw_tokens() {
    let decoder = decoder();
    assert_eq!((decoder.vocab_size(), decoder.device().as_str()), (400, "cpu"));
    let (prompt, items) = (vec![87, 173, 158], vec![vec![319, 360, 366], vec![7, 21], vec![319, 338, 370]]);
    let search = |token| {
        let (prompts, items) = (vec![prompt.clone()], Some(items.clone()));
        decoder.generate(prompts, items, 2, 32, 0.0, None, 1.0, 0, vec![], None, token)
    };
    let found = search(None).unwrap().remove(0);
    assert!(found.len() == 2 && found[0].score > found[1].score, "{found:?}");
    assert!(found.iter().all(|one| one.items.iter().all(|&item| items[item as usize] == one.tokens)), "{found:?}");
    let all = drawn(&decoder, None).unwrap();
    let listener = Arc::new(Listener { ended: 0, heard: Mutex::default() });
    assert_eq!(drawn(&decoder, Some(listener.clone())).unwrap(), [vec![], all[1].clone()]);
    let heard = listener.heard.lock().unwrap();
    assert!(heard.len() == 4 && heard.contains(&(1, all[1][0].tokens.clone())), "{heard:?}");
    let token = Arc::new(CancellationToken::new());
    token.cancel();
    assert_eq!(search(Some(token)), Err(RewireError::Cancelled));
}

#[test]
fn faults_of_decoders_have_codes() {
    let decoder = decoder();
    let faulty = |prompt, top_p| {
        decoder.generate(vec![prompt], None, 1, 1, 0.0, None, top_p, 0, vec![], None, None).unwrap_err()
    };
    for (fault, expected) in [
        (faulty(vec![], 1.0), "generate.prompt"),
        (faulty(vec![400], 1.0), "generate.token"),
        (faulty(vec![1], 0.0), "generate.sampling"),
    ] {
        assert!(matches!(&fault, RewireError::Request { code, .. } if code == expected), "{fault:?}");
    }
    let ranker = Decoder::load(kept("format-1.rewire"), on_cpu()).unwrap_err();
    assert!(matches!(&ranker, RewireError::Model { code, .. } if code == "rank.not_language"), "{ranker:?}");
}
