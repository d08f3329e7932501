//! Files that programs keep for later processes and share.

use rewire_graph::Arrange;
use std::fs::{File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{Error, ErrorKind, Result, Write};
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};

/// Suffix of incomplete files.
const PARTIAL: &str = ".tmp";

/// Digits of the number in the name of an incomplete file.
const DIGITS: usize = 16;

/// Age from which an incomplete file is assumed to be left by a killed program.
const ABANDONED: Duration = Duration::from_secs(3600);

/// How long a program waits for others that modify a file.
const PATIENCE: Duration = Duration::from_secs(10);

/// Updates a file that other programs update, too; one at a time. `change` receives its content, or the error of
/// reading it, and returns the new content. The update is atomic: concurrent readers find the old or the new file, even
/// if this program is killed.
///
/// ```
/// let path = std::env::temp_dir().join(format!("rewire-update-{}", std::process::id())).join("count");
/// for _ in 0..3 {
///     rewire_runtime::update_file(&path, |old| Ok([old.unwrap_or_default(), b"x".to_vec()].concat()))?;
/// }
/// assert_eq!(std::fs::read(&path)?, b"xxx");
/// # std::fs::remove_dir_all(path.parent().unwrap())?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The errors of `change`; the system's error for the folder, which is created if missing; [`ErrorKind::TimedOut`] if
/// another program does not finish its update.
pub fn update_file(path: &Path, change: impl FnOnce(Result<Vec<u8>>) -> Result<Vec<u8>>) -> Result<()> {
    let folder = folder(path);
    std::fs::create_dir_all(folder)?;
    let _lock = lock(&folder.join("lock"))?;
    replace(path, &change(std::fs::read(path))?)
}

/// [`replace_file`] in a folder that is created if missing.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    std::fs::create_dir_all(folder(path))?;
    replace_file(path, content)
}

/// Writes a file atomically, with its previous permissions: concurrent readers find the old or the new file, even if
/// this program is killed. Removes incomplete files of killed programs.
///
/// # Errors
/// The system's error; the previous file is then unchanged.
pub fn replace_file(path: &Path, content: &[u8]) -> Result<()> {
    replace_file_with(path, |file| file.write_all(content))
}

/// [`replace_file`] with the content that `write` produces.
///
/// # Errors
/// The system's error, and the errors of `write`; the previous file is then unchanged.
pub fn replace_file_with(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    publish(path, write, |own| std::fs::rename(own, path))
}

/// Creates a file atomically with the content that `write` produces. If several programs create the same file at the
/// same time, one succeeds.
///
/// ```
/// let path = std::env::temp_dir().join(format!("rewire-create-{}", std::process::id()));
/// rewire_runtime::create_file_with(&path, |file| std::io::Write::write_all(file, b"one"))?;
/// let second = rewire_runtime::create_file_with(&path, |file| std::io::Write::write_all(file, b"two"));
/// assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AlreadyExists);
/// assert_eq!(std::fs::read(&path)?, b"one");
/// # std::fs::remove_file(path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::AlreadyExists`] if the file exists when it is complete; the system's error; the errors of `write`.
pub fn create_file_with(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    publish(path, write, |own| match std::fs::hard_link(own, path) {
        Ok(()) => remove(own),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links: programs that create files here take turns.
        Err(_) => {
            let _lock = lock(&folder(path).join("lock"))?;
            match std::fs::symlink_metadata(path) {
                Ok(_) => Err(ErrorKind::AlreadyExists.into()),
                Err(_) => std::fs::rename(own, path),
            }
        }
    })
}

/// Writes a new file next to `path`, which `publish` moves into place.
fn publish(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<()>,
    publish: impl FnOnce(&Path) -> Result<()>,
) -> Result<()> {
    // Before the new file is written, which may need the space.
    drop(remove_abandoned(path));
    let (own, mut file) = partial(path)?;
    let written = std::fs::metadata(path)
        .map_or(Ok(()), |old| file.set_permissions(old.permissions()))
        .and_then(|()| write(&mut file))
        // Some file systems report a full disk only here.
        .and_then(|()| file.sync_all())
        .and_then(|()| publish(&own));
    written.inspect_err(|_| drop(std::fs::remove_file(&own)))
}

