use crate::args::{Apply, Common};
use crate::error::CliError;
use crate::output::Output;
use rewire::delta::apply;
use serde::Serialize;
use std::time::Instant;

/// The summary of applied deltas.
#[derive(Debug, Serialize)]
struct Applied {
    file: String,
    deltas: usize,
    /// The version of the model.
    version: String,
    /// The number of its latest delta.
    number: u64,
    seconds: f64,
}

pub fn run(options: &Apply, common: &Common, output: &mut Output) -> Result<(), CliError> {
    let begun = Instant::now();
    let version = apply(&options.model, &options.deltas, &options.out)?;
    let applied = Applied {
        file: options.out.display().to_string(),
        deltas: options.deltas.len(),
        version: version.to_string(),
        number: version.number(),
        seconds: begun.elapsed().as_secs_f64(),
    };
    match common.json {
        true => output.json(&applied)?,
        false => {
            let Applied { file, deltas, number, seconds, .. } = applied;
            output.line(format_args!("{file}: {deltas} deltas, up to delta {number}, {seconds:.2} s"))?;
        }
    }
    Ok(())
}
