use crate::scope_tags::{ScopeId, ScopeTags};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Add, Mul, Sub};

/// A size that is known only when a graph runs: a batch size, a total, a maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbol(pub u32);

/// An extent of a tensor: a constant plus integer multiples of symbols.
///
/// Two dims of one scope are the same size exactly when they compare equal.
///
/// ```
/// use rewire_graph::{Dim, Symbol};
/// let tokens = Dim::symbol(Symbol(0));
/// assert_eq!(tokens.clone() + 2.into() + tokens.clone(), tokens * 2 + 2.into());
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "StoredDim")]
pub struct Dim {
    constant: i64,
    terms: BTreeMap<Symbol, i64>,
    #[serde(skip)]
    origins: ScopeTags,
}

/// The serialised form of a dim; multiples may be 0.
#[derive(Deserialize)]
struct StoredDim {
    constant: i64,
    terms: BTreeMap<Symbol, i64>,
}

impl From<StoredDim> for Dim {
    fn from(StoredDim { constant, mut terms }: StoredDim) -> Self {
        terms.retain(|_, factor| *factor != 0);
        Self { constant, terms, origins: ScopeTags::default() }
    }
}

impl Dim {
    /// Exclusive bound of constants and multiples in a graph, which keeps arithmetic on them exact.
    pub const LIMIT: i64 = 1 << 48;

    /// True if the constant and all multiples are below [`Dim::LIMIT`]; false after an overflow.
    pub fn is_exact(&self) -> bool {
        let exact = |n: i64| n.unsigned_abs() < Self::LIMIT.unsigned_abs();
        exact(self.constant) && self.terms.values().all(|&factor| exact(factor))
    }

    /// The size named by `symbol`.
    pub fn symbol(symbol: Symbol) -> Self {
        Self { terms: BTreeMap::from([(symbol, 1)]), ..Self::default() }
    }

    /// The size `name` of a scope.
    pub(crate) fn of_scope(symbol: Symbol, scope: Option<ScopeId>, name: &str) -> Self {
        let origins = scope.map(|scope| ScopeTags::new(scope, name)).unwrap_or_default();
        Self { origins, ..Self::symbol(symbol) }
    }

    /// The name of a size in this dim that belongs to another scope than `own`.
    pub(crate) fn foreign(&self, own: ScopeId) -> Option<&str> {
        self.origins.foreign(own)
    }

    /// Drops the origins if no size is left, or if all sizes belong to one scope.
    fn normalized(mut self) -> Self {
        if self.terms.is_empty() && !self.origins.is_mixed() {
            self.origins = ScopeTags::default();
        }
        self
    }

    /// The value if the dim is a constant.
    pub fn as_const(&self) -> Option<usize> {
        if self.terms.is_empty() { usize::try_from(self.constant).ok() } else { None }
    }

    /// The symbol, if the dim is exactly one symbol.
    pub fn as_symbol(&self) -> Option<Symbol> {
        match (self.constant, self.terms.len(), self.terms.first_key_value()) {
            (0, 1, Some((&symbol, 1))) => Some(symbol),
            _ => None,
        }
    }

    /// The symbols of the dim with their multiples.
    pub fn terms(&self) -> impl Iterator<Item = (Symbol, i64)> + '_ {
        self.terms.iter().map(|(&symbol, &factor)| (symbol, factor))
    }

    /// The constant part.
    pub fn constant(&self) -> i64 {
        self.constant
    }

    /// The value of the dim, given the value of each symbol; `None` on overflow, for a negative result, or for a symbol
    /// without a value.
    pub fn evaluate(&self, mut value: impl FnMut(Symbol) -> Option<i64>) -> Option<usize> {
        let mut sum = self.constant;
        for (&symbol, &factor) in &self.terms {
            sum = sum.checked_add(value(symbol)?.checked_mul(factor)?)?;
        }
        usize::try_from(sum).ok()
    }

    /// Displays the dim with the names of its symbols, `2*rows+1`; a symbol without a name is `s0`.
    pub fn display<'a>(&self, name: impl Fn(Symbol) -> Option<&'a str>) -> String {
        let mut text = String::new();
        for (symbol, factor) in self.terms() {
            let separator = if text.is_empty() || factor < 0 { "" } else { "+" };
            let symbol = name(symbol).map_or_else(|| format!("s{}", symbol.0), str::to_owned);
            match factor {
                1 => text.extend([separator, &symbol]),
                _ => text.extend([separator, &factor.to_string(), "*", &symbol]),
            }
        }
        if self.constant != 0 || text.is_empty() {
            let separator = if text.is_empty() || self.constant < 0 { "" } else { "+" };
            text.extend([separator, &self.constant.to_string()]);
        }
        text
    }

    /// The product of two dims; `None` if neither is a constant, or on overflow.
    pub fn product(&self, other: &Self) -> Option<Self> {
        let (factor, dim) = match (self.terms.is_empty(), other.terms.is_empty()) {
            (true, _) => (self.constant, other),
            (_, true) => (other.constant, self),
            _ => return None,
        };
        Some(dim.clone() * factor).filter(Self::is_exact)
    }

    /// The dim divided by a constant; `None` if a part does not divide evenly.
    pub fn divide(&self, divisor: i64) -> Option<Self> {
        let even = |n: i64| if n.checked_rem(divisor)? == 0 { n.checked_div(divisor) } else { None };
        let mut terms = self.terms.clone();
        for factor in terms.values_mut() {
            *factor = even(*factor)?;
        }
        Some(Self { constant: even(self.constant)?, terms, origins: self.origins.clone() })
    }
}

impl From<usize> for Dim {
    fn from(value: usize) -> Self {
        Self { constant: i64::try_from(value).unwrap_or(i64::MAX), ..Self::default() }
    }
}

impl From<&Dim> for Dim {
    fn from(value: &Dim) -> Self {
        value.clone()
    }
}

impl Add for Dim {
    type Output = Self;
    fn add(mut self, other: Self) -> Self {
        self.constant = self.constant.saturating_add(other.constant);
        for (symbol, factor) in other.terms {
            let sum = self.terms.entry(symbol).or_insert(0);
            *sum = sum.saturating_add(factor);
        }
        self.terms.retain(|_, factor| *factor != 0);
        self.origins = std::mem::take(&mut self.origins).join(other.origins);
        self.normalized()
    }
}

impl Mul<i64> for Dim {
    type Output = Self;
    fn mul(mut self, factor: i64) -> Self {
        self.constant = self.constant.saturating_mul(factor);
        self.terms.values_mut().for_each(|n| *n = n.saturating_mul(factor));
        self.terms.retain(|_, n| *n != 0);
        self.normalized()
    }
}

impl Sub for Dim {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + other * -1
    }
}

impl fmt::Debug for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dim").field("constant", &self.constant).field("terms", &self.terms).finish()
    }
}

impl fmt::Display for Dim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (symbol, factor) in self.terms() {
            match factor {
                1 => write!(f, "{separator}s{}", symbol.0)?,
                _ => write!(f, "{separator}{factor}*s{}", symbol.0)?,
            }
            separator = "+";
        }
        if self.constant != 0 || self.terms.is_empty() {
            write!(f, "{separator}{}", self.constant)?;
        }
        Ok(())
    }
}
