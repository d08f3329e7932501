use rewire::program::{ModelFile, Program, Results, TypedTensor};
use rewire::{Mapping, prelude::*};

fn run_own(x: HostTensor) -> Result<Results, Box<dyn std::error::Error>> {
    let file = ModelFile::open("own.rewire".as_ref(), Mapping::default())?;
    let mut own = Program::load(&file, &RankOptions::default())?;
    Ok(own.run([("x".to_owned(), TypedTensor::from(x))].into())?)
}
