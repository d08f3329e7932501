//! Prints a pipeline configuration as JSON: `cargo run -p rewire-tzrec --example pipeline_json -- pipeline.config`.

use rewire_tzrec::Pipeline;
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).ok_or("expected the path of a pipeline configuration")?;
    println!("{:#}", Pipeline::read(path.as_ref())?.json());
    Ok(())
}
