//! Language models with weights in few bits.

use super::decoder::{folder, options};
use rewire::generate::decoder::{Config, Decoder};
use rewire::graph::{DType, HostTensor};
use rewire::program::ModelFile;
use rewire::rank::{PackOptions, Precision, RankOptions, read_weights};
use rewire::runtime::{ModelOptions, block_on};
use rewire::weights::{Weights, serialize};
use rewire::{Kernel, Mapping};
use std::collections::BTreeMap;

/// The weights of a folder, matrices rounded as a type stores them: each `group` columns of a row have a scale in types of few bits.
fn rounded(weights: &Weights<'_>, dtype: DType, group: usize) -> Vec<u8> {
    let tensors = weights.tensors().unwrap().into_iter().map(|(name, tensor)| {
        let tensor = match *tensor.shape() {
            [rows, width] => {
                let in_groups = dtype == DType::Rows4 && width > group && width.is_multiple_of(group);
                let shape: &[usize] = if in_groups { &[rows, width / group, group] } else { &[rows, width] };
                let laid = tensor.reshape(shape.to_vec()).unwrap().stored_as(dtype).unwrap();
                HostTensor::f32(vec![rows, width], &laid.to_f32()).unwrap()
            }
            _ => tensor,
        };
        (name, tensor)
    });
    serialize(&tensors.collect(), &BTreeMap::new()).unwrap()
}

/// The package of a folder, also with its weights in fewer bits.
#[test]
fn folders_become_packages_and_their_weights_integers() {
    for (name, options) in ["qwen3", "t5"].into_iter().flat_map(|name| options().map(move |options| (name, options))) {
        let file = ModelFile::open(&folder(name), Mapping::default()).unwrap();
        let description = file.describe().unwrap();
        assert_eq!((description.model.as_deref(), description.vocabulary), (Some(name), Some(400)));
        let config = Config::from_json(&std::fs::read_to_string(folder(name).join("config.json")).unwrap()).unwrap();
        let logits = |decoder: &mut Decoder| decoder.logits(&[3, 1, 399, 20], &[300, 337]).unwrap().to_f64();
        // Drivers in software compile for long.
        let skipped = if options.kernel == Kernel::Wgpu { 2 } else { 0 };
        for dtype in [DType::F32, DType::Rows8, DType::Rows4].into_iter().skip(skipped) {
            let weights = rounded(&read_weights(&folder(name), Mapping::default()).unwrap(), dtype, 32);
            let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
            let mut plain = Decoder::load(&config, &Weights::parse(weights).unwrap(), on_cpu).unwrap();
            let expected = logits(&mut plain);
            let precision = Precision { weights: Some(dtype), ..Precision::default() };
            let package = file.pack(&PackOptions { precision, ..PackOptions::default() }).unwrap();
            let package = ModelFile::parse(package.bytes().to_vec()).unwrap();
            assert_eq!(package.describe().unwrap().model.as_deref(), Some(name));
            let mut packed = block_on(Decoder::from_file_async(&package, &options)).unwrap();
            let largest = expected.iter().fold(0.0f64, |most, logit| most.max(logit.abs()));
            let apart = logits(&mut packed).iter().zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
            assert!(apart < 2e-5 * largest, "{name} {dtype:?}: {apart} of {largest}");
        }
    }
}

/// Logits of weights of 4 bits differ less from those of floats if groups of a row have their own scales.
#[test]
fn scales_of_groups_are_more_exact() {
    let config = Config::from_json(&std::fs::read_to_string(folder("qwen3").join("config.json")).unwrap()).unwrap();
    let weights = read_weights(&folder("qwen3"), Mapping::default()).unwrap();
    let logits = |weights: &Weights<'_>| {
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let mut decoder = Decoder::load(&config, weights, on_cpu).unwrap();
        decoder.logits(&[3, 1, 399, 20], &[300, 337]).unwrap().to_f64()
    };
    let exact = logits(&weights);
    let error = |group: usize| {
        let found = logits(&Weights::parse(rounded(&weights, DType::Rows4, group)).unwrap());
        let apart: f64 = found.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum();
        (apart / exact.iter().map(|logit| logit.powi(2)).sum::<f64>()).sqrt()
    };
    let [groups, rows] = [32, usize::MAX].map(error);
    assert!(groups < 0.9 * rows, "{groups} with groups, {rows} with rows");
}

/// Weights of published checkpoints are bf16, also those of the matrices that are joined when a model is loaded.
#[test]
fn weights_in_bf16_are_stored_in_fewer_bits() {
    let stored = read_weights(&folder("qwen3"), Mapping::default()).unwrap().tensors().unwrap();
    let stored = stored.into_iter().map(|(name, tensor)| (name, tensor.stored_as(DType::BF16).unwrap()));
    let file = serialize(&stored.collect(), &BTreeMap::new()).unwrap();
    let copy = tempfile::tempdir().unwrap();
    std::fs::copy(folder("qwen3").join("config.json"), copy.path().join("config.json")).unwrap();
    std::fs::write(copy.path().join("model.safetensors"), &file).unwrap();
    let config = Config::from_json(&std::fs::read_to_string(copy.path().join("config.json")).unwrap()).unwrap();
    let logits = |decoder: &mut Decoder| decoder.logits(&[3, 1, 399, 20], &[300, 337]).unwrap().to_f64();
    for dtype in [DType::Rows8, DType::Rows4] {
        let weights = rounded(&Weights::parse(file.clone()).unwrap(), dtype, 32);
        let on_cpu = ModelOptions { kernel: Kernel::Cpu, ..ModelOptions::default() };
        let expected = logits(&mut Decoder::load(&config, &Weights::parse(weights).unwrap(), on_cpu).unwrap());
        let precision = Precision { weights: Some(dtype), ..Precision::default() };
        let options = RankOptions { kernel: Kernel::Cpu, precision, ..RankOptions::default() };
        let found = logits(&mut Decoder::open(copy.path(), &options).unwrap());
        let largest = expected.iter().fold(0.0f64, |most, logit| most.max(logit.abs()));
        let apart = found.iter().zip(&expected).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart < 2e-5 * largest, "{dtype:?}: {apart} of {largest}");
    }
}
