//! The page of the drivers' statistics on all kernels.

use crate::shell::root;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// The lines of the page that enclose generated text.
const MARKS: [&str; 2] = ["<!-- families: written by `cargo xtask families` -->", "<!-- end of families -->"];

/// Kernels of a family.
#[derive(Default)]
pub(super) struct Figures {
    kernels: Vec<Kernel>,
    failed: usize,
}

struct Kernel {
    schedule: String,
    subgroup: Option<u64>,
    registers: Option<u64>,
    spills: u64,
    occupancy: Option<u64>,
    has_matrices: bool,
}

impl Figures {
    /// Parses `rewire compile --json` output. A shader that several workloads share counts once.
    pub fn of(lines: &str) -> Self {
        let records = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut figures = Self::default();
        for record in records.filter(|record| record.get("kernel").is_some()) {
            if record.get("error").is_some() {
                figures.failed += 1;
                continue;
            }
            let number = |name: &str| record[name].as_u64();
            let spills = number("spills").max(number("scratch")).unwrap_or(0);
            figures.kernels.push(Kernel {
                schedule: record["schedule"].as_str().unwrap_or("custom").to_owned(),
                subgroup: number("subgroup"),
                registers: number("registers"),
                spills,
                occupancy: number("occupancy"),
                has_matrices: record["matrix"] == true,
            });
        }
        figures
    }

    pub fn kernels(&self) -> usize {
        self.kernels.len()
    }

    pub fn in_words(&self) -> String {
        let spilling = self.kernels.iter().filter(|kernel| kernel.spills > 0).count();
        format!("{} kernels, {spilling} spill, {} failed", self.kernels.len(), self.failed)
    }

    /// One row per schedule.
    fn rows(&self, title: &str) -> String {
        let mut by_schedule: BTreeMap<&str, Vec<&Kernel>> = BTreeMap::new();
        for kernel in &self.kernels {
            by_schedule.entry(&kernel.schedule).or_default().push(kernel);
        }
        let show = |figure: Option<u64>| figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string());
        let mut rows = String::new();
        for (schedule, kernels) in by_schedule {
            let sizes: BTreeSet<u64> = kernels.iter().filter_map(|kernel| kernel.subgroup).collect();
            let sizes: Vec<String> = sizes.iter().map(u64::to_string).collect();
            let spilling = kernels.iter().filter(|kernel| kernel.spills > 0).count();
            let most = kernels.iter().map(|kernel| kernel.spills).max().filter(|_| spilling > 0);
            let registers = kernels.iter().filter_map(|kernel| kernel.registers).max();
            let occupancy = kernels.iter().filter_map(|kernel| kernel.occupancy).min();
            let matrices = kernels.iter().filter(|kernel| kernel.has_matrices).count();
            let _ = writeln!(
                rows,
                "| {title} | {schedule} | {} | {} | {spilling} | {} | {} | {} | {matrices} |",
                kernels.len(),
                sizes.join(", "),
                show(most),
                show(registers),
                show(occupancy),
            );
        }
        rows
    }
}

/// Writes the table into `docs/gpus.md`.
pub(super) fn write(families: &[(&str, Figures)]) -> Result<(), String> {
    let path = root().join("docs/gpus.md");
    let failed = |error| format!("{}: {error}", path.display());
    let page = std::fs::read_to_string(&path).map_err(failed)?;
    let [begin, end] = MARKS;
    let (head, rest) = page.split_once(begin).ok_or_else(|| format!("{} lacks `{begin}`", path.display()))?;
    let (_, tail) = rest.split_once(end).ok_or_else(|| format!("{} lacks `{end}`", path.display()))?;
    let header = "| GPU | schedule | kernels | subgroup | spilling | worst | registers | occupancy | matrices |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
    let rows: String = families.iter().map(|(title, figures)| figures.rows(title)).collect();
    std::fs::write(&path, format!("{head}{begin}\n\n{header}{rows}\n{end}{tail}")).map_err(failed)
}
