//! Candidate tunings: all can be emitted, and results do not depend on the tuning.

use crate::attention::{self, Mask};
use crate::build::{noise, sym};
use crate::device::device;
use crate::matmul::dense;
use crate::reduce::layer_norm;
use crate::tensor::Tensor;
use crate::{map, matmul, with_matrices};
use rewire_emit::{EmitError, candidates, emit, families, of_family, suited};
use rewire_graph::{DType, Dim, Number, Symbol};
use rewire_graph_rewrite::device::{
    MatrixPairReductionTile, ProductTile, ReductionTile, SubgroupProductTile, Target, Tile, Tuning,
};
use rewire_graph_rewrite::plan::Computation;
use std::collections::HashMap;

/// A kernel with operands and sizes.
struct Sample {
    name: String,
    kernel: Computation,
    operands: Vec<Tensor>,
    symbols: HashMap<Symbol, i64>,
}

impl Sample {
    fn new(
        name: impl Into<String>,
        kernel: Computation,
        operands: impl Into<Vec<Tensor>>,
        symbols: &[(u32, i64)],
    ) -> Self {
        let symbols = symbols.iter().map(|&(s, n)| (Symbol(s), n)).collect();
        Self { name: name.into(), kernel, operands: operands.into(), symbols }
    }

    /// Checks that there are at least `least` candidates, with results that are identical to the bit.
    fn holds(&self, target: &Target, base: Tuning, least: usize) {
        let candidates = candidates(&base, &self.kernel, target);
        assert!(candidates.len() >= least, "{}: {candidates:?}", self.name);
        let Some(device) = device() else { return };
        let mut first = None;
        for tuning in candidates {
            let emitted = emit(&self.kernel, target, &tuning).unwrap();
            let Some(got) = device.run(&self.kernel, &emitted, &self.operands, &self.symbols) else { continue };
            let got = bits(&got);
            let expected = first.get_or_insert_with(|| got.clone());
            let differing = got.iter().zip(expected.iter()).filter(|(a, b)| a != b).count();
            assert_eq!(differing, 0, "{} with {tuning}: {differing} of {} elements", self.name, got.len());
        }
    }
}

pub fn bits(tensors: &[Tensor]) -> Vec<u64> {
    let bits = |number: &Number| match number {
        Number::Float(x) => x.to_bits(),
        Number::Integer(x) => *x as u64,
    };
    tensors.iter().flat_map(|tensor| tensor.data.iter().map(bits)).collect()
}

/// A target with more workgroup memory and invocations than the baseline.
fn roomy() -> Target {
    Target { workgroup_bytes: 32 << 10, invocations: 1024, ..Target::BASELINE }
}

fn product(m: usize, n: usize, k: usize, symbolic: bool) -> Sample {
    let rows = if symbolic { sym(0) } else { m.into() };
    let kernel = dense(rows, n.into(), k.into(), DType::F32, (false, symbolic));
    let right = if symbolic { [n, k] } else { [k, n] };
    let data = [noise(DType::F32, &[2, m, k], 1), noise(DType::F32, &right, 2), noise(DType::F32, &[n], 3)];
    Sample::new(format!("{m}x{n}x{k}"), kernel, data, &[(0, m as i64)])
}

#[test]
fn products_do_not_depend_on_their_tiles() {
    product(70, 100, 50, true).holds(&roomy(), Tuning::default(), 12);
    product(3, 130, 33, false).holds(&Target::BASELINE, Tuning::default(), 3);
    product(90, 5, 70, true).holds(&Target::BASELINE, Tuning::default(), 3);
    product(130, 1, 41, true).holds(&Target::BASELINE, Tuning::default(), 3);
}

#[test]
fn statistics_do_not_depend_on_the_tile_of_their_product() {
    let (k, split, n) = (50, 25, 50);
    let offsets = [0i64, 0, 3, 73];
    let total = 73;
    let data =
        [noise(DType::F32, &[total, k], 1), noise(DType::F32, &[3, k, n], 2), Tensor::ints(DType::I32, &offsets)];
    let kernel = matmul::normalised(k, split, n);
    Sample::new("normalised", kernel, data, &[(0, 3), (1, total as i64)]).holds(&roomy(), Tuning::default(), 8);
}

