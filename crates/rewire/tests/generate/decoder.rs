//! Items by language models, against the beams of the reference.

use rewire::generate::decoder::{Config, Decoder, Task, read_items, read_prompts};
use rewire::generate::{Found, GenerateError, Sampling, Trie};
use rewire::graph::DType;
use rewire::rank::{RankOptions, read_weights};
use rewire::runtime::ModelOptions;
use rewire::{Gpu, Kernel, Mapping};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

pub fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/decoders").join(name)
}

fn trie(folder: &Path) -> Trie {
    let items = read_items(&folder.join("trie.json")).unwrap();
    Trie::new(&[400; 3], items.into_iter().enumerate().map(|(place, item)| (place as i64, item))).unwrap()
}

pub fn options() -> impl Iterator<Item = RankOptions> {
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_cpu = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    [Some(on_cpu), on_gpu].into_iter().flatten()
}

fn check(found: &[Found], expected: &Value) {
    let items: Vec<&[u32]> = found.iter().map(|found| found.codes.as_slice()).collect();
    assert_eq!(serde_json::to_value(items).unwrap(), expected["items"], "prompt {}", expected["id"]);
    for (found, score) in found.iter().zip(expected["scores"].as_array().unwrap()) {
        assert!((found.score - score.as_f64().unwrap()).abs() < 1e-4, "{} instead of {score}", found.score);
    }
}

#[test]
fn beams_are_those_of_the_reference_alone_and_together() {
    for name in ["qwen3", "t5"] {
        let folder = folder(name);
        let prompts = read_prompts(&folder.join("prompts.jsonl")).unwrap();
        let (trie, beams) = (trie(&folder), std::fs::read_to_string(folder.join("beams.jsonl")).unwrap());
        let beams: Vec<Value> = beams.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let tokens: Vec<&[u32]> = prompts.iter().map(|prompt| prompt.tokens.as_slice()).collect();
        for options in options() {
            let mut decoder = Decoder::open(&folder, &options).unwrap();
            for width in [2, 4, 16] {
                let found = decoder.search(&tokens, &trie, width).unwrap();
                let alone = tokens.iter().flat_map(|prompt| decoder.search(&[prompt], &trie, width).unwrap());
                assert_eq!(alone.collect::<Vec<_>>(), found, "sharing the search changes no bit");
                for (prompt, found) in prompts.iter().zip(&found) {
                    let expected = beams.iter().find(|line| line["id"] == prompt.id && line["beams"] == width);
                    check(found, expected.unwrap());
                }
            }
        }
    }
}

#[test]
fn a_search_that_keeps_all_beams_has_the_probabilities_of_whole_items() {
    for name in ["qwen3", "t5"] {
        let folder = folder(name);
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let mut decoder = Decoder::open(&folder, &options).unwrap();
        let (prompt, trie) = ([5u32, 399, 0, 27], trie(&folder));
        let found = decoder.search(&[&prompt], &trie, usize::MAX).unwrap().remove(0);
        assert_eq!(found.len(), trie.ids());
        assert!(found.windows(2).all(|pair| pair[0].score >= pair[1].score));
        for found in [found.first(), found.get(found.len() / 2), found.last()].into_iter().flatten() {
            let logits = decoder.logits(&prompt, &found.codes).unwrap().to_f64();
            let rows: Vec<&[f64]> = logits.chunks_exact(400).collect();
            let first = rows.len() - 1 - found.codes.len();
            let score = found
                .codes
                .iter()
                .zip(&rows[first..])
                .map(|(&token, row)| row[token as usize] - row.iter().map(|logit| logit.exp()).sum::<f64>().ln());
            assert!((score.sum::<f64>() - found.score).abs() < 1e-4);
        }
    }
}

