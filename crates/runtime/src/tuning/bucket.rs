use rewire_graph::{Dim, Symbol};
use rewire_graph_rewrite::plan::Computation;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The sizes for which a tuning was measured: the value of every symbol of a kernel, rounded up to a power of two.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Bucket(String);

impl Bucket {
    /// The bucket of a run. Symbols without a value count as 0.
    pub fn new(symbols: &[Symbol], value: impl Fn(Symbol) -> Option<i64>) -> Self {
        let size = |symbol: &Symbol| u64::try_from(value(*symbol).unwrap_or(0)).unwrap_or(0);
        let sizes: Vec<String> =
            symbols.iter().map(|symbol| size(symbol).min(1 << 62).next_power_of_two().to_string()).collect();
        Self(if sizes.is_empty() { "constant".to_owned() } else { sizes.join("x") })
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// The symbols that the sizes of a kernel depend on, in the order of its operands and results.
pub(crate) fn symbols(computation: &Computation) -> Vec<Symbol> {
    let body = computation.body();
    let written = computation.written();
    let shapes = body.operands.iter().map(|operand| operand.shape.as_slice()).chain(written.iter().map(|w| w.shape));
    let dims = shapes.flatten().chain(&body.sizes);
    let mut found = Vec::new();
    for (symbol, _) in dims.flat_map(Dim::terms) {
        if !found.contains(&symbol) {
            found.push(symbol);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_up_to_a_power_of_two_share_a_bucket() {
        let bucket = |rows| Bucket::new(&[Symbol(0), Symbol(3)], |symbol| Some(if symbol.0 == 0 { 8 } else { rows }));
        assert_eq!(bucket(513).to_string(), "8x1024");
        assert_eq!(bucket(513), bucket(1024));
        assert_ne!(bucket(512), bucket(513));
        assert_eq!(bucket(-1).to_string(), "8x1");
        assert_eq!(Bucket::new(&[], |_| None).to_string(), "constant");
    }
}