#[test]
fn attention_does_not_depend_on_its_tiles() {
    for (mask, softmax) in [(Mask::Causal, true), (Mask::Targets, false)] {
        let case = attention::AttentionCase { mask, heads: 2, qk: 25, v: 40, dtype: DType::F32, softmax };
        let (kernel, data, symbols) = attention::kernel(&case, &[100, 0, 1, 37], None);
        Sample::new(format!("{mask:?}"), kernel, data, &symbols).holds(&roomy(), Tuning::default(), 3);
    }
}

#[test]
fn attention_does_not_depend_on_the_number_of_threads_that_share_rows() {
    let target = Target { registers: 255, ..roomy() };
    let case =
        attention::AttentionCase { mask: Mask::Targets, heads: 2, qk: 9, v: 40, dtype: DType::F32, softmax: false };
    let (kernel, data, symbols) = attention::kernel(&case, &[100, 0, 1, 37], None);
    let shared = emit(&kernel, &target, &Tuning::default()).unwrap();
    assert!(shared.wgsl.contains("its threads are 8 x 16, each with 8 owners"), "{}", shared.wgsl);
    Sample::new("shared", kernel, data, &symbols).holds(&target, Tuning::default(), 4);
    let softmax = attention::AttentionCase { softmax: true, ..case };
    for (case, target) in
        [(&softmax, &target), (&attention::AttentionCase { v: 32, ..case }, &target), (&case, &roomy())]
    {
        let (kernel, ..) = attention::kernel(case, &[4], None);
        assert!(emit(&kernel, target, &Tuning::default()).unwrap().wgsl.contains("its threads are 16 x 8"));
    }
}

#[test]
fn sums_of_rows_do_not_depend_on_the_workgroup() {
    for width in [3usize, 130, 5000, 20_000] {
        let data = [noise(DType::F32, &[5, width], 1), noise(DType::F32, &[width], 2)];
        let least = if width < 5000 { 3 } else { 1 };
        for w in [width.into(), sym(1)] {
            let kernel = layer_norm(w, DType::F32);
            let symbols = [(0, 5), (1, width as i64)];
            Sample::new(format!("width {width}"), kernel, data.clone(), &symbols).holds(
                &roomy(),
                Tuning::default(),
                least,
            );
        }
    }
}

#[test]
fn maps_take_other_workgroups_and_groups() {
    let data = [noise(DType::F32, &[300, 64], 1), noise(DType::F32, &[64], 2)];
    let kernel = map::biased(&sym(0), &64usize.into(), DType::F32);
    Sample::new("map", kernel, data, &[(0, 300)]).holds(&Target::BASELINE, Tuning::default(), 6);
}

#[test]
fn cooperative_matrices_do_not_mix_with_multiply_adds() {
    let (m, n, k) = (100usize, 70usize, 64usize);
    let f16 = dense(sym(0), n.into(), k.into(), DType::F16, (false, true));
    let data = [noise(DType::F16, &[2, m, k], 1), noise(DType::F16, &[n, k], 2), noise(DType::F32, &[n], 3)];
    let product = Sample::new("product", f16, data, &[(0, m as i64)]);
    let case =
        attention::AttentionCase { mask: Mask::Targets, heads: 2, qk: 32, v: 32, dtype: DType::F16, softmax: false };
    let (kernel, data, symbols) = attention::kernel(&case, &[100, 0, 64, 31], None);
    let attention = Sample::new("attention", kernel, data, &symbols);
    for (matrix, subgroup) in [(8, 8), (16, 32)] {
        let target = with_matrices(matrix, subgroup);
        let has = device().is_some_and(|device| device.matrices == (matrix, subgroup));
        for sample in [&product, &attention] {
            let families = families(&sample.kernel, &target);
            let choices: Vec<_> = families.iter().map(|family| family.matrices).collect();
            assert_eq!(choices, [Some(true), Some(false)], "{}", sample.name);
            for family in families {
                for tuning in candidates(&family, &sample.kernel, &target) {
                    assert_eq!(tuning.matrices, family.matrices);
                    let wgsl = emit(&sample.kernel, &target, &tuning).unwrap().wgsl;
                    assert_eq!(wgsl.contains("coop_mat"), family.matrices == Some(true), "{}: {tuning}", sample.name);
                }
                if has {
                    sample.holds(&target, family, 3);
                }
            }
            assert_eq!(candidates(&Tuning::default(), &sample.kernel, &target)[0].matrices, Some(true));
        }
    }
}

