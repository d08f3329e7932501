//! The page with the drivers' statistics of all kernels.

use super::Aim;
use crate::shell::{output_of, root};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::process::Command;

/// A generated table of the page: the lines around it, and its header. Rows begin with the name of a GPU.
struct Table {
    marks: [&'static str; 2],
    header: &'static str,
}

const TABLES: [Table; 3] = [
    Table {
        marks: ["<!-- drivers: written by `cargo xtask families` -->", "<!-- end of drivers -->"],
        header: "| GPU | driver | compiled on |\n| --- | --- | --- |\n",
    },
    Table {
        marks: ["<!-- families: written by `cargo xtask families` -->", "<!-- end of families -->"],
        header: "| GPU | schedule | kernels | subgroup | spilling | worst | registers | occupancy | matrices |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    },
    Table {
        marks: ["<!-- aims: written by `cargo xtask families` -->", "<!-- end of aims -->"],
        header: "| GPU | aim | kernels | products below it | pairs below it | the least |\n| --- | --- | --- | --- | --- | --- |\n",
    },
];

impl Table {
    /// The page with the rows of some GPUs, in the order of `titles`. Rows of other GPUs remain.
    fn with_rows(&self, page: &str, titles: &[&str], rows: &[(&str, String)]) -> Result<String, String> {
        let [begin, end] = self.marks;
        let (head, rest) = page.split_once(begin).ok_or_else(|| format!("the page lacks `{begin}`"))?;
        let (table, tail) = rest.split_once(end).ok_or_else(|| format!("the page lacks `{end}`"))?;
        let mut text = format!("{head}{begin}\n\n{}", self.header);
        for title in titles {
            match rows.iter().find(|(own, _)| own == title) {
                Some((_, rows)) => text += rows,
                None => {
                    let own = table.lines().filter(|line| line.starts_with(&format!("| {title} |")));
                    own.for_each(|line| text.extend([line, "\n"]));
                }
            }
        }
        Ok(text + "\n" + end + tail)
    }
}

/// Statistics of the kernels of a GPU.
#[derive(Default)]
pub(super) struct Figures {
    kernels: Vec<Kernel>,
    failed: usize,
}

struct Kernel {
    schedule: String,
    /// True for kernels of golden cases, false for those of the standard workloads.
    is_of_case: bool,
    subgroup: Option<u64>,
    registers: Option<u64>,
    spills: u64,
    occupancy: Option<u64>,
    has_matrices: bool,
}

impl Figures {
    /// Parses the output of `rewire compile --json`. A shader that several workloads share is counted once.
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
                is_of_case: record["work"].as_str().is_some_and(|work| work.ends_with(".safetensors")),
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

    /// The rows of a GPU in the first table, one per schedule.
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

    /// The number of matmul and attention kernels with an occupancy below the aim, among all kernels and among the standard workloads.
    fn below(&self, title: &str, Aim { occupancy, unit }: Aim) -> String {
        let row = |name: &str, kernels: &dyn Fn(&Kernel) -> bool| {
            let of = |schedule: &str| {
                let own: Vec<u64> = self
                    .kernels
                    .iter()
                    .filter(|kernel| kernel.schedule == schedule && kernels(kernel))
                    .filter_map(|kernel| kernel.occupancy)
                    .collect();
                let below = own.iter().filter(|figure| **figure < occupancy).count();
                (format!("{below} of {}", own.len()), own.into_iter().min())
            };
            let [(products, least_product), (pairs, least_pair)] = ["product", "pairs"].map(of);
            let least = least_product.into_iter().chain(least_pair).min();
            let least = least.map_or_else(|| "-".to_owned(), |least| least.to_string());
            format!("| {title} | {occupancy} {unit} | {name} | {products} | {pairs} | {least} |\n")
        };
        row("all", &|_| true) + &row("standard", &|kernel| !kernel.is_of_case)
    }
}

/// The statistics of a GPU on the page.
pub(super) struct Section {
    pub title: &'static str,
    /// The driver and its version.
    pub driver: String,
    pub aim: Option<Aim>,
    pub figures: Figures,
}

/// Writes the rows of some GPUs into `docs/gpus.md`. `titles` are all GPUs in order.
pub(super) fn write(sections: &[Section], titles: &[&str]) -> Result<(), String> {
    let path = root().join("docs/gpus.md");
    let failed = |error| format!("{}: {error}", path.display());
    let mut page = std::fs::read_to_string(&path).map_err(failed)?;
    let date = output_of(Command::new("date").args(["-u", "+%F"]))?;
    let rows = |section: &Section| {
        let driver = format!("| {} | {} | {} |\n", section.title, section.driver, date.trim());
        let below = section.aim.map(|aim| section.figures.below(section.title, aim));
        [driver, section.figures.rows(section.title), below.unwrap_or_default()]
    };
    let rows: Vec<_> = sections.iter().map(|section| (section.title, rows(section))).collect();
    for (number, table) in TABLES.iter().enumerate() {
        let own: Vec<_> = rows.iter().filter_map(|(title, rows)| Some((*title, rows.get(number)?.clone()))).collect();
        page = table.with_rows(&page, titles, &own)?;
    }
    std::fs::write(&path, page).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_other_gpus_remain() {
        let table = Table { marks: ["<a>", "<b>"], header: "| GPU | x |\n" };
        let page = "above\n<a>\n\n| GPU | x |\n| A | 1 |\n| A | 2 |\n| B | 3 |\n\n<b>\nbelow";
        let written = table.with_rows(page, &["A", "C", "B"], &[("C", "| C | 4 |\n".to_owned()), ("B", String::new())]);
        assert_eq!(written.unwrap(), "above\n<a>\n\n| GPU | x |\n| A | 1 |\n| A | 2 |\n| C | 4 |\n\n<b>\nbelow");
        assert!(table.with_rows("no table", &["A"], &[]).unwrap_err().contains("`<a>`"));
    }

    #[test]
    fn kernels_below_the_aim_are_counted_in_all_and_in_standard_workloads() {
        let kernel = |work: &str, schedule: &str, occupancy: u64| {
            let record =
                serde_json::json!({ "kernel": "k", "work": work, "schedule": schedule, "occupancy": occupancy });
            record.to_string() + "\n"
        };
        let lines = kernel("addmm", "product", 16)
            + &kernel("stu", "product", 6)
            + &kernel("stu", "pairs", 8)
            + &kernel("stu", "map", 1)
            + &kernel("a/case.safetensors", "product", 4);
        let aim = Aim { occupancy: 8, unit: "waves" };
        assert_eq!(
            Figures::of(&lines).below("RDNA", aim),
            "| RDNA | 8 waves | all | 2 of 3 | 0 of 1 | 4 |\n| RDNA | 8 waves | standard | 1 of 2 | 0 of 1 | 6 |\n"
        );
    }
}
