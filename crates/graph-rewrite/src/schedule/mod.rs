//! Schedules: ways to run a loop nest, on a GPU and on the CPU.
//!
//! A schedule takes the nests of its form and says why it does not take others.

mod attention;
mod fold;
mod halves;
mod map;
mod pairs;
mod product;
mod reduction;

pub use attention::Attention;
pub use fold::{Fold, Folded};
pub use map::Map;
pub use pairs::{Dot, Element, PairSum, Pairs};
pub use product::Product;
pub use reduction::{Reduced, Reduction};

use crate::cost::{Count, Sizes};
use crate::lower::Refusal;
use crate::plan::Nest;
use rewire_graph::pointwise::ExprId;

/// Takes a nest, or says why not.
type Choice<'n> = fn(&'n Nest) -> Result<Schedule<'n>, Refusal>;

/// A nest with the way in which it runs.
#[derive(Clone, Debug)]
pub enum Schedule<'n> {
    /// Point by point.
    Map(Map<'n>),
    /// Row by row, in passes over the columns.
    Reduction(Reduction<'n>),
    /// Tile by tile of a product.
    Product(Product<'n>),
    /// Tile by tile of queries, over tiles of keys.
    Attention(Attention<'n>),
    /// Tile by tile of the pairs of two ragged axes.
    Pairs(Pairs<'n>),
    /// Point by point, each of which passes over rows.
    Fold(Fold<'n>),
}

impl<'n> Schedule<'n> {
    /// The schedule of a nest.
    ///
    /// # Errors
    /// [`Refusal`] tells why no schedule takes it.
    pub fn of(nest: &'n Nest) -> Result<Self, Refusal> {
        let choices: [Choice<'n>; 6] = [
            |nest| Map::of(nest).map(Self::Map),
            |nest| Reduction::of(nest).map(Self::Reduction),
            |nest| Product::of(nest).map(Self::Product),
            |nest| Attention::of(nest).map(Self::Attention),
            |nest| Pairs::of(nest).map(Self::Pairs),
            |nest| Fold::of(nest).map(Self::Fold),
        ];
        let mut refusals = vec![];
        for choice in choices {
            match choice(nest) {
                Ok(schedule) => return Ok(schedule),
                Err(limit @ Refusal::Limit(_)) => return Err(limit),
                Err(Refusal::Form(reason)) => refusals.push(reason),
            }
        }
        // The reason of the schedule that is nearest to what the nest combines.
        let contractions = nest.accumulations.iter().filter(|sum| sum.factors.len() > 1).count();
        let nearest = if nest.accumulations.is_empty() { 0 } else { (1 + contractions).min(4) };
        Err(Refusal::Form(refusals.swap_remove(nearest)))
    }
}

/// What every schedule tells of the nest that it takes.
trait Scheduled {
    /// What the schedule is called.
    fn name(&self) -> &'static str;

    /// What the nest moves and computes at some sizes.
    fn count(&self, sizes: &Sizes) -> Count;
}

impl Schedule<'_> {
    fn scheduled(&self) -> &dyn Scheduled {
        match self {
            Self::Map(nest) => nest,
            Self::Reduction(nest) => nest,
            Self::Product(nest) => nest,
            Self::Attention(nest) => nest,
            Self::Pairs(nest) => nest,
            Self::Fold(nest) => nest,
        }
    }

    /// What it is called.
    pub fn name(&self) -> &'static str {
        self.scheduled().name()
    }

    pub(crate) fn count(&self, sizes: &Sizes) -> Count {
        self.scheduled().count(sizes)
    }

    /// True if all factors of its products may be halves on matrix hardware.
    pub(crate) fn takes_halves(&self) -> bool {
        match self {
            Self::Product(kernel) => kernel.takes_halves(),
            Self::Attention(kernel) => kernel.takes_halves(),
            Self::Pairs(kernel) => kernel.takes_halves(),
            Self::Map(_) | Self::Reduction(_) | Self::Fold(_) => false,
        }
    }
}

/// True if expressions depend on coordinates, given a bit each.
fn depends(nest: &Nest, ids: impl IntoIterator<Item = ExprId>, coords: u32) -> bool {
    ids.into_iter().any(|id| nest.body.dag.coords(id) & coords != 0)
}
