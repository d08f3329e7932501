//! Schedules: ways of running a loop nest, on a GPU and on the CPU.
//!
//! A schedule supports nests of its form and returns why it does not support others.

mod f16;
mod map;
mod pairs;
mod product;
mod reduction;
mod segmented_reduce;

pub use map::Map;
pub use pairs::{Attention, Dot, Element, PairReduction, PairSum};
pub use product::Product;
pub use reduction::{Reduced, Reduction};
pub use segmented_reduce::{SegmentedReduce, SegmentedSum};

use crate::count::{Count, Sizes};
use crate::error::NotLowerable;
use rewire_graph::nest::Nest;
use rewire_graph::pointwise::ExprId;
use std::ops::Deref;

/// Schedules a nest, or returns the reason why it is not supported.
type Choice = fn(&Nest) -> Result<Schedule, NotLowerable>;

/// Lists the schedules in the order in which they are tried.
macro_rules! schedules {
    ($($(#[$doc:meta])* $name:literal => $schedule:ident),*) => {
        /// The schedule of a nest: the roles of its axes, accumulations and factors, by position.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Schedule {
            $($(#[$doc])* $schedule($schedule)),*
        }

        /// All schedules by name.
        const CHOICES: &[(&str, Choice)] = &[$(($name, |nest| $schedule::of(nest).map(Schedule::$schedule))),*];

        impl Schedule {
            /// The name of the schedule.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$schedule(_) => $name),*
                }
            }

            /// Calls a function with the schedule bound to its nest.
            pub(crate) fn bound<T>(&self, nest: &Nest, call: impl FnOnce(&dyn Analysis) -> T) -> T {
                match self {
                    $(Self::$schedule(schedule) => call(&Bound { nest, schedule })),*
                }
            }
        }

        /// Evaluates an expression with the schedule of a nest, bound to it, as a variable.
        #[macro_export]
        macro_rules! bound {
            ($kernel:expr, $bound:ident => $value:expr) => {{
                let nest = std::ops::Deref::deref($kernel);
                match $kernel.schedule() {
                    $($crate::schedule::Schedule::$schedule(schedule) => {
                        let $bound = $crate::schedule::Bound { nest, schedule };
                        $value
                    })*
                }
            }};
        }
    };
}

schedules! {
    /// Pointwise.
    "map" => Map,
    /// Row by row, in passes over the columns.
    "reduction" => Reduction,
    /// Output tiles of a matmul.
    "product" => Product,
    /// Tiles of pairs of two axes.
    "pairs" => PairReduction,
    /// A segmented reduction: every point of the result loops over rows.
    "fold" => SegmentedReduce
}

impl Schedule {
    /// Chooses the schedule of a nest.
    ///
    /// # Errors
    /// [`NotLowerable`] if no schedule supports the nest.
    pub fn of(nest: &Nest) -> Result<Self, NotLowerable> {
        let mut refusals = vec![];
        for (_, choice) in CHOICES {
            match choice(nest) {
                Ok(schedule) => return Ok(schedule),
                Err(limit @ NotLowerable::Limit(_)) => return Err(limit),
                Err(NotLowerable::Form(reason)) => refusals.push(reason),
            }
        }
        // The reason of the schedule that is closest to the nest's reductions.
        let contractions = nest.accumulations.iter().filter(|sum| sum.factors.len() > 1).count();
        let nearest = if nest.accumulations.is_empty() { 0 } else { (1 + contractions).min(3) };
        Err(NotLowerable::Form(refusals.swap_remove(nearest)))
    }

    /// The schedule with a name, for a nest that it supports. Plans of earlier versions use the name `attention` for
    /// pair reductions, too.
    ///
    /// # Errors
    /// [`NotLowerable`] if the schedule does not exist, or does not support the nest.
    pub fn named(name: &str, nest: &Nest) -> Result<Self, NotLowerable> {
        let current = if name == "attention" { "pairs" } else { name };
        let found = CHOICES.iter().find(|(known, _)| *known == current);
        let (_, choice) = found.ok_or_else(|| NotLowerable::Form(format!("there is no schedule `{name}`")))?;
        choice(nest)
    }
}

/// A schedule with its nest.
#[derive(Debug)]
pub struct Bound<'k, S> {
    /// The nest.
    pub nest: &'k Nest,
    /// The schedule.
    pub schedule: &'k S,
}

impl<S> Clone for Bound<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Bound<'_, S> {}

impl<S> Deref for Bound<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.schedule
    }
}

/// Properties of a nest that every schedule provides.
pub trait Analysis {
    /// The traffic and operations of the nest at some sizes.
    fn count(&self, sizes: &Sizes) -> Count;

    /// True if it consists of matmuls.
    fn has_products(&self) -> bool {
        false
    }

    /// True if all operands of its matmuls may be f16 on matrix hardware.
    fn allows_f16_operands(&self) -> bool {
        false
    }
}

/// True if expressions depend on coordinates, given as a bit mask.
fn depends(nest: &Nest, ids: impl IntoIterator<Item = ExprId>, coords: u32) -> bool {
    ids.into_iter().any(|id| nest.body.dag.coords(id) & coords != 0)
}
