use super::matmul::product;
use super::{gpu, options};
use crate::tuning::{Bucket, identity};
use crate::{DeviceTunings, Gpu, Inputs, Kernel, Model, ModelOptions, Refining, RunError, Session, TuningStore};
use rewire_graph::{HostTensor, Symbol};
use rewire_graph_rewrite::device::{PairReductionTile, ProductTile, Tile, Tuning};
use rewire_graph_rewrite::plan::Plan;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A folder that is removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("rewire-tunings-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

const TILE: ProductTile = ProductTile { rows: 16, columns: 16, depth: 8, rows_per_thread: 1, parts: 1 };
const SMALL: Tuning = product_tile(TILE);

const fn product_tile(tile: ProductTile) -> Tuning {
    Tuning { split_sums: None, matrices: None, tile: Some(Tile::Product(tile)) }
}

/// Another tile.
const OWN: ProductTile = ProductTile { depth: 4, ..TILE };

fn load(gpu: &Gpu, store: Option<&TuningStore>) -> Session {
    load_with(ModelOptions { gpu: Some(gpu.clone()), tunings: store.cloned(), ..options(Kernel::Wgpu) })
}

fn load_with(options: ModelOptions) -> Session {
    let weight = HostTensor::f32(vec![21, 10], &(0..210).map(|n| (n % 17) as f32 - 8.3).collect::<Vec<_>>()).unwrap();
    Model::load(product(), |_: &str| Some(weight.clone()), options).unwrap().session()
}

fn inputs(rows: usize) -> Inputs {
    let values: Vec<f32> = (0..rows * 21).map(|n| (n % 23) as f32 / 7.0).collect();
    Inputs::new().with("x", HostTensor::f32(vec![rows, 21], &values).unwrap())
}

fn run(session: &mut Session, rows: usize) -> Vec<f32> {
    session.run(&inputs(rows)).unwrap().get("y").unwrap().to_f32()
}

/// The tuning of the kernel in the latest run.
fn current(session: &Session) -> Tuning {
    session.gpu.as_ref().unwrap().tuning_of(0).unwrap()
}

/// The store's key of the only kernel at some rows.
fn key(plan: &Plan, rows: i64) -> (String, Bucket) {
    (identity(&plan.steps[0].computation).unwrap(), Bucket::new(&[Symbol(0)], |_| Some(rows)))
}

#[test]
fn stored_tunings_are_taken_for_their_sizes() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let store = TuningStore::at(&folder.0);
    let (kernel, bucket) = key(&product(), 100);
    store.keep(&gpu, vec![(kernel.clone(), bucket.clone(), SMALL)]).unwrap();
    let known = store.load(&gpu);
    assert_eq!(known[&kernel].get(&bucket), Some(SMALL));

    let mut plain = load(&gpu, None);
    let mut session = load(&gpu, Some(&store));
    for rows in [128, 65, 64, 300, 100] {
        assert_eq!(run(&mut session, rows), run(&mut plain, rows));
        assert_eq!(current(&session) == SMALL, (65..=128).contains(&rows), "{rows} rows: {}", current(&session));
    }

    let own = ModelOptions { tuning: product_tile(OWN), ..options(Kernel::Wgpu) };
    let weight = HostTensor::f32(vec![21, 10], &[0.5; 210]).unwrap();
    let own = ModelOptions { tunings: Some(store), ..own };
    let mut session = Model::load(product(), |_: &str| Some(weight.clone()), own).unwrap().session();
    run(&mut session, 100);
    assert_eq!(current(&session), product_tile(OWN));
}

/// Loads with tunings shipped with the model, besides those of a store.
fn load_given(gpu: &Gpu, given: &DeviceTunings, tunings: Option<&TuningStore>) -> Session {
    let options = ModelOptions { gpu: Some(gpu.clone()), tunings: tunings.cloned(), ..options(Kernel::Wgpu) };
    let options = ModelOptions { device_tunings: vec![given.clone()], ..options };
    let weight = HostTensor::f32(vec![21, 10], &(0..210).map(|n| (n % 17) as f32 - 8.3).collect::<Vec<_>>()).unwrap();
    Model::load(product(), |_: &str| Some(weight.clone()), options).unwrap().session()
}

