//! Histories of imported rankers that are kept from call to call.

use crate::import::import;
use crate::program::{Folder, run};
use rewire::graph_rewrite::passes::SelectRows;
use rewire::predict::{Caches, Column, OwnedCell, Predicted, Predictor};
use rewire::rank::{CacheLimits, CacheOptions, CacheReport, RankOptions, User};
use rewire::{Gpu, Kernel};
use std::path::Path;

/// Steps that a user has at most.
const MOST: usize = 14;

/// A request: whose, when, the steps of the history so far, and candidates.
#[derive(Clone)]
struct Visit {
    user: usize,
    time: usize,
    steps: usize,
    candidates: usize,
}

/// Visits of few users whose histories grow, of whom some return with nothing new.
fn visits(round: usize) -> Vec<Visit> {
    let visit = |number: usize| {
        let mixed = (number * 2_654_435_761) >> 7;
        let (user, candidates) = (mixed % 5, mixed / 5 % 4);
        Visit { user, time: 128 * (round / 3), steps: (3 * user + round / 3) % MOST, candidates }
    };
    (4 * round..4 * round + 1 + round % 4).map(visit).collect()
}

fn cell(column: &str, visit: &Visit) -> OwnedCell {
    let Some((sequence, feature)) = column.split_once("__") else {
        return OwnedCell::Text(((visit.user + column.len()) % 5).to_string());
    };
    let count = match sequence {
        "cand_seq" => visit.candidates,
        // Channels of other lengths.
        "view_seq" => visit.steps / 2,
        _ => visit.steps,
    };
    let step = |step: usize| match feature {
        "query_time" => 1_280_000 + visit.time,
        "action_timestamp" => 1_000_000 + 1280 * step,
        _ => (7 * visit.user + 3 * step + feature.len()) % 8,
    };
    OwnedCell::Text((0..count).map(|at| step(at).to_string()).collect::<Vec<_>>().join("|"))
}

fn columns<'n>(predictor: &'n Predictor, visits: &[Visit]) -> Vec<(&'n str, Column<'static>)> {
    let column = |name: &'n String| {
        let cells = visits.iter().map(|visit| cell(name, visit)).collect();
        (name.as_str(), Column::of_cells(cells).unwrap())
    };
    predictor.columns().iter().map(column).collect()
}

fn predict(caches: &mut Caches, predictor: &Predictor, visits: &[Visit]) -> Predicted {
    let users: Vec<User> = visits.iter().map(|visit| (visit.user as i64).into()).collect();
    caches.predict(&users, &columns(predictor, visits)).unwrap()
}

/// Rounds of visits that the CPU computes.
const ROUNDS: usize = 15;

/// Rounds of visits in caches with this many rows have the bits of predictions without a cache.
fn check(predictor: &Predictor, rounds: usize, rows: u64, host_rows: u64) -> CacheReport {
    let row = predictor.model().session().state_row_bytes();
    let limits = CacheLimits { page_rows: 5, device_bytes: rows * row, host_bytes: host_rows * row };
    let mut caches = Caches::new(predictor, limits).unwrap();
    for round in 0..rounds {
        let visits = visits(round);
        let expected = predictor.predict(visits.len(), &columns(predictor, &visits)).unwrap();
        assert_eq!(expected.counts, visits.iter().map(|visit| visit.candidates).collect::<Vec<_>>());
        for _ in 0..2 {
            assert_eq!(predict(&mut caches, predictor, &visits), expected, "round {round}");
        }
    }
    let report = caches.report();
    assert!(
        report.hits as usize > rounds && report.computed > 3 && report.appended == 0 && report.users <= 5,
        "{report:?}"
    );
    assert!(caches.forget(&0.into()) && !caches.forget(&0.into()));
    caches.clear();
    assert_eq!((caches.report().users, caches.report().free_pages), (0, report.pages));
    report
}

