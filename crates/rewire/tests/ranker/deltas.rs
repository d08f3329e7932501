//! Deltas of models that rank meanwhile.

use super::{Noise, bare, config, on_cpu, plain, requests, trace, weights};
use rewire::delta::{Delta, DeltaError, ModelVersion, apply};
use rewire::graph::{Coded, DType, HostTensor};
use rewire::package::Package;
use rewire::rank::{CacheLimits, Caches, PackOptions, Precision, RankOptions, Ranked, Ranker, Request, pack};
use rewire::runtime::{ParameterUpdate, RuntimeError};
use rewire::weights::{Weights, serialize};
use rewire::{Gpu, Kernel, Mapping, Tables};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The weights of a model with their version.
fn versioned(value: &Value) -> (Vec<u8>, ModelVersion) {
    let tensors = Weights::parse(weights(&config(value))).unwrap().tensors().unwrap();
    let version = ModelVersion::base(&tensors);
    (serialize(&tensors, &version.metadata()).unwrap(), version)
}

fn loaded(value: &Value, options: &RankOptions) -> Ranker {
    Ranker::new(&config(value), &Weights::parse(versioned(value).0).unwrap(), options).unwrap()
}

/// Some rows of each table, and all other parameters.
fn changes(value: &Value, noise: &mut Noise) -> BTreeMap<String, ParameterUpdate> {
    let mut tensor = |shape: &[usize]| {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| noise.float()).collect();
        HostTensor::from_f64(DType::F32, shape.to_vec(), &values).unwrap()
    };
    let specs = trace(&config(value)).unwrap().parameters();
    let change = |(at, spec): (usize, rewire::graph::ParameterSpec)| {
        let change = match (spec.name.starts_with("embedding."), spec.shape.as_slice()) {
            (true, &[rows, width]) => {
                let rows = [at * 5 % rows, (at * 3 + 1) % rows, rows - 1].map(|row| row as u32);
                ParameterUpdate::Rows { rows: rows.to_vec(), values: tensor(&[rows.len(), width]) }
            }
            _ => ParameterUpdate::Whole(tensor(&spec.shape)),
        };
        (spec.name, change)
    };
    specs.into_iter().enumerate().map(change).collect()
}

/// Deltas that follow a model one after the other, with their files.
fn deltas(value: &Value, count: usize) -> Vec<(Delta, Vec<u8>)> {
    let (mut noise, mut version) = (Noise(3), versioned(value).1);
    let all = (0..count).map(|step| {
        let made = Delta::new(version, step as u64 + 1, changes(value, &mut noise).into()).unwrap();
        version = made.0.version();
        made
    });
    all.collect()
}

fn all_options() -> Vec<RankOptions> {
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    let on_device = [Some(on_cpu()), on_gpu].into_iter().flatten();
    let places = [(Tables::Device, 0), (Tables::Host, 0), (Tables::Host, 1 << 15)];
    on_device
        .flat_map(|options| {
            places.map(|(tables, bytes)| {
                let (hot_row_bytes, device_row_bytes) = (bytes, bytes / 8);
                RankOptions { tables, hot_row_bytes, device_row_bytes, ..options.clone() }
            })
        })
        .collect()
}

/// Requests with histories and candidates that several runs divide.
fn several(ranker: &Ranker) -> Vec<Request> {
    requests(ranker).into_iter().filter(|request| !request.user.to_string().ends_with(" 0")).take(4).collect()
}

/// The results of all versions of a model.
fn of_versions(value: &Value, deltas: &[(Delta, Vec<u8>)], options: &RankOptions) -> Vec<Vec<Ranked>> {
    let ranker = loaded(value, options);
    let requests = several(&ranker);
    let mut all = vec![ranker.rank(&requests).unwrap()];
    for (delta, _) in deltas {
        ranker.update(delta).unwrap();
        all.push(ranker.rank(&requests).unwrap());
    }
    assert!(all.windows(2).all(|pair| pair[0] != pair[1]), "a delta changes nothing");
    all
}

