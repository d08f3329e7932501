//! Parses configurations in protobuf text format.

use super::lines::{self, Lines};
use super::{Pipeline, PipelineError, json};
use miette::Diagnostic;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use std::sync::OnceLock;

/// The compiled descriptors of `proto/tzrec.proto`.
const DESCRIPTORS: &[u8] = include_bytes!("../../proto/tzrec.bin");

/// Parses the text of a file.
pub(super) fn parse(text: &str) -> Result<Pipeline, PipelineError> {
    let error = |at: usize, reason: String| {
        let (line, column) = lines::position(text, at);
        PipelineError::Syntax { line, column, reason }
    };
    // The parser is recursive, so the nesting depth is checked first.
    let lines = Lines::scan(text).map_err(|at| error(at, format!("more than {} nested messages", lines::DEPTH)))?;
    let message = DynamicMessage::parse_text_format(root()?, text).map_err(|found| {
        let label = found.labels().and_then(|mut labels| labels.next());
        error(label.map_or(text.len(), |label| label.offset()), found.to_string())
    })?;
    Ok(Pipeline { json: json::object(&message), lines })
}

/// The message descriptor of a whole configuration.
fn root() -> Result<MessageDescriptor, PipelineError> {
    static ROOT: OnceLock<Result<MessageDescriptor, String>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let pool = DescriptorPool::decode(DESCRIPTORS).map_err(|error| error.to_string())?;
        pool.get_message_by_name("tzrec.EasyRecConfig").ok_or_else(|| "no EasyRecConfig".to_owned())
    });
    root.clone().map_err(PipelineError::Descriptors)
}
