use rewire_graph::{DType, Dim, Layout, Ragged, Tensor};

/// A division of rows into samples, with its lengths in this run.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    pub ragged: Ragged,
    pub lengths: Vec<i64>,
}

impl Rows {
    pub fn total(&self) -> usize {
        self.lengths.iter().sum::<i64>() as usize
    }
}

/// The tensors that a program has so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    pub floats: Vec<Tensor>,
    pub integers: Vec<Tensor>,
    pub truths: Vec<Tensor>,
    pub rows: Vec<Rows>,
    pub last: Option<Tensor>,
}

impl Pool {
    pub fn add(&mut self, tensor: Tensor) {
        if !is_small(&tensor) && !tensor.is_poisoned() {
            return;
        }
        self.last = Some(tensor.clone());
        match tensor.dtype() {
            dtype if dtype.is_float() => self.floats.push(tensor),
            DType::Bool => self.truths.push(tensor),
            _ => self.integers.push(tensor),
        }
    }

    /// The newest float tensor that fits, or an older one.
    pub fn float(&self, pick: u8, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        choose(&self.floats, pick, fits)
    }

    pub fn integer(&self, pick: u8, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
        choose(&self.integers, pick, fits)
    }

    /// Any tensor, including those of the host.
    pub fn any(&self, pick: u8) -> Tensor {
        let host = self.rows.iter().flat_map(|rows| [&rows.ragged.lengths, &rows.ragged.offsets]);
        let all: Vec<&Tensor> = host.chain(&self.truths).chain(&self.integers).chain(&self.floats).collect();
        all[all.len() - 1 - usize::from(pick) % all.len()].clone()
    }

    /// A division whose total is the first extent of `x`.
    pub fn rows_of(&self, x: &Tensor) -> Option<Rows> {
        self.rows.iter().find(|rows| x.rank() > 0 && rows.ragged.total == x.dim(0)).cloned()
    }
}

fn choose(pool: &[Tensor], pick: u8, fits: impl Fn(&Tensor) -> bool) -> Option<Tensor> {
    let fitting: Vec<&Tensor> = pool.iter().filter(|tensor| fits(tensor)).collect();
    let back = if pick < 100 { 0 } else { usize::from(pick - 100) };
    let count = fitting.len();
    fitting.get(count.checked_sub(1 + back % count.max(1))?).map(|tensor| (*tensor).clone())
}

/// True for tensors that the interpreter computes fast.
fn is_small(tensor: &Tensor) -> bool {
    let (mut constant, mut symbols, mut factors) = (1, 0, 0);
    for dim in tensor.shape() {
        match dim.as_const() {
            Some(extent) => constant *= extent,
            None => {
                symbols += 1;
                factors += dim.terms().map(|(_, n)| n.abs()).sum::<i64>();
            }
        }
    }
    constant <= 600 && symbols <= 2 && factors <= 60 && (symbols < 2 || constant <= 4)
}

pub(super) fn is_device(tensor: &Tensor) -> bool {
    tensor.ty().layout == Layout::Device
}

/// True if two shapes broadcast as in numpy.
pub(super) fn broadcasts(a: &[Dim], b: &[Dim]) -> bool {
    let one: Dim = 1.into();
    a.iter().rev().zip(b.iter().rev()).all(|(x, y)| x == y || *x == one || *y == one)
}