#[test]
fn a_ranking_is_of_one_version_and_versions_never_go_back() {
    for (value, count) in [(plain(), 100), (bare(), 20)] {
        let deltas = deltas(&value, count);
        // Small runs, of which a call takes several.
        let options = RankOptions { batch_rows: 16, ..on_cpu() };
        let expected = of_versions(&value, &deltas, &options);
        let (ranker, ranked, done) = (loaded(&value, &options), AtomicUsize::new(0), AtomicUsize::new(0));
        let requests = several(&ranker);
        let rank = || {
            let (mut version, mut seen) = (0, 0);
            loop {
                let is_last = done.load(Ordering::Acquire) == 1;
                let found = ranker.rank(&requests).unwrap();
                let own = (version..expected.len()).find(|at| expected[*at] == found);
                let own = own.expect("a result of several versions, or of one before the last");
                seen += usize::from(own != version);
                version = own;
                ranked.fetch_add(1, Ordering::AcqRel);
                if is_last {
                    assert_eq!(version, count, "the last delta is applied");
                    return seen;
                }
            }
        };
        std::thread::scope(|scope| {
            let threads = [(); 3].map(|()| scope.spawn(rank));
            for (at, (delta, _)) in deltas.iter().enumerate() {
                while ranked.load(Ordering::Acquire) < at {
                    std::thread::yield_now();
                }
                ranker.update(delta).unwrap();
            }
            done.store(1, Ordering::Release);
            let seen = threads.map(|thread| thread.join().unwrap());
            assert!(seen.iter().all(|versions| *versions > 3), "{seen:?} versions while {count} deltas were applied");
        });
        assert_eq!(ranker.version(), Some(deltas[count - 1].0.version()));
    }
}

#[test]
fn models_on_any_device_take_deltas() {
    let deltas = deltas(&plain(), 3);
    let near = |a: &[Ranked], b: &[Ranked]| {
        let logits = |ranked: &[Ranked]| -> BTreeMap<(usize, usize), Vec<f32>> {
            let all = ranked.iter().enumerate();
            all.flat_map(|(at, ranked)| {
                ranked.candidates.iter().map(move |one| ((at, one.position), one.logits.clone()))
            })
            .collect()
        };
        let (a, b) = (logits(a), logits(b));
        let is_near = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-3 * (1.0 + a.abs());
        a.keys().eq(b.keys()) && a.values().flatten().zip(b.values().flatten()).all(is_near)
    };
    let expected = of_versions(&plain(), &deltas, &on_cpu());
    for options in all_options() {
        let found = of_versions(&plain(), &deltas, &options);
        let all_near = found.iter().zip(&expected).all(|(found, expected)| near(found, expected));
        assert!(all_near, "{:?} {:?}", options.kernel, options.tables);
    }
}

#[test]
fn a_refused_delta_changes_nothing() {
    let (value, other) = (plain(), bare());
    let all = deltas(&value, 3);
    let with = |name: &str, change: ParameterUpdate| {
        Delta::new(versioned(&value).1, 1, BTreeMap::from([(name.to_owned(), change)]).into())
    };
    let table = "embedding.film.weight";
    let rows = |row: u32, width: usize, value: f32| ParameterUpdate::Rows {
        rows: vec![0, row],
        values: HostTensor::f32([2, width], &vec![value; 2 * width]).unwrap(),
    };
    for options in all_options() {
        let ranker = loaded(&value, &options);
        let requests = several(&ranker);
        let (before, version) = (ranker.rank(&requests).unwrap(), ranker.version());
        assert!(matches!(ranker.update(&all[1].0), Err(DeltaError::Missing { number: 2, needed: 1 })));
        assert!(matches!(ranker.update(&deltas(&other, 1)[0].0), Err(DeltaError::Foreign { .. })));
        let refused = |change| match ranker.update(&with(table, change).unwrap().0) {
            Err(DeltaError::Runtime(error)) => error,
            other => panic!("{other:?}"),
        };
        assert!(matches!(refused(rows(50, 12, 0.5)), RuntimeError::ParameterRows { .. }));
        assert!(matches!(refused(rows(49, 11, 0.5)), RuntimeError::ParameterShape { .. }));
        assert!(matches!(refused(rows(49, 12, f32::NAN)), RuntimeError::ParameterValue { .. }));
        let small = ParameterUpdate::Whole(HostTensor::f32([2], &[0.5; 2]).unwrap());
        assert!(matches!(refused(small), RuntimeError::ParameterShape { .. }));
        assert_eq!((ranker.rank(&requests).unwrap(), ranker.version()), (before, version));
        ranker.update(&all[0].0).unwrap();
        assert!(matches!(ranker.update(&all[0].0), Err(DeltaError::Applied { number: 1, latest: 1 })));
        // Tensors that the model does not read are skipped.
        let unread = Delta::new(all[0].0.version(), 2, BTreeMap::from([("unread".to_owned(), rows(0, 1, 0.5))]).into())
            .unwrap()
            .0;
        ranker.update(&unread).unwrap();
    }
    let without = Ranker::new(&config(&value), &Weights::parse(weights(&config(&value))).unwrap(), &on_cpu()).unwrap();
    assert!(without.version().is_none() && matches!(without.update(&all[0].0), Err(DeltaError::NoVersion)));
}

