use rewire_graph::{DType, Ragged, Scope, Tensor};

/// All pairs of a query row and a key row of the same sample, for every head. Masks are traced over these pairs.
///
/// ```
/// use rewire_graph::{DType, Scope};
/// use rewire_hstu::ops::{Attention, Pairs, hstu_mha};
/// let scope = Scope::new();
/// let rows = scope.offsets("offsets");
/// let [q, k, v] = ["q", "k", "v"].map(|name| scope.input(name, DType::F32, &[rows.total.clone(), 2.into(), 16.into()]));
/// let every_other = |pairs: &Pairs| {
///     let distance = pairs.row() - pairs.key();
///     distance.modulo(&scope.scalar(DType::I32, 2.0)).equal(&scope.scalar(DType::I32, 0.0))
/// };
/// let out = hstu_mha(&scope, [&q, &k, &v], &rows, &Attention::new(0.25, 100), every_other);
/// assert!(scope.finish(&[("out", out)]).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct Pairs {
    scope: Scope,
    rows: Ragged,
    keys: Ragged,
    heads: usize,
    row: Tensor,
    key: Tensor,
    /// Number of rows of every sample, `[B]`.
    lengths: Tensor,
}

impl Pairs {
    /// Pairs of queries and keys. The queries `rows` are the last of the rows `keys` of their samples.
    pub(super) fn new(scope: &Scope, rows: &Ragged, keys: &Ragged, heads: usize) -> Self {
        let mut row = rows.row_index(keys, heads);
        if rows.lengths.value() != keys.lengths.value() {
            let queries = rows.lengths.at_most(&keys.lengths, "number of queries");
            row = &row + rows.per_sample(keys, heads, &(&keys.lengths - &queries));
        }
        Self::of(scope, rows, keys, heads, (row, keys.lengths.clone()))
    }

    /// Pairs of queries and keys. The queries `rows` follow the rows `keys` of their samples.
    pub(super) fn after(scope: &Scope, rows: &Ragged, keys: &Ragged, heads: usize) -> Self {
        let row = rows.row_index(keys, heads) + rows.per_sample(keys, heads, &keys.lengths);
        Self::of(scope, rows, keys, heads, (row, &keys.lengths + &rows.lengths))
    }

    fn of(scope: &Scope, rows: &Ragged, keys: &Ragged, heads: usize, (row, lengths): (Tensor, Tensor)) -> Self {
        let key = rows.key_index(keys, heads);
        Self { scope: scope.clone(), rows: rows.clone(), keys: keys.clone(), heads, row, key, lengths }
    }

    /// The queries.
    pub(super) fn queries(&self) -> &Ragged {
        &self.rows
    }

    /// The keys.
    pub(super) fn keys(&self) -> &Ragged {
        &self.keys
    }

    /// The scope to trace in.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Number of heads.
    pub fn heads(&self) -> usize {
        self.heads
    }

    /// Number of rows of every sample, `[B]`.
    pub fn lengths(&self) -> &Tensor {
        &self.lengths
    }

    /// Position of the query in its sample, `I32`.
    pub fn row(&self) -> &Tensor {
        &self.row
    }

    /// Position of the key in its sample, `I32`.
    pub fn key(&self) -> &Tensor {
        &self.key
    }

    /// Broadcasts one value per sample, `[B]`, to the pairs.
    pub fn per_sample(&self, values: &Tensor) -> Tensor {
        self.rows.per_sample(&self.keys, self.heads, values)
    }

    /// Broadcasts one value per query, `[rows]`, or per head and query, `[H, rows]`, to the pairs.
    pub fn per_row(&self, values: &Tensor) -> Tensor {
        self.rows.per_row(&self.keys, self.heads, values)
    }

    /// Broadcasts one value per key, `[keys]`, or per head and key, `[H, keys]`, to the pairs.
    pub fn per_key(&self, values: &Tensor) -> Tensor {
        self.rows.per_key(&self.keys, self.heads, values)
    }

