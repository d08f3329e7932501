//! Imports archives of `torch.export.save`.

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

/// The operators with a lowering. Names include the overload if the lowering only supports that one.
pub fn operators() -> impl Iterator<Item = &'static str> {
    crate::aten::operators().map(|(name, _)| name)
}

/// The operator of a node's target: its name in [`operators`], otherwise the name without overload.
pub fn operator_of(target: &str) -> String {
    let target = target::Target::of(target);
    let full = format!("{}.{}", target.base, target.overload);
    if operators().any(|known| known == full) { full } else { target.base }
}

/// Reads the program in an archive.
///
/// ```
/// use rewire_import::pt2;
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/pt2/linear_relu/model.pt2");
/// let model = pt2::read(path.as_ref())?;
/// assert_eq!((model.inputs.len(), model.outputs.len()), (1, 1));
/// # Ok::<(), rewire_import::ImportError>(())
/// ```
///
/// # Errors
/// [`ImportError`] if the file is not an archive of a known version, contradicts its format, or has operators without a lowering.
pub fn read(path: &Path) -> Result<ImportedModel, ImportError> {
    let failed = |source| ImportError::Io { path: path.display().to_string(), source };
    parse(&std::fs::read(path).map_err(failed)?)
}

/// Like [`read`], for the bytes of an archive.
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
