use super::preprocessor::features;
use super::tracer::CaseTracer;
use super::{Outputs, ReplayError};
use rewire_hstu::modules::{Features, HstuConfig, HstuMatchEncoder, HstuTransducer};

fn pipeline_features(case: &CaseTracer, config: &HstuConfig) -> Result<Features, ReplayError> {
    let contextual = (config.max_contextual_seq_len > 0).then_some(config.contextual_group_name.as_str());
    features(case, &config.name, contextual, &config.input_preprocessor)
}

pub(super) fn transducer(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let config: HstuConfig = case.init()?;
    let features = pipeline_features(case, &config)?;
    let output = HstuTransducer::new(config)?.forward(&case.scope, &features);
    let full = output.full.map(|full| ("full_embeddings".to_owned(), full));
    Ok(std::iter::once(("candidate_embeddings".to_owned(), output.candidates)).chain(full).collect())
}

pub(super) fn match_encoder(case: &CaseTracer) -> Result<Outputs, ReplayError> {
    let config: HstuConfig = case.init()?;
    let features = pipeline_features(case, &config)?;
    let query_time = match config.query_time_key.as_str() {
        "" => None,
        key => Some(case.column(key, &features.uih.rows.batch)?),
    };
    let encoder = HstuMatchEncoder::new(config)?;
    let users = encoder.forward(&case.scope, &features, query_time.as_ref());
    Ok(vec![("user_embeddings".to_owned(), users)])
}
