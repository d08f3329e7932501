use rewire_graph::nest::Extent;
use rewire_graph::op::Input;
use rewire_graph::shape::ShapeValues;
use rewire_graph::{Dim, Graph, Layout, Ordered, SizeSource, Symbol};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Number of samples assumed for unknown runs.
pub const ASSUMED_SAMPLES: u64 = 8;
/// Total number of rows assumed for unknown runs.
pub const ASSUMED_ROWS: u64 = 1024;

/// Sizes for counting a kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sizes {
    symbols: BTreeMap<Symbol, i64>,
    /// The value of all other symbols.
    other: i64,
    /// By operand, the entries of known host vectors.
    host: HashMap<u16, Vec<i64>>,
    /// Rows per sample if the offsets are unknown.
    sample: u64,
}

impl Sizes {
    /// The sizes of a run, with the entries of known host vectors by operand.
    pub(crate) fn with_host(values: &ShapeValues, host: HashMap<u16, Vec<i64>>) -> Self {
        Self { symbols: values.symbols.clone(), other: 0, host, sample: 0 }
    }

    /// The sizes of a run, with samples as long as in [`Sizes::assumed`].
    pub fn of_values(values: &ShapeValues) -> Self {
        Self { symbols: values.symbols.clone(), sample: ASSUMED_ROWS / ASSUMED_SAMPLES, ..Self::default() }
    }

    /// Every symbol has the same value; every sample has the same number of rows.
    pub fn uniform(symbol: u64, sample: u64) -> Self {
        Self { other: i64::try_from(symbol).unwrap_or(i64::MAX), sample, ..Self::default() }
    }

    /// Assumed sizes of a graph: [`ASSUMED_SAMPLES`] samples of equal length with [`ASSUMED_ROWS`] rows in total.
    /// Extents of host inputs are numbers of samples, host scalars are rows of one sample, and all other sizes are
    /// total rows.
    pub fn assumed(graph: &Graph) -> Self {
        let host: HashSet<&str> = graph
            .ids()
            .filter_map(|id| graph.op::<Input>(id))
            .filter(|input| input.ty.layout == Layout::Host)
            .map(|input| input.name.as_str())
            .collect();
        let value = |source: &SizeSource| match source {
            SizeSource::Extent { input, .. } if host.contains(input.as_str()) => ASSUMED_SAMPLES,
            SizeSource::Scalar(_) => ASSUMED_ROWS / ASSUMED_SAMPLES,
            _ => ASSUMED_ROWS,
        };
        let symbols = (0..).map(Symbol).zip(graph.sizes().iter().map(|size| value(&size.source) as i64));
        Self { symbols: symbols.ordered_map(), sample: ASSUMED_ROWS / ASSUMED_SAMPLES, ..Self::default() }
    }

    /// Rows per sample, if all samples are equal.
    pub(crate) fn sample(&self) -> u64 {
        self.sample
    }

    /// Pairs of rows and keys of the same sample, if all samples are equal.
    pub(crate) fn pairs(&self, rows: u64, keys: u64) -> u64 {
        rows.saturating_mul(keys.min(self.sample))
    }

    /// The value of a size; 0 if unknown.
    pub(crate) fn extent(&self, dim: &Dim) -> u64 {
        let value = |symbol| Some(self.symbols.get(&symbol).copied().unwrap_or(self.other));
        dim.evaluate(value).unwrap_or(0) as u64
    }

    pub(crate) fn product(&self, dims: &[Dim]) -> u64 {
        dims.iter().map(|dim| self.extent(dim)).fold(1, u64::saturating_mul)
    }

    /// True if all samples are assumed to be equal.
    pub(crate) fn samples_are_alike(&self) -> bool {
        self.host.is_empty()
    }

    pub(crate) fn host(&self, operand: u16) -> Option<&[i64]> {
        self.host.get(&operand).map(Vec::as_slice)
    }

    /// Rows of each of `samples` samples.
    pub(crate) fn rows(&self, range: &Extent, samples: u64) -> Vec<u64> {
        let samples = samples as usize;
        let equal = |rows| vec![rows; samples];
        match range {
            Extent::Dense(dim) => equal(self.extent(dim)),
            Extent::Ragged { offsets } => match self.host(*offsets) {
                Some(offsets) => {
                    let lengths = offsets.windows(2).map(|pair| u64::try_from(pair[1] - pair[0]).unwrap_or(0));
                    lengths.take(samples).collect()
                }
                None => equal(self.sample),
            },
        }
    }
}