#[test]
fn cached_histories_of_earlier_versions_are_computed_again() {
    let deltas = deltas(&bare(), 2);
    let ranker = loaded(&bare(), &on_cpu());
    let mut caches = Caches::new(&ranker, CacheLimits::default()).unwrap();
    let requests = several(&ranker);
    for (delta, _) in &deltas {
        let expected = ranker.rank(&requests).unwrap();
        assert_eq!(caches.rank(&requests).unwrap(), expected);
        assert_eq!(caches.rank(&requests).unwrap(), expected);
        ranker.update(delta).unwrap();
    }
    let before = caches.report().computed;
    assert_eq!(caches.rank(&requests).unwrap(), ranker.rank(&requests).unwrap());
    assert_eq!(caches.rank(&requests).unwrap(), ranker.rank(&requests).unwrap());
    assert!(caches.report().computed > before, "{:?}", caches.report());
}

/// A folder with a model and its deltas.
fn in_files(value: &Value, count: usize) -> (tempfile::TempDir, PathBuf, Vec<PathBuf>) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join("config.json"), value.to_string()).unwrap();
    std::fs::write(model.join("model.safetensors"), versioned(value).0).unwrap();
    let deltas = deltas(value, count).into_iter().enumerate().map(|(at, (_, bytes))| {
        let path = folder.path().join(format!("{at}.safetensors"));
        std::fs::write(&path, bytes).unwrap();
        path
    });
    let deltas = deltas.collect();
    (folder, model, deltas)
}

/// The results of a loaded model with deltas.
fn served(model: &Path, deltas: &[PathBuf]) -> Vec<Ranked> {
    let ranker = Ranker::load(model, &on_cpu()).unwrap();
    deltas.iter().for_each(|path| ranker.update(&Delta::read(path).unwrap()).unwrap());
    ranker.rank(&several(&ranker)).unwrap()
}

#[test]
fn deltas_are_applied_to_folders_and_quantised_packages() {
    let (folder, model, deltas) = in_files(&plain(), 4);
    let out = folder.path().join("out");
    let version = apply(&model, &deltas[..3], &out).unwrap();
    assert_eq!(version.number(), 3);
    assert_eq!(served(&out, &[]), served(&model, &deltas[..3]));
    // In place.
    apply(&out, &deltas[3..], &out).unwrap();
    apply(&model, &deltas, &model).unwrap();
    let weights = |model: &Path| std::fs::read(model.join("model.safetensors")).unwrap();
    assert_eq!(weights(&model), weights(&out));

    let (folder, model, deltas) = in_files(&plain(), 2);
    let (text, given) = (plain().to_string(), rewire::rank::read_weights(&model, Mapping::Large).unwrap());
    for (tables, apart) in [(DType::Rows8, false), (DType::F16, true), (DType::Rows8, true)] {
        let package = folder.path().join(format!("{tables}-{apart}.rewire"));
        let options = PackOptions {
            precision: Precision { tables: Some(tables), ..Precision::default() },
            tables_file: apart.then(|| folder.path().join(format!("tables-{tables}.safetensors"))),
            ..PackOptions::default()
        };
        std::fs::write(&package, pack("test", &text, &given, &options).unwrap().bytes()).unwrap();
        let expected = served(&package, &deltas);
        let out = folder.path().join("out.rewire");
        apply(&package, &deltas[..1], &out).unwrap();
        apply(&out, &deltas[1..], &out).unwrap();
        assert_eq!(served(&out, &[]), expected, "{tables}");
        Package::read(&out).unwrap().check_tables().unwrap();
        assert_ne!(served(&package, &[]), expected);
    }
}

#[test]
fn a_refused_delta_writes_nothing() {
    let (folder, model, deltas) = in_files(&bare(), 3);
    let before = std::fs::read(model.join("model.safetensors")).unwrap();
    let mut damaged = std::fs::read(&deltas[1]).unwrap();
    *damaged.last_mut().unwrap() ^= 1;
    let broken = folder.path().join("damaged");
    std::fs::write(&broken, damaged).unwrap();
    let none = folder.path().join("none");
    for (wrong, part) in [
        (vec![deltas[0].clone(), broken], "damaged"),
        (vec![deltas[0].clone(), deltas[2].clone()], "needs delta 2"),
        (vec![deltas[1].clone()], "needs delta 1"),
        (vec![deltas[0].clone(), deltas[0].clone()], "already contains"),
        (vec![none.clone()], "cannot read"),
    ] {
        for out in [&model, &none] {
            let error = rewire::describe(&apply(&model, &wrong, out).unwrap_err());
            assert!(error.contains(part), "{error}");
        }
    }
    assert!(!none.exists() && std::fs::read(model.join("model.safetensors")).unwrap() == before);
}

