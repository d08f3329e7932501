use super::Request;
use super::sequence::{Layout, Part};
use rewire_graph::{DType, HostTensor, TensorSizeError};
use rewire_hstu::models::dlrm_hstu::InputSpec;
use rewire_runtime::Inputs;

/// One entry of a batch: a user's history and some of their candidates.
#[derive(Clone, Debug)]
pub struct Sequence<'a> {
    /// The user.
    pub request: &'a Request,
    /// Which events it has.
    pub layout: &'a Layout,
    /// Which candidates it has.
    pub part: &'a Part,
}

/// The model's inputs for checked requests: everything back to back, sequence after sequence. Columns that a
/// request does not have are not read, and zeros stand for them.
pub fn inputs(specs: &[InputSpec], batch: &[Sequence<'_>]) -> Result<Inputs, TensorSizeError> {
    let mut inputs = Inputs::new();
    for spec in specs {
        let mut values = Vec::new();
        batch.iter().for_each(|sequence| sequence.append(&spec.name, &mut values));
        inputs.insert(spec.name.clone(), tensor(spec.dtype, &values)?);
    }
    Ok(inputs)
}

fn tensor(dtype: Option<DType>, values: &[i64]) -> Result<HostTensor, TensorSizeError> {
    let shape = vec![values.len()];
    match dtype {
        None => Ok(HostTensor::lengths(values)),
        Some(DType::U32) => {
            let ids: Vec<u32> = values.iter().map(|&id| u32::try_from(id).unwrap_or(u32::MAX)).collect();
            HostTensor::u32(shape, &ids)
        }
        Some(_) => HostTensor::i64(shape, values),
    }
}

impl Sequence<'_> {
    /// Adds the entries of the input `name`.
    fn append(&self, name: &str, values: &mut Vec<i64>) {
        let entry = |list: Option<&Vec<i64>>, at| list.and_then(|list| list.get(at)).copied().unwrap_or_default();
        match name.split_once('.') {
            Some(("uih", "lengths")) => values.push(self.layout.events.len() as i64),
            Some(("candidate", "lengths")) => values.push(self.part.len() as i64),
            Some(("contextual", column)) => {
                values.push(self.request.contextual.get(column).copied().unwrap_or_default());
            }
            Some(("uih", column)) => {
                let list = self.request.history.get(column);
                values.extend(self.layout.events.iter().map(|&at| entry(list, at)));
            }
            Some(("candidate", column)) => {
                let list = self.request.candidates.get(column);
                values.extend(self.part.positions().map(|at| entry(list, at)));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rank::testing::request;
    use rewire_hstu::models::dlrm_hstu::InputRows;
    use rewire_runtime::Value;

    #[test]
    fn sequences_lie_back_to_back() {
        let (first, second) = (request(3, 4), request(0, 1));
        let parts = [(0..2, Some(3)), (2..4, None), (0..1, None)].map(|(scored, clock)| Part { scored, clock });
        let layouts = [
            Layout { events: vec![2, 0], dropped: 1, sorted: true, parts: parts[..2].to_vec() },
            Layout { events: vec![], dropped: 0, sorted: false, parts: parts[2..].to_vec() },
        ];
        let batch = [
            Sequence { request: &first, layout: &layouts[0], part: &parts[0] },
            Sequence { request: &first, layout: &layouts[0], part: &parts[1] },
            Sequence { request: &second, layout: &layouts[1], part: &parts[2] },
        ];
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
        let inputs = inputs(&specs, &batch).unwrap();
        let expect = |name: &str, values: &[i64]| match inputs.get(name) {
            Some(Value::Host(tensor)) => assert_eq!(tensor.to_i64(), values, "{name}"),
            _ => panic!("{name} is missing"),
        };
        expect("uih.lengths", &[2, 2, 0]);
        expect("candidate.lengths", &[3, 2, 1]);
        expect("uih.timestamp", &[102, 100, 102, 100]);
        expect("candidate.item", &[0, 1, 3, 2, 3, 0]);
        expect("contextual.age", &[1, 1, 1]);
        expect("candidate.timestamp", &[0; 6]);
    }
}
