use super::tracer::CaseTracer;
use super::{Outputs, ReplayError};
use rewire_hstu::modules::{Features, InputPreprocessor, InputPreprocessorConfig, Sequence, width};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Init {
    uih_embedding_dim: usize,
    #[serde(default)]
    target_embedding_dim: usize,
    output_embedding_dim: usize,
    #[serde(default)]
    contextual_feature_dim: usize,
    #[serde(default)]
    max_contextual_seq_len: usize,
    #[serde(default)]
    contextual_group_name: String,
    #[serde(default)]
    name: String,
    input_preprocessor: InputPreprocessorConfig,
}

pub(super) fn preprocessor(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let init: Init = case.init()?;
    let contextual = (init.max_contextual_seq_len > 0).then_some(init.contextual_group_name.as_str());
    let features = features(case, &init.name, contextual, &init.input_preprocessor)?;
    let preprocessor = InputPreprocessor {
        config: init.input_preprocessor,
        uih_embedding_dim: init.uih_embedding_dim,
        target_embedding_dim: init.target_embedding_dim,
        output_embedding_dim: init.output_embedding_dim,
        contextual_feature_dim: init.contextual_feature_dim,
        max_contextual_seq_len: init.max_contextual_seq_len,
    };
    preprocessor.check()?;
    width("output_embedding_dim", preprocessor.output_embedding_dim)?;
    let sequence = preprocessor.forward(&case.scope, &features);
    let size = |dim: rewire_graph::Dim| case.scope.host_size(dim);
    let named = [
        ("output_max_seq_len", sequence.max_seq_len.clone()),
        ("output_total_uih_len", size(sequence.total_uih_len())),
        ("output_total_targets", size(sequence.targets.total.clone())),
        ("output_seq_lengths", sequence.rows.lengths.clone()),
        ("output_seq_offsets", sequence.rows.offsets.clone()),
        ("output_seq_timestamps", sequence.timestamps.clone()),
        ("output_seq_embeddings", sequence.embeddings.clone()),
        ("output_num_targets", sequence.targets.lengths.clone()),
    ];
    Ok(named.map(|(name, tensor)| (name.to_owned(), tensor)).into())
}

/// The features that a preprocessor reads, by the reference's keys.
pub(super) fn features(
    case: &CaseTracer,
    name: &str,
    contextual: Option<&str>,
    config: &InputPreprocessorConfig,
) -> Result<Features, ReplayError> {
    let uih = if name.is_empty() { "uih" } else { name };
    let mut history = sequence(case, uih)?;
    if let Some(encoder) = config.action_encoder() {
        let rows = &history.rows.total;
        history.actions = Some(case.column(&format!("{uih}_action.sequence"), rows)?);
        if encoder.encoder().reads_watchtimes() {
            let watchtimes = format!("{uih}_watchtime.sequence");
            history.watchtimes = case.optional(&watchtimes, |name| case.column(name, rows))?;
        }
    }
    let candidates = if config.reads_candidates() { Some(sequence(case, "candidate")?) } else { None };
    let batch = std::slice::from_ref(&history.rows.batch);
    let contextual = match contextual {
        Some(group) => Some(case.input(group, batch)?),
        None => None,
    };
    Ok(Features { uih: history, candidates, contextual })
}

fn sequence(case: &CaseTracer, name: &str) -> Result<Sequence, ReplayError> {
    let rows = case.lengths(&format!("{name}.sequence_length"))?;
    let embeddings = case.input(&format!("{name}.sequence"), std::slice::from_ref(&rows.total))?;
    let timestamps = case.column(&format!("{name}_timestamp.sequence"), &rows.total)?;
    Ok(Sequence { embeddings, rows, timestamps, actions: None, watchtimes: None })
}
