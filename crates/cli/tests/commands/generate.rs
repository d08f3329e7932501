//! Items of prompts by a language model, and its golden logits.

use crate::program::{Folder, run};
use std::path::Path;

fn text(path: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders").join(path).display().to_string()
}

#[test]
fn a_line_has_the_items_of_a_prompt() {
    let (model, prompts, trie) = (text("t5"), text("t5/prompts.jsonl"), text("t5/trie.json"));
    let args =
        ["generate", &model, "--prompts", &prompts, "--trie", &trie, "--beams", "2", "--kernel", "cpu", "--json"];
    let (together, alone) = (run(&args), run(&[&args[..], &["--batch", "1"]].concat()));
    assert_eq!((together.code, &together.stdout), (Some(0), &alone.stdout), "{}", together.stderr);
    let lines = together.json();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["items"], serde_json::json!([[319, 360, 366], [319, 338, 370]]));
    assert_eq!((&lines[0]["id"], &lines[0]["beams"]), (&0.into(), &2.into()));
    assert!((lines[0]["scores"][0].as_f64().unwrap() + 17.307251).abs() < 1e-4);
}

#[test]
fn files_that_are_not_good_are_named() {
    let folder = Folder::new();
    let (model, trie) = (text("qwen3"), text("qwen3/trie.json"));
    let prompts = folder.write("p.jsonl", "{\"id\": 0, \"tokens\": [1]}\n{\"id\": 1}\n");
    run(&["generate", &model, "--prompts", &prompts, "--trie", &trie]).failed_with(&["p.jsonl", "line 2", "tokens"]);
    let items = folder.write("t.json", "{\"items\": [[1, 2], [400, 2]]}");
    run(&["generate", &model, "--prompts", &prompts, "--trie", &items]).failed_with(&["[400, 2]", "item 1"]);
}

#[test]
fn logits_are_those_of_the_reference() {
    let folder = Folder::new();
    let save = folder.0.join("saved");
    let verified = run(&["verify", &text(""), "--kernel", "cpu", "--save", &save.display().to_string(), "--json"]);
    assert_eq!(verified.code, Some(0), "{}", verified.stderr);
    let lines = verified.json();
    let cases: Vec<_> = lines.iter().map(|line| (&line["op"], &line["case"])).collect();
    assert_eq!(cases, [(&"decoder".into(), &"qwen3".into()), (&"decoder".into(), &"t5".into())]);
    let weights = rewire::weights::Weights::read(&save.join("t5/logits.safetensors")).unwrap();
    assert_eq!(weights.names().collect::<Vec<_>>(), ["logits.0", "logits.4", "logits.5"]);
}

#[test]
fn packages_generate_what_their_folders_do() {
    let folder = Folder::new();
    let (model, prompts, trie) = (text("qwen3"), text("qwen3/prompts.jsonl"), text("qwen3/trie.json"));
    let (package, small) = (folder.path("m.rewire"), folder.path("s.rewire"));
    let lines = |model: &str, more: &[&str]| {
        let args = ["generate", model, "--prompts", &prompts, "--trie", &trie, "--beams", "4", "--kernel", "cpu", "--json"];
        let ran = run(&[&args[..], more].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran.stdout
    };
    for (out, dtype) in [(&package, "f32"), (&small, "int8")] {
        let packed = run(&["package", "--model", &model, "--out", out, "--dtype", dtype, "--json"]);
        assert_eq!(packed.code, Some(0), "{}", packed.stderr);
        assert_eq!(lines(out, &[]), lines(&model, &["--dtype", dtype]));
    }
    let bytes = |path: &str| std::fs::metadata(path).unwrap().len();
    assert!(bytes(&small) < bytes(&package));
    let described = run(&["describe", &package, "--json"]).json();
    assert_eq!((&described[0]["model"], &described[0]["vocabulary"]), (&"qwen3".into(), &400.into()));
    run(&["rank", "--model", &model]).failed_with(&["config.json", "language model", "generate"]);
}
