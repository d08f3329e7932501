//! Shaders from naga's writers for Metal and Direct3D 12.

use naga::back::{hlsl, msl};
use naga::valid::ModuleInfo;

pub fn to_metal(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    let options = msl::Options { fake_missing_bindings: true, lang_version: (2, 4), ..Default::default() };
    msl::write_string(module, info, &options, &msl::PipelineOptions::default()).map(drop).map_err(|e| e.to_string())
}

pub fn to_hlsl(module: &naga::Module, info: &ModuleInfo) -> Result<(), String> {
    hlsl(module, info, hlsl::ShaderModel::V6_2).map(drop)
}

/// The shader for a shader model; before 6.2 there is no f16.
pub fn hlsl(module: &naga::Module, info: &ModuleInfo, shader_model: hlsl::ShaderModel) -> Result<String, String> {
    let options = hlsl::Options {
        shader_model,
        fake_missing_bindings: true,
        special_constants_binding: Some(hlsl::BindTarget { register: 1, ..Default::default() }),
        ..Default::default()
    };
    let mut text = String::new();
    let pipeline = hlsl::PipelineOptions::default();
    hlsl::Writer::new(&mut text, &options, &pipeline).write(module, info, None).map_err(|e| e.to_string())?;
    Ok(text)
}
