//! Returning users, compared with rankings without caches.

use super::{Noise, bare, both_ways, config, interleaved, load, on_cpu, plain, request};
use rewire::graph::{DType, HostTensor};
use rewire::rank::{CacheLimits, CacheOptions, CacheReport, Caches, RankError, RankOptions, Ranker, Request};
use rewire::{Gpu, Kernel};
use serde_json::Value;

/// Users with histories that grow, are cut and change from visit to visit.
struct Visits {
    noise: Noise,
    users: Vec<Request>,
}

impl Visits {
    fn new(ranker: &Ranker, seed: u64) -> Self {
        let mut noise = Noise(seed);
        let users = (0..7).map(|user| Request { user: user.into(), ..request(ranker, &mut noise, 30, 1) }).collect();
        Self { noise, users }
    }

    /// The next requests of some users, one of whom may have two.
    fn next(&mut self, ranker: &Ranker) -> Vec<Request> {
        let count = 1 + self.noise.below(4) as usize;
        (0..count).map(|_| self.one(ranker)).collect()
    }

    fn one(&mut self, ranker: &Ranker) -> Request {
        let user = self.noise.below(self.users.len() as i64) as usize;
        let candidates = self.noise.below(5);
        let fresh = request(ranker, &mut self.noise, 30, candidates);
        let events = 4 + self.noise.below(20) as usize;
        let all = &mut self.users[user];
        // Seldom another history altogether.
        if events == 4 {
            all.history = fresh.history.clone();
        }
        let mut asked = all.clone();
        asked.history.values_mut().for_each(|list| list.truncate(events));
        asked.candidates = fresh.candidates;
        asked
    }
}

fn check(value: &Value, options: &RankOptions, limits: CacheLimits) -> CacheReport {
    let ranker = load(&config(value), options);
    let mut caches = Caches::new(&ranker, limits).unwrap();
    let mut visits = Visits::new(&ranker, 11);
    for _ in 0..24 {
        let requests = visits.next(&ranker);
        let expected = ranker.rank(&requests).unwrap();
        assert_eq!(caches.rank(&requests).unwrap(), expected);
        assert_eq!(caches.rank(&requests).unwrap(), expected);
    }
    let report = caches.report();
    assert!(report.users <= 7 && report.free_pages <= report.pages, "{report:?}");
    caches.clear();
    assert_eq!((caches.report().users, caches.report().free_pages), (0, report.pages));
    report
}

/// Room for this many rows of `value`'s model.
fn room(value: &Value, rows: u64, page_rows: usize, host_rows: u64) -> CacheLimits {
    let ranker = load(&config(value), &on_cpu());
    let row = ranker.model().session().state_row_bytes();
    CacheLimits { page_rows, device_bytes: rows * row, host_bytes: host_rows * row }
}

#[test]
fn what_is_kept_changes_no_bit() {
    let gpu = Gpu::open(None).inspect_err(|error| eprintln!("without a GPU: {error}")).ok();
    let on_gpu = gpu.map(|gpu| RankOptions { kernel: Kernel::Wgpu, gpu: Some(gpu), ..RankOptions::default() });
    for options in [Some(on_cpu()), on_gpu].into_iter().flatten() {
        let wide = check(&bare(), &options, room(&bare(), 1 << 10, 5, 0));
        assert!(wide.hits > 0 && wide.appended > 0 && wide.evicted == 0 && wide.computed >= 7, "{wide:?}");
        let narrow = check(&bare(), &options, room(&bare(), 60, 5, 200));
        assert!(narrow.spilled > 0 && narrow.restored > 0 && narrow.appended > 0, "{narrow:?}");
    }
    let dropped = check(&bare(), &on_cpu(), room(&bare(), 60, 7, 0));
    assert!(dropped.evicted > 0 && dropped.spilled == 0, "{dropped:?}");
    let tiny = check(&bare(), &on_cpu(), room(&bare(), 8, 4, 8));
    assert!(tiny.pages == 2 && tiny.computed > 0, "{tiny:?}");
    for value in [plain(), interleaved()] {
        let report = check(&value, &on_cpu(), room(&value, 200, 16, 100));
        assert!(report.appended == 0 && report.hits > 0, "positions count from the end: {report:?}");
    }
    let half = RankOptions { cache: CacheOptions { dtype: DType::F16 }, ..on_cpu() };
    assert!(check(&bare(), &half, room(&bare(), 30, 5, 100)).restored > 0);
}

