use crate::args::{Common, Describe};
use crate::demo;
use crate::error::CliError;
use crate::output::Output;
use rewire::program::ModelFile;
use rewire::rank::Description;

/// Prints the inputs and outputs of a model.
pub fn run(options: &Describe, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let description = match &*options.model {
        Some(model) => ModelFile::open(model, common.mapping)?.describe()?,
        None => Description::parse("the built-in model", demo::CONFIG)?,
    };
    match common.json {
        true => Ok(output.json(&description)?),
        false => Ok(output.line(description.to_string().trim_end())?),
    }
}
