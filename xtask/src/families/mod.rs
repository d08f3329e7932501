//! Compiles kernels for GPUs that are not present, using the compilers in their drivers.
//!
//! Mesa's drivers run with a shim that emulates the kernel driver and the hardware. Kernels are compiled, but not run.

mod intel;
mod page;

use crate::drivers::{NewerLavapipe, debian_unstable, manifest};
use crate::programs::{self, Job};
use crate::setup;
use crate::shell::{cargo, output_of, root, run as run_command, tests as tests_of};
use intel::IntelDriver;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

/// A GPU that a driver can compile for.
struct Family {
    name: &'static str,
    /// Its common name.
    title: &'static str,
    driver: Driver,
    /// The GPU's name for the shim.
    value: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Driver {
    Radv,
    Nvk,
    Turnip,
    Honeykrisp,
    Anv,
}

impl Driver {
    /// The driver's library, its shim, and the environment variable that selects the GPU if there are several.
    fn files(self) -> (&'static str, &'static str, Option<&'static str>) {
        match self {
            Self::Radv => ("libvulkan_radeon.so", "libamdgpu_noop_drm_shim.so", Some("AMDGPU_GPU_ID")),
            Self::Nvk => ("libvulkan_nouveau.so", "libnouveau_noop_drm_shim.so", Some("NOUVEAU_CHIPSET")),
            Self::Turnip => ("libvulkan_freedreno.so", "libfreedreno_noop_drm_shim.so", Some("FD_GPU_ID")),
            Self::Honeykrisp => ("libvulkan_asahi.so", "libasahi_noop_drm_shim.so", None),
            Self::Anv => ("libvulkan_intel.so", "libintel_noop_drm_shim.so", Some("INTEL_STUB_GPU_PLATFORM")),
        }
    }
}

/// The intended minimum occupancy of matmul and attention kernels.
#[derive(Clone, Copy)]
struct Aim {
    occupancy: u64,
    unit: &'static str,
}

impl Family {
    fn aim(&self) -> Option<Aim> {
        let (occupancy, unit) = match self.name {
            "navi31" => (8, "subgroups of a SIMD"),
            "adreno740" => (8, "waves"),
            "m1" => (640, "threads"),
            "dg2" => (16, "invocations of a subgroup"),
            _ => return None,
        };
        Some(Aim { occupancy, unit })
    }
}

const fn family(name: &'static str, title: &'static str, driver: Driver, value: &'static str) -> Family {
    Family { name, title, driver, value }
}

const FAMILIES: [Family; 16] = [
    family("vega10", "AMD Vega (GCN 5)", Driver::Radv, "vega10"),
    family("navi21", "AMD RX 6800 (RDNA 2)", Driver::Radv, "navi21"),
    family("navi31", "AMD RX 7900 (RDNA 3)", Driver::Radv, "navi31"),
    family("phoenix", "AMD Ryzen 7040 (RDNA 3)", Driver::Radv, "phoenix"),
    family("gfx1201", "AMD RX 9070 (RDNA 4)", Driver::Radv, "gfx1201"),
    family("turing", "NVIDIA Turing, by NVK", Driver::Nvk, "162"),
    family("ampere", "NVIDIA Ampere, by NVK", Driver::Nvk, "172"),
    family("ada", "NVIDIA Ada, by NVK", Driver::Nvk, "192"),
    family("blackwell", "NVIDIA Blackwell, by NVK", Driver::Nvk, "1b2"),
    family("adreno660", "Qualcomm Adreno 660", Driver::Turnip, "660"),
    family("adreno740", "Qualcomm Adreno 740", Driver::Turnip, "740"),
    family("m1", "Apple M1, by Mesa", Driver::Honeykrisp, "m1"),
    family("tgl", "Intel Tiger Lake", Driver::Anv, "tgl"),
    family("mtl", "Intel Meteor Lake", Driver::Anv, "mtl"),
    family("dg2", "Intel Arc A770", Driver::Anv, "dg2"),
    family("lnl", "Intel Lunar Lake", Driver::Anv, "lnl"),
];

/// The GPUs that tests compile kernels for, if the Debian unstable tree has been fetched.
const TESTED: [&str; 4] = ["navi31", "ampere", "adreno740", "m1"];
/// The workloads whose kernels tests compile.
const TESTED_WORKS: [&str; 6] = ["demo", "attention", "softmax-attention", "addmm", "layer-norm", "stu-layer"];

/// Jobs that compile f32 and f16 kernels for the tested GPUs, of which none may spill, and kernels for Direct3D 12.
pub(crate) fn tests(tree: &NewerLavapipe) -> Result<Vec<Job>, String> {
    let mut direct3d = cargo(&tests_of(&["engine"]));
    direct3d.args(["--", "--ignored", "the_compiler_of_vkd3d"]).env("REWIRE_TEST_VKD3D", tree.tool("vkd3d-compiler")?);
    let mut jobs = vec![Job { title: "kernels in HLSL for Direct3D 12".to_owned(), command: direct3d }];
    for family in FAMILIES.iter().filter(|family| TESTED.contains(&family.name)) {
        for dtype in ["f32", "f16"] {
            let mut command = with_family(family, tree, None)?;
            command.args(["--kernel", "wgpu", "compile", "--deny-spills", "--dtype", dtype]).args(TESTED_WORKS);
            jobs.push(Job { title: format!("kernels in {dtype} for {}", family.title), command });
        }
    }
    Ok(jobs)
}

/// Runs the jobs of [`tests()`].
pub(crate) fn check() -> Result<(), String> {
    programs::run(tests(&prepared()?)?)
}

/// Builds the program and fetches the drivers.
fn prepared() -> Result<NewerLavapipe, String> {
    if !cfg!(target_os = "linux") {
        return Err("the drivers are made for Linux".into());
    }
    setup::run()?;
    run_command(cargo(&["build", "--workspace", "--bin", "rewire"]))?;
    let folder = debian_unstable()?;
    let tree = NewerLavapipe::of(&folder)?;
    match tree.libraries.join(Driver::Radv.files().1).exists() {
        true => Ok(tree),
        false => Err(format!("{} has no mesa-drm-shim: remove the folder and try again", folder.display())),
    }
}

/// Paths of the golden cases.
fn cases() -> Result<Vec<String>, String> {
    let folder = root().join("tests/golden");
    let failed = |error| format!("{}: {error}", folder.display());
    let mut cases = vec![];
    let mut folders = vec![folder.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "safetensors") {
                cases.push(path.display().to_string());
            }
        }
    }
    cases.sort();
    Ok(cases)
}

