//! Deltas of a training, applied while requests are answered.

use super::App;
use super::models::Served;
use rewire::delta::{Delta, DeltaError};
use rewire::describe;
use std::collections::HashSet;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// The interval between checks of the folder.
const PAUSE: Duration = Duration::from_secs(1);

/// Applies the deltas of a folder, in the order of their names, to the models that they follow, whenever new ones
/// appear. Never ends.
pub async fn follow(app: Arc<App>, folder: &Path) -> Infallible {
    let mut seen = HashSet::new();
    loop {
        if app.models.get().is_some() {
            let (app, folder) = (app.clone(), folder.to_owned());
            let look = move || {
                apply(&app, &folder, &mut seen);
                seen
            };
            let looked = tokio::task::spawn_blocking(look).await;
            seen = looked.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        }
        sleep(PAUSE).await;
    }
}

/// Applies the new deltas of a folder, up to one that cannot be applied yet.
fn apply(app: &App, folder: &Path, seen: &mut HashSet<PathBuf>) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_delta = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "safetensors");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(is_delta).collect();
    paths.retain(|path| !seen.contains(path));
    paths.sort();
    for path in paths {
        let applied = Delta::read(&path).and_then(|delta| app.update(&delta));
        match applied {
            Ok(()) | Err(DeltaError::Applied { .. }) => {}
            Err(DeltaError::Missing { .. } | DeltaError::Busy) => return,
            Err(error) => tracing::warn!("{}: {}", path.display(), describe(&error)),
        }
        seen.insert(path);
    }
}

impl App {
    /// Applies a delta to the first model that it follows, or returns the error of the last one.
    fn update(&self, delta: &Delta) -> Result<(), DeltaError> {
        let mut result = Err(DeltaError::NoVersion);
        for model in self.models.get().into_iter().flatten() {
            result = model.update(delta);
            if matches!(
                result,
                Ok(()) | Err(DeltaError::Applied { .. } | DeltaError::Missing { .. } | DeltaError::Busy)
            ) {
                break;
            }
        }
        result
    }
}

impl Served {
    /// Applies a delta while requests are answered.
    fn update(&self, delta: &Delta) -> Result<(), DeltaError> {
        self.update.as_ref().map_or(Err(DeltaError::NoVersion), |update| update(delta))?;
        self.version.set(i64::try_from(delta.version().number()).unwrap_or(i64::MAX));
        tracing::info!("{}: delta {} after {} steps", self.name, delta.version().number(), delta.steps());
        Ok(())
    }
}
