//! The kernels of language models.

use rewire::generate::decoder::Config;
use rewire::graph::DType;

/// Queries, keys and values are one matmul, and so are the gate and the values of a feed-forward layer. Norms of heads and rotations are
/// one kernel; residuals, gates and activations are parts of matmuls.
#[test]
fn a_layer_has_few_kernels() {
    let names = |layers: usize| -> Vec<(String, String)> {
        let config = serde_json::json!({
            "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": layers,
            "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": true,
        });
        let config = Config::from_json(&config.to_string()).unwrap();
        let plan = rewire::lower(&rewire::optimize(config.trace(DType::F32).unwrap()).unwrap().0).unwrap();
        plan.steps.iter().map(|step| (step.name.clone(), step.path.clone())).collect()
    };
    let whole = names(3);
    let layer = whole.iter().filter(|(name, path)| path.contains("layers.1") && name != "set_rows");
    let layer: Vec<&str> = layer.map(|(name, _)| name.as_str()).collect();
    let mut expected = vec!["rms_norm", "matmul", "rms_norm", "rms_norm", "softmax_attention", "addmm"];
    expected.extend(["rms_norm", "matmul", "addmm"]);
    assert_eq!(layer, expected);
    // Rows of caches are set by one or two kernels for all layers that their bindings allow.
    assert!(whole.len() - names(2).len() <= 10);
}
