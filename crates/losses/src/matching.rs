use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};

/// The similarity of a missing item, whose softmax weight is 0.
const ABSENT: f64 = -1e32;

/// The minimum norm; shorter vectors are divided by it.
const SHORTEST: f64 = 1e-6;

/// Rows `[N, E]` divided by their Euclidean norms, or by `1e-6` if they are shorter. Dot products of such rows are cosine
/// similarities.
#[track_caller]
pub fn unit_rows(x: impl AsRef<Tensor>) -> Tensor {
    let x = x.as_ref();
    x.unit_rows(SHORTEST)
}

/// Splits rows `[N, ..]` into consecutive parts of `counts` rows: items that passed through a tower together, such as
/// positives, negatives and hard negatives. A run with fewer rows is an error.
#[track_caller]
pub fn split_rows(scope: &Scope, x: impl AsRef<Tensor>, counts: &[Dim]) -> Vec<Tensor> {
    let x = x.as_ref();
    let rows = |count: &Dim| Ragged::dense(scope, 1, &scope.host_size(count));
    let (all, mut start) = (rows(&x.dim(0)), Dim::default());
    let part = |count: &Dim| {
        let part = x.jagged_slice(&all, &rows(&start).lengths, &rows(count));
        start = start.clone() + count.clone();
        part
    };
    counts.iter().map(part).collect()
}

/// Similarities of users and items divided by a temperature, one row per user; one column is the user's own item.
#[derive(Clone, Debug)]
pub struct MatchLogits {
    /// `[B, 1]`.
    positive: Tensor,
    /// All columns, including the positive one, each `[B, n]`.
    columns: Vec<Tensor>,
}

/// Hard negatives: items that are negatives of single users.
#[derive(Clone, Debug)]
pub struct HardNegatives {
    /// The items, `[H, E]`.
    pub items: Tensor,
    /// The user of every item, `[H]`, an integer below the number of users.
    pub users: Tensor,
    /// The item's column among those of its user, `[H]`, an integer below `slots`. Unique per user.
    pub slots: Tensor,
    /// Columns of hard negatives.
    pub slot_count: usize,
}

impl MatchLogits {
    /// Every user `[B, E]` with the items `[B, E]` of all users: `B` columns, with the user's own on the diagonal.
    #[track_caller]
    pub fn in_batch(users: impl AsRef<Tensor>, items: impl AsRef<Tensor>, temperature: f64) -> Self {
        let (users, items) = (users.as_ref(), items.as_ref());
        let positive = own(users, items, temperature);
        Self { positive, columns: vec![all(users, items, temperature)] }
    }

    /// Every user `[B, E]` with its own item of `positives` `[B, E]`, with all `negatives` `[S, E]`, and with its hard negatives:
    /// `1 + S + slot_count` columns, the first of which is the user's own. Slots without a hard negative are `-1e32`.
    #[track_caller]
    pub fn sampled(
        users: impl AsRef<Tensor>,
        positives: impl AsRef<Tensor>,
        negatives: impl AsRef<Tensor>,
        hard: Option<&HardNegatives>,
        temperature: f64,
    ) -> Self {
        let (users, positives, negatives) = (users.as_ref(), positives.as_ref(), negatives.as_ref());
        let positive = own(users, positives, temperature);
        let mut columns = vec![positive.clone(), all(users, negatives, temperature)];
        columns.extend(hard.map(|hard| hard.similarities(users, temperature)));
        Self { positive, columns }
    }

    /// All columns, concatenated, `[B, N]`.
    #[track_caller]
    pub fn columns(&self, scope: &Scope) -> Tensor {
        scope.concat(&self.columns.iter().collect::<Vec<_>>(), 1)
    }

    /// Softmax cross entropy with the user's own item as label, `log sum_j e^(s_j) - s`, `[B]`.
    #[track_caller]
    pub fn cross_entropy(&self) -> Tensor {
        let largest = self.columns.iter().map(|part| part.max(1)).reduce(|a, b| a.maximum(b));
        let largest = largest.unwrap_or_else(|| self.positive.clone()).detach();
        let sums = self.columns.iter().map(|part| (part - &largest).exp().sum(1)).reduce(|a, b| a + b);
        let sum = sums.unwrap_or_else(|| self.positive.clone());
        (sum.log() + (largest - &self.positive)).reshape([self.positive.dim(0)])
    }
}

/// The similarity of every user with the item of the same row, `[B, 1]`.
#[track_caller]
fn own(users: &Tensor, items: &Tensor, temperature: f64) -> Tensor {
    users.require("match", "temperature", temperature > 0.0, "above 0", temperature);
    items.require_shape("match", "items", users.shape());
    (users * items).sum(1) * temperature.recip()
}

/// The similarity of every user with every item, `[B, N]`.
#[track_caller]
fn all(users: &Tensor, items: &Tensor, temperature: f64) -> Tensor {
    users.matmul(&items.transpose(0, 1)) * temperature.recip()
}

impl HardNegatives {
    /// `[B, slot_count]`
    #[track_caller]
    fn similarities(&self, users: &Tensor, temperature: f64) -> Tensor {
        let own = own(&users.gather(&self.users), &self.items, temperature);
        let slots = self.slot_count as i64;
        let (count, table) = (own.dim(0), users.dim(0) * slots);
        let place = &self.users * slots + &self.slots;
        let at_place = |x: &Tensor| {
            x.reshape([count.clone()]).index_add(&place, &table).reshape([users.dim(0), self.slot_count.into()])
        };
        let is_taken = at_place(&self.slots.ge(0).cast(DType::F32));
        at_place(&own) + (1.0 - is_taken) * ABSENT
    }
}