/// Compiles the kernels of the demo, the standard workloads and the golden cases for some GPUs, or for all of them, and writes their
/// rows of `docs/gpus.md`.
pub(crate) fn run(names: &[&str]) -> Result<(), String> {
    if let Some(unknown) = names.iter().find(|name| FAMILIES.iter().all(|family| family.name != **name)) {
        let known = FAMILIES.each_ref().map(|family| family.name).join(", ");
        return Err(format!("there is no family `{unknown}`: expected {known}"));
    }
    let tree = prepared()?;
    let wanted = |family: &&Family| names.is_empty() || names.contains(&family.name);
    let intel = FAMILIES.iter().filter(wanted).any(|family| family.driver == Driver::Anv);
    let intel = if intel { Some(IntelDriver::get()?) } else { None };
    let forward = cases()?;
    let backward = std::iter::once("--backward".to_owned()).chain(forward.clone()).collect();
    let works = [["demo", "--suite", "standard"].map(str::to_owned).to_vec(), forward, backward];
    let (families, found) = (Mutex::new(FAMILIES.iter().filter(wanted).enumerate()), Mutex::new(vec![]));
    let work = || {
        while let Some((number, family)) = families.lock().ok().and_then(|mut families| families.next()) {
            let section = section(family, &works, || with_family(family, &tree, intel.as_ref()));
            if let Ok(mut found) = found.lock() {
                found.push((number, section));
            }
        }
    };
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    let mut found = found.into_inner().unwrap_or_default();
    found.sort_by_key(|(number, _)| *number);
    let sections: Vec<_> = found.into_iter().map(|(_, section)| section).collect::<Result<_, _>>()?;
    page::write(&sections, &FAMILIES.each_ref().map(|family| family.title))
}

/// The statistics of a GPU: `program` is `rewire` with its driver.
fn section(
    family: &Family,
    works: &[Vec<String>],
    program: impl Fn() -> Result<Command, String>,
) -> Result<page::Section, String> {
    let first = output_of(program()?.args(["--json", "--kernel", "wgpu", "devices"]))?;
    let device: Value = serde_json::from_str(first.lines().next().unwrap_or_default())
        .map_err(|error| format!("{}: {error}", family.name))?;
    let mut told = String::new();
    for works in works {
        let mut command = program()?;
        command.args(["--json", "--kernel", "wgpu", "compile"]).args(works);
        let output = command.output().map_err(|error| format!("{}: {error}", family.name))?;
        let lines = String::from_utf8_lossy(&output.stdout);
        if page::Figures::of(&lines).kernels() == 0 {
            return Err(format!("{}: {}", family.name, String::from_utf8_lossy(&output.stderr)));
        }
        told += &lines;
    }
    let figures = page::Figures::of(&told);
    eprintln!("{}: {}", family.name, figures.in_words());
    let driver = device.get("driver").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(page::Section { title: family.title, driver, aim: family.aim(), figures })
}

/// The program with the driver of a GPU.
fn with_family(family: &Family, tree: &NewerLavapipe, intel: Option<&IntelDriver>) -> Result<Command, String> {
    let program = root().join("target/debug/rewire");
    let (library, shim, variable) = family.driver.files();
    let mut command = match (family.driver, intel) {
        (Driver::Anv, Some(intel)) => {
            let mut command = Command::new(program);
            command.env("LD_LIBRARY_PATH", &intel.libraries).env("LD_PRELOAD", &intel.shim);
            command.env("VK_ICD_FILENAMES", icd(family, &intel.libraries.join(library))?);
            command
        }
        _ => {
            let mut command = tree.program(&program, Some(&tree.libraries.join(shim)));
            command.env("VK_ICD_FILENAMES", icd(family, &tree.libraries.join(library))?);
            command
        }
    };
    command
        .envs(variable.map(|variable| (variable, family.value)))
        .env("RADV_DEBUG", "nocache")
        .env("MESA_SHADER_CACHE_DISABLE", "true");
    Ok(command)
}

fn icd(family: &Family, library: &Path) -> Result<PathBuf, String> {
    manifest(&format!("{}_icd.json", family.name), "ICD", library, "")
}
