//! Options of a model: its storage types, and the placement of its parameters.

use super::values::bytes;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use rewire::Tables;
use rewire::graph::DType;
use rewire::rank::{CacheOptions, Precision, RankOptions};
use std::str::FromStr;

/// Placement of parameters.
#[derive(Debug, clap::Args)]
pub struct Placement {
    /// Placement of embedding tables: on the device; on the host, where looked-up rows are passed to the kernels; or
    /// auto: on the host if they exceed the limit of parameters.
    #[arg(long, default_value = "auto", value_name = "PLACE",
          value_parser = PossibleValuesParser::new(["auto", "device", "host"]).try_map(|text| text.parse::<Tables>()))]
    pub tables_on: Tables,
    /// Memory limit of all parameters, such as 8GiB; three quarters of the device's memory, or the host's free memory, if left out.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub parameter_bytes: Option<u64>,
    /// Memory limit of the cache for frequent rows of tables on the host, for tables in mapped files that are larger
    /// than the memory.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub hot_rows: u64,
    /// Memory limit, on the device, of copies of the rows of tables on the host that are looked up most often. Runs upload other
    /// rows. No effect on the CPU.
    #[arg(long, value_name = "BYTES", default_value = "0", value_parser = bytes)]
    pub device_rows: u64,
}

impl Placement {
    /// The model options for this placement.
    pub fn of_model(&self) -> RankOptions {
        RankOptions {
            tables: self.tables_on,
            parameter_bytes: self.parameter_bytes,
            hot_row_bytes: self.hot_rows,
            device_row_bytes: self.device_rows,
            ..RankOptions::default()
        }
    }
}

/// What is listed of devices.
#[derive(Debug, clap::Args)]
pub struct DeviceList {
    /// Run the self-test of matrix kernels on every listed device that has some, and list the tier that it leaves. Without
    /// it, the test precedes the first use of such kernels.
    #[arg(long)]
    pub test: bool,
}

/// Devices that share the work.
#[derive(Debug, clap::Args)]
pub struct Devices {
    /// GPUs that share the work, each with the whole model: numbers in the list of `rewire devices`, or all. Order and
    /// scores equal those of one GPU. If a device fails, the others take over its work.
    #[arg(long, value_name = "all|0,1")]
    pub devices: Option<Asked>,
}

/// The requested devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    All,
    /// Distinct adapter numbers.
    Numbers(Vec<usize>),
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::All);
        }
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        let numbers = numbers.map_err(|_| "expected `all`, or numbers of adapters such as 0,1".to_owned())?;
        match numbers.iter().enumerate().find(|(at, number)| numbers[..*at].contains(number)) {
            Some((_, twice)) => Err(format!("expected each adapter once, got {twice} twice")),
            None => Ok(Self::Numbers(numbers)),
        }
    }
}

/// Storage types of a model's floats.
#[derive(Debug, clap::Args)]
pub struct Stored {
    /// Storage of weights: f32, f16 or bf16, or matrices as int8 rows with a scale each, or as int4 with one per 32
    /// columns; the model's types if left out.
    #[arg(long, env = "REWIRE_DTYPE", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(WEIGHTS).try_map(|text| storage(&text)))]
    pub dtype: Option<DType>,
    /// Storage of embedding tables: f32, f16 or bf16, or int8, int4 or int2 rows with a scale per row; --dtype if left
    /// out.
    #[arg(long, env = "REWIRE_TABLES", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(TABLES).try_map(|text| storage(&text)))]
    pub tables: Option<DType>,
    /// Storage of the embedding tables of unpooled sequences in imported models; --tables if left out.
    #[arg(long, env = "REWIRE_SEQUENCE_TABLES", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(TABLES).try_map(|text| storage(&text)))]
    pub sequence_tables: Option<DType>,
    /// Storage of intermediate values between kernels: f32, f16 or bf16; f32 if left out, or the package's type.
    #[arg(long, env = "REWIRE_ACTIVATIONS", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(dtypes()).try_map(|text| dtype(&text)))]
    pub activations: Option<DType>,
    /// Accumulators of matmuls: f32; f16 for f16 operands on matrix hardware; or i32 in matmuls with weights, with both
    /// factors rounded to 8 bits. f32 if left out, or as in the package.
    #[arg(long, env = "REWIRE_SUMS", value_name = "DTYPE",
          value_parser = PossibleValuesParser::new(SUMS).try_map(|text| dtype(&text)))]
    pub sums: Option<DType>,
    /// Storage of the KV cache of histories, f32 or f16; a package's type if left out.
    #[arg(long, env = "REWIRE_CACHE", value_name = "DTYPE", default_value = "f32",
          value_parser = PossibleValuesParser::new(["f32", "f16"]).try_map(|text| dtype(&text)))]
    pub cache: DType,
}

/// Types that weights are stored in.
pub(super) const WEIGHTS: [&str; 5] = ["f32", "f16", "bf16", "int8", "int4"];

/// Accumulators of matmuls.
pub(super) const SUMS: [&str; 3] = ["f32", "f16", "i32"];

/// Storage types of tables.
pub(super) const TABLES: [&str; 6] = ["f32", "f16", "bf16", "int8", "int4", "int2"];

impl Stored {
    pub fn precision(&self) -> Precision {
        let (tables, sequence_tables) = (self.tables.or(self.dtype), self.sequence_tables);
        Precision { tables, sequence_tables, weights: self.dtype, activations: self.activations, sums: self.sums }
    }

    pub fn cache(&self) -> CacheOptions {
        CacheOptions { dtype: self.cache }
    }
}

/// Loading options of a model folder.
#[derive(Debug, clap::Args)]
pub struct Weights {
    /// Ignore tensors of the weights file that the configured model does not use.
    #[arg(long)]
    pub allow_unread: bool,
}

/// Names of the float storage types.
pub(super) fn dtypes() -> impl Iterator<Item = &'static str> {
    let stored = |dtype: &DType| dtype.is_float() && dtype.format().is_written() && *dtype != DType::I8;
    DType::ALL.into_iter().filter(stored).map(|dtype| dtype.format().name)
}

pub(super) fn dtype(text: &str) -> Result<DType, String> {
    DType::named(text).ok_or_else(|| "expected a storage type".to_owned())
}

/// Parses the storage type of parameters.
pub(super) fn storage(text: &str) -> Result<DType, String> {
    match text {
        "int8" => Ok(DType::Rows8),
        "int4" => Ok(DType::Rows4),
        "int2" => Ok(DType::Rows2),
        name => dtype(name),
    }
}
