use super::Builder;
use crate::program::Instruction;
use rewire_graph::op::Window;
use rewire_graph::{DType, Tensor};
use rewire_hstu::modules::MlpConfig;
use rewire_hstu::modules::ranking::{
    CrossConfig, CrossV2Config, MmoeConfig, dlrm_interaction, factorization_machine, pairwise_dots,
};

/// The largest width of the input of a block of layers.
const WIDEST: usize = 70;

impl Builder {
    /// Rows of a bounded width, with bounded values.
    fn features(&self, pick: u8) -> Option<Tensor> {
        let x = self.pool.float(pick, |x| x.rank() == 2 && (1..=WIDEST).contains(&x.width()))?;
        Some(x.clamp(Some(-2.0), Some(2.0)))
    }

    pub(super) fn siblings(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.features(i.a)?;
        let (width, out) = (x.width(), [1, 3, 8, 25, 50][usize::from(i.b) % 5]);
        let products: Vec<Tensor> = (0..2 + usize::from(i.c) % 3)
            .map(|n| {
                let weight = self.parameter(&format!("sibling{n}_"), &[out, width], 1.0 / (width as f64).sqrt());
                let bias = self.parameter(&format!("sibling_bias{n}_"), &[out], 0.5);
                let product = x.linear(&weight, (i.b & 32 == 0).then_some(&bias));
                if n % 2 == 0 && i.b & 64 == 0 { product.relu() } else { product }
            })
            .collect();
        let all: Vec<&Tensor> = products.iter().collect();
        Some(match i.c / 3 % 4 {
            0 => self.scope.concat(&all, 1),
            1 => self.scope.stack(&all, 1),
            2 => products.iter().skip(1).fold(products[0].clone(), |sum, product| &sum + product),
            _ => {
                self.pool.add(products[0].clone());
                &products[0].sigmoid() * &products[1]
            }
        })
    }

    fn batch_norm(&mut self, x: &Tensor, axis: usize, channels: usize) -> Tensor {
        let variance = self.parameter("variance", &[channels], 0.8);
        let [mean, weight, bias] = ["mean", "gain", "shift"].map(|name| self.parameter(name, &[channels], 0.9));
        x.batch_norm(axis, [&mean, &(&variance.abs() + 0.3), &weight, &bias], 1e-3)
    }

    pub(super) fn linear_norm(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.features(i.a)?;
        let (width, out) = (x.width(), [1, 4, 7, 25, 64][usize::from(i.b) % 5]);
        let weight = self.parameter("weight", &[out, width], 1.0 / (width as f64).sqrt());
        let bias = self.parameter("bias", &[out], 0.5);
        let product = x.linear(&weight, i.c.is_multiple_of(2).then_some(&bias));
        let y = self.batch_norm(&product, 1, out);
        Some(if (i.c / 2).is_multiple_of(2) { y.relu() } else { y })
    }

    pub(super) fn convolution(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.pool.float(i.a, |x| x.rank() == 2 && x.width() >= 8)?;
        let sizes = [[2, 5, 7], [2, 5, 5], [4, 3, 1], [2, 2, 2]];
        let [channels, height, width] = sizes.into_iter().find(|size| size.iter().product::<usize>() <= x.width())?;
        let x = x.slice(1, 0, channels * height * width);
        let images = x.reshape(&[x.dim(0), channels.into(), height.into(), width.into()]);
        let groups = 1 + usize::from(i.b) % 2;
        let window = Window {
            stride: [1 + usize::from(i.c) % 2, 1 + usize::from(i.c) / 2 % 3],
            padding: [1 + usize::from(i.b) / 2 % 2, 1],
            dilation: [1 + usize::from(i.c) / 8 % 2, 1],
            groups,
        };
        let kernel = [1 + usize::from(i.b) / 4 % 2, 1 + usize::from(i.b) / 8 % 3];
        let (out, depth) = ([2, 4, 6][usize::from(i.c) / 16 % 3], channels / groups);
        let weight = self.parameter("kernel", &[out, depth, kernel[0], kernel[1]], 0.5);
        let bias = self.parameter("bias", &[out], 0.5);
        let y = images.conv2d(&weight, (i.b & 64 == 0).then_some(&bias), &window);
        Some(match i.c / 48 % 3 {
            0 => y,
            1 => self.batch_norm(&y, 1, out),
            _ => self.batch_norm(&y, 1, out).relu(),
        })
    }

    pub(super) fn ranking(&mut self, i: Instruction) -> Option<Tensor> {
        let x = self.features(i.a)?;
        let (few, path) = (1 + usize::from(i.b) % 3, format!("layer{}", self.count));
        let scope = self.scope.clone();
        scope.module(&path, |scope| match i.c % 6 {
            0 => Some(CrossConfig { cross_num: few }.forward(scope, &x)),
            1 => {
                let low_rank = (i.b & 64 == 0).then_some(few + 1);
                Some(CrossV2Config { cross_num: few, low_rank }.forward(scope, &x))
            }
            2 => {
                let units = [few * 3, 5];
                let mlp = mlp(&units[..1 + usize::from(i.c) / 6 % 2], i.b)?;
                let gate_mlp = if (i.c / 12).is_multiple_of(2) { None } else { mlp_of(&[4], "nn.Tanh") };
                let tasks =
                    MmoeConfig { expert_mlp: mlp, num_expert: few + 1, num_task: 2, gate_mlp }.forward(scope, &x);
                Some(scope.concat(&tasks.iter().collect::<Vec<_>>(), 1))
            }
            kind => {
                let fields = fields(&x)?;
                match kind {
                    3 => Some(factorization_machine(&fields)),
                    4 if fields.ty().extent(1)? > 1 => Some(pairwise_dots(scope, &fields)),
                    4 => None,
                    _ => {
                        let first = x.slice(1, 0, fields.width());
                        Some(dlrm_interaction(scope, &first.tanh(), &fields))
                    }
                }
            }
        })
    }

    pub(super) fn bag(&mut self, i: Instruction) -> Option<Tensor> {
        let fits = |x: &Tensor| x.dtype() == DType::U32 && x.rank() == 1 && self.pool.rows_of(x).is_some();
        let ids = self.pool.integer(i.a, fits)?;
        let rows = self.pool.rows_of(&ids)?;
        let width = [1, 3, 8, 25, 70][usize::from(i.b) % 5];
        let table = self.parameter("table", &[7, width], 1.0);
        let ids = ids.modulo(&self.scope.scalar(DType::U32, 7.0));
        Some(match i.c % 3 {
            0 => table.embedding_bag_sum(&ids, &rows.ragged),
            1 => table.embedding_bag_mean(&ids, &rows.ragged),
            _ => table.embedding_bag_sum(&ids, &rows.ragged).jagged_broadcast(&rows.ragged),
        })
    }
}

fn mlp(units: &[usize], pick: u8) -> Option<MlpConfig> {
    mlp_of(units, ["nn.ReLU", "nn.Sigmoid", "nn.SiLU"][usize::from(pick) / 4 % 3])
}

fn mlp_of(units: &[usize], activation: &str) -> Option<MlpConfig> {
    serde_json::from_value(serde_json::json!({"hidden_units": units, "activation": activation})).ok()
}

/// The columns of `x` as several vectors of equal width.
fn fields(x: &Tensor) -> Option<Tensor> {
    let count = [5, 4, 3, 2].into_iter().find(|count| x.width().is_multiple_of(*count))?;
    Some(x.reshape(&[x.dim(0), count.into(), (x.width() / count).into()]))
}