/// Tunings of the only kernel for up to 128 rows.
fn given(gpu: &Gpu, tuning: Tuning) -> DeviceTunings {
    let mut given = DeviceTunings::new(gpu);
    given.insert(&product().steps[0].computation, |_| Some(100), tuning);
    given
}

#[test]
fn tunings_that_come_with_a_model_go_behind_those_of_the_machine() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let given = given(&gpu, SMALL);
    assert_eq!((given.count(), given.of(&product().steps[0].computation)), (1, vec![("128".to_owned(), SMALL)]));
    let expected = run(&mut load(&gpu, None), 100);
    let mut session = load_given(&gpu, &given, None);
    assert_eq!(run(&mut session, 100), expected);
    assert_eq!((current(&session), session.model().report().tuned_steps), (SMALL, 1));
    run(&mut session, 200);
    assert_ne!(current(&session), SMALL);

    let store = TuningStore::at(&folder.0);
    let own = product_tile(OWN);
    let (kernel, bucket) = key(&product(), 100);
    store.keep(&gpu, vec![(kernel, bucket, own)]).unwrap();
    let mut session = load_given(&gpu, &given, Some(&store));
    assert_eq!(run(&mut session, 100), expected);
    assert_eq!(current(&session), own);
    let found = store.of(&gpu, session.model().plan()).unwrap();
    assert_eq!(found.of(&product().steps[0].computation), [("128".to_owned(), own)]);
    assert_eq!(store.of(&gpu, &Plan::default()), None);
}

#[test]
fn tunings_that_come_with_a_model_and_do_not_fit_are_ignored() {
    let Some(gpu) = gpu() else { return };
    let expected = run(&mut load(&gpu, None), 100);
    let unlike = |change: fn(&mut crate::tuning::Device)| {
        let mut given = given(&gpu, SMALL);
        change(&mut given.device);
        given
    };
    let wrong = [
        given(&gpu, product_tile(ProductTile { rows: 7, ..TILE })),
        given(&gpu, product_tile(ProductTile { rows: u32::MAX, ..TILE })),
        given(&gpu, Tile::PairReduction(PairReductionTile { rows_per_thread: 1 }).into()),
        given(&gpu, Tuning { matrices: Some(true), ..SMALL }),
        given(&gpu, product_tile(ProductTile { parts: 2, ..TILE })),
        given(&gpu, Tuning { split_sums: Some(true), ..SMALL }),
        unlike(|device| device.name.push('x')),
        unlike(|device| device.emitter.push('x')),
        unlike(|device| device.target.invocations += 1),
    ];
    for wrong in wrong {
        let mut session = load_given(&gpu, &wrong, None);
        assert_eq!(run(&mut session, 100), expected);
        let tuning = wrong.of(&product().steps[0].computation)[0].1;
        assert_ne!(current(&session), tuning);
    }
    let mut session = load_given(&gpu, &unlike(|device| device.driver.push('x')), None);
    run(&mut session, 100);
    assert_eq!(current(&session), SMALL, "whatever the driver");
    let mut many = DeviceTunings::new(&gpu);
    (0..60).for_each(|power| many.insert(&product().steps[0].computation, |_| Some(1 << power), SMALL));
    assert_eq!((many.count(), many.check()), (60, Ok(())));
}

#[test]
fn stored_tunings_that_do_not_fit_are_ignored() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let expected = run(&mut load(&gpu, None), 100);
    for wrong in [
        product_tile(ProductTile { rows: 7, ..TILE }),
        product_tile(ProductTile { rows: 256, columns: 256, depth: 64, ..TILE }),
        Tuning { matrices: Some(true), ..SMALL },
    ] {
        let store = TuningStore::at(&folder.0);
        let (kernel, bucket) = key(&product(), 100);
        store.keep(&gpu, vec![(kernel, bucket, wrong)]).unwrap();
        let mut session = load(&gpu, Some(&store));
        for _ in 0..2 {
            assert_eq!(run(&mut session, 100), expected);
            assert_ne!(current(&session), wrong);
        }
    }
}

