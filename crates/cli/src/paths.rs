//! Checks the files of a command against each other before any of them is opened.

use crate::args::{Bench, Command, Import, Package, Predict, Train, Verify};
use crate::import::{MODEL_FILES, is_package_name};
use crate::predict::Places;
use crate::train::FILES;
use rewire::package::Package as Packaged;
use rewire::program::ModelFile;
use same_file::is_same_file;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// An output file is also an input file, or is written by two options.
#[derive(Debug, Error)]
#[error("{} is used twice, as {first} and as {second}: take another path for one of them", path.display())]
pub struct PathError {
    /// Links resolved.
    path: PathBuf,
    first: String,
    second: String,
}

/// Rejects a command that would overwrite one of its input files, or write a file twice. Links are resolved.
///
/// # Errors
/// [`PathError`] names the file and its two uses.
pub fn check(command: &Command) -> Result<(), PathError> {
    let Files(files) = Files::of(command);
    for (at, file) in files.iter().enumerate() {
        if let Some(other) = files.get(at + 1..).unwrap_or_default().iter().find(|other| file.collides(other)) {
            let (path, first, second) = (file.place.clone(), file.what.clone(), other.what.clone());
            return Err(PathError { path, first, second });
        }
    }
    Ok(())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Reads,
    Writes,
    /// Writes the file if it does not exist, and reads it otherwise.
    Creates,
    /// Writes files below this folder.
    WritesBelow,
}

struct Use {
    /// The argument, or the role of the file.
    what: String,
    access: Access,
    path: PathBuf,
    /// Links resolved.
    place: PathBuf,
}

impl Use {
    fn collides(&self, other: &Self) -> bool {
        match (self.access, other.access) {
            (Access::WritesBelow, _) => other.place.starts_with(&self.place),
            (_, Access::WritesBelow) => self.place.starts_with(&other.place),
            (Access::Writes, _) | (_, Access::Writes) => {
                self.place == other.place || is_same_file(&self.path, &other.path).unwrap_or(false)
            }
            _ => false,
        }
    }
}

/// The files that a command uses, including temporary ones.
struct Files(Vec<Use>);

impl Files {
    fn of(command: &Command) -> Self {
        let mut files = Self(vec![]);
        match command {
            Command::Predict(options) => files.predict(options),
            Command::Train(options) => files.train(options),
            Command::Package(options) => files.package(options),
            Command::Import(options) => files.import(options),
            Command::Verify(options) => files.verify(options),
            Command::Bench(options) => files.bench(options),
            Command::Run(options) => {
                files.model("the model", Some(&options.model));
                files.add("--inputs", Access::Reads, Some(&options.inputs));
                files.add("--out", Access::Writes, Some(&options.out));
                files.add("--profile", Access::Writes, options.profile.as_deref());
            }
            Command::Apply(options) => {
                // The output may be the model.
                options.deltas.iter().for_each(|delta| files.add("a delta", Access::Reads, Some(delta)));
                files.add("--out", Access::Writes, Some(&options.out));
            }
            Command::Sid(options) => {
                files.add("--items", Access::Reads, Some(&options.items));
                files.add("--rq-vae", Access::Reads, options.rq_vae.as_deref());
                files.add("--out", Access::WritesBelow, Some(&options.out));
            }
            Command::Profile(options) => {
                files.model("the model", Some(Path::new(&options.op)));
                files.add("--out", Access::Writes, options.out.as_deref());
            }
            Command::Compile(options) => {
                options.works.iter().for_each(|work| files.model("the work", Some(Path::new(work))));
                files.add("--isa", Access::WritesBelow, options.isa.as_deref());
            }
            // They write to standard output and to the cache folder.
            Command::Devices(_)
            | Command::Rank(_)
            | Command::Retrieve(_)
            | Command::Generate(_)
            | Command::Eval(_)
            | Command::Tune(_)
            | Command::Graph(_)
            | Command::Compare(_)
            | Command::Describe(_)
            | Command::Completions(_) => {}
            Command::Man(options) => files.add("--out", Access::WritesBelow, Some(&options.out)),
            #[cfg(feature = "serve")]
            Command::Serve(_) => {}
        }
        files
    }

    fn predict(&mut self, options: &Predict) {
        self.model("--model", options.model.as_deref());
        self.add("--data", Access::Reads, options.data.as_deref());
        self.add("--items", Access::Reads, options.items.as_deref());
        self.add("--out", Access::Writes, Some(&options.out));
        self.add("--rejects", Access::Writes, options.rejects.as_deref());
        // The command reports invalid paths itself.
        for path in Places::of(options).map(|places| places.on_the_way()).unwrap_or_default() {
            self.add("a file on the way to --out or --rejects", Access::Writes, Some(&path));
        }
    }

