//! Compares maps with a simple model that sorts all ids.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rewire_tables::{
    Admission, Eviction, IdMap, MapChanges, MapError, MapRecorder, MapState, Options, Placed, Rows, Threshold, UNKNOWN,
    hash,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;

#[derive(Clone, Debug)]
struct Used {
    id: i64,
    count: u64,
    last: u64,
}

/// The model: ids by row, and all occurrences, in plain collections.
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

/// Ids of steps, positive and negative; small ids are frequent.
fn steps() -> impl Strategy<Value = Vec<Vec<i64>>> {
    let id = prop_oneof![3 => -4..4i64, 1 => -30..30i64];
    prop::collection::vec(prop::collection::vec(id, 0..12), 1..25)
}

fn loaded(state: &MapState) -> MapState {
    let saved: HashMap<&str, Vec<i64>> = state.save().into_iter().collect();
    MapState::load(*state.options(), |part| saved.get(part).cloned()).unwrap()
}

/// A map, and the state that replays its steps.
struct Followed(IdMap, MapState);

impl Followed {
    fn new(options: Options) -> Self {
        Self(IdMap::new(options), MapState::new(options))
    }

    fn step(&mut self, ids: &[i64]) -> Vec<Placed> {
        let step = self.0.step(ids);
        self.1.apply(&step);
        step.placed
    }
}

proptest! {
    #[test]
    fn a_map_is_its_model_also_after_a_restart(options in options(), steps in steps(), restart in 0..25usize) {
        let (mut map, mut model) = (IdMap::new(options), Model::new(options));
        let mut state = MapState::new(options);
        let mut content: HashMap<u32, i64> = HashMap::new();
        let (mut served, mut copied, mut recorder) = (Rows::from(&state), state.clone(), MapRecorder::default());
        for (position, ids) in steps.iter().enumerate() {
            if position == restart {
                state = loaded(&state);
                map = IdMap::from(&state);
            }
            model.step(ids);
            let step = map.step(ids);
            recorder.record(&step);
            state.apply(&step);
            for Placed { row, id, evicted } in step.placed {
                prop_assert_eq!(content.insert(row, id), evicted);
            }
            let rows: Vec<i64> = model.rows.iter().map(|used| used.id).collect();
            for (id, row) in ids.iter().zip(step.rows) {
                prop_assert_eq!(map.row(*id).unwrap_or(options.rows), row);
            }
            if position % 3 == 0 {
                let (before, changes) = (served.clone(), recorder.take(&state));
                served = served.with(&changes.placed).unwrap();
                copied.change(&changes).unwrap();
                copied.check().unwrap();
                prop_assert_eq!(&copied.save()[..4], &state.save()[..4]);
                prop_assert!((-30..30).all(|id| served.row(id) == map.row(id)));
                prop_assert_eq!(served.len(), rows.len());
                // An earlier version is unchanged.
                let is_changed = |id| changes.placed.iter().any(|own| own.id == id || own.evicted == Some(id));
                prop_assert!((-30..30).all(|id| is_changed(id) || before.row(id) == map.row(id)));
            }
            prop_assert_eq!(state.ids().count(), rows.len());
            for (row, id) in rows.iter().enumerate() {
                prop_assert_eq!(map.row(*id), Some(row as u32), "{:?}", map);
                prop_assert_eq!(state.id(row as u32), Some(*id));
                prop_assert_eq!(content.get(&(row as u32)), Some(id));
            }
            for absent in (-30..30).filter(|id| !rows.contains(id)) {
                prop_assert_eq!(map.row(absent), None);
            }
        }
        prop_assert_eq!(loaded(&state).save(), state.save());
    }
}

#[test]
fn readers_see_one_version_while_others_follow() {
    const STEPS: i64 = 100;
    let mut map = Followed::new(Options { rows: 2048, eviction: Eviction::Lru, ..Options::default() });
    // Each step has 2048 ids; the next step replaces the first 256 of them.
    let ids = |step: i64| (step * 256..step * 256 + 2048).collect::<Vec<i64>>();
    map.step(&ids(0));
    let (latest, mut recorder) = (Mutex::new((0, Rows::from(&map.1))), MapRecorder::default());
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                loop {
                    let (step, rows) = latest.lock().unwrap().clone();
                    assert!(ids(step).into_iter().all(|id| rows.row(id).is_some()), "{step}");
                    assert!(ids(step - 8).into_iter().chain(ids(step + 8)).all(|id| rows.row(id).is_none()), "{step}");
                    if step == STEPS {
                        break;
                    }
                }
            });
        }
        for number in 1..=STEPS {
            let step = map.0.step(&ids(number));
            recorder.record(&step);
            map.1.apply(&step);
            let next = latest.lock().unwrap().1.with(&recorder.take(&map.1).placed).unwrap();
            *latest.lock().unwrap() = (number, next);
        }
    });
    assert_eq!(latest.into_inner().unwrap().1.len(), 2048);
}