#[test]
fn files_that_are_no_tunings_are_ignored() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let store = TuningStore::at(&folder.0);
    let (kernel, bucket) = key(&product(), 100);
    store.keep(&gpu, vec![(kernel.clone(), bucket.clone(), SMALL)]).unwrap();
    let path = store.file(&gpu);
    let whole = std::fs::read_to_string(&path).unwrap();
    let foreign = whole.replacen("\"name\": \"", "\"name\": \"another ", 1);
    for text in ["", "{}", "[1, 2", &whole[..whole.len() / 2], &foreign, &whole.replace("16", "-1")] {
        std::fs::write(&path, text).unwrap();
        assert!(store.load(&gpu).is_empty(), "{text}");
        run(&mut load(&gpu, Some(&store)), 100);
        // The next stored tuning replaces it.
        store.keep(&gpu, vec![(kernel.clone(), bucket.clone(), SMALL)]).unwrap();
        assert_eq!(store.load(&gpu)[&kernel].get(&bucket), Some(SMALL));
    }
    let mut names: Vec<_> = std::fs::read_dir(&folder.0).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    assert_eq!(names, [folder.0.join("lock"), path.clone()]);

    // A file in place of the folder: nothing can be stored, which is an error before anything is measured.
    let store = TuningStore::at(&path);
    let error = store.keep(&gpu, vec![(kernel, bucket, SMALL)]).unwrap_err();
    assert!(matches!(&error, RunError::NotKept { path: file, .. } if *file == store.file(&gpu)), "{error}");
    assert!(store.load(&gpu).is_empty());
    let mut session = load(&gpu, Some(&store));
    run(&mut session, 100);
    let error = session.tune(&inputs(100), Duration::ZERO).unwrap_err();
    assert!(matches!(error, RunError::NotKept { .. }), "{error}");
}

#[test]
fn a_forced_tuning_goes_before_others() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(&gpu, None);
    let expected = run(&mut session, 70);
    let own = current(&session);
    let variants = session.model().candidate_tunings(0);
    assert!(variants.len() > 3 && session.model().candidate_tunings(1).is_empty());
    for tuning in variants.into_iter().take(4) {
        session.force(0, Some(tuning));
        assert_eq!(run(&mut session, 70), expected);
        assert_eq!(current(&session), tuning);
    }
    session.force(0, Some(product_tile(ProductTile { rows: 5, ..TILE })));
    let error = session.run(&inputs(70)).unwrap_err();
    assert!(
        matches!(&error, RunError::Tuning { step: 0, tuning, .. } if tuning.starts_with("product:rows=5,")),
        "{error}"
    );
    session.force(0, None);
    assert_eq!(run(&mut session, 70), expected);
    assert_eq!(current(&session), own);
}

#[test]
fn refining_ends_with_a_tuning_that_is_kept() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let store = TuningStore::at(&folder.0);
    let mut session = load(&gpu, Some(&store));
    let expected = run(&mut session, 40);
    let mut calls = 0;
    let tuned = loop {
        calls += 1;
        match session.refine(&inputs(40), Duration::ZERO) {
            Ok(refinement) if refinement.tuned.is_some() => {
                assert_eq!(refinement.rest, 0);
                break refinement.tuned.unwrap();
            }
            Ok(refinement) => assert_eq!(refinement.rest, 1),
            Err(RunError::NoTimes { .. }) => return,
            Err(error) => panic!("{error}"),
        }
        assert!(calls < 2000);
    };
    assert!(calls > tuned.candidates && tuned.candidates > 3, "{calls} calls, {tuned:?}");
    assert_eq!((tuned.sizes.as_str(), tuned.step, tuned.name.as_str()), ("64", 0, "matmul"));
    assert!(tuned.after_time <= tuned.before_time);
    assert_eq!(session.refine(&inputs(33), Duration::ZERO).unwrap(), Default::default());
    for mut session in [session, load(&gpu, Some(&store))] {
        assert_eq!(run(&mut session, 40), expected);
        assert_eq!(current(&session), tuned.after);
    }
}

