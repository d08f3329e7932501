//! Semantic ids by a residual-quantized autoencoder: TorchEasyRec's `SidRqvae` with straight-through gradients and l2 losses.

use super::sid::SHORTEST;
use super::{Codebooks, GenerateError, SidOptions, floats};
use crate::train::{Objective, Random, TrainConfig, Trainer, initial};
use rewire_graph::{DType, Graph, GraphError, HostTensor, Mode, Scope, Tensor};
use rewire_graph_rewrite::{lower, optimize};
use rewire_runtime::{Inputs, Model, ModelOptions, Session};
use std::collections::BTreeMap;

/// The sizes and losses of an autoencoder. The defaults are those of TorchEasyRec.
#[derive(Clone, Debug, PartialEq)]
pub struct RqVaeOptions {
    /// Codes of each level.
    pub codes: Vec<usize>,
    /// Elements of an encoding.
    pub width: usize,
    /// Widths of the layers between the vectors and their encoding; the decoder has them in reverse order.
    pub hidden: Vec<usize>,
    /// Whether residuals are normalized to length 1 before each level.
    pub normalize_residuals: bool,
    /// Weights of the commitment loss, which moves encodings to their codes, and of the codebook loss, which moves
    /// codes to the encodings.
    pub commitment: [f64; 2],
    /// Iterations of Sinkhorn's algorithm, which balances the use of codes in a batch, and its epsilon; the nearest codes if `None`.
    pub sinkhorn: Option<(usize, f64)>,
    /// Seed of initial parameters and batches.
    pub seed: u64,
}

impl Default for RqVaeOptions {
    fn default() -> Self {
        Self {
            codes: vec![256; 3],
            width: 64,
            hidden: vec![256],
            normalize_residuals: false,
            commitment: [1.0, 0.5],
            sinkhorn: Some((5, 10.0)),
            seed: 0,
        }
    }
}

/// A trained encoder with its codebooks.
#[derive(Debug)]
pub struct RqVae {
    encoder: Session,
    codebooks: Codebooks,
    parameters: BTreeMap<String, HostTensor>,
}

impl RqVae {
    /// Trains on concatenated vectors of `width` elements. Each batch has random vectors; codebooks are initialized by k-means.
    ///
    /// # Errors
    /// [`GenerateError::Vectors`] for vectors that [`Codebooks::train`] rejects, or the error of the training.
    pub fn train(
        vectors: &[f32],
        width: usize,
        options: &RqVaeOptions,
        config: &TrainConfig,
        with: &ModelOptions,
    ) -> Result<Self, GenerateError> {
        Codebooks::check(vectors, width, &options.codes)?;
        let mut begin = initial(&options.objective(width)?.parameters(), options.seed)?;
        let mut encoder = options.encoder(width, &begin, with)?;
        let sid = SidOptions {
            codes: options.codes.clone(),
            normalize_residuals: options.normalize_residuals,
            seed: options.seed,
            ..SidOptions::default()
        };
        let first = Codebooks::train(&encode(&mut encoder, vectors, width, options.width)?, options.width, &sid)?;
        for (name, centroids) in first.tensors()? {
            begin.insert(embedding(&name), centroids);
        }
        let objective = Objective::new(options.objective(width)?, "loss");
        let mut trainer = Trainer::new(&objective, config, |name| begin.get(name).cloned(), with.clone())?;
        let (mut preparer, mut random) = (trainer.preparer(), Random::new(options.seed));
        let (count, batch) = (vectors.len() / width, config.batch_size.get());
        let steps = config.steps.map_or(0, std::num::NonZeroU64::get);
        let steps = config.epochs.map_or(steps, |epochs| epochs.get() * count.div_ceil(batch) as u64);
        for _ in 0..steps {
            let places = (0..batch).filter_map(|_| random.below(count));
            let rows = places.filter_map(|at| vectors.get(at * width..(at + 1) * width)).flatten();
            let x = HostTensor::f32(vec![batch, width], &rows.copied().collect::<Vec<f32>>())?;
            trainer.step(preparer.prepare(vec![Inputs::new().with("x", x)])?)?;
        }
        let parameters = trainer.parameters()?;
        let level = |level| parameters.get(&embedding(&format!("layers.{level}.centroids"))).map(HostTensor::to_f32);
        let levels = (0..options.codes.len()).filter_map(level).collect();
        let codebooks = Codebooks::of_levels(options.width, options.normalize_residuals, levels);
        Ok(Self { encoder: options.encoder(width, &parameters, with)?, codebooks, parameters })
    }

    /// The concatenated encodings of vectors; [`RqVae::codebooks`] quantizes them.
    ///
    /// # Errors
    /// The error of a run.
    pub fn encode(&mut self, vectors: &[f32], width: usize) -> Result<Vec<f32>, GenerateError> {
        encode(&mut self.encoder, vectors, width, self.codebooks.width())
    }

    /// The codebooks.
    pub fn codebooks(&self) -> &Codebooks {
        &self.codebooks
    }

    /// All parameters: `encoder.N`, `decoder.N` and `quantizer.layers.N.embedding`.
    pub fn parameters(&self) -> &BTreeMap<String, HostTensor> {
        &self.parameters
    }
}

/// The name of the parameter for the centroids of a level.
fn embedding(centroids: &str) -> String {
    format!("quantizer.{}", centroids.replace("centroids", "embedding.weight"))
}

