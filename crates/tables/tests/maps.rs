//! Maps against a model that sorts everything.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rewire_tables::{Admission, Eviction, IdMap, MapError, Options, Placed, Rows, Threshold, UNKNOWN, hash, runs};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Clone, Debug)]
struct Used {
    id: i64,
    count: u64,
    last: u64,
}

/// Ids by row, and all occurrences, kept plainly.
struct Model {
    options: Options,
    rows: Vec<Used>,
    window: BTreeMap<i64, Used>,
    waiting: HashMap<i64, u64>,
    step: u64,
}

impl Model {
    fn new(options: Options) -> Self {
        Self { options, rows: vec![], window: BTreeMap::new(), waiting: HashMap::new(), step: 0 }
    }

    fn score(&self, used: &Used) -> f64 {
        match self.options.eviction {
            Eviction::Lfu => used.count as f64,
            Eviction::Lru => used.last as f64,
            Eviction::DistanceLfu { decay_exponent } => {
                used.count as f64 / ((self.step - used.last + 1) as f64).powf(decay_exponent)
            }
        }
    }

    fn step(&mut self, ids: &[i64]) {
        self.step += 1;
        for &id in ids {
            let used = self.window.entry(id).or_insert(Used { id, count: 0, last: 0 });
            (used.count, used.last) = (used.count + 1, self.step);
        }
        if !self.step.is_multiple_of(u64::from(self.options.interval)) {
            return;
        }
        let seen: Vec<Used> = std::mem::take(&mut self.window).into_values().collect();
        let mean = seen.iter().map(|used| used.count as f64).sum::<f64>() / seen.len() as f64;
        for mut used in seen {
            match self.options.admission {
                Admission::Filter(Threshold::Above(least)) if used.count as f64 <= least => continue,
                Admission::Filter(Threshold::AboveMean(by)) if used.count as f64 <= mean * by => continue,
                _ => {}
            }
            if let Some(known) = self.rows.iter_mut().find(|known| known.id == used.id) {
                (known.count, known.last) = (known.count + used.count, used.last);
                continue;
            }
            if let Admission::Count { threshold, .. } = self.options.admission {
                let count = self.waiting.entry(used.id).or_insert(0);
                *count += used.count;
                used.count = *count;
                if *count < threshold {
                    continue;
                }
            }
            self.window.insert(used.id, used);
        }
        let mut new: Vec<Used> = std::mem::take(&mut self.window).into_values().collect();
        new.sort_by(|a, b| self.score(b).total_cmp(&self.score(a)).then(a.id.cmp(&b.id)));
        for used in new {
            if self.rows.len() < self.options.rows as usize {
                self.waiting.remove(&used.id);
                self.rows.push(used);
                continue;
            }
            let lowest =
                (0..self.rows.len()).min_by(|&a, &b| self.score(&self.rows[a]).total_cmp(&self.score(&self.rows[b])));
            if let Some(row) = lowest.filter(|&row| self.score(&self.rows[row]) < self.score(&used)) {
                self.waiting.remove(&used.id);
                self.rows[row] = used;
            }
        }
    }
}

fn options() -> impl Strategy<Value = Options> {
    let decay = (0.1..3.0).prop_map(|decay_exponent| Eviction::DistanceLfu { decay_exponent });
    let eviction = prop_oneof![Just(Eviction::Lfu), Just(Eviction::Lru), decay];
    let filter =
        prop_oneof![(0..4u32).prop_map(|n| Threshold::Above(n.into())), (0.5..2.0).prop_map(Threshold::AboveMean)];
    let count = (1..6u64).prop_map(|threshold| Admission::Count { threshold, capacity: 1000 });
    let admission = prop_oneof![Just(Admission::All), filter.prop_map(Admission::Filter), count];
    (prop_oneof![0..9u32, 16..40u32], eviction, admission, 1..4u32)
        .prop_map(|(rows, eviction, admission, interval)| Options { rows, eviction, admission, interval })
}

/// Ids of steps, of which small ones are frequent, with both signs.
fn steps() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let id = prop_oneof![3 => -4..4i64, 1 => -30..30i64];
    prop::collection::vec(prop::collection::vec(id, 0..12), 1..25)
}

fn loaded(map: &IdMap) -> IdMap {
    let saved: HashMap<&str, Vec<i64>> = map.save().into_iter().collect();
    IdMap::load(*map.options(), |part| saved.get(part).cloned()).unwrap()
}