/// Removes files of a folder whose names begin with `prefix`, the oldest first, until `most` are left.
pub(crate) fn prune(folder: &Path, prefix: &str, most: usize) -> Result<()> {
    let mut files = files(folder, |name| name.starts_with(prefix))?;
    files.arrange();
    let excess = files.len().saturating_sub(most);
    files.iter().take(excess).try_for_each(|(_, path)| remove(path))
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new file next to `path` with a name that is unique across processes.
fn partial(path: &Path) -> Result<(PathBuf, File)> {
    loop {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{:0DIGITS$x}{PARTIAL}", RandomState::new().hash_one(())));
        let own = path.with_file_name(name);
        match OpenOptions::new().read(true).write(true).create_new(true).open(&own) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            opened => return Ok((own, opened?)),
        }
    }
}

/// Removes incomplete files of `path` that killed programs left.
fn remove_abandoned(path: &Path) -> Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let left = files(folder(path), |found| is_partial(found, &name))?;
    let is_old = |modified: &SystemTime| modified.elapsed().is_ok_and(|age| age > ABANDONED);
    left.iter().filter(|(modified, _)| is_old(modified)).try_for_each(|(_, path)| remove(path))
}

/// True for names that [`partial`] creates for the file `name`.
fn is_partial(found: &str, name: &str) -> bool {
    let number = found.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')?.strip_suffix(PARTIAL));
    number.is_some_and(|number| number.len() == DIGITS && number.bytes().all(|digit| digit.is_ascii_hexdigit()))
}