/// Rows per tile of the suited tuning for a run with this number of samples and rows.
fn tile(kernel: &Computation, target: &Target, samples: i64, rows: i64) -> u32 {
    let size = |dim: &Dim| dim.evaluate(|symbol| Some(if symbol == Symbol(0) { samples } else { rows }));
    let base = of_family(Tuning::default(), kernel, target);
    let tuning = suited(base, kernel, target, |dim| size(dim).map(|size| size as u64));
    assert_eq!(suited(base, kernel, target, |_| None), base, "sizes that are not known change nothing");
    emit(kernel, target, &tuning).unwrap().tile_lists[0].tile
}

#[test]
fn attention_of_few_workgroups_takes_fewer_queries() {
    let target = with_matrices(16, 32);
    let case =
        attention::AttentionCase { mask: Mask::Causal, heads: 4, qk: 64, v: 64, dtype: DType::F16, softmax: false };
    let (kernel, ..) = attention::kernel(&case, &[4], None);
    let many = tile(&kernel, &target, 8, 100_000);
    assert_eq!(tile(&kernel, &target, 1, 200), 32);
    // 24 tiles of four heads are enough workgroups to occupy a GPU.
    assert_eq!(tile(&kernel, &target, 4, 20 * i64::from(many)), many);
    assert_eq!(tile(&kernel, &target, 3, 20 * i64::from(many)), many / 2);
    let narrow = attention::AttentionCase { qk: 32, v: 32, ..case };
    let (kernel, ..) = attention::kernel(&narrow, &[4], None);
    assert_eq!(tile(&kernel, &target, 1, 200), 64, "rows of few columns");
    // Tiles of four key matrices, with their values, do not fit in 32 KiB for wide heads.
    let wide = attention::AttentionCase { qk: 128, v: 128, ..case };
    let roomy = Target { workgroup_bytes: 48 << 10, ..target.clone() };
    let (kernel, ..) = attention::kernel(&wide, &[4], None);
    assert_eq!([&target, &roomy].map(|target| tile(&kernel, target, 1, 200)), [64, 32]);
    // With multiply-adds, a thread computes one query instead of four.
    let singles = attention::AttentionCase { dtype: DType::F32, ..case };
    let (kernel, ..) = attention::kernel(&singles, &[4], None);
    let many = tile(&kernel, &target, 8, 100_000);
    assert_eq!(tile(&kernel, &target, 1, 200), many / 4);
    assert_eq!(tile(&kernel, &target, 4, 20 * i64::from(many)), many);
}

#[test]
fn attention_of_short_samples_has_fewer_queries_a_subgroup() {
    let elements = Target { matrix_elements: true, workgroup_bytes: 48 << 10, ..with_matrices(16, 32) };
    let wide =
        attention::AttentionCase { mask: Mask::Causal, heads: 4, qk: 128, v: 128, dtype: DType::F16, softmax: false };
    let suited = |wide: &attention::AttentionCase, target: &Target, samples, rows| {
        let (kernel, ..) = attention::kernel(wide, &[4], None);
        let size = |dim: &Dim| dim.evaluate(|symbol| Some(if symbol == Symbol(0) { samples } else { rows }));
        let tuning =
            suited(of_family(Tuning::default(), &kernel, target), &kernel, target, |dim| Some(size(dim)? as u64));
        tuning.tile
    };
    let of =
        |rows, columns| Some(Tile::MatrixPairReduction(MatrixPairReductionTile { rows, columns, rows_per_thread: 1 }));
    assert_eq!(suited(&wide, &elements, 32, 32 * 64), of(128, 32));
    assert_eq!(suited(&wide, &elements, 32, 32 * 65), None, "more than half of a workgroup's subgroups have queries");
    assert_eq!(suited(&wide, &elements, 8, 8 * 64), of(64, 32), "few workgroups");
    assert_eq!(suited(&wide, &elements, 128, 128 * 50), of(64, 16), "many workgroups");
    let staged = Target { matrix_elements: false, ..elements.clone() };
    assert_eq!(suited(&wide, &staged, 32, 32 * 64), None, "subgroups share queries there");
    // By default, a softmax tile has two query matrices per subgroup. Suited tiles, with one, have the same sizes as
    // without a softmax.
    let wide = attention::AttentionCase { softmax: true, ..wide };
    assert_eq!(suited(&wide, &elements, 32, 32 * 64), of(128, 32));
    assert_eq!(suited(&wide, &elements, 32, 32 * 65), None);
    assert_eq!(suited(&wide, &elements, 8, 8 * 64), of(64, 32), "few workgroups");
    assert_eq!(suited(&wide, &elements, 128, 128 * 50), of(64, 16), "many workgroups");
}