proptest! {
    #[test]
    fn a_map_is_its_model_also_after_a_restart(options in options(), steps in steps(), restart in 0..25usize) {
        let (mut map, mut model) = (IdMap::new(options), Model::new(options));
        let mut content: HashMap<u32, i64> = HashMap::new();
        let mut served = Rows::from(&map);
        for (position, ids) in steps.iter().enumerate() {
            if position == restart {
                map = loaded(&map);
                served = Rows::from(&map);
                prop_assert_eq!(map.changes(), []);
            }
            model.step(ids);
            for Placed { row, id, evicted } in map.step(&runs(ids.clone())) {
                prop_assert_eq!(content.insert(row, id), evicted);
            }
            let rows: Vec<i64> = model.rows.iter().map(|used| used.id).collect();
            if position % 3 == 0 && position >= restart {
                served.apply(&map.changes());
                prop_assert!((-30..30).all(|id| served.row(id) == map.row(id)));
                prop_assert_eq!(served.len(), rows.len());
            }
            prop_assert_eq!(map.ids().count(), rows.len());
            for (row, id) in rows.iter().enumerate() {
                prop_assert_eq!(map.row(*id), Some(row as u32), "{:?}", map);
                prop_assert_eq!(map.id(row as u32), Some(*id));
                prop_assert_eq!(content.get(&(row as u32)), Some(id));
            }
            for absent in (-30..30).filter(|id| !rows.contains(id)) {
                prop_assert_eq!(map.row(absent), None);
            }
        }
        prop_assert_eq!(loaded(&map).save(), map.save());
        prop_assert_eq!(map.clone().save(), map.save());
    }
}

#[test]
fn readers_see_rows_before_or_after_a_change() {
    let mut map = IdMap::new(Options { rows: 64, eviction: Eviction::Lru, ..Options::default() });
    // These ids are never evicted, others come and go.
    let kept: Vec<i64> = (0..32).map(|id| hash(&id.to_string())).collect();
    map.step(&runs(kept.clone()));
    let expected: Vec<Option<u32>> = kept.iter().map(|id| map.row(*id)).collect();
    let (rows, is_over) = (Rows::from(&map), AtomicBool::new(false));
    map.changes();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut passes = 0;
                while passes == 0 || !is_over.load(Ordering::Relaxed) {
                    assert!(kept.iter().map(|id| rows.row(*id)).eq(expected.iter().copied()));
                    assert!((1000..1100).filter_map(|id| rows.row(id)).all(|row| row < 64));
                    passes += 1;
                }
            });
        }
        for step in 0..400 {
            let others = (0..20).map(|place| 1000 + (step * 7 + place * 3) % 100);
            map.step(&runs(kept.iter().copied().chain(others).collect()));
            rows.apply(&map.changes());
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(rows.len(), 64);
}

#[test]
fn ids_that_wait_are_forgotten_beyond_a_number() {
    let admission = Admission::Count { threshold: 3, capacity: 16 };
    let mut map = IdMap::new(Options { rows: 4, admission, ..Options::default() });
    map.step(&runs(vec![7, 7]));
    map.step(&runs((100..200).collect()));
    assert_eq!(map.step(&runs(vec![7])), [Placed { row: 0, id: 7, evicted: None }]);
    let waiting =
        |map: &IdMap| map.save().into_iter().find(|(part, _)| *part == "waiting").map(|(_, own)| own.len() / 2);
    assert!(waiting(&map) <= Some(16), "{:?}", waiting(&map));
    let before = map.save();
    assert_eq!(map.step(&runs(vec![UNKNOWN; 9])), []);
    assert_eq!((map.row(UNKNOWN), map.id(1)), (None, None));
    assert_eq!(map.save()[..3], before[..3]);
}

#[test]
fn random_admission_follows_from_ids_and_steps() {
    let admission = Admission::Filter(Threshold::Probability(0.3));
    let admitted = || {
        let mut map = IdMap::new(Options { rows: 1000, admission, ..Options::default() });
        map.step(&runs((0..1000).collect())).len()
    };
    assert!((230..370).contains(&admitted()), "{}", admitted());
    assert_eq!(admitted(), admitted());
}

#[test]
fn damaged_maps_are_refused() {
    let options = Options { rows: 3, ..Options::default() };
    let mut map = IdMap::new(options);
    map.step(&runs(vec![5, 6]));
    let saved: HashMap<&str, Vec<i64>> = map.save().into_iter().collect();
    let with = |part: &'static str, values: Option<Vec<i64>>| {
        let other = |name: &str| if name == part { values.clone() } else { saved.get(name).cloned() };
        IdMap::load(options, other).map(|map| map.save())
    };
    for part in IdMap::PARTS {
        assert_eq!(with(part, None), Err(MapError::Missing { part }));
    }
    assert_eq!(with("ids", Some(vec![5, 5])), Err(MapError::Twice { id: 5 }));
    assert_eq!(with("counts", Some(vec![1, -1])), Err(MapError::Value { part: "counts", actual: -1 }));
    let wrong = [
        ("ids", vec![1, 2, 3, 4]),
        ("ids", vec![1]),
        ("last", vec![]),
        ("steps", vec![]),
        ("window", vec![1; 4]),
        ("waiting", vec![1]),
    ];
    for (part, values) in wrong {
        assert!(matches!(with(part, Some(values)), Err(MapError::Length { .. })), "{part}");
    }
    // A free row between others is the next one that is taken.
    let mut other = IdMap::load(options, |name| match name {
        "ids" => Some(vec![UNKNOWN, 6]),
        name => saved.get(name).cloned(),
    });
    let map = other.as_mut().unwrap();
    assert_eq!(map.step(&runs(vec![8, 9])).iter().map(|placed| placed.row).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn strings_have_fixed_ids() {
    assert_eq!(hash(""), 0x6001_c324_468d_497f);
    assert!((0..1000).all(|n| (0..UNKNOWN).contains(&hash(&n.to_string()))));
}
