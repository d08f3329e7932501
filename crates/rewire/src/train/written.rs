use super::{RankTrainError, TrainError, Trainer};
use crate::rank::RankError;
use crate::weights::{Described, Header, described, file_bytes, header};
use rewire_graph::{DType, HostTensor, StoredTypeError};
use std::collections::BTreeMap;
use std::io::Write;

/// A state of a trainer in a file.
pub(super) struct Written {
    pub state: String,
    /// The type of its elements in the file.
    pub dtype: DType,
}

/// Writes a safetensors file of states, which the trainer passes in parts, and of other tensors. All ranks of a
/// training participate; the first one writes the file to `out`.
pub(super) fn write(
    trainer: &Trainer,
    states: &BTreeMap<String, Written>,
    others: &BTreeMap<String, HostTensor>,
    metadata: &BTreeMap<String, String>,
    out: &mut dyn Write,
) -> Result<(), RankTrainError> {
    let shapes: BTreeMap<&str, &[usize]> = trainer.state_shapes().collect();
    let shape = |written: &Written| shapes.get(written.state.as_str()).map(|shape| shape.to_vec());
    let of_states = states.iter().filter_map(|(name, written)| Some((name.as_str(), (written.dtype, shape(written)?))));
    let of_others = others.iter().map(|(name, tensor)| (name.as_str(), described(tensor)));
    let tensors: Described = of_others.chain(of_states).collect();
    let Header { bytes, places, .. } = header(&tensors, metadata).map_err(RankError::from)?;
    let writes = trainer.group().is_none_or(|group| group.rank() == 0);
    let mut write = |bytes: &[u8]| if writes { out.write_all(bytes) } else { Ok(()) };
    write(&bytes).map_err(TrainError::Write)?;
    for (name, _) in places {
        match (states.get(name), others.get(name)) {
            (Some(Written { state, dtype }), _) => trainer.stream(state, &mut |part| {
                let part = part.clone().stored_as(*dtype).map_err(std::io::Error::other)?;
                write(&file_bytes(&part))
            })?,
            (None, Some(tensor)) => write(&file_bytes(tensor)).map_err(TrainError::Write)?,
            (None, None) => {}
        }
    }
    Ok(())
}

/// The error of a parameter that cannot be stored in a type.
pub(super) fn not_stored(name: &str, error: StoredTypeError) -> TrainError {
    match error {
        StoredTypeError::Size(error) => error.into(),
        StoredTypeError::Type { expected, actual, .. } => {
            TrainError::Parameter { name: name.to_owned(), expected: expected.to_string(), actual: actual.to_string() }
        }
    }
}
