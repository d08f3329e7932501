//! Blocks shared by the model families.

use rewire_graph::{DType, Dim, Ragged, Scope, Tensor};

/// The score of a pair that does not attend: its weight is 0.
const ABSENT: f64 = -1e9;

/// Rows of a cache that sequences read: the row numbers, concatenated, and the number per sequence.
#[derive(Clone, Debug)]
pub(crate) struct CachedRows {
    pub index: Tensor,
    pub rows: Ragged,
}

impl CachedRows {
    /// Declares the inputs `name` and `name.lengths`.
    pub fn input(scope: &Scope, name: &str, batch: &Dim) -> Self {
        let rows = scope.lengths(&format!("{name}.lengths"), batch);
        Self { index: scope.input(name, DType::U32, [rows.total.clone()]), rows }
    }
}

/// Number of query heads, number of key and value heads, and columns per head.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heads {
    pub queries: usize,
    pub keys: usize,
    pub width: usize,
}

impl Heads {
    /// Splits columns into heads: `[rows, heads, width]`.
    pub fn split(&self, x: &Tensor, heads: usize) -> Tensor {
        x.reshape([x.dim(0), heads.into(), self.width.into()])
    }

    /// Keys or values, with each head repeated for its group of query heads.
    fn repeated(&self, x: &Tensor) -> Tensor {
        let (rows, group) = (x.dim(0), self.queries / self.keys);
        let grouped = x.reshape([rows.clone(), self.keys.into(), 1.into(), self.width.into()]);
        let repeated = grouped.broadcast([rows.clone(), self.keys.into(), group.into(), self.width.into()]);
        repeated.reshape([rows, self.queries.into(), self.width.into()])
    }
}

/// The queries and keys of an attention layer.
#[derive(Clone, Debug)]
pub(crate) struct Pairs {
    pub rows: Ragged,
    pub keys: Ragged,
    pub heads: Heads,
}

impl Pairs {
    /// Positions of queries and of keys. Queries begin after the `before` rows of their sequence.
    pub fn positions(&self, before: Option<&Ragged>) -> [Tensor; 2] {
        let heads = self.heads.queries;
        let row = self.rows.row_index(&self.keys, heads);
        let row = match before {
            Some(before) => row + self.rows.per_sample(&self.keys, heads, &before.lengths),
            None => row,
        };
        [row, self.rows.key_index(&self.keys, heads)]
    }

    /// Softmax attention of queries `[rows, H A]` over keys and values `[keys, G A]`: `[rows, H A]`.
    pub fn attention(&self, [q, k, v]: [&Tensor; 3], bias: Option<&Tensor>, keep: Option<&Tensor>) -> Tensor {
        let Self { rows, keys, heads } = self;
        let [k, v] = [k, v].map(|x| heads.repeated(x));
        let scores = heads.split(q, heads.queries).scores(&k, rows, keys);
        let scores = bias.map_or_else(|| scores.clone(), |bias| &scores + bias);
        let mixed = scores.softmax_scores(keep, rows, keys).weighted_sum(&v, rows, keys);
        mixed.reshape([rows.total.clone(), (heads.queries * heads.width).into()])
    }
}

/// The queries and keys of whole sequences, padded to the longest of `N` rows. Biases of distances are then a tensor, which
/// has a gradient.
#[derive(Clone, Debug)]
pub(crate) struct Padded {
    rows: Ragged,
    longest: Dim,
    heads: Heads,
    /// From queries to keys, `[N, N]`.
    pub distance: Tensor,
    /// True for the pairs that attend, `[B, 1, N, N]`.
    keep: Tensor,
    /// The score of other pairs.
    absent: Tensor,
}

impl Padded {
    /// Queries attend to all keys of their sequence, or to earlier ones and their own.
    pub fn new(scope: &Scope, rows: &Ragged, heads: Heads, looks_ahead: bool) -> Self {
        let (longest, one) = (rows.max().as_dim(), Dim::from(1));
        let position = scope.iota(longest.clone());
        let key = position.reshape([&one, &longest]);
        let distance = &key - position.reshape([&longest, &one]);
        let lengths = rows.lengths.cast(key.dtype());
        let exists = key.lt(lengths.reshape([rows.batch.clone(), 1.into(), 1.into(), 1.into()]));
        let keep = if looks_ahead { exists } else { exists.and(distance.le(0)) };
        Self { rows: rows.clone(), longest, heads, distance, keep, absent: scope.scalar(DType::F32, ABSENT) }
    }

    /// The values `[H, N, N]` of a table `[V, H]` at rows `[N, N]`, as a matmul: its gradient has no scattered sums.
    pub fn by_pair(scope: &Scope, table: &Tensor, row: &Tensor) -> Tensor {
        let (n, count) = (row.dim(0), table.dim(0));
        let hit = row.reshape([&n, &n, &Dim::from(1)]).equal(scope.iota(count).cast(row.dtype()));
        hit.cast(DType::F32).matmul(table).permute(&[2, 0, 1])
    }

    /// Softmax attention of queries, keys and values `[rows, H A]` with biases `[H, N, N]`: `[rows, H A]`.
    pub fn attention(&self, parts: [&Tensor; 3], bias: &Tensor) -> Tensor {
        let Self { rows, longest, heads, keep, absent, .. } = self;
        let padded = |x| heads.split(x, heads.queries).jagged_to_padded(rows, longest, 0.0).permute(&[0, 2, 1, 3]);
        let [q, k, v] = parts.map(padded);
        let scores = q.matmul(k.transpose(2, 3)) + bias;
        let mixed = keep.select(scores, absent).softmax(3).matmul(v).permute(&[0, 2, 1, 3]).padded_to_jagged(rows);
        mixed.reshape([rows.total.clone(), (heads.queries * heads.width).into()])
    }
}

/// A cache of keys and values; a run reads some of its rows and writes others.
pub(crate) struct Cache<'a> {
    /// The names of the states for keys and values.
    pub names: [&'a str; 2],
    /// The number of rows.
    pub rows: &'a Dim,
}

impl Cache<'_> {
    fn state(&self, scope: &Scope, name: &str, width: usize) -> Tensor {
        scope.state(name, DType::F32, [self.rows.clone(), width.into()])
    }

    /// Reads the keys and values of the rows `index`.
    pub fn read(&self, scope: &Scope, index: &Tensor, width: usize) -> [Tensor; 2] {
        self.names.map(|name| self.state(scope, name, width).gather(index))
    }

    /// Writes keys and values to the rows `index`.
    pub fn write(&self, scope: &Scope, index: &Tensor, kv: [&Tensor; 2]) {
        for (name, rows) in self.names.into_iter().zip(kv) {
            self.state(scope, name, rows.width());
            scope.set_state_rows(name, index, rows);
        }
    }
}

/// `x W^T`, plus a bias if `bias` is set, with the parameters of the module `name`.
pub(crate) fn linear(scope: &Scope, name: &str, x: &Tensor, out: usize, bias: bool) -> Tensor {
    let weight = scope.weight(&format!("{name}.weight"), [out, x.width()]);
    let bias = bias.then(|| scope.weight(&format!("{name}.bias"), [out]));
    x.linear(&weight, bias.as_ref())
}

/// The RMS norm of the module `name`.
pub(crate) fn rms_norm(scope: &Scope, name: &str, x: &Tensor, eps: f64) -> Tensor {
    x.rms_norm(&scope.weight(&format!("{name}.weight"), [x.width()]), eps)
}