#[test]
fn changes_of_another_map_are_refused() {
    let options = Options { rows: 3, ..Options::default() };
    let mut map = Followed::new(options);
    map.step(&[5, 6]);
    let rows = Rows::from(&map.1);
    let refused = |row, id, evicted| {
        let placed = vec![Placed { row, id, evicted }];
        let changes = MapChanges { placed: placed.clone(), ..MapChanges::default() };
        let mut state = map.1.clone();
        let of_state = state.change(&changes).and_then(|()| state.check());
        (of_state.unwrap_err(), rows.with(&placed).map(|rows| rows.len()))
    };
    assert_eq!(refused(0, 7, Some(6)), (MapError::Other { row: 0 }, Err(MapError::Other { row: 0 })));
    assert_eq!(refused(2, 7, Some(9)), (MapError::Other { row: 2 }, Err(MapError::Other { row: 2 })));
    assert_eq!(refused(2, 5, None), (MapError::Twice { id: 5 }, Err(MapError::Twice { id: 5 })));
    assert_eq!(refused(3, 7, None).0, MapError::Row { row: 3, rows: 3 });
    assert_eq!(rows.len(), 2);
}

#[test]
fn ids_that_wait_are_forgotten_beyond_a_number() {
    let admission = Admission::Count { threshold: 3, capacity: 16 };
    let mut map = Followed::new(Options { rows: 4, admission, ..Options::default() });
    map.step(&[7, 7]);
    map.step(&(100..200).collect::<Vec<_>>());
    assert_eq!(map.step(&[7]), [Placed { row: 0, id: 7, evicted: None }]);
    let waiting =
        |map: &Followed| map.1.save().into_iter().find(|(part, _)| *part == "waiting").map(|(_, own)| own.len() / 2);
    assert!(waiting(&map) <= Some(16), "{:?}", waiting(&map));
    let before = map.1.save();
    assert_eq!(map.step(&[UNKNOWN; 9]), []);
    assert_eq!((map.0.row(UNKNOWN), map.1.id(1)), (None, None));
    assert_eq!(map.1.save()[..3], before[..3]);
}

#[test]
fn random_admission_follows_from_ids_and_steps() {
    let admission = Admission::Filter(Threshold::Probability(0.3));
    let admitted = || {
        let mut map = Followed::new(Options { rows: 1000, admission, ..Options::default() });
        map.step(&(0..1000).collect::<Vec<_>>()).len()
    };
    assert!((230..370).contains(&admitted()), "{}", admitted());
    assert_eq!(admitted(), admitted());
}

#[test]
fn damaged_maps_are_refused() {
    let options = Options { rows: 3, ..Options::default() };
    let mut map = Followed::new(options);
    map.step(&[5, 6]);
    let saved: HashMap<&str, Vec<i64>> = map.1.save().into_iter().collect();
    let with = |part: &'static str, values: Option<Vec<i64>>| {
        let other = |name: &str| if name == part { values.clone() } else { saved.get(name).cloned() };
        MapState::load(options, other).map(|state| state.save())
    };
    for part in MapState::PARTS {
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
    // A free row between used rows is assigned next.
    let other = MapState::load(options, |name| match name {
        "ids" => Some(vec![UNKNOWN, 6]),
        name => saved.get(name).cloned(),
    });
    let mut map = IdMap::from(&other.unwrap());
    assert_eq!(map.step(&[8, 9]).placed.iter().map(|placed| placed.row).collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn strings_have_fixed_ids() {
    assert_eq!(hash(""), 0x6001_c324_468d_497f);
    assert!((0..1000).all(|n| (0..UNKNOWN).contains(&hash(&n.to_string()))));
}
