//! Rows of tables on the host that a device keeps: results have the bits that they have with tables on the device.

use super::host_tables::{GENRES, ITEMS, floats, parameters, stored};
use rewire_graph::{DType, HostTensor};
use rewire_runtime::{Inputs, Kernel, Model, ModelOptions, ParameterUpdate, RunValue, Session, Tables};
use rewire_tests::backend::{Tensors, options, run};
use rewire_tests::noise::Noise;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of a row of 16 f32, and of one of the 6 of the other table with its padding.
const ITEM: u64 = 64;
const GENRE: u64 = 32;

/// A batch of the model of `host_tables` whose ids are below a number.
fn batch(noise: &mut Noise, lengths: &[i64], candidates: usize, below: usize) -> Tensors {
    let total = lengths.iter().sum::<i64>() as usize;
    let mut ids = |dtype, shape: Vec<usize>, below: usize| {
        let values: Vec<f64> = (0..shape.iter().product()).map(|_| noise.below(0, below as i64) as f64).collect();
        HostTensor::from_f64(dtype, shape, &values).unwrap()
    };
    [
        ("lengths".to_owned(), HostTensor::lengths(lengths)),
        ("items".to_owned(), ids(DType::U32, vec![total], below)),
        ("genres".to_owned(), ids(DType::I64, vec![total], below.min(GENRES))),
        ("candidates".to_owned(), ids(DType::I32, vec![candidates, 3], below)),
    ]
    .into()
}

/// A random batch: empty ones, small ones of few rows, and some with all rows.
fn any_batch(noise: &mut Noise) -> Tensors {
    let lengths: Vec<i64> = (0..noise.below(0, 4)).map(|_| noise.below(0, 9)).collect();
    match noise.below(0, 5) {
        0 => batch(noise, &[700, 0, 129], 33, ITEMS),
        1 => batch(noise, &[], 0, ITEMS),
        n => batch(noise, &lengths, n as usize, if n == 2 { ITEMS } else { 12 }),
    }
}

/// The model with its tables on the device, and with some of their rows there; `None` without an adapter.
fn models(width: usize, dtype: DType, device_row_bytes: u64) -> Option<[Model; 2]> {
    let options = options(Kernel::Wgpu)?;
    let load = |tables, device_row_bytes| {
        let options = ModelOptions { tables, device_row_bytes, ..options.clone() };
        Model::load(stored(width, dtype), &parameters(width), options).unwrap()
    };
    Some([load(Tables::Device, 0), load(Tables::Host, device_row_bytes)])
}

fn uploads(session: &Session) -> (u64, u64) {
    let used = session.model().device_row_use().unwrap();
    (used.uploads, used.uploaded_bytes)
}

#[test]
fn results_have_the_same_bits_while_rows_replace_others() {
    for (width, dtype) in [
        (16, DType::F32),
        (25, DType::F32),
        (50, DType::F16),
        (25, DType::BF16),
        (25, DType::Rows8),
        (28, DType::Rows4),
        (48, DType::Rows2),
    ] {
        // Room for about a third of the rows.
        let bytes = (ITEMS * width + GENRES * 6) * dtype.format().bits / 8 / 3;
        let Some([device, kept]) = models(width, dtype, bytes as u64) else { return };
        let (mut device, mut kept) = (device.session(), kept.session());
        let mut noise = Noise::new(width as u64, "batches");
        for n in 0..40 {
            let inputs = any_batch(&mut noise);
            let (expected, found) = (run(&mut device, &inputs).unwrap(), run(&mut kept, &inputs).unwrap());
            assert!(found == expected, "{dtype} {width}, batch {n}");
        }
        let used = kept.model().device_row_use().unwrap();
        assert!(used.hits > 150 && used.uploads > 300, "{dtype} {width}: {used:?}");
    }
}

#[test]
fn only_rows_that_the_device_lacks_are_uploaded() {
    let Some([_, model]) = models(16, DType::F32, 1 << 20) else { return };
    let mut session = model.session();
    let ids = |dtype, shape: &[usize], ids: &[f64]| HostTensor::from_f64(dtype, shape.to_vec(), ids).unwrap();
    let inputs = |items: [f64; 3]| -> Tensors {
        [
            ("lengths".to_owned(), HostTensor::lengths(&[2, 1])),
            ("items".to_owned(), ids(DType::U32, &[3], &items)),
            ("genres".to_owned(), ids(DType::I64, &[3], &[4.0, 4.0, 4.0])),
            ("candidates".to_owned(), ids(DType::I32, &[1, 3], &[9.0, 9.0, 9.0])),
        ]
        .into()
    };
    let first = run(&mut session, &inputs([5.0, 6.0, 5.0])).unwrap();
    // Rows 5, 6 and 9 of one table, and row 4 of the other.
    let (rows, bytes) = (4, 3 * ITEM + GENRE);
    assert_eq!(uploads(&session), (rows, bytes));
    assert_eq!(run(&mut session, &inputs([5.0, 6.0, 5.0])).unwrap(), first);
    assert_eq!(uploads(&session), (rows, bytes), "a hit uploads nothing");
    let mut other = model.session();
    run(&mut other, &inputs([6.0, 9.0, 7.0])).unwrap();
    assert_eq!(uploads(&other), (rows + 1, bytes + ITEM), "sessions share the rows");
    assert_eq!(model.device_row_use().unwrap().hits, 4 + 4);
}