#[test]
fn tuning_measures_every_kernel() {
    let Some(gpu) = gpu() else { return };
    let mut session = load(&gpu, None);
    match session.tune(&inputs(40), Duration::ZERO) {
        Ok(tuned) => assert_eq!(tuned.iter().map(|tuned| tuned.step).collect::<Vec<_>>(), [0]),
        Err(error) => assert!(matches!(error, RunError::NoTimes { .. }), "{error}"),
    }
    let mut cpu = Model::load(Plan::default(), (), options(Kernel::Cpu)).unwrap().session();
    assert_eq!(cpu.tune(&Inputs::new(), Duration::ZERO).unwrap(), []);
}

/// A session whose kernels are measured in the background.
fn load_refining(gpu: &Gpu, store: &TuningStore) -> Session {
    let (gpu, tunings, refining) = (Some(gpu.clone()), Some(store.clone()), Refining::Always);
    load_with(ModelOptions { gpu, tunings, refining, ..options(Kernel::Wgpu) })
}

#[test]
fn kernels_are_measured_between_runs() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    if matches!(load(&gpu, None).refine(&inputs(40), Duration::ZERO), Err(RunError::NoTimes { .. })) {
        return;
    }
    let store = TuningStore::at(&folder.0);
    let mut session = load_refining(&gpu, &store);
    let expected = run(&mut session, 40);
    let mut other = session.model().session();
    let begun = Instant::now();
    let measures = |session: &Session| session.model().refiner().unwrap().measures();
    while session.model().report().tuned_steps == 0 || measures(&session) {
        assert!(begun.elapsed() < Duration::from_secs(60), "no kernel is measured");
        assert_eq!(run(&mut other, 40), expected);
        sleep(Duration::from_millis(20));
    }
    assert_eq!(run(&mut session, 40), expected);
    let (kernel, bucket) = key(session.plan(), 40);
    assert_eq!(Some(current(&session)), store.load(&gpu)[&kernel].get(&bucket));
    assert!(!measures(&session), "a run of these sizes leaves nothing to measure");
}

#[test]
fn a_model_that_is_dropped_is_not_measured_any_more() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let mut session = load_refining(&gpu, &TuningStore::at(&folder.0));
    run(&mut session, 40);
    let sites = Arc::downgrade(&session.model().sites());
    drop(session);
    assert!(sites.upgrade().is_none(), "the thread that measures has the model");
}

#[test]
fn a_process_that_exits_while_kernels_are_measured_succeeds() {
    let name = "session::tests::tune::exits_while_kernels_are_measured";
    let args = ["--exact", name, "--ignored", "--nocapture"];
    let output = Command::new(std::env::current_exe().unwrap()).args(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[test]
#[ignore = "ends its process"]
fn exits_while_kernels_are_measured() {
    let (Some(gpu), folder) = (gpu(), Folder::new()) else { return };
    let mut session = load_refining(&gpu, &TuningStore::at(&folder.0));
    run(&mut session, 40);
    std::process::exit(i32::from(!session.model().refiner().unwrap().measures()));
}

#[test]
fn devices_of_the_app_are_not_measured_by_default() {
    let Some(gpu) = gpu() else { return };
    let measures = |options: ModelOptions| {
        let mut session = load_with(ModelOptions { kernel: Kernel::Wgpu, ..options });
        run(&mut session, 40);
        session.model().refiner().map(|refiner| refiner.measures())
    };
    assert_eq!(measures(ModelOptions { gpu: Some(gpu.clone()), ..ModelOptions::default() }), Some(false));
    if gpu.target().software {
        assert_eq!(measures(ModelOptions::default()), Some(false));
    }
    assert_eq!(measures(ModelOptions { refining: Refining::Never, ..ModelOptions::default() }), None);
}