#[test]
fn tokens_are_drawn_by_their_probabilities() {
    for name in ["qwen3", "t5"] {
        let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let mut decoder = Decoder::open(&folder(name), &options).unwrap();
        let prompts: [&[u32]; 2] = [&[3, 1, 7, 7, 200], &[17]];
        let greedy = Sampling { tokens: 6, ..Sampling::default() };
        let largest = decoder.sample(&prompts, &greedy).unwrap();
        // With one token, or no probability except for that of the largest logit, there is no choice.
        for narrow in [
            Sampling { temperature: 2.0, top_k: Some(1), ..greedy.clone() },
            Sampling { temperature: 2.0, top_p: 1e-9, ..greedy.clone() },
        ] {
            assert_eq!(decoder.sample(&prompts, &narrow).unwrap(), largest);
        }
        let free = Sampling { temperature: 1.5, seed: 7, top_k: Some(50), top_p: 0.9, ..greedy.clone() };
        let drawn = decoder.sample(&prompts, &free).unwrap();
        assert_ne!(drawn, largest);
        assert_ne!(drawn, decoder.sample(&prompts, &Sampling { seed: 8, ..free.clone() }).unwrap());
        let alone: Vec<Found> = prompts.iter().flat_map(|prompt| decoder.sample(&[prompt], &free).unwrap()).collect();
        assert_eq!(alone, drawn);
        let stop = Sampling { stop: vec![largest[0].codes[0]], ..greedy.clone() };
        assert_eq!(decoder.sample(&prompts, &stop).unwrap()[0].codes, largest[0].codes[..1]);
        for (prompt, found) in prompts.iter().zip(&largest) {
            let logits = decoder.logits(prompt, &found.codes).unwrap().to_f32();
            let rows: Vec<&[f32]> = logits.chunks_exact(400).collect();
            for (&token, row) in found.codes.iter().zip(&rows[rows.len() - 1 - found.codes.len()..]) {
                assert!(row.iter().all(|&logit| logit <= row[token as usize] + 1e-4));
            }
        }
        let wrong = Sampling { top_p: 0.0, ..greedy };
        assert!(matches!(decoder.sample(&prompts, &wrong), Err(GenerateError::Sampling { option: "top_p", .. })));
    }
}

#[test]
fn what_cannot_be_generated_from_is_an_error() {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let mut decoder = Decoder::open(&folder("qwen3"), &options).unwrap();
    let trie = trie(&folder("qwen3"));
    assert!(matches!(decoder.search(&[&[1], &[]], &trie, 2), Err(GenerateError::Prompt { prompt: 1 })));
    assert!(matches!(decoder.search(&[&[1]], &trie, 0), Err(GenerateError::Widths { .. })));
    assert!(matches!(decoder.search(&[&[400]], &trie, 2), Err(GenerateError::Token { token: 400, vocabulary: 400 })));
    assert_eq!(decoder.search(&[], &trie, 2).unwrap(), Vec::<Vec<Found>>::new());
    let none = Trie::new(&[400; 3], []).unwrap();
    assert_eq!(decoder.search(&[&[1]], &none, 2).unwrap(), [vec![]]);
}

#[test]
fn keys_of_configurations_that_matter_are_known() {
    let text = std::fs::read_to_string(folder("qwen3").join("config.json")).unwrap();
    let config: Value = serde_json::from_str(&text).unwrap();
    for (key, value, expected) in [
        ("hidden_size", Value::Null, "has no `hidden_size`"),
        ("num_key_value_heads", 3.into(), "`num_key_value_heads` must be a divisor of the 4 heads, got 3"),
        ("hidden_act", "tanh".into(), "`hidden_act` must be silu"),
        ("use_sliding_window", true.into(), "`use_sliding_window` must be false"),
        ("num_experts", 8.into(), "unknown key `num_experts` = 8"),
        ("rope_parameters", serde_json::json!({"rope_type": "dynamic"}), "must be default, linear, llama3 or yarn"),
        ("rope_parameters", serde_json::json!({"rope_type": "linear"}), "has no `rope_parameters.factor`"),
    ] {
        let mut changed = config.clone();
        changed[key] = value;
        let error = Config::from_json(&changed.to_string()).unwrap_err().to_string();
        assert!(error.contains(expected), "{key}: {error}");
    }
}

/// Some numbers that repeat.
fn numbers(seed: u64) -> impl FnMut(u32) -> u32 {
    let mut noise = crate::Noise(seed);
    move |bound| noise.below(bound)
}

/// Items of one to four tokens of few, so that many begin others.
fn items_of_any_length(next: &mut impl FnMut(u32) -> u32) -> Vec<Vec<u32>> {
    (0..24).map(|_| (0..1 + next(4)).map(|_| 300 + next(4)).collect()).collect()
}

