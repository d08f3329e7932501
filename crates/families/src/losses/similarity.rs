//! Similarities of users and items. Training maximizes the similarity of each user and its positive item.

use super::hard::HardSampler;
use super::labels::LabelInputs;
use crate::models::{Model, Predictions, SHORTEST, Similarity};
use rewire_features::{Problems, read};
use rewire_graph::{DType, Dim, Scope, Tensor};
use rewire_losses::{MatchLogits, split_rows};
use serde::Deserialize;

/// The keys of a match model that its loss depends on.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct MatchMessage {
    #[serde(default)]
    similarity: Option<Similarity>,
    #[serde(default = "one")]
    temperature: f64,
    #[serde(default)]
    pub in_batch_negative: bool,
    #[serde(default = "ten")]
    simi_pow: f64,
    #[serde(skip)]
    hard: Option<HardSampler>,
}

fn one() -> f64 {
    1.0
}

fn ten() -> f64 {
    10.0
}

impl MatchMessage {
    /// Reads the model's message. `hard` is the hard negative sampler, if there is one.
    pub fn read(model: &Model<'_>, hard: Option<HardSampler>) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let message = read::<Self>(model.message, &model.pointer(), &mut problems);
        problems.none_or(())?;
        let message = message.ok_or_else(Problems::default)?;
        match message.temperature > 0.0 {
            true => Ok(Self { hard, ..message }),
            false => Err(model.problem("/temperature", format!("must be above 0, got {}", message.temperature))),
        }
    }

    /// The hard negative sampler; `None` with in-batch negatives, which have no hard ones.
    pub fn hard(&self) -> Option<HardSampler> {
        self.hard.filter(|_| !self.in_batch_negative)
    }

    /// The similarities of the batch's users and items.
    pub fn logits(&self, model: &Model<'_>, predictions: &Predictions) -> Result<MatchLogits, Problems> {
        let scope = model.scope;
        let find = |name: &str| {
            let found = predictions.iter().find(|(known, _)| known == name).map(|(_, x)| x.clone());
            found.ok_or_else(|| model.problem("", format!("predicts no `{name}`")))
        };
        let (users, items) = (find("user_tower_emb")?, find("item_tower_emb")?);
        if self.in_batch_negative {
            let users = self.users(model, users, &items, || find("interest_mask"))?;
            return Ok(MatchLogits::in_batch(&users, &items, self.temperature));
        }
        let lists = (model.kind == "hstu_match").then(|| LabelInputs::positives(scope));
        let count = lists.as_ref().map_or_else(|| users.dim(0), |lists| lists.total.clone());
        let [positives, sampled] = split(scope, &items, with_others(scope, &items, &count));
        let users = match &lists {
            Some(lists) => users.jagged_broadcast(lists),
            None => self.users(model, users, &positives, || find("interest_mask"))?,
        };
        let Some(hard) = self.hard() else {
            return Ok(MatchLogits::sampled(&users, &positives, &sampled, None, self.temperature));
        };
        let count = HardSampler::count(scope);
        let shared = (&scope.host_size(sampled.dim(0)) - &scope.host_size(&count)).as_dim();
        let [sampled, own] = split(scope, &sampled, [shared, count]);
        let hard = hard.traced(scope, own);
        Ok(MatchLogits::sampled(&users, &positives, &sampled, Some(&hard), self.temperature))
    }

    /// User vectors `[B, D]`. Several interests of a user are averaged, weighted by the similarity to the user's own item `[B, D]`.
    fn users(
        &self,
        model: &Model<'_>,
        users: Tensor,
        items: &Tensor,
        mask: impl Fn() -> Result<Tensor, Problems>,
    ) -> Result<Tensor, Problems> {
        if model.kind != "mind" {
            return Ok(users);
        }
        let (batch, interests, width) = (users.dim(0), users.dim(1), users.width());
        let own = items.reshape([batch.clone(), 1.into(), width.into()]);
        let scores = (&users * own).sum(2).reshape([batch.clone(), interests.clone()]) * self.simi_pow;
        let off = model.scope.scalar(DType::F32, f64::NEG_INFINITY);
        let weights = mask()?.gt(0).select(&scores, &off).softmax(1).reshape([batch.clone(), interests, 1.into()]);
        let mean = (users * weights).sum(1).reshape([batch, width.into()]);
        Ok(match self.similarity.unwrap_or(Similarity::Cosine) {
            Similarity::Cosine => mean.unit_rows(SHORTEST),
            Similarity::InnerProduct => mean,
        })
    }
}

/// The sizes of a split: `count`, and the remaining rows of `items`.
fn with_others(scope: &Scope, items: &Tensor, count: &Dim) -> [Dim; 2] {
    [count.clone(), (&scope.host_size(items.dim(0)) - &scope.host_size(count)).as_dim()]
}

/// Splits the rows into two tensors with these numbers of rows.
fn split(scope: &Scope, items: &Tensor, counts: [Dim; 2]) -> [Tensor; 2] {
    let mut parts = split_rows(scope, items, &counts).into_iter();
    [(); 2].map(|()| parts.next().unwrap_or_else(|| items.clone()))
}

/// The first `count` rows.
pub(crate) fn first_rows(scope: &Scope, x: &Tensor, count: &Dim) -> Tensor {
    if x.dim(0) == *count {
        return x.clone();
    }
    let [first, _] = split(scope, x, with_others(scope, x, count));
    first
}
