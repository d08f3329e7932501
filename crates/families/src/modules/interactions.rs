use rewire_graph::{Scope, Tensor};
use rewire_hstu::modules::ranking::pairwise_dots;
use serde::Deserialize;

/// Stacks vectors `[B, D]` of equal width as fields `[B, N, D]`.
pub(crate) fn fields(scope: &Scope, parts: &[Tensor]) -> Tensor {
    // Concatenates columns first, because other parts of a model use the same concatenation.
    let columns = super::beside(scope, parts);
    let width = parts.first().map_or(0, Tensor::width);
    columns.reshape([columns.dim(0), parts.len().into(), width.into()])
}

/// The dot products of all pairs of fields.
pub(crate) fn pairs_of_fields(scope: &Scope, parts: &[Tensor]) -> Tensor {
    pairwise_dots(scope, &fields(scope, parts))
}

/// A compressed interaction network: each layer sums over pairs of a vector of the previous layer and a field.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CinConfig {
    cin_layer_size: Vec<usize>,
}

impl CinConfig {
    /// Maps fields `[B, F, E]` to `[B, sum of layer sizes]`.
    pub fn forward(&self, scope: &Scope, fields: &Tensor) -> Tensor {
        let (batch, width) = (fields.dim(0), fields.width());
        let count = fields.ty().extent(1).unwrap_or(0);
        let mut sums = vec![];
        let mut x = fields.clone();
        let mut vectors = count;
        for (layer, &size) in self.cin_layer_size.iter().enumerate() {
            let left = x.reshape([batch.clone(), vectors.into(), 1.into(), width.into()]);
            let right = fields.reshape([batch.clone(), 1.into(), count.into(), width.into()]);
            let pairs = (&left * &right).reshape([batch.clone(), (vectors * count).into(), width.into()]);
            x = scope.module(&format!("cin_layers.{layer}"), |scope| {
                let weight = scope.weight("weight", [size, vectors * count, 1]).reshape([size, vectors * count]);
                weight.matmul(&pairs) + scope.weight("bias", [size]).reshape([size, 1])
            });
            sums.push(x.sum(2).reshape([batch.clone(), size.into()]));
            vectors = size;
        }
        super::beside(scope, &sums)
    }
}
