//! Packages with changed bytes: errors if a hash detects them, and errors or results if the hash was updated.

use proptest::prelude::*;
use rewire::package::{Package, TargetKernels};
use rewire_emit::{ParsedKernel, emit};
use rewire_graph_rewrite::device::{
    MatrixPairReductionTile, PairReductionTile, ProductTile, ReductionTile, SubgroupProductTile, SubgroupSizes, Target,
    ThreadTile, Tile, Tuning, WorkgroupProductTile,
};
use rewire_graph_rewrite::plan::Plan;
use rewire_tests::fuzz::packages::{
    changed_apart, changed_package, changed_parts, embed, kept, kept_apart, matching, rank, rank_apart, seal,
};
use rewire_tests::fuzz::plans::{ABSURD, SMALL};
use serde_json::{Value, json};
use std::sync::LazyLock;

fn choices() -> impl Strategy<Value = Vec<(usize, u64)>> {
    prop::collection::vec((any::<usize>(), any::<u64>()), 1..4)
}

/// The bytes of the kept package, and of the one whose tables are apart.
fn sealed() -> &'static [Vec<u8>; 2] {
    static SEALED: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| [kept().sealed(), kept_apart().0.sealed()]);
    &SEALED
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_byte_that_changes_is_an_error(place: usize, bits in 1u8..) {
        let mut bytes = sealed()[0].clone();
        let at = place % bytes.len();
        bytes[at] ^= bits;
        prop_assert!(Package::parse(bytes).is_err(), "byte {at}");
    }

    #[test]
    fn a_header_of_tables_that_changes_is_an_error(place: usize, bits in 1u8..) {
        let mut tables = kept_apart().1.clone();
        let header = 8 + u64::from_le_bytes(tables[..8].try_into().unwrap()) as usize;
        tables[place % header] ^= bits;
        prop_assert!(Package::parse_with_tables(sealed()[1].clone(), tables).is_err(), "byte {}", place % header);
    }

    #[test]
    fn tables_that_change_are_found_when_asked(place: usize, bits in 1u8..) {
        let mut tables = kept_apart().1.clone();
        let header = 8 + u64::from_le_bytes(tables[..8].try_into().unwrap()) as usize;
        let at = header + place % (tables.len() - header);
        tables[at] ^= bits;
        prop_assert!(Package::parse_with_tables(sealed()[1].clone(), tables).unwrap().check_tables().is_err(), "byte {at}");
    }

    #[test]
    fn a_package_that_is_cut_is_an_error(place: usize) {
        let mut bytes = sealed()[0].clone();
        bytes.truncate(place % bytes.len());
        prop_assert!(Package::parse(bytes).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_packages_rank_or_say_why_not(part: usize, choices in choices()) {
        drop(rank(changed_package(part, SMALL, &choices)));
    }

    #[test]
    fn absurd_packages_rank_or_say_why_not(part: usize, choices in choices()) {
        drop(rank(changed_package(part, ABSURD, &choices)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_tables_rank_or_say_why_not(part: usize, choices in choices()) {
        for numbers in [SMALL, ABSURD] {
            let (package, tables) = changed_apart(part, numbers, &choices);
            drop(rank_apart(package, tables));
        }
    }

    #[test]
    fn changed_matching_models_embed_or_say_why_not(part: usize, choices in choices()) {
        drop(embed(changed_parts(matching(), part, SMALL, &choices)));
        drop(embed(changed_parts(matching(), part, ABSURD, &choices)));
    }
}

#[test]
fn changes_of_tables_and_of_matching_models_reach_every_stage() {
    let (mut apart, mut matched) = ([0; 2], [0; 2]);
    for n in 0..45u64 {
        let choice = [(n as usize * 7919, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8)];
        let (package, tables) = changed_apart(n as usize, SMALL, &choice);
        apart[usize::from(rank_apart(package, tables).is_ok())] += 1;
        matched[usize::from(embed(changed_parts(matching(), n as usize, SMALL, &choice)).is_ok())] += 1;
    }
    assert!(apart.iter().chain(&matched).all(|count| *count > 4), "{apart:?} {matched:?}");
}

#[test]
fn what_a_package_must_not_say_of_its_tables_has_an_error() {
    let with = |pointer: &str, value: Value| {
        let (mut parts, tables) = kept_apart().clone();
        *parts.head["tables"].pointer_mut(pointer).unwrap() = value;
        rewire::describe(&rank_apart(parts.sealed(), tables).unwrap_err())
    };
    for name in ["", ".", "..", "../x", "a/b", "a\\b", "c:x", "\0"] {
        assert!(with("/file", json!(name)).contains("which is not a file in the folder of the package"), "{name:?}");
    }
    assert!(with("/bytes", json!(u64::MAX)).contains("880 bytes: expected 18446744073709551615"));
    assert!(with("/bytes", json!(-1)).contains("head: invalid value"));
    assert!(with("/header", json!("")).contains("its tables differ"));
    assert!(with("", json!({ "file": "x" })).contains("head: missing field"));
    let (parts, _) = kept_apart();
    assert!(error(parts.sealed()).contains("its tables are in the file `format-3.safetensors`: read both"));
    assert!(rank_apart(kept().sealed(), vec![]).is_ok(), "a package that has its tables reads no file");
}

/// The error of ranking with the stored package after a change of its head.
fn with_head(pointer: &str, value: Value) -> String {
    let mut parts = kept().clone();
    *parts.head.pointer_mut(pointer).unwrap() = value;
    error(parts.sealed())
}

#[test]
fn kernels_of_format_1_are_read_for_good() {
    let package = Package::parse(kept().sealed()).unwrap();
    let kernels = package.kernels().unwrap();
    assert_eq!(package.targets().unwrap(), [Target::BASELINE]);
    assert_eq!((kernels.len(), kernels[0].name.as_str()), (1, "baseline"));
    assert!(kernels[0].kernels.iter().flatten().all(|kernel| kernel.wgsl.contains("fn main")));
    assert_eq!(kernels[0].kernels.len(), package.plan().unwrap().steps.len());
}

#[test]
fn devices_that_there_are_not_are_errors() {
    let with = |change: fn(&mut Target)| {
        let mut target = Target::BASELINE;
        change(&mut target);
        let mut parts = kept().clone();
        parts.kernels[0]["target"] = json!(target);
        error(parts.sealed())
    };
    for wrong in [
        with(|target| target.invocations = 0),
        with(|target| target.workgroup_bytes = u32::MAX),
        with(|target| target.binding_bytes = u64::MAX),
        with(|target| target.subgroup_size = SubgroupSizes::fixed(3)),
        with(|target| target.matrix = 1),
        with(|target| target.workgroup_matrices = u32::MAX),
        with(|target| target.multiprocessors = u32::MAX),
        with(|target| target.storage_buffers = 1),
    ] {
        assert!(wrong.contains("kernels: are for a target that no device can have"), "{wrong}");
    }
    let mut parts = kept().clone();
    parts.kernels = json!(vec![parts.kernels[0].clone(); 17]);
    assert!(error(parts.sealed()).contains("kernels: are for 17 devices: expected 16 at most"));
}

/// Possible limits and features of devices.
fn targets() -> impl Strategy<Value = Target> {
    let features = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let sizes = (0..8u32, 0..3usize, 8..200u32, 14..21u32, 256..4097u32, 27..41u32);
    (features, sizes).prop_map(
        |((f16, int64, subgroups, software, registers), (size, matrix, buffers, bytes, threads, binding))| Target {
            f16,
            int64,
            subgroups,
            subgroup_size: SubgroupSizes {
                min: ((1 << size) & !1) >> u32::from(int64 && size > 2),
                max: (1 << size) & !1,
            },
            registers: buffers,
            matrix: [0, 8, 16][matrix],
            half_sums: f16,
            matrix_elements: registers,
            workgroup_matrices: if registers { threads } else { 0 },
            integers: registers && f16,
            multiprocessors: if registers { buffers } else { 0 },
            software,
            storage_buffers: buffers,
            workgroup_bytes: 1 << bytes,
            invocations: threads,
            binding_bytes: 1 << binding,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 25, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn kernels_are_emitted_for_whatever_a_device_may_offer(target in targets()) {
        prop_assert!(target.is_device(), "{target:?}");
        let plan = Package::parse(kept().sealed()).unwrap().plan().unwrap();
        let emitted = TargetKernels::of(&plan, "x", &target).kernels;
        prop_assert!(emitted.iter().any(Option::is_some));
    }
}

/// Tilings that anybody may write down.
fn tunings() -> impl Strategy<Value = Tuning> {
    let number = || prop_oneof![0u32..70, (0u32..20).prop_map(|power| 1 << power), any::<u32>()];
    let numbers = [number(), number(), number(), number(), number()];
    let tile = (0usize..8, numbers).prop_map(|(kind, [a, b, c, d, e])| match kind {
        0 => Tile::Map(ThreadTile { threads: a, groups_per_thread: b, rows_per_thread: c }),
        1 => Tile::Reduction(ReductionTile { threads: a }),
        2 => Tile::Product(ProductTile { rows: a, columns: b, depth: c, rows_per_thread: d, parts: e }),
        3 => Tile::SubgroupProduct(SubgroupProductTile { rows: a, columns: b }),
        4 => Tile::WorkgroupProduct(WorkgroupProductTile { rows: a, columns: b, depth: c, threads: d }),
        5 => Tile::PairReduction(PairReductionTile { rows_per_thread: a }),
        6 => Tile::MatrixPairReduction(MatrixPairReductionTile { rows: a, columns: b, rows_per_thread: c }),
        _ => Tile::SegmentedReduce(ThreadTile { threads: a, groups_per_thread: b, rows_per_thread: c }),
    });
    let choice = || prop::option::of(any::<bool>());
    (choice(), choice(), prop::option::of(tile)).prop_map(|(split_sums, matrices, tile)| Tuning {
        split_sums,
        matrices,
        tile,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tiling_that_does_not_fit_makes_no_kernel(tuning in tunings(), target in targets()) {
        for step in kept_plan().steps.iter().step_by(3) {
            let base = rewire_emit::of_family(tuning, &step.computation, &target);
            if let Ok(kernel) = emit(&step.computation, &target, &base) {
                prop_assert!(ParsedKernel::parse(kernel).is_ok(), "{base}");
            }
        }
    }
}

fn kept_plan() -> Plan {
    serde_json::from_value(kept().plan.clone()).unwrap()
}

#[test]
fn tunings_that_there_cannot_be_are_errors() {
    let device = json!({
        "name": "x", "backend": "vulkan", "driver": "1", "target": Target::BASELINE, "emitter": "0",
    });
    let with = |tunings: Value| {
        let mut parts = kept().clone();
        parts.kernels[0]["tunings"] = tunings;
        rank(parts.sealed()).map_err(|error| rewire::describe(&error))
    };
    let sizes = |count: usize| -> Value {
        let sizes: serde_json::Map<_, _> = (0..count).map(|size| (size.to_string(), json!({ "rows": 7 }))).collect();
        json!({ "device": device, "kernels": { "0": { "sizes": sizes } } })
    };
    let one = |tuning: Value| json!({ "device": device, "kernels": { "0": { "sizes": { "1": tuning } } } });
    for wrong in [
        json!(1),
        json!({ "kernels": {} }),
        json!({ "device": device }),
        one(json!({ "tile": { "reduction": { "threads": -1 } } })),
        one(json!({ "tile": { "reduction": { "threads": u64::MAX } } })),
        one(json!({ "tile": { "product": { "rows": 16 } } })),
        one(json!({ "tile": { "roof": {} } })),
        one(json!({ "matrices": 1 })),
        one(json!("64")),
    ] {
        let error = with(wrong.clone()).unwrap_err();
        assert!(error.contains("kernels: "), "{wrong}: {error}");
    }
    let error = with(sizes(1025)).unwrap_err();
    assert!(error.contains("kernels: have tunings of a kernel for 1025 sizes: expected 1024 at most"), "{error}");
    let of_other_kernels = json!({ "tile": { "pairs": { "rows_per_thread": 0 } }, "split_sums": true });
    // Sizes without a tile are those of emitters from before.
    for unused in [sizes(1024), one(json!({ "rows": 0 })), one(of_other_kernels), Value::Null] {
        assert!(with(unused).unwrap() > 0);
    }
}

fn error(bytes: Vec<u8>) -> String {
    rewire::describe(&rank(bytes).unwrap_err())
}

#[test]
fn what_a_package_must_not_say_has_an_error() {
    let huge = json!(u64::MAX);
    assert!(with_head("/parts/0/bytes", huge.clone()).contains("head: has parts beyond the end"));
    assert!(with_head("/parts/1/bytes", huge).contains("head: has parts beyond the end"));
    assert!(with_head("/parts/2/bytes", json!(64)).contains("head: has parts that end before the end"));
    assert!(with_head("/parts", json!([])).contains("head: has parts that end before the end"));
    assert!(with_head("/parts/0/name", json!("x")).contains("plan: is missing"));
    assert!(with_head("/parts/2/name", json!("x")).contains("weights: is missing"));
    assert!(with_head("/inputs/0/name", json!("x")).contains("plan: has other inputs or outputs than the head lists"));
    assert!(with_head("/config", Value::Null).contains("has no configuration"));
    assert!(with_head("/config", json!("{}")).contains("is not a valid configuration"));
    let config = |pointer: &str, value: Value| {
        let mut config: Value = serde_json::from_str(kept().head["config"].as_str().unwrap()).unwrap();
        *config.pointer_mut(pointer).unwrap() = value;
        with_head("/config", json!(config.to_string()))
    };
    assert!(config("/max_seq_len", json!(u64::MAX)).contains("max_seq_len"));
    assert!(config("/feature_groups/uih", json!(["genre"])).contains("plan: reads `uih.item_id`"));
    let mut parts = kept().clone();
    parts.plan["steps"] = json!([]);
    assert!(error(parts.sealed()).contains("cannot load the model"));
    let mut bytes = kept().sealed();
    bytes[48..56].copy_from_slice(&u64::MAX.to_le_bytes());
    seal(&mut bytes);
    assert!(error(bytes).contains("head: reaches beyond the end"));
    let mut bytes = kept().sealed();
    bytes[8..12].copy_from_slice(&0u32.to_le_bytes());
    seal(&mut bytes);
    assert!(error(bytes).contains("format 0"));
    let mut bytes = kept().sealed();
    bytes.truncate(48);
    seal(&mut bytes);
    assert!(error(bytes).contains("head: is missing"));
}

/// `cargo xtask test slow` runs these.
mod slow {
    use super::*;

    #[test]
    fn changes_reach_every_stage() {
        let (mut unread, mut unloaded, mut ranked) = (0, 0, 0);
        for n in 0..90u64 {
            let choice = (n as usize * 7919, n.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 8);
            let bytes = changed_package(n as usize, SMALL, &[choice]);
            match (Package::parse(bytes.clone()), rank(bytes)) {
                (Err(_), _) => unread += 1,
                (Ok(_), Err(_)) => unloaded += 1,
                (Ok(_), Ok(_)) => ranked += 1,
            }
        }
        assert!(unread > 5 && unloaded > 5 && ranked > 5, "{unread} unread, {unloaded} unloaded, {ranked} ranked");
    }
}