fn load(model: &Path, options: RankOptions) -> Predictor {
    Predictor::load(model, &options).unwrap()
}

fn on_cpu() -> RankOptions {
    RankOptions { kernel: Kernel::Cpu, ..RankOptions::default() }
}

#[test]
fn kept_histories_change_no_bit() {
    let folder = Folder::new();
    for name in ["ultra_hstu_channels", "dlrm_hstu_interleave", "dlrm_hstu_descending"] {
        let model = folder.0.join(name);
        import(name, "model.safetensors", &model);
        let predictor = load(&model, on_cpu());
        let wide = check(&predictor, ROUNDS, 1 << 10, 0);
        assert!(wide.evicted == 0 && wide.free_pages > 0, "{name}: {wide:?}");
        let dropped = check(&predictor, ROUNDS, 30, 0);
        assert!(dropped.evicted > 0 && dropped.spilled == 0, "{name}: {dropped:?}");
        let spilled = check(&predictor, ROUNDS, 30, 500);
        assert!(spilled.spilled > 0 && spilled.restored > 0, "{name}: {spilled:?}");
    }
    let half = RankOptions { cache: CacheOptions { dtype: rewire::graph::DType::F16 }, ..on_cpu() };
    check(&load(&folder.0.join("ultra_hstu_channels"), half), ROUNDS, 30, 500);
    let Ok(gpu) = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")) else { return };
    let on_gpu = RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() };
    check(&load(&folder.0.join("ultra_hstu_channels"), on_gpu), 4, 30, 500);
}

#[test]
fn packages_keep_histories_and_tables_in_few_bits() {
    let (folder, name) = (Folder::new(), "ultra_hstu_channels");
    let model = folder.0.join("model");
    import(name, "model.safetensors", &model);
    let visits: Vec<Visit> = (0..8).flat_map(visits).collect();
    let whole = load(&model, on_cpu());
    let expected = whole.predict(visits.len(), &columns(&whole, &visits)).unwrap();
    for (tables, most) in [("f32", 0.0), ("f16", 5e-3), ("int8", 0.05), ("int4", 0.5)] {
        let packaged = folder.0.join(format!("{tables}.rewire"));
        let [from, to] = [&model, &packaged].map(|path| path.display().to_string());
        let packed = run(&["package", "--model", &from, "--out", &to, "--tables", tables]);
        assert_eq!(packed.code, Some(0), "{}", packed.stderr);
        let predictor = load(&packaged, on_cpu());
        check(&predictor, ROUNDS, 30, 500);
        let found = predictor.predict(visits.len(), &columns(&predictor, &visits)).unwrap();
        let values =
            |predicted: &Predicted| predicted.columns.iter().flat_map(|c| c.values.clone()).collect::<Vec<_>>();
        let (found, expected) = (values(&found), values(&expected));
        let change = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(change <= most && (change > 0.0 || tables == "f32"), "{tables}: {change}");
    }
}

#[test]
fn rows_that_nobody_reads_are_not_computed() {
    let folder = Folder::new();
    // Of a user the last token is read; of a ranker that is evaluated or trained, the candidates.
    for name in ["hstu_match_cosine", "dlrm_hstu_train", "ultra_hstu_channels"] {
        let model = folder.0.join(name);
        import(name, "model.safetensors", &model);
        let graph = rewire::predict::read(&model, rewire::Mapping::default()).unwrap().graph().clone();
        let selected = SelectRows.select(&graph).unwrap();
        assert_ne!(selected.text(), graph.text(), "{name}");
    }
}

#[test]
fn models_without_kept_histories_have_no_caches() {
    let folder = Folder::new();
    let model = folder.0.join("model");
    import("dlrm_criteo", "model.safetensors", &model);
    let error = Caches::new(&load(&model, on_cpu()), CacheLimits::default()).unwrap_err();
    assert!(error.to_string().contains("histories cannot be cached"), "{error}");
}