#[test]
fn sums_are_split_only_where_that_is_allowed_and_rows_are_few() {
    let kernel = dense(sym(0), 512usize.into(), 2048usize.into(), DType::F16, (false, false));
    let suited = |target: &Target, base: Tuning, rows: i64| {
        let size = |dim: &Dim| dim.evaluate(|_| Some(rows)).map(|size| size as u64);
        suited(of_family(base, &kernel, target), &kernel, target, size)
    };
    let allowed = Tuning { split_sums: Some(true), ..Tuning::default() };
    for target in [Target::BASELINE, roomy()] {
        let split = |base, rows| match suited(&target, base, rows).tile {
            Some(Tile::Product(tile)) => tile.parts,
            _ => 1,
        };
        assert_eq!([1, 9, 4000].map(|rows| split(allowed, rows)), [8, 4, 1]);
        assert_eq!([1, 9].map(|rows| split(Tuning::default(), rows)), [1, 1]);
    }
    let tile = suited(&with_matrices(16, 32), allowed, 1).tile;
    assert!(matches!(tile, Some(Tile::SubgroupProduct(_))), "matrices are faster whole: {tile:?}");
}

#[test]
fn products_of_few_tiles_take_smaller_ones() {
    let tile = |target: &Target, dtype, n: usize, rows: i64| {
        let kernel = dense(sym(0), n.into(), 64usize.into(), dtype, (false, false));
        let base = of_family(Tuning::default(), &kernel, target);
        let suited = suited(base, &kernel, target, |dim| dim.evaluate(|_| Some(rows)).map(|size| size as u64));
        match suited.tile? {
            Tile::Product(ProductTile { rows, columns, .. }) => Some((rows, columns)),
            Tile::SubgroupProduct(SubgroupProductTile { rows, columns }) => Some((rows, columns)),
            tile => panic!("{tile}"),
        }
    };
    let (plain, matrices) = (roomy(), with_matrices(16, 32));
    for (n, least) in [(32, 32), (16, 16)] {
        assert_eq!(tile(&matrices, DType::F16, n, 220), Some((32, least)), "no narrower than a matrix");
    }
    for (n, few) in [(64, (16, 32)), (512, (32, 32))] {
        assert_eq!(tile(&plain, DType::F32, n, 220), Some(few));
        assert_eq!(tile(&matrices, DType::F16, n, 220), Some((32, 32)));
        assert_eq!(tile(&plain, DType::F32, n, 100_000), None);
        assert_eq!(tile(&matrices, DType::F16, n, 100_000), None);
    }
    assert_eq!(tile(&plain, DType::F32, 4, 220), None, "narrow products have tiles of their own");
}

#[test]
fn products_of_a_short_depth_have_small_tiles() {
    let target = with_matrices(16, 32);
    let tile = |n: usize, k: usize, rows: i64| {
        let kernel = dense(sym(0), n.into(), k.into(), DType::F16, (false, false));
        let base = of_family(Tuning::default(), &kernel, &target);
        suited(base, &kernel, &target, |dim| dim.evaluate(|_| Some(rows)).map(|size| size as u64)).tile
    };
    let small = Some(Tile::SubgroupProduct(SubgroupProductTile { rows: 64, columns: 32 }));
    assert_eq!(tile(512, 32, 32_768), small);
    for (n, k) in [(512, 48), (64, 32)] {
        assert_eq!(tile(n, k, 32_768), None, "{n} {k}");
    }
}