/// `events` events of a request, with all of its candidates.
fn cut(request: &Request, events: usize) -> Request {
    let mut request = request.clone();
    request.history.values_mut().for_each(|list| list.truncate(events));
    request
}

#[test]
fn pieces_of_a_few_rows_have_the_bits_of_the_whole() {
    let mut unbounded = bare();
    unbounded["hstu"]["stu"].as_object_mut().unwrap().remove("max_attn_len");
    for value in [bare(), unbounded] {
        let (ranker, limits) = (load(&config(&value), &on_cpu()), room(&value, 64, 5, 0));
        for candidates in [1, 3] {
            let all = Request { user: "u".into(), ..request(&ranker, &mut Noise(9), 20, candidates) };
            for (first, last) in (0..18).flat_map(|first| (1..=3).map(move |more| (first, first + more))) {
                let mut caches = Caches::new(&ranker, limits).unwrap();
                for events in [first, last] {
                    let asked = [cut(&all, events)];
                    let expected = ranker.rank(&asked).unwrap();
                    assert_eq!(caches.rank(&asked).unwrap(), expected, "{events} events from {first} on");
                }
            }
        }
    }
}

#[test]
fn other_parameters_are_other_histories() {
    let ranker = load(&config(&bare()), &on_cpu());
    let mut caches = Caches::new(&ranker, CacheLimits::default()).unwrap();
    let request = request(&ranker, &mut Noise(5), 20, 6);
    let before = caches.rank(std::slice::from_ref(&request)).unwrap();
    let name = "_hstu_transducer._stu_module._stu_layers.1._input_norm_weight";
    let weight = HostTensor::f32(vec![24], &[0.75; 24]).unwrap();
    ranker.model().update([(name, weight)]).unwrap();
    let after = caches.rank(std::slice::from_ref(&request)).unwrap();
    assert_ne!(before, after);
    assert_eq!(after, ranker.rank(std::slice::from_ref(&request)).unwrap());
    assert_eq!(after, caches.rank(&[request]).unwrap());
    assert_eq!((caches.report().hits, caches.report().computed), (1, 2), "the hit was of the old ones");
}

#[test]
fn users_are_cut_and_forgotten() {
    let ranker = load(&config(&bare()), &on_cpu());
    let mut caches = Caches::new(&ranker, room(&bare(), 256, 8, 0)).unwrap();
    let all = Request { user: "u".into(), ..request(&ranker, &mut Noise(5), 30, 3) };
    let mut prefix = all.clone();
    prefix.history.values_mut().for_each(|list| list.truncate(11));
    caches.rank(std::slice::from_ref(&all)).unwrap();
    let pages = |caches: &Caches| caches.report().pages - caches.report().free_pages;
    assert_eq!(pages(&caches), 4);
    assert!(!caches.truncate(&"nobody".into(), 3) && !caches.truncate(&"u".into(), 31));
    assert!(caches.truncate(&"u".into(), 11));
    assert_eq!(pages(&caches), 2);
    assert_eq!(caches.rank(std::slice::from_ref(&prefix)).unwrap(), ranker.rank(&[prefix]).unwrap());
    assert_eq!(caches.rank(std::slice::from_ref(&all)).unwrap(), ranker.rank(&[all]).unwrap());
    assert_eq!((caches.report().hits, caches.report().appended, caches.report().computed), (1, 1, 1));
    assert!(caches.forget(&"u".into()) && !caches.forget(&"u".into()));
    assert_eq!(pages(&caches), 0);
    let timed = load(&config(&plain()), &on_cpu());
    let mut caches = Caches::new(&timed, CacheLimits::default()).unwrap();
    let request = Request { user: "u".into(), ..request(&timed, &mut Noise(5), 9, 3) };
    caches.rank(&[request]).unwrap();
    assert!(!caches.truncate(&"u".into(), 3), "positions count from the end");
}

#[test]
fn models_whose_candidates_are_not_apart_keep_nothing() {
    let ranker = load(&config(&both_ways()), &on_cpu());
    assert!(matches!(Caches::new(&ranker, CacheLimits::default()), Err(RankError::NotApart)));
}