/// The best `width` beginnings and items level by level, with the probabilities of whole sequences.
fn by_the_book(decoder: &mut Decoder, prompt: &[u32], items: &[Vec<u32>], width: usize) -> Vec<(Vec<u32>, f64)> {
    let mut score = |codes: &[u32]| {
        let logits = decoder.logits(prompt, codes).unwrap().to_f64();
        let rows: Vec<&[f64]> = logits.chunks_exact(400).collect();
        let first = rows.len() - 1 - codes.len();
        let of = |(&token, row): (&u32, &&[f64])| {
            row[token as usize] - row.iter().map(|logit| logit.exp()).sum::<f64>().ln()
        };
        codes.iter().zip(&rows[first..]).map(of).sum::<f64>()
    };
    // A beginning, its score, and whether it continues.
    let mut kept: Vec<(Vec<u32>, f64, bool)> = vec![(vec![], 0.0, true)];
    while kept.iter().any(|(.., goes_on)| *goes_on) {
        let mut next: Vec<(Vec<u32>, f64, bool)> = kept.iter().filter(|(.., goes_on)| !goes_on).cloned().collect();
        for (codes, ..) in kept.iter().filter(|(.., goes_on)| *goes_on) {
            let longer = items.iter().filter(|item| item.len() > codes.len() && item.starts_with(codes));
            let longer: BTreeSet<&[u32]> = longer.map(|item| &item[..=codes.len()]).collect();
            for codes in longer {
                let (score, item) = (score(codes), codes.to_vec());
                next.extend(items.contains(&item).then(|| (item.clone(), score, false)));
                next.extend(
                    items
                        .iter()
                        .any(|one| one.len() > codes.len() && one.starts_with(codes))
                        .then_some((item, score, true)),
                );
            }
        }
        next.sort_by(|a, b| b.1.total_cmp(&a.1));
        next.truncate(width);
        kept = next;
    }
    kept.into_iter().map(|(codes, score, _)| (codes, score)).collect()
}

#[test]
fn beams_over_items_of_any_length_are_those_of_an_exhaustive_search() {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let mut decoder = Decoder::open(&folder("qwen3"), &options).unwrap();
    for seed in 0..3 {
        let mut next = numbers(seed);
        let items = items_of_any_length(&mut next);
        let prompt: Vec<u32> = (0..1 + next(9)).map(|_| next(400)).collect();
        let trie = Trie::of_tokens(400, (0..).zip(items.clone())).unwrap();
        for width in [1, 3, 7, 100] {
            let expected = by_the_book(&mut decoder, &prompt, &items, width);
            let found = decoder.search(&[&prompt], &trie, width).unwrap().remove(0);
            assert_eq!(found.len(), expected.len());
            for (found, (codes, score)) in found.iter().zip(&expected) {
                assert_eq!(&found.codes, codes);
                assert!((found.score - score).abs() < 1e-4);
                assert!(found.items.iter().all(|&item| &items[item as usize] == codes) && !found.items.is_empty());
            }
        }
    }
}

/// The trie of the latest items is kept, not that of others.
#[test]
fn answers_are_those_of_the_given_items() {
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let mut decoder = Decoder::open(&folder("qwen3"), &options).unwrap();
    let sampling = Sampling { tokens: 3, ..Sampling::default() };
    let mut answer = |items: Option<Vec<Vec<u32>>>| {
        decoder
            .answer(&[&[87, 173]], (items, 2), sampling.clone(), |_, _| ControlFlow::Continue(()))
            .map(|mut found| found.remove(0))
    };
    let items = |found: Vec<Found>| found.into_iter().flat_map(|found| found.items).collect::<BTreeSet<i64>>();
    let (first, second) = (vec![vec![319, 360], vec![7], vec![319, 338]], vec![vec![7, 300], vec![9]]);
    let best = answer(Some(first.clone())).unwrap();
    assert_eq!(items(answer(Some(second)).unwrap()), BTreeSet::from([0, 1]));
    assert_eq!(answer(Some(first.clone())).unwrap(), best);
    assert_eq!(answer(Some(first)).unwrap(), best);
    let drawn = answer(None).unwrap().remove(0);
    assert!(drawn.codes.len() == 3 && drawn.items.is_empty());
    assert!(matches!(answer(Some(vec![vec![]])), Err(GenerateError::Id { item: 0, .. })));
}