/// The first byte of each part of a delta's file, and its end: the length of the header, the header, the entries in it, and tensors.
fn boundaries(bytes: &[u8]) -> Vec<usize> {
    let header = 8 + u64::from_le_bytes(*bytes.first_chunk().unwrap()) as usize;
    let text: Value = serde_json::from_slice(&bytes[8..header]).unwrap();
    let entries = text["__metadata__"].as_object().unwrap().values().map(|value| value.as_str().unwrap());
    let place = |text: &str| 8 + bytes[8..header].windows(text.len()).position(|own| own == text.as_bytes()).unwrap();
    let tensors = text.as_object().unwrap().values().filter_map(|tensor| tensor.get("data_offsets"));
    let starts = tensors.map(|offsets| header + offsets[0].as_u64().unwrap() as usize);
    let mut all: Vec<usize> = entries.map(place).chain(starts).chain([0, 8, header, bytes.len()]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[test]
fn a_model_serves_on_while_damaged_deltas_are_refused() {
    let (folder, model, deltas) = in_files(&plain(), 1);
    let bytes = std::fs::read(&deltas[0]).unwrap();
    let places = boundaries(&bytes);
    assert!(places.len() > 10, "{places:?}");
    let ranker = Ranker::load(&model, &on_cpu()).unwrap();
    let requests = several(&ranker);
    let (before, version) = (ranker.rank(&requests).unwrap(), ranker.version());
    let (broken, out) = (folder.path().join("broken"), folder.path().join("out"));
    let flipped = places.windows(2).flat_map(|part| [part[0], (part[0] + part[1]) / 2, part[1] - 1]).map(|at| {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x20;
        damaged
    });
    let cut = places.iter().flat_map(|&end| [end.saturating_sub(1), end]).filter(|end| *end < bytes.len());
    for damaged in flipped.chain(cut.map(|end| bytes[..end].to_vec())) {
        std::fs::write(&broken, &damaged).unwrap();
        let code = Delta::read(&broken).unwrap_err().code();
        assert!(["delta.damaged", "delta.not_delta", "delta.newer", "weights.format"].contains(&code), "{code}");
        assert_eq!(apply(&model, std::slice::from_ref(&broken), &out).unwrap_err().code(), code);
    }
    assert!(!out.exists());
    assert_eq!(ranker.rank(&requests).unwrap(), before);
    assert_eq!(ranker.version(), version);
    ranker.update(&Delta::read(&deltas[0]).unwrap()).unwrap();
    assert_ne!(ranker.rank(&requests).unwrap(), before);
}

const APPLIED: &str = "REWIRE_TEST_APPLIED";

#[test]
#[ignore = "runs through `a_kill_leaves_the_old_model_or_the_new`"]
fn inner_apply() {
    let model = PathBuf::from(std::env::var_os(APPLIED).unwrap());
    for at in 0..40 {
        drop(apply(&model, &[model.with_file_name(format!("{at}.safetensors"))], &model));
    }
}

/// A model as a package with its tables in a separate file.
fn packed(model: &Path, value: &Value) -> PathBuf {
    let package = model.with_file_name("model.rewire");
    let given = rewire::rank::read_weights(model, Mapping::Large).unwrap();
    let tables_file = Some(model.with_file_name("tables.safetensors"));
    let options = PackOptions { tables_file, ..PackOptions::default() };
    std::fs::write(&package, pack("test", &value.to_string(), &given, &options).unwrap().bytes()).unwrap();
    package
}

/// The content of a model, whose files are whole, and the number of its latest delta.
fn whole(model: &Path) -> (Vec<u8>, usize) {
    let (bytes, version) = if model.is_dir() {
        let file = model.join("model.safetensors");
        (std::fs::read(&file).unwrap(), ModelVersion::of(&Weights::read(&file).unwrap()))
    } else {
        let package = Package::read(model).unwrap();
        package.check_tables().unwrap();
        (package.bytes().to_vec(), ModelVersion::of(package.weights()))
    };
    (bytes, version.unwrap().number() as usize)
}

#[test]
#[cfg(unix)]
fn a_kill_leaves_the_old_model_or_the_new() {
    for is_package in [false, true] {
        let of = |model: PathBuf| if is_package { packed(&model, &bare()) } else { model };
        let (_folder, model, deltas) = in_files(&bare(), 40);
        let (model, mut last) = (of(model), 0);
        for round in 0..3 {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["deltas::inner_apply", "--exact", "--ignored"])
                .env(APPLIED, &model)
                .stdout(std::process::Stdio::null())
                .spawn()
                .unwrap();
            let begun = Instant::now();
            while whole(&model).1 == last && last < 40 && begun.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(7 * round));
            child.kill().unwrap();
            child.wait().unwrap();
            let (own, number) = whole(&model);
            assert!(number > last || last == 40, "{number} after {last}");
            last = number;
            let (_others, base, _) = in_files(&bare(), 0);
            let base = of(base);
            apply(&base, &deltas[..number], &base).unwrap();
            assert!(own == whole(&base).0, "delta {number}");
        }
    }
}