#[test]
fn split_sums_are_sums() {
    let split = |rows, columns, parts| {
        Tuning::from(Tile::Product(ProductTile { rows, columns, depth: 64, rows_per_thread: 1, parts }))
    };
    for (sample, rows, columns) in [(product(3, 130, 333, false), 4, 32), (product(19, 70, 140, true), 16, 16)] {
        let Some(device) = device() else { return };
        let run = |tuning| {
            let emitted = emit(&sample.kernel, &roomy(), &tuning).unwrap();
            let results = device.run(&sample.kernel, &emitted, &sample.operands, &sample.symbols)?;
            let float = |number: &Number| if let Number::Float(x) = number { *x } else { f64::NAN };
            Some(results[0].data.iter().map(float).collect::<Vec<f64>>())
        };
        let Some(whole) = run(Tuning::default()) else { continue };
        let scale = whole.iter().fold(0.0f64, |most, x| most.max(x.abs()));
        for parts in [2, 4, 8] {
            let Some(parted) = run(split(rows, columns, parts)) else { continue };
            let error = whole.iter().zip(&parted).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(error < 2e-6 * scale, "{parts} parts of {}: {error} of {scale}", sample.name);
            assert!(parted != whole, "{parts} parts of {} add in the order of one", sample.name);
        }
    }
    for parts in [3, 16] {
        let error = emit(&product(3, 130, 33, false).kernel, &roomy(), &split(4, 32, parts)).unwrap_err();
        assert!(matches!(error, EmitError::Tuning { parameter: "parts", got, .. } if got == parts), "{error}");
    }
}

#[test]
fn matrices_are_forced_only_where_there_are_some() {
    let kernel = dense(sym(0), 64usize.into(), 64usize.into(), DType::F32, (false, false));
    let forced = Tuning { matrices: Some(true), ..Tuning::default() };
    for target in [Target::BASELINE, with_matrices(16, 32)] {
        let error = emit(&kernel, &target, &forced).unwrap_err();
        assert!(matches!(error, EmitError::Tuning { parameter: "matrices", got: 1, .. }), "{error}");
        assert_eq!(families(&kernel, &target), [Tuning::default()]);
    }
}

#[test]
fn a_tile_that_is_set_stays_with_kernels_of_its_kind() {
    let kernel = |dtype| dense(sym(0), 64usize.into(), 64usize.into(), dtype, (false, false));
    let (single, f16, matrices) = (kernel(DType::F32), kernel(DType::F16), with_matrices(16, 32));
    let plain = Tile::Product(ProductTile { rows: 16, columns: 32, depth: 8, rows_per_thread: 1, parts: 1 });
    let cooperative = Tile::SubgroupProduct(SubgroupProductTile { rows: 32, columns: 32 });
    let family = |tuning, kernel| of_family(tuning, kernel, &matrices);
    assert_eq!(family(plain.into(), &single), plain.into());
    assert_eq!(family(cooperative.into(), &single), Tuning::default());
    assert_eq!(family(plain.into(), &f16), Tuning { matrices: Some(false), ..plain.into() });
    assert_eq!(family(cooperative.into(), &f16), Tuning { matrices: Some(true), ..cooperative.into() });
    let refused = Tuning { matrices: Some(false), ..cooperative.into() };
    assert_eq!(family(refused, &f16), Tuning { tile: None, ..refused });
    assert_eq!(family(Tile::Reduction(ReductionTile { threads: 32 }).into(), &single), Tuning::default());
    assert_eq!(candidates(&plain.into(), &single, &Target::BASELINE), [plain.into()]);
}

#[test]
fn every_tile_of_a_workgroup_is_a_candidate() {
    let shared = with_matrices(16, 32);
    let target = Target { matrix_elements: true, workgroup_matrices: 256, workgroup_bytes: 48 << 10, ..shared };
    let kernel = matmul::stored([512, 512], DType::F16, false, DType::F32);
    let candidates = candidates(&Tuning::default(), &kernel, &target);
    let of_workgroups = |tuning: &&Tuning| matches!(tuning.tile, Some(Tile::WorkgroupProduct(_)));
    // The default tile is already the first candidate.
    assert_eq!(candidates.iter().filter(of_workgroups).count(), 3 * 2 * 3 * 2 - 1);
    assert!(candidates.iter().any(|tuning| matches!(tuning.tile, Some(Tile::SubgroupProduct(_)))));
}

#[test]
fn parts_that_are_no_tuning() {
    for text in [
        "",
        "threads",
        "rows=4",
        "matrices=1",
        "matrices=true,",
        "default,matrices=true",
        "reduction:",
        "reduction:threads=x",
        "reduction:threads=4,rows=4",
        "product:rows=4",
        "height:rows=4",
    ] {
        assert!(text.parse::<Tuning>().is_err(), "{text}");
    }
}
