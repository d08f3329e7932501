//! Snapshots of emitted shaders. Every backend of naga must accept them.

use crate::attention::{self, AttentionCase, Mask};
use crate::build::sym;
use crate::writers::{to_hlsl, to_metal};
use crate::{map, matmul, reduce, segmented_reduce};
use naga::back::{glsl, spv};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};
use rewire_emit::emit;
use rewire_graph::DType;
use rewire_graph_rewrite::device::{Target, Tuning};
use rewire_graph_rewrite::plan::Computation;

fn samples() -> Vec<(&'static str, Computation)> {
    let case = |mask, softmax| {
        let case = AttentionCase { mask, heads: 2, qk: 32, v: 48, dtype: DType::F16, softmax };
        attention::kernel(&case, &[1], None).0
    };
    vec![
        ("map_rows", map::biased(&sym(0), &64usize.into(), DType::F16)),
        ("map_symbolic_width", map::biased(&3usize.into(), &sym(1), DType::F32)),
        ("map_concatenation", map::concatenation(8, 3)),
        ("matmul_dense", matmul::dense(sym(0), 64usize.into(), 32usize.into(), DType::F16, (false, true))),
        ("matmul_normalised", matmul::normalised(64, 25, 50)),
        ("reduce_layer_norm", reduce::layer_norm(512usize.into(), DType::F32)),
        ("reduce_symbolic_width", reduce::layer_norm(sym(1), DType::F16)),
        ("segmented_by_sample", segmented_reduce::by_sample(sym(0), 64usize.into(), DType::F32)),
        ("segmented_by_index", segmented_reduce::by_index(sym(1), 50usize.into(), DType::F16)),
        ("matmul_by_sample", segmented_reduce::products(64, 50, DType::F32)),
        ("attention_causal", case(Mask::Causal, false)),
        ("attention_targets", case(Mask::Targets, false)),
        ("attention_intervals_softmax", case(Mask::Intervals, true)),
    ]
}

/// Kernels that every backend must accept.
fn taken() -> Vec<(&'static str, Computation)> {
    let functions = [64, 3].map(|width| ("map_functions_of_floats", map::functions_of_floats(width)));
    samples().into_iter().chain(functions).collect()
}

#[test]
fn emitted_shaders() {
    for (name, kernel) in samples() {
        let emitted = emit(&kernel, &Target::BASELINE, &Tuning::default()).unwrap();
        let interface = format!(
            "// params: {:?}\n// slots: {:?}\n// tile lists: {:?}\n// grid: {:?}\n",
            emitted.params, emitted.slots, emitted.tile_lists, emitted.grid
        );
        insta::assert_snapshot!(name, interface + &emitted.wgsl);
    }
}

#[test]
fn emission_is_a_function() {
    for (name, kernel) in taken() {
        let once = emit(&kernel, &Target::BASELINE, &Tuning::default()).unwrap();
        assert_eq!(once, emit(&kernel, &Target::BASELINE, &Tuning::default()).unwrap(), "{name}");
    }
}

#[test]
fn every_backend_takes_the_shaders() {
    for (name, kernel) in taken() {
        for f16 in [false, true] {
            let wgsl = emit(&kernel, &Target { f16, ..Target::BASELINE }, &Tuning::default()).unwrap().wgsl;
            let module = naga::front::wgsl::parse_str(&wgsl).unwrap();
            let capabilities = Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_FLOAT16_IN_FLOAT32;
            let info = Validator::new(ValidationFlags::all(), capabilities).validate(&module).unwrap();
            to_spirv(&module, &info).unwrap_or_else(|e| panic!("{name}, SPIR-V: {e}"));
            to_metal(&module, &info).unwrap_or_else(|e| panic!("{name}, Metal: {e}"));
            to_hlsl(&module, &info).unwrap_or_else(|e| panic!("{name}, HLSL: {e}"));
            if !f16 {
                for version in [glsl::Version::Desktop(430), glsl::Version::new_gles(310)] {
                    to_glsl(&module, &info, version).unwrap_or_else(|e| panic!("{name}, GLSL {version}: {e}"));
                }
            }
        }
    }
}

/// Browsers reject reserved words as names; naga does not.
#[test]
fn no_name_is_a_reserved_word() {
    const RESERVED: &str = "abstract active asm auto await cast class common compile crate demote do enum explicit \
        export extends extern external filter final friend from get goto highp import inline interface layout lowp \
        macro match meta mod module move mut namespace new null of operator package partial pass patch precise \
        precision priv protected pub public readonly ref register require resource restrict self set shared smooth \
        static std super target template this trait try type union unless unsafe use using varying virtual volatile \
        where with yield";
    for (name, kernel) in taken() {
        let wgsl = emit(&kernel, &Target::BASELINE, &Tuning::default()).unwrap().wgsl;
        let code = wgsl.lines().map(|line| line.split("//").next().unwrap_or("")).collect::<Vec<_>>().join("\n");
        let words = code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for word in words {
            assert!(!RESERVED.split_whitespace().any(|reserved| reserved == word), "{name}: {word}");
        }
    }
}

fn to_spirv(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = spv::Options { lang_version: (1, 3), ..Default::default() };
    spv::write_vec(module, info, &options, None).map(|_| ()).map_err(|e| e.to_string())
}

fn to_glsl(module: &naga::Module, info: &ModuleInfo, version: glsl::Version) -> Result<(), String> {
    let options = glsl::Options { version, ..Default::default() };
    let pipeline = glsl::PipelineOptions {
        shader_stage: naga::ShaderStage::Compute,
        entry_point: "main".to_owned(),
        multiview: None,
    };
    let mut text = String::new();
    let mut writer = glsl::Writer::new(&mut text, module, info, &options, &pipeline, Default::default())
        .map_err(|e| e.to_string())?;
    writer.write().map(|_| ()).map_err(|e| e.to_string())
}
