//! Hostile input: fuzz targets. A target panics on a wrong result; an error is a valid result.

mod exported;
mod files;
mod graphs;
pub mod packages;
pub mod plans;

/// A reader, or a part of the engine, with untrusted input.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Parses or runs the input.
    pub run: fn(&[u8]),
    /// Initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// The maximum length of inputs.
    pub longest: usize,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "configuration", run: files::configuration, seeds: files::configurations, longest: 1 << 13 },
    Target { name: "safetensors", run: files::safetensors, seeds: files::safetensors_files, longest: 1 << 12 },
    Target { name: "json_lines", run: files::json_lines, seeds: files::json_lines_files, longest: 1 << 12 },
    Target { name: "parquet", run: files::parquet, seeds: files::parquet_files, longest: 1 << 14 },
    Target { name: "csv", run: files::csv, seeds: files::csv_files, longest: 1 << 12 },
    Target { name: "pipeline", run: files::pipelines, seeds: files::pipeline_files, longest: 1 << 13 },
    Target { name: "checkpoint", run: files::checkpoints, seeds: files::checkpoint_files, longest: 1 << 15 },
    Target { name: "golden", run: files::golden, seeds: files::golden_files, longest: 1 << 15 },
    Target { name: "exported", run: exported::programs, seeds: exported::program_files, longest: 1 << 15 },
    Target { name: "onnx", run: files::onnx, seeds: files::onnx_files, longest: 1 << 12 },
    Target { name: "plans", run: plans::run_changed, seeds: plans::seeds, longest: 1 << 6 },
    Target { name: "packages", run: packages::run_changed, seeds: packages::seeds, longest: 1 << 6 },
    Target { name: "tables", run: packages::run_apart, seeds: packages::seeds, longest: 1 << 6 },
    Target { name: "matching", run: packages::run_matching, seeds: packages::seeds, longest: 1 << 6 },
    Target { name: "graphs", run: graphs::run_graph, seeds: graphs::seeds, longest: 1 << 8 },
];

/// The target with a name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