/// Files of a folder by their names, with the times of their last changes.
fn files(folder: &Path, wanted: impl Fn(&str) -> bool) -> Result<Vec<(SystemTime, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            match entry.metadata().and_then(|metadata| metadata.modified()) {
                Ok(modified) => files.push((modified, entry.path())),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(files)
}

/// Removes a file that another program may have removed meanwhile.
fn remove(path: &Path) -> Result<()> {
    std::fs::remove_file(path).or_else(|error| match error.kind() {
        ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })
}

/// Locks a file until the result is dropped. Systems without locks skip this.
fn lock(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    let begun = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if begun.elapsed() > PATIENCE => {
                return Err(Error::new(ErrorKind::TimedOut, format!("another program holds {}", path.display())));
            }
            Err(TryLockError::WouldBlock) => sleep(Duration::from_millis(5)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::process::{Command, Stdio};

    /// A folder that is removed on drop.
    struct Folder(PathBuf);

    impl Folder {
        fn new() -> Self {
            let name = format!("rewire-store-{:016x}", RandomState::new().hash_one(()));
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).unwrap();
            Self(path)
        }

        fn names(&self) -> BTreeSet<String> {
            let entries = std::fs::read_dir(&self.0).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        }

        fn write(&self, name: &str, age: u64) {
            std::fs::write(self.0.join(name), b"").unwrap();
            let file = File::options().write(true).open(self.0.join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn a_file_that_appears_while_another_is_written_stays() {
        let folder = Folder::new();
        let path = folder.0.join("tables");
        let late = create_file_with(&path, |file| {
            create_file_with(&path, |file| file.write_all(b"first"))?;
            file.write_all(b"second")
        });
        assert_eq!(late.unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        assert_eq!(folder.names().into_iter().collect::<Vec<_>>(), ["tables"]);
    }

    #[test]
    fn the_oldest_files_go() {
        let folder = Folder::new();
        for (name, age) in [("a-1", 10), ("a-2", 100), ("a-3", 10), ("b-1", 1000)] {
            folder.write(name, age);
        }
        prune(&folder.0, "a-", 2).unwrap();
        assert_eq!(folder.names().into_iter().collect::<Vec<_>>(), ["a-1", "a-3", "b-1"]);
    }

    #[test]
    fn files_beside_each_other_have_names_of_their_own() {
        let folder = Folder::new();
        let path = folder.0.join("file");
        let all: Vec<_> = (0..50).map(|_| partial(&path).unwrap()).collect();
        assert_eq!(all.iter().map(|(path, _)| path).collect::<BTreeSet<_>>().len(), 50);
        assert!(all.iter().all(|(own, _)| own.parent() == path.parent()));
    }

    #[test]
    fn what_killed_programs_left_is_removed() {
        let folder = Folder::new();
        let left = |name: &str, number: u64| format!("{name}.{number:016x}.tmp");
        for (name, number, age) in [("file", 1, 7200), ("file", 2, 60), ("file.json", 3, 7200), ("fil", 4, 7200)] {
            folder.write(&left(name, number), age);
        }
        for name in ["file.1.tmp", "file.draft.tmp", "file.0000000000000005.bin", "file.000000000000000x.tmp"] {
            folder.write(name, 7200);
        }
        let mut names = folder.names();
        replace_file(&folder.0.join("file"), b"whole").unwrap();
        names.insert("file".to_owned());
        assert!(names.remove(&left("file", 1)));
        assert_eq!(folder.names(), names);
    }

    #[test]
    #[cfg(unix)]
    fn a_file_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt;
        let folder = Folder::new();
        let path = folder.0.join("file");
        for mode in [0o600, 0o640, 0o666] {
            std::fs::write(&path, b"old").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            replace_file(&path, b"new").unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), b"new");
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        }
    }

    #[test]
    fn no_change_is_lost() {
        let folder = Folder::new();
        let path = folder.0.join("sums");
        std::thread::scope(|scope| {
            for worker in 0..6u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..25 {
                        update_file(path, |old| Ok([old.unwrap_or_default(), vec![worker]].concat())).unwrap();
                    }
                });
            }
        });
        let mut changes = std::fs::read(&path).unwrap();
        changes.sort_unstable();
        assert_eq!(changes, (0..6).flat_map(|worker| [worker; 25]).collect::<Vec<_>>());
        assert_eq!(folder.names().into_iter().collect::<Vec<_>>(), ["lock", "sums"]);
    }

    /// Large enough that a program is killed while writing it.
    const LARGE: usize = 4 << 20;
    const WRITER: &str = "REWIRE_TEST_WRITER";

    #[test]
    #[ignore = "runs through `files_are_whole_after_a_kill`"]
    fn inner_writer() {
        let path = PathBuf::from(std::env::var_os(WRITER).unwrap());
        for byte in (0..=u8::MAX).cycle() {
            update_file(&path, |_| Ok(vec![byte; LARGE])).unwrap();
            replace_file(&path.with_file_name("result"), &vec![byte; LARGE]).unwrap();
        }
    }

    #[test]
    #[cfg(unix)]
    fn files_are_whole_after_a_kill() {
        let folder = Folder::new();
        let (cache, result) = (folder.0.join("cache"), folder.0.join("result"));
        for round in 0..16 {
            let mut writer = Command::new(std::env::current_exe().unwrap())
                .args(["store::tests::inner_writer", "--exact", "--ignored"])
                .env(WRITER, &cache)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            sleep(Duration::from_millis(20 + round * 7));
            writer.kill().unwrap();
            writer.wait().unwrap();
            for path in [&cache, &result] {
                match std::fs::read(path) {
                    Ok(content) => {
                        assert!(content.len() == LARGE && content.iter().all(|byte| *byte == content[0]), "{round}");
                    }
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                }
            }
        }
        assert!(cache.exists() && result.exists());
        // No lock blocks later programs.
        update_file(&cache, |_| Ok(vec![7])).unwrap();
        assert_eq!(std::fs::read(&cache).unwrap(), [7]);
    }
}