fn encode(session: &mut Session, vectors: &[f32], width: usize, encoded: usize) -> Result<Vec<f32>, GenerateError> {
    const ROWS: usize = 1 << 12;
    let mut all = vec![];
    for rows in vectors.chunks(ROWS * width.max(1)) {
        let count = rows.len() / width.max(1);
        let outputs = session.run(&Inputs::new().with("x", HostTensor::f32(vec![count, width], rows)?))?;
        all.extend(floats(outputs.get("z"), "z", count * encoded)?);
    }
    Ok(all)
}

impl RqVaeOptions {
    fn encoder(
        &self,
        width: usize,
        parameters: &BTreeMap<String, HostTensor>,
        with: &ModelOptions,
    ) -> Result<Session, GenerateError> {
        let scope = Scope::new().without_places();
        let x = scope.input("x", DType::F32, (scope.size("rows"), width));
        let z = self.encoded(&scope, &x);
        let graph = scope.finish(&[("z", z)]).map_err(traced)?;
        Ok(Model::load(lower(&optimize(graph)?.0)?, parameters, with.clone())?.session())
    }

    fn encoded(&self, scope: &Scope, x: &Tensor) -> Tensor {
        mlp(scope, "encoder", x, self.hidden.iter().copied().chain([self.width]).collect())
    }

    /// The loss of a batch of vectors.
    fn objective(&self, width: usize) -> Result<Graph, GenerateError> {
        let scope = Scope::new().without_places().with_mode(Mode::Train);
        let x = scope.input("x", DType::F32, (scope.size("rows"), width));
        let z = self.encoded(&scope, &x);
        let (mut residual, mut sum, mut commitment) = (z.detach(), None, vec![]);
        for (level, &codes) in self.codes.iter().enumerate() {
            let name = format!("quantizer.layers.{level}.embedding.weight");
            let codebook = scope.parameter(&name, DType::F32, [codes, self.width]);
            if self.normalize_residuals {
                residual = residual.unit_rows(f64::from(SHORTEST));
            }
            let quantized = codebook.gather(&self.assigned(&scope, &residual, &codebook.detach()));
            residual = residual - quantized.detach();
            let total = sum.map_or_else(|| quantized.clone(), |sum: Tensor| sum + &quantized);
            let [of_encoder, of_codes] = self.commitment;
            commitment.push(
                mean_square(&(&z - total.detach())) * of_encoder + mean_square(&(z.detach() - &total)) * of_codes,
            );
            sum = Some(total);
        }
        let quantized = sum.map_or_else(|| z.clone(), |sum| &z + (sum - &z).detach());
        let decoded = mlp(&scope, "decoder", &quantized, self.hidden.iter().rev().copied().chain([width]).collect());
        let levels = commitment.len().max(1) as f64;
        let loss =
            commitment.into_iter().fold(mean_square(&(decoded - &x)), |loss, level| loss + level * levels.recip());
        scope.finish(&[("loss", loss)]).map_err(traced)
    }

    /// The code of every row, `[rows]`.
    fn assigned(&self, scope: &Scope, rows: &Tensor, codebook: &Tensor) -> Tensor {
        let products = rows.linear(codebook, None) * 2.0;
        let distances = rows.square().sum(1) - products + codebook.square().sum(1).reshape([1.into(), codebook.dim(0)]);
        let likely = match self.sinkhorn {
            Some((iterations, sharpness)) => uniform(&distances, iterations, sharpness),
            None => -distances,
        };
        scope.top_k(&likely, 1).1.reshape([rows.dim(0)])
    }
}

/// Assignment probabilities of rows to codes under which a batch uses all codes equally, up to factors per row.
fn uniform(distances: &Tensor, iterations: usize, sharpness: f64) -> Tensor {
    const LEAST: f64 = 1e-8;
    let mean = |x: &Tensor| x.mean(0).mean(1);
    let centred = distances - mean(distances);
    let cost = &centred / (mean(&centred.square()).sqrt() + 1e-12);
    let cost = &cost - cost.min(0).min(1);
    let begin = (cost * -sharpness).exp();
    let begin = &begin / (begin.sum(0).sum(1) + LEAST);
    (0..iterations).fold(begin, |q, _| {
        let q = &q / (q.sum(0) + LEAST) * (1.0 / distances.width() as f64);
        &q / (q.sum(1) + LEAST)
    })
}

/// Linear layers with rectifiers between them, named by their positions in a sequence of both.
fn mlp(scope: &Scope, name: &str, x: &Tensor, widths: Vec<usize>) -> Tensor {
    let last = widths.len().saturating_sub(1);
    widths.into_iter().enumerate().fold(x.clone(), |x, (layer, width)| {
        let parameter = |part: &str| format!("{name}.{}.{part}", 2 * layer);
        let weight = scope.parameter(&parameter("weight"), DType::F32, [width, x.width()]);
        let bias = scope.parameter(&parameter("bias"), DType::F32, [width]);
        let y = x.linear(&weight, Some(&bias));
        if layer < last { y.relu() } else { y }
    })
}

fn mean_square(x: &Tensor) -> Tensor {
    x.square().mean(0).mean(1)
}

fn traced(error: GraphError) -> GenerateError {
    GenerateError::Trace(error.into())
}
