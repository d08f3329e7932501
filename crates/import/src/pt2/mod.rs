//! Archives of `torch.export.save`.

mod alias;
mod archive;
mod arguments;
mod expr;
mod frame;
mod inputs;
mod outputs;
mod schema;
mod target;

use crate::context::Context;
use crate::{ImportError, ImportedModel, Unsupported};
use archive::Archive;
use frame::Frame;
use inputs::Inputs;
use std::path::Path;

/// Reads the program of an archive.
///
/// # Errors
/// [`ImportError`] if the file is no archive of a known version, contradicts its format, or has operators without a lowering.
pub fn read(path: &Path) -> Result<ImportedModel, ImportError> {
    let failed = |source| ImportError::Io { path: path.display().to_string(), source };
    parse(&std::fs::read(path).map_err(failed)?)
}

/// As [`read`], of the bytes of an archive.
///
/// # Errors
/// As [`read`].
pub fn parse(bytes: &[u8]) -> Result<ImportedModel, ImportError> {
    let mut archive = Archive::open(bytes)?;
    let (name, program) = archive.program()?;
    let graph = &program.graph_module.graph;
    let mut unsupported = Unsupported::default();
    target::check(graph, &mut unsupported);
    let cx = Context::new();
    for (symbol, range) in &program.range_constraints {
        if symbol.chars().all(char::is_alphanumeric) {
            cx.sizes.borrow_mut().constrain(symbol, range.min_val, range.max_val);
        }
    }
    let mut inputs = Inputs::bind(&cx, &mut archive, &name, &program)?;
    let mut frame = Frame::new(&cx, graph, &mut unsupported, std::mem::take(&mut inputs.slots));
    frame.run()?;
    let results = outputs::collect(&mut frame, &program.graph_module.signature, &inputs)?;
    let parameters = frame.into_parameters();
    if !unsupported.is_empty() {
        return Err(ImportError::Unsupported(unsupported));
    }
    let outputs: Vec<(&str, rewire_graph::Tensor)> =
        results.tensors.iter().map(|(name, tensor)| (name.as_str(), tensor.clone())).collect();
    let finished = cx.scope.finish(&outputs);
    let graph =
        finished.map_err(|source| ImportError::Graph { node: "output".to_owned(), source: Box::new(source) })?;
    Ok(ImportedModel {
        graph,
        parameters,
        states: inputs.states,
        inputs: inputs.specs,
        outputs: results.outputs,
        mutations: results.mutations,
    })
}