/// A search keeps its beams on a device, a queue reads them after every token; on the CPU the host chooses them.
#[test]
fn beams_on_a_device_are_those_that_the_host_chooses() {
    for (name, options) in ["qwen3", "t5"].into_iter().flat_map(|name| options().map(move |options| (name, options))) {
        let on_cpu = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
        let [mut decoder, mut host] = [&options, &on_cpu].map(|with| Decoder::open(&folder(name), with).unwrap());
        let mut next = numbers(5);
        for items in [items_of_any_length(&mut next), vec![vec![320]], vec![vec![7], vec![7, 300], vec![7, 300, 301]]] {
            let trie = Trie::of_tokens(400, (0..).zip(items)).unwrap();
            let prompts: Vec<Vec<u32>> = (0..3).map(|_| (0..1 + next(9)).map(|_| next(400)).collect()).collect();
            let prompts: Vec<&[u32]> = prompts.iter().map(Vec::as_slice).collect();
            for width in [1, 5, usize::MAX] {
                let search = Task::Search { trie: &trie, width };
                let (expected, _) = queued(&mut host, &prompts, &search);
                let (found, reported) = queued(&mut decoder, &prompts, &search);
                assert_eq!(decoder.search(&prompts, &trie, width).unwrap(), found);
                let mut watched = BTreeMap::<usize, Vec<Vec<u32>>>::new();
                let watch = |place: usize, tokens: &[u32]| {
                    watched.entry(place).or_default().push(tokens.to_vec());
                    if place == 1 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                };
                let some = decoder.generate(&prompts, &search, watch).unwrap();
                assert_eq!((&some[0], &some[1], &some[2]), (&found[0], &vec![], &found[2]));
                assert_eq!((&watched[&0], watched[&1].len()), (&reported[0], 1));
                for (place, found) in found.iter().enumerate() {
                    let codes = |found: &[Found]| found.iter().map(|one| one.codes.clone()).collect::<Vec<_>>();
                    assert_eq!(codes(found), codes(&expected[place]), "{name}, width {width}, prompt {place}");
                    for (found, expected) in found.iter().zip(&expected[place]) {
                        assert!((found.score - expected.score).abs() < 1e-5 && found.items == expected.items);
                    }
                }
            }
        }
    }
}

/// The results of a queue and the reported prefixes, per prompt.
fn queued(decoder: &mut Decoder, prompts: &[&[u32]], task: &Task<'_>) -> (Vec<Vec<Found>>, Vec<Vec<Vec<u32>>>) {
    let mut queue = decoder.queue(200).unwrap();
    let ids: Vec<_> = prompts.iter().map(|prompt| queue.submit(prompt, task.clone()).unwrap()).collect();
    let (mut found, mut reported) = (vec![vec![]; ids.len()], vec![vec![]; ids.len()]);
    while !queue.is_empty() {
        for progress in queue.step().unwrap() {
            let place = ids.iter().position(|id| *id == progress.request).unwrap();
            reported[place].push(progress.tokens);
            found[place].extend(progress.found.into_iter().flatten());
        }
    }
    (found, reported)
}

/// Requests come while others run, wait for rows, and are cancelled: what is left finds what it finds alone, to the bit.
#[test]
fn requests_that_come_and_go_find_what_they_find_alone() {
    for (name, options) in ["qwen3", "t5"].into_iter().flat_map(|name| options().map(move |options| (name, options))) {
        let mut decoder = Decoder::open(&folder(name), &options).unwrap();
        let mut next = numbers(11);
        let tries = [0, 1].map(|_| Trie::of_tokens(400, (0..).zip(items_of_any_length(&mut next))).unwrap());
        let prompts: Vec<Vec<u32>> = (0..9).map(|_| (0..1 + next(20)).map(|_| next(400)).collect()).collect();
        let sampling =
            |seed| Sampling { tokens: 3 + seed % 4, temperature: 1.0, seed: seed as u64, ..Sampling::default() };
        let task = |n: usize| match n % 2 {
            0 => Task::Search { trie: &tries[n / 2 % 2], width: 1 + n },
            _ => Task::Sample(sampling(n)),
        };
        let alone: Vec<Vec<Found>> = prompts
            .iter()
            .enumerate()
            .map(|(n, prompt)| match task(n) {
                Task::Search { trie, width } => decoder.search(&[prompt], trie, width).unwrap().remove(0),
                Task::Sample(sampling) => decoder.sample(&[prompt], &sampling).unwrap(),
            })
            .collect();
        let mut queue = decoder.queue(80).unwrap();
        let (mut found, mut places, mut most) = (vec![None; prompts.len()], BTreeMap::new(), 0);
        let mut waiting = prompts.iter().enumerate();
        while places.len() < prompts.len() || !queue.is_empty() {
            if let Some((n, prompt)) = waiting.next() {
                places.insert(queue.submit(prompt, task(n)).unwrap(), n);
            }
            for progress in queue.step().unwrap() {
                let n = places[&progress.request];
                assert!(n != 4 || progress.found.is_none(), "it was cancelled");
                found[n] = progress.found.or(found[n].take());
                if n == 4 {
                    let before = queue.rows();
                    assert!(queue.cancel(progress.request) && queue.rows() < before && !queue.cancel(progress.request));
                }
            }
            most = most.max(queue.rows());
        }
        assert!(most > 40 && queue.rows() == 0, "{most} rows at most");
        for (n, (found, alone)) in found.into_iter().zip(alone).enumerate().filter(|(n, _)| *n != 4) {
            assert_eq!(found, Some(alone), "{name}, request {n}");
        }
        let refused = queue.submit(&[1; 81], task(0));
        assert!(matches!(refused, Err(GenerateError::Rows { rows: 80, .. })), "{refused:?}");
    }
}