#[test]
fn sessions_share_rows_at_the_same_time() {
    let Some([device, kept]) = models(16, DType::F32, 20 * ITEM) else { return };
    let work = |seed: u64| {
        let (mut device, mut kept, mut noise) = (device.session(), kept.session(), Noise::new(seed, "threads"));
        for n in 0..60 {
            let inputs = any_batch(&mut noise);
            assert!(run(&mut kept, &inputs).unwrap() == run(&mut device, &inputs).unwrap(), "{seed}, batch {n}");
        }
    };
    std::thread::scope(|scope| {
        for seed in 0..3 {
            scope.spawn(move || work(seed));
        }
    });
    assert!(kept.device_row_use().unwrap().hits > 0);
}

#[test]
fn updated_rows_replace_those_on_the_device() {
    for dtype in [DType::F32, DType::Rows8] {
        let Some([device, kept]) = models(16, dtype, 1 << 20) else { return };
        let mut noise = Noise::new(5, "updates");
        let inputs = batch(&mut noise, &[9, 30], 12, ITEMS);
        let mut sessions = [device.session(), kept.session()];
        let mut before = None;
        for n in 0..6 {
            let results = sessions.each_mut().map(|session| run(session, &inputs).unwrap());
            assert!(results[0] == results[1], "{dtype}, update {n}");
            assert!(before.replace(results[1].clone()).is_none_or(|before| before != results[1]), "update {n}");
            let rows: Vec<u32> = (0..8).map(|_| noise.below(0, ITEMS as i64) as u32).collect();
            let update = match n {
                3 => ParameterUpdate::Whole(floats(&mut noise, &[ITEMS, 16])),
                _ => ParameterUpdate::Rows { values: floats(&mut noise, &[rows.len(), 16]), rows },
            };
            for model in [&device, &kept] {
                model.update([("item", update.clone())]).unwrap();
            }
        }
    }
}

#[test]
fn a_held_session_sees_the_rows_before_an_update() {
    let Some([_, model]) = models(16, DType::F32, 1 << 20) else { return };
    let inputs = batch(&mut Noise::new(6, "held"), &[9, 30], 12, ITEMS);
    let (mut held, mut latest) = (model.session(), model.session());
    held.hold();
    let old = run(&mut held, &inputs).unwrap();
    let all: Vec<u32> = (0..ITEMS as u32).collect();
    let values = floats(&mut Noise::new(7, "new"), &[ITEMS, 16]);
    model.update([("item", ParameterUpdate::Rows { rows: all, values })]).unwrap();
    let new = run(&mut latest, &inputs).unwrap();
    assert!(old != new);
    for _ in 0..2 {
        assert!(run(&mut held, &inputs).unwrap() == old);
        assert!(run(&mut latest, &inputs).unwrap() == new);
    }
    let before = uploads(&latest);
    run(&mut latest, &inputs).unwrap();
    assert_eq!(uploads(&latest), before, "the held session takes no rows of the others away");
    held.release();
    assert!(run(&mut held, &inputs).unwrap() == new);
}

#[test]
fn a_run_during_updates_sees_one_version() {
    let Some([_, model]) = models(16, DType::F32, 30 * ITEM) else { return };
    let inputs = batch(&mut Noise::new(8, "versions"), &[9, 30], 12, ITEMS);
    let all: Vec<u32> = (0..ITEMS as u32).collect();
    let version = |n: u64| ParameterUpdate::Rows {
        rows: all.clone(),
        values: floats(&mut Noise::new(n % 4, "version"), &[ITEMS, 16]),
    };
    let mut session = model.session();
    let expected: Vec<_> = (0..4)
        .map(|n| {
            model.update([("item", version(n))]).unwrap();
            run(&mut session, &inputs).unwrap()
        })
        .collect();
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut session = model.session();
                while !is_done.load(Ordering::Relaxed) {
                    assert!(expected.contains(&run(&mut session, &inputs).unwrap()));
                }
            });
        }
        (4..40).for_each(|n| model.update([("item", version(n))]).unwrap());
        is_done.store(true, Ordering::Relaxed);
    });
    assert!(run(&mut session, &inputs).unwrap() == expected[3]);
}

#[test]
fn ids_and_results_may_be_on_the_device() {
    let Some([_, model]) = models(16, DType::F32, 20 * ITEM) else { return };
    let mut session = model.session();
    let given = batch(&mut Noise::new(9, "device"), &[3, 4], 2, ITEMS);
    let expected = run(&mut session, &given).unwrap();
    let mut inputs: Inputs = given.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
    inputs.insert_device("candidates", session.upload(&given["candidates"]).unwrap());
    inputs.keep_on_device("rows");
    for (name, value) in session.run(&inputs).unwrap() {
        let found = match value {
            RunValue::Host(tensor) => tensor,
            RunValue::Device(tensor) => session.read(&tensor).unwrap(),
        };
        assert!(expected.get(&name) == Some(&found), "{name}");
    }
}

#[test]
fn without_a_device_or_room_no_rows_are_kept() {
    let cpu = ModelOptions { tables: Tables::Host, device_row_bytes: 1 << 20, ..options(Kernel::Cpu).unwrap() };
    let cpu = Model::load(stored(16, DType::F32), &parameters(16), cpu).unwrap();
    assert_eq!(cpu.device_row_use(), None);
    let Some([device, none]) = models(16, DType::F32, 8) else { return };
    assert_eq!((device.device_row_use(), none.device_row_use()), (None, None));
    let Some([_, some]) = models(16, DType::F32, 20 * ITEM) else { return };
    let held = some.report().device_bytes - none.report().device_bytes;
    assert!(held > 15 * ITEM && held <= 20 * ITEM, "{held}");
}
