//! Hard negatives: sampled items that are negatives of only one positive item of the batch. Rows have one positive item; rows of
//! `hstu_match` have several.

use rewire_features::{Cell, EncodeError, LabelColumn, NegativeRow, Problem, Problems};
use rewire_graph::{DType, HostTensor, Scope, Tensor};
use rewire_losses::HardNegatives;
use serde_json::Value;

/// The column of a table of negatives with a pair per hard negative: the index of its positive item in the batch, and its slot there.
pub(super) const INDICES: &str = "hard_neg_indices";

const ROWS: &str = "hard_negatives.rows";
const SLOTS: &str = "hard_negatives.slots";

/// A sampler with hard negatives, which are the last items of a row of negatives.
#[derive(Clone, Copy, Debug)]
pub(super) struct HardSampler {
    /// Maximum number of hard negatives per positive item.
    slots: usize,
}

impl HardSampler {
    /// Reads the hard negative sampler of a configuration; `None` if it has none.
    pub fn read(config: &Value) -> Result<Option<Self>, Problems> {
        let samplers = ["hard_negative_sampler", "hard_negative_sampler_v2"];
        let found = samplers.map(|name| format!("/data_config/{name}"));
        let Some(key) = found.iter().find(|key| config.pointer(key).is_some()) else { return Ok(None) };
        let key = format!("{key}/num_hard_sample");
        let slots = config.pointer(&key).and_then(Value::as_u64).and_then(|slots| u32::try_from(slots).ok());
        match slots.filter(|slots| *slots > 0) {
            Some(slots) => Ok(Some(Self { slots: slots as usize })),
            None => Err(Problems(vec![Problem::new(key, "must be at least 1")])),
        }
    }

    /// The hard negatives of the graph, with embeddings `items` `[H, E]`.
    pub fn traced(self, scope: &Scope, items: Tensor) -> HardNegatives {
        let [users, slots] = [ROWS, SLOTS].map(|name| scope.input(name, DType::U32, [Self::count(scope)]));
        HardNegatives { items, users, slots, slot_count: self.slots }
    }

    /// The number `H` of hard negatives of a batch.
    pub fn count(scope: &Scope) -> rewire_graph::Dim {
        scope.size("hard_negatives")
    }

    /// Encodes the inputs for a batch of `positives` positive items, whose row of negatives has `items` items.
    pub fn encode(
        self,
        positives: usize,
        items: i64,
        negatives: NegativeRow<'_, '_>,
    ) -> Result<[(String, HostTensor); 2], EncodeError> {
        let column = (negatives.column)(INDICES).ok_or_else(|| EncodeError::Missing { column: INDICES.to_owned() })?;
        let Self { slots } = self;
        let wrong = |expected: String, actual: String| EncodeError::Cell {
            column: INDICES.to_owned(),
            row: negatives.row,
            expected,
            actual,
        };
        let Some(Cell::List(pairs, range)) = column.cell(negatives.row) else {
            return Err(wrong("a list of pairs [row, slot]".to_owned(), "another value".to_owned()));
        };
        let count = range.len();
        let read = LabelColumn { name: INDICES, delimiter: Some(",") };
        let read = read.integers(pairs, range, "an index of at least 0", |index| u32::try_from(index).is_ok())?;
        if let Some(length) = read.lengths.iter().find(|length| **length != 2) {
            return Err(wrong("a list of pairs [row, slot]".to_owned(), format!("an entry of {length} elements")));
        }
        if count as i64 > items {
            return Err(wrong(format!("at most {items} pairs, one of each item"), count.to_string()));
        }
        let (first, second): (Vec<u32>, Vec<u32>) =
            read.values.chunks_exact(2).map(|pair| (pair[0] as u32, pair[1] as u32)).unzip();
        let mut taken = vec![];
        for pair in first.iter().zip(&second) {
            if *pair.0 as usize >= positives || *pair.1 as usize >= slots {
                let expected =
                    format!("rows below {positives}, one a positive item, and slots below num_hard_sample, {slots}");
                return Err(wrong(expected, format!("[{}, {}]", pair.0, pair.1)));
            }
            taken.push(pair);
        }
        taken.sort_unstable();
        if let Some([pair, _]) = taken.array_windows().find(|[a, b]| a == b) {
            return Err(wrong("each pair once".to_owned(), format!("[{}, {}] twice", pair.0, pair.1)));
        }
        Ok([(ROWS.to_owned(), HostTensor::vector(&first)), (SLOTS.to_owned(), HostTensor::vector(&second))])
    }
}