/// A T5 with one decoder layer reads its biases in one kernel with the attention of that layer.
#[test]
fn a_decoder_of_one_layer_fits_the_storage_buffers_of_gpus() {
    let text = std::fs::read_to_string(folder("t5").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["num_decoder_layers"] = 1.into();
    let config = Config::from_json(&config.to_string()).unwrap();
    let plan = rewire::lower(&rewire::optimize(config.trace(DType::F32).unwrap()).unwrap().0).unwrap();
    let most = plan.steps.iter().map(|step| step.reads.len() + step.writes.len()).max();
    assert!(most <= Some(16), "{most:?} operands and results of a kernel");
}

#[test]
fn tokens_that_end_texts_are_those_of_the_configuration() {
    let text = std::fs::read_to_string(folder("qwen3").join("config.json")).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    let options = RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() };
    let greedy = Sampling { tokens: 6, ..Sampling::default() };
    let mut decoder = Decoder::open(&folder("qwen3"), &options).unwrap();
    let whole = decoder.sample(&[&[3, 1, 7]], &greedy).unwrap().remove(0).codes;
    config["eos_token_id"] = serde_json::json!([399, whole[2]]);
    let config = Config::from_json(&config.to_string()).unwrap();
    let weights = read_weights(&folder("qwen3"), Mapping::default()).unwrap();
    let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
    let mut decoder = Decoder::load(&config, &weights, on_cpu).unwrap();
    let end = whole.iter().position(|token| *token == whole[2]).unwrap();
    assert_eq!(decoder.sample(&[&[3, 1, 7]], &greedy).unwrap()[0].codes, whole[..=end]);
}

/// Configurations as they are published, with the keys of other versions of the library.
#[test]
fn published_configurations_are_taken() {
    let common = serde_json::json!({
        "architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1, "hidden_act": "silu", "hidden_size": 64,
        "initializer_range": 0.02, "intermediate_size": 96, "max_position_embeddings": 131072, "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "tie_word_embeddings": true,
        "torch_dtype": "bfloat16", "transformers_version": "4.45.0", "use_cache": true, "vocab_size": 300
    });
    let llama = serde_json::json!({
        "model_type": "llama", "attention_bias": false, "mlp_bias": false, "pretraining_tp": 1, "head_dim": 16,
        "eos_token_id": [128001, 128008, 128009], "rope_theta": 500000.0,
        "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"}
    });
    let mistral = serde_json::json!({
        "model_type": "mistral", "eos_token_id": 2, "rope_theta": 1000000.0, "sliding_window": null, "head_dim": 16
    });
    let qwen2 = serde_json::json!({
        "model_type": "qwen2", "eos_token_id": 151643, "max_window_layers": 24, "rope_theta": 1000000.0,
        "sliding_window": 32768, "use_mrope": false, "use_sliding_window": false, "pruned_heads": {}
    });
    for family in [llama, mistral.clone(), qwen2] {
        let mut config = common.clone();
        config.as_object_mut().unwrap().extend(family.as_object().unwrap().clone());
        let config = Config::from_json(&config.to_string()).unwrap();
        assert!(!config.stop().is_empty());
        let graph = config.trace(DType::BF16).unwrap();
        assert_eq!(graph.text().contains("q_proj.bias"), family["model_type"] == "qwen2");
    }
    let mut windowed = common;
    windowed.as_object_mut().unwrap().extend(mistral.as_object().unwrap().clone());
    windowed["sliding_window"] = 4096.into();
    let error = Config::from_json(&windowed.to_string()).unwrap_err().to_string();
    assert_eq!(error, "`sliding_window` must be null, got 4096");
    let flan = serde_json::json!({
        "architectures": ["T5ForConditionalGeneration"], "d_ff": 96, "d_kv": 16, "d_model": 64, "decoder_start_token_id": 0,
        "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
        "is_encoder_decoder": true, "layer_norm_epsilon": 1e-6, "model_type": "t5", "n_positions": 512,
        "num_decoder_layers": 2, "num_heads": 4, "num_layers": 2, "output_past": true, "pad_token_id": 0,
        "relative_attention_max_distance": 128, "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
        "transformers_version": "4.23.1", "use_cache": true, "vocab_size": 300,
        "task_specific_params": {"summarization": {"num_beams": 4, "prefix": "summarize: "}}
    });
    let config = Config::from_json(&flan.to_string()).unwrap();
    assert_eq!((config.start(), config.stop()), (Some(0), &[1][..]));
}