    fn train(&mut self, options: &Train) {
        self.model("--model", options.model.as_deref());
        self.add("--pipeline", Access::Reads, options.pipeline.as_deref());
        options.data.iter().for_each(|data| self.add("--data", Access::Reads, Some(data)));
        self.add("--negatives", Access::Reads, options.negatives.as_deref());
        self.add("--eval-negatives", Access::Reads, options.eval_negatives.as_deref());
        self.add("--export-dcp", Access::WritesBelow, options.export_dcp.as_deref());
        self.add("--config", Access::Reads, options.config.as_deref());
        self.add("--eval", Access::Reads, options.eval.as_deref());
        self.add("--profile", Access::Writes, options.profile.as_deref());
        FILES.iter().for_each(|name| self.add("a file of --out", Access::Writes, Some(&options.out.join(name))));
    }

    fn package(&mut self, options: &Package) {
        self.model("--model", options.model.as_deref());
        self.add("--tune", Access::Reads, options.tune.as_deref());
        options.devices.iter().for_each(|device| self.add("--for", Access::Reads, Some(Path::new(device))));
        self.add("--out", Access::Writes, options.out.as_deref());
        let tables = options.out.as_ref().zip(options.tables_file.as_ref());
        self.add("--tables-file", Access::Creates, tables.map(|(out, name)| out.with_file_name(name)).as_deref());
    }

    fn import(&mut self, options: &Import) {
        self.add("the source", Access::Reads, Some(&options.source));
        let mut folders: Vec<PathBuf> = options.checkpoint.iter().cloned().collect();
        while let Some(path) = folders.pop() {
            match std::fs::read_dir(&path) {
                Ok(entries) => folders.extend(entries.flatten().map(|entry| entry.path())),
                Err(_) => self.add("--checkpoint", Access::Reads, Some(&path)),
            }
        }
        if is_package_name(&options.out) {
            return self.add("--out", Access::Writes, Some(&options.out));
        }
        MODEL_FILES.iter().for_each(|name| self.add("a file of --out", Access::Writes, Some(&options.out.join(name))));
    }

    fn verify(&mut self, options: &Verify) {
        let Some(folder) = &options.save else { return };
        for path in &options.paths {
            let cases = rewire_verify::cases(path).unwrap_or_else(|_| vec![path.clone()]);
            cases.iter().for_each(|case| self.add("a golden case", Access::Reads, Some(case)));
        }
        self.add("a file of --save", Access::WritesBelow, Some(folder));
    }

    fn bench(&mut self, options: &Bench) {
        options.ops.iter().for_each(|op| self.model("a model", Some(Path::new(op))));
        self.add("--compare", Access::Reads, options.compare.as_deref());
        self.add("--baseline", Access::Reads, options.quality.baseline.as_deref());
        options.records.iter().for_each(|records| self.add("--records", Access::Reads, Some(records)));
        self.add("--svg", Access::Writes, options.svg.as_deref());
        self.add("--csv", Access::Writes, options.csv.as_deref());
        self.add("--markdown", Access::Writes, options.markdown.as_deref());
    }

    /// The files of a model folder or a package.
    fn model(&mut self, what: &str, model: Option<&Path>) {
        let Some(model) = model.filter(|model| ModelFile::is_at(model)) else { return };
        let of_folder = MODEL_FILES.map(|name| model.join(name));
        let of_package = [Some(model.to_owned()), Packaged::tables_beside(model)];
        let files = if model.is_dir() { of_folder.map(Some) } else { of_package };
        files.iter().flatten().for_each(|file| self.add(what, Access::Reads, Some(file)));
    }

    /// Adds a file. Existing special files, such as pipes and devices, are not replaced and may be used twice.
    fn add(&mut self, what: &str, access: Access, path: Option<&Path>) {
        let Some(path) = path else { return };
        let path = if path == Path::new("-") { Path::new("/dev/stdin") } else { path };
        let is_none = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
        if access == Access::WritesBelow || !is_none {
            self.0.push(Use { what: what.to_owned(), access, path: path.to_owned(), place: place(path) });
        }
    }
}

/// A path with links resolved, as far as it exists.
fn place(path: &Path) -> PathBuf {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = whole.ancestors().find_map(|ancestor| {
        let (real, rest) = (std::fs::canonicalize(ancestor).ok()?, whole.strip_prefix(ancestor).ok()?);
        Some(if rest.as_os_str().is_empty() { real } else { real.join(rest) })
    });
    let found = found.unwrap_or(whole);
    // On these systems, names that differ only in case may name the same file.
    let ignores_case = cfg!(any(windows, target_vendor = "apple"));
    if ignores_case { found.to_string_lossy().to_lowercase().into() } else { found }
}