    /// An `I32` constant.
    pub fn int(&self, value: usize) -> Tensor {
        self.scope.scalar(DType::I32, value as f64)
    }
}

/// The mask of HSTU, causal or bidirectional. Distances treat the contextual prefix as one position, and the targets as one position.
#[derive(Clone, Debug)]
pub struct StandardMask {
    /// Rows attend only to earlier rows; if false, to rows on both sides.
    pub causal: bool,
    /// Number of targets `[B]`, which attend only to history and themselves.
    pub num_targets: Option<Tensor>,
    /// Maximum attention distance; 0 for no limit.
    pub max_attn_len: usize,
    /// Length of the contextual prefix, whose rows attend to each other and to all history.
    pub contextual_seq_len: usize,
    /// With `max_attn_len`: the number of last positions that are not limited by it.
    pub min_full_attn_seq_len: usize,
}

impl Default for StandardMask {
    fn default() -> Self {
        Self { causal: true, num_targets: None, max_attn_len: 0, contextual_seq_len: 0, min_full_attn_seq_len: 0 }
    }
}

impl StandardMask {
    /// True for the pairs where the query attends to the key.
    pub fn trace(&self, pairs: &Pairs) -> Tensor {
        let end = pairs.per_sample(&self.end(pairs));
        let (row, key) = (self.id(pairs, pairs.row(), &end), self.id(pairs, pairs.key(), &end));
        let signed = &row - &key;
        let distance = if self.causal { signed } else { signed.abs() };
        let mut mask = pairs.row().equal(pairs.key()).or(distance.gt(pairs.int(0)));
        if self.max_attn_len > 0 {
            let mut near = distance.le(pairs.int(self.max_attn_len));
            if self.min_full_attn_seq_len > 0 {
                near = near.or(row.ge(&(&end - pairs.int(self.min_full_attn_seq_len))));
            }
            mask = mask.and(&near);
        }
        if self.contextual_seq_len > 0 {
            mask = mask.or(row.equal(pairs.int(0)).and(key.lt(&end)));
        }
        mask
    }

    /// The position id of the targets, `[B]` on the host. It equals the number of distinct ids before them.
    fn end(&self, pairs: &Pairs) -> Tensor {
        let history = match &self.num_targets {
            Some(targets) => pairs.lengths() - targets.at_most(pairs.lengths(), "num_targets"),
            None => pairs.lengths().clone(),
        };
        match self.contextual_seq_len {
            0 | 1 => history,
            context => &history - (context - 1) as f64,
        }
    }

    /// The position id that distances are computed from: 0 for contextual rows, `end` for targets.
    fn id(&self, pairs: &Pairs, position: &Tensor, end: &Tensor) -> Tensor {
        let id = match self.contextual_seq_len {
            0 | 1 => position.clone(),
            context => (position - pairs.int(context - 1)).maximum(pairs.int(0)),
        };
        if self.num_targets.is_some() { id.minimum(end) } else { id }
    }
}

/// A mask of two key intervals per row: keys below `f[h, 0, row]`, and keys in `f[h, 1, row] .. f[h, 2, row]`.
#[derive(Clone, Debug)]
pub struct IntervalMask {
    /// The bounds, `[H, 3, rows]` of `I32`, where `rows` counts the rows of all samples.
    pub attn_func: Tensor,
}

impl IntervalMask {
    /// True for the pairs where the query attends to the key.
    pub fn trace(&self, pairs: &Pairs) -> Tensor {
        let rows = pairs.rows.total.clone();
        self.attn_func.require_shape("hstu_mha", "attn_func", &[pairs.heads().into(), 3.into(), rows.clone()]);
        let bound = |n| pairs.per_row(&self.attn_func.slice(1, n, 1).reshape(&[pairs.heads().into(), rows.clone()]));
        let key = pairs.key();
        key.lt(bound(0)).or(bound(1).le(key).and(key.lt(bound(2))))
    }
}
