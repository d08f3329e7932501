//! Schedules: ways to run a loop nest, on a GPU and on the CPU.
//!
//! A schedule takes the nests of its form and says why it does not take others.

mod fold;
mod halves;
mod map;
mod pairs;
mod product;
mod reduction;

pub use fold::{Fold, Folded};
pub use map::Map;
pub use pairs::{Attention, Dot, Element, PairSum, Pairs};
pub use product::Product;
pub use reduction::{Reduced, Reduction};

use crate::cost::{Count, Sizes};
use crate::lower::Refusal;
use crate::plan::Nest;
use rewire_graph::pointwise::ExprId;
use std::ops::Deref;

/// How a nest runs: which of its axes, sums and factors play which part, by their positions.
#[derive(Clone, Debug, PartialEq)]
pub enum Schedule {
    /// Point by point.
    Map(Map),
    /// Row by row, in passes over the columns.
    Reduction(Reduction),
    /// Tile by tile of a product.
    Product(Product),
    /// Tile by tile of the pairs of two axes.
    Pairs(Pairs),
    /// Point by point, each of which passes over rows.
    Fold(Fold),
}

/// Takes a nest, or says why not.
type Choice = fn(&Nest) -> Result<Schedule, Refusal>;

/// All schedules by name, in the order in which they are tried.
const CHOICES: [(&str, Choice); 5] = [
    ("map", |nest| Map::of(nest).map(Schedule::Map)),
    ("reduction", |nest| Reduction::of(nest).map(Schedule::Reduction)),
    ("product", |nest| Product::of(nest).map(Schedule::Product)),
    ("pairs", |nest| Pairs::of(nest).map(Schedule::Pairs)),
    ("fold", |nest| Fold::of(nest).map(Schedule::Fold)),
];

impl Schedule {
    /// Chooses the schedule of a nest.
    ///
    /// # Errors
    /// [`Refusal`] if no schedule takes the nest.
    pub fn of(nest: &Nest) -> Result<Self, Refusal> {
        let mut refusals = vec![];
        for (_, choice) in CHOICES {
            match choice(nest) {
                Ok(schedule) => return Ok(schedule),
                Err(limit @ Refusal::Limit(_)) => return Err(limit),
                Err(Refusal::Form(reason)) => refusals.push(reason),
            }
        }
        // The reason of the schedule that is nearest to what the nest combines.
        let contractions = nest.accumulations.iter().filter(|sum| sum.factors.len() > 1).count();
        let nearest = if nest.accumulations.is_empty() { 0 } else { (1 + contractions).min(3) };
        Err(Refusal::Form(refusals.swap_remove(nearest)))
    }

    /// The schedule of a given name, for a nest that it takes. Plans of earlier versions call sums over pairs `attention`, too.
    ///
    /// # Errors
    /// [`Refusal`] if there is no such schedule, or if it does not take the nest.
    pub fn named(name: &str, nest: &Nest) -> Result<Self, Refusal> {
        let current = if name == "attention" { "pairs" } else { name };
        let found = CHOICES.iter().find(|(known, _)| *known == current);
        let (_, choice) = found.ok_or_else(|| Refusal::Form(format!("there is no schedule `{name}`")))?;
        choice(nest)
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        let position = match self {
            Self::Map(_) => 0,
            Self::Reduction(_) => 1,
            Self::Product(_) => 2,
            Self::Pairs(_) => 3,
            Self::Fold(_) => 4,
        };
        CHOICES[position].0
    }
}

/// A schedule with the nest that it is of.
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

/// What every schedule tells of its nest.
pub trait Analysis {
    /// What the nest moves and computes at some sizes.
    fn count(&self, sizes: &Sizes) -> Count;

    /// True if all factors of its products may be f16 on matrix hardware.
    fn takes_halves(&self) -> bool {
        false
    }
}

/// True if expressions depend on coordinates, given a bit each.
fn depends(nest: &Nest, ids: impl IntoIterator<Item = ExprId>, coords: u32) -> bool {
    ids.into_iter().any(|id| nest.body.dag.coords(id) & coords != 0)
}
