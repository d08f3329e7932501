/// How a map admits and evicts ids.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The maximum number of ids, each with a row.
    pub rows: u32,
    /// Which id is evicted when no row is free.
    pub eviction: Eviction,
    /// Which ids are admitted.
    pub admission: Admission,
    /// The interval in steps at which ids are admitted and evicted, at least 1.
    pub interval: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { rows: 0, eviction: Eviction::Lfu, admission: Admission::All, interval: 1 }
    }
}

/// The score that orders eviction. A new id replaces the id with the lowest score, if that is lower than its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Eviction {
    /// The count of the id.
    Lfu,
    /// The last step in which the id occurred.
    Lru,
    /// `count / (steps since the last occurrence + 1)^decay_exponent`
    DistanceLfu {
        /// The exponent.
        decay_exponent: f64,
    },
}

/// Which ids are admitted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Admission {
    /// All ids.
    All,
    /// Ids that pass a filter of their counts since the last admission. Other ids are not marked as used either.
    Filter(Threshold),
    /// Ids that occurred at least `threshold` times.
    Count {
        /// The minimum count.
        threshold: u64,
        /// The maximum number of waiting ids to count; beyond it, ids with the lowest counts are dropped.
        capacity: usize,
    },
}

/// A filter of ids by their counts since the last admission.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Counts above a number.
    Above(f64),
    /// Counts above the mean times a factor.
    AboveMean(f64),
    /// Each occurrence passes with this probability. Random numbers are derived from the id and the step.
    Probability(f64),
}

impl Threshold {
    /// Parses the reference's `threshold_filtering_func`: `lambda x: (x > N, N)`, or a call of `dynamic_threshold_filter`,
    /// `average_threshold_filter` or `probabilistic_threshold_filter` with `x` and its argument.
    ///
    /// ```
    /// use rewire_tables::Threshold;
    /// let parsed = Threshold::parse("lambda x: dynamic_threshold_filter(x, 1.5)");
    /// assert_eq!(parsed, Some(Threshold::AboveMean(1.5)));
    /// assert_eq!(Threshold::parse("lambda x: (x > 10, 10)"), Some(Threshold::Above(10.0)));
    /// assert_eq!(Threshold::parse("lambda x: print(x)"), None);
    /// ```
    pub fn parse(text: &str) -> Option<Self> {
        let compact: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
        let body = compact.strip_prefix("lambda")?;
        let (name, body) = body.split_once(':')?;
        let of = |function: &str, key: &str, default: f64| {
            let inner = body.strip_prefix(function)?.strip_prefix('(')?.strip_suffix(')')?.strip_prefix(name)?;
            match inner.strip_prefix(',') {
                None => inner.is_empty().then_some(default),
                Some(value) => {
                    value.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')).unwrap_or(value).parse().ok()
                }
            }
        };
        let dynamic = of("dynamic_threshold_filter", "threshold_skew_multiplier", 10.0).map(Self::AboveMean);
        let average = || of("average_threshold_filter", "", 1.0).map(Self::AboveMean);
        let random = || of("probabilistic_threshold_filter", "per_id_probability", 0.01).map(Self::Probability);
        let above = || {
            let (condition, _) = body.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
            condition.strip_prefix(name)?.strip_prefix('>')?.parse().ok().map(Self::Above)
        };
        let parsed = dynamic.or_else(average).or_else(random).or_else(above)?;
        let (Self::Above(value) | Self::AboveMean(value) | Self::Probability(value)) = parsed;
        value.is_finite().then_some(parsed)
    }
}
