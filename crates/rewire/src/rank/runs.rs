//! What of a batch is run together, and the model's inputs for it.

use super::Batch;
use super::batch::Group;
use super::sequence::{Capacity, Layout, Part};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_hstu::models::dlrm_hstu::InputSpec;
use rewire_runtime::Inputs;

/// Sequences of one run.
#[derive(Debug, Default)]
pub(crate) struct Run<'a> {
    pub sequences: Vec<Sequence<'a>>,
}

/// A request's history and some of its candidates.
#[derive(Clone, Debug)]
pub(crate) struct Sequence<'a> {
    /// Position of the request in the batch.
    pub request: usize,
    /// Which events it has.
    pub layout: &'a Layout,
    /// Which candidates it has.
    pub part: &'a Part,
}

/// The runs of a batch, in the order of its requests: sequences follow one another until they have `most` rows. A longer one is
/// run alone.
pub(crate) fn runs<'a>(capacity: &Capacity, layouts: &'a [Layout], most: usize) -> Vec<Run<'a>> {
    let mut runs: Vec<Run<'a>> = Vec::new();
    let mut rows = 0;
    for (request, layout) in layouts.iter().enumerate() {
        for part in &layout.parts {
            let more = capacity.rows_of(layout, part);
            if runs.is_empty() || (rows > 0 && rows + more > most) {
                runs.push(Run::default());
                rows = 0;
            }
            runs.last_mut().into_iter().for_each(|run| run.sequences.push(Sequence { request, layout, part }));
            rows += more;
        }
    }
    runs
}

impl Run<'_> {
    /// Candidates of all sequences.
    pub fn candidates(&self) -> usize {
        self.sequences.iter().map(|sequence| sequence.part.len()).sum()
    }

    /// The model's inputs: everything back to back, sequence after sequence.
    pub fn inputs(&self, specs: &[InputSpec], batch: &Batch) -> Result<Inputs, TensorSizeError> {
        let mut inputs = Inputs::new();
        for spec in specs {
            // An id is below the rows of its table.
            let tensor = match spec.dtype {
                None => HostTensor::lengths(&self.gather(&spec.name, batch, |value| value)),
                Some(DType::U32) => vector(&self.gather(&spec.name, batch, |id| id as u32), HostTensor::u32)?,
                Some(_) => vector(&self.gather(&spec.name, batch, |value| value), HostTensor::i64)?,
            };
            inputs.insert(spec.name.clone(), tensor);
        }
        Ok(inputs)
    }

    /// The entries of the input `name`.
    fn gather<T>(&self, name: &str, batch: &Batch, convert: impl Fn(i64) -> T + Copy) -> Vec<T> {
        let (schema, rows) = (batch.schema(), batch.rows());
        let sequences = self.sequences.iter();
        let position = |group, name| schema.position(group, name).unwrap_or(usize::MAX);
        match name.split_once('.') {
            Some(("uih", "lengths")) => sequences.map(|one| convert(one.layout.events() as i64)).collect(),
            Some(("candidate", "lengths")) => sequences.map(|one| convert(one.part.len() as i64)).collect(),
            Some(("contextual", name)) => {
                let column = rows.contextual.column(position(Group::Contextual, name));
                sequences.map(|one| convert(column.get(one.request).copied().unwrap_or_default())).collect()
            }
            Some(("uih", name)) => {
                let mut values = Vec::with_capacity(sequences.clone().map(|one| one.layout.events()).sum());
                let column = position(Group::History, name);
                for one in sequences {
                    one.layout.append(rows.history.row(column, one.request).unwrap_or_default(), &mut values, convert);
                }
                values
            }
            Some(("candidate", name)) => {
                let mut values = Vec::with_capacity(self.candidates());
                let column = position(Group::Candidates, name);
                for one in sequences {
                    let list = rows.candidates.row(column, one.request).unwrap_or_default();
                    values.extend(one.part.positions().filter_map(|at| list.get(at).copied().map(convert)));
                }
                values
            }
            _ => Vec::new(),
        }
    }
}

fn vector<T>(
    values: &[T],
    make: impl Fn(Vec<usize>, &[T]) -> Result<HostTensor, TensorSizeError>,
) -> Result<HostTensor, TensorSizeError> {
    make(vec![values.len()], values)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::{batch, request};
    use rewire_hstu::models::dlrm_hstu::InputRows;
    use rewire_runtime::RunValue;

    #[test]
    fn sequences_lie_back_to_back() {
        let all = batch(&[request(3, 4), request(0, 1)]);
        let parts = [(0..2, Some(3)), (2..4, None), (0..1, None)].map(|(scored, clock)| Part { scored, clock });
        let layouts = [
            Layout { kept: 1..3, order: Some(vec![1, 2, 0]), parts: parts[..2].to_vec() },
            Layout { kept: 0..0, order: None, parts: parts[2..].to_vec() },
        ];
        let capacity = Capacity { rows: 12, contextual: 2, rows_per_event: 1, candidate_room: 1 };
        let spec = |name: &str, dtype| InputSpec {
            name: name.to_owned(),
            dtype,
            rows: InputRows::Users,
            num_embeddings: None,
        };
        let specs = [
            spec("uih.lengths", None),
            spec("candidate.lengths", None),
            spec("uih.timestamp", Some(DType::I64)),
            spec("candidate.item", Some(DType::U32)),
            spec("candidate.timestamp", Some(DType::I64)),
            spec("contextual.age", Some(DType::U32)),
        ];
        let all_in_one = runs(&capacity, &layouts, 100);
        assert_eq!(all_in_one.len(), 1);
        let inputs = all_in_one[0].inputs(&specs, &all).unwrap();
        let expect = |name: &str, values: &[i64]| match inputs.get(name) {
            Some(RunValue::Host(tensor)) => assert_eq!(tensor.to_i64(), values, "{name}"),
            _ => panic!("{name} is missing"),
        };
        expect("uih.lengths", &[2, 2, 0]);
        expect("candidate.lengths", &[3, 2, 1]);
        expect("uih.timestamp", &[102, 100, 102, 100]);
        expect("candidate.item", &[0, 1, 3, 2, 3, 0]);
        expect("contextual.age", &[1, 1, 1]);
        expect("candidate.timestamp", &[0; 6]);
        // Sequences of 7, 6 and 3 rows.
        let requests = |most| {
            let runs = runs(&capacity, &layouts, most);
            runs.iter().map(|run| run.sequences.iter().map(|one| one.request).collect()).collect::<Vec<Vec<usize>>>()
        };
        assert_eq!(requests(13), [vec![0, 0], vec![1]]);
        assert_eq!(requests(12), [vec![0], vec![0, 1]]);
        assert_eq!(requests(1), [[0], [0], [1]]);
    }
}
