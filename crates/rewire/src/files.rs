use rewire_runtime::replace_file_with;
use std::fs::File;
use std::io::{Error, ErrorKind, Result, Write};
use std::path::Path;

/// Writes a file atomically: the old content remains until the new one is complete. Special files, such as pipes and
/// devices, are written in place.
///
/// # Errors
/// The error of the operating system: the folder does not exist, the folder or the file cannot be written, or the disk is
/// full.
pub fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    write_file_with(path, |file| file.write_all(content))
}

/// [`write_file`] with the content that `write` produces.
///
/// # Errors
/// As [`write_file`], and the errors of `write`.
pub fn write_file_with(path: &Path, write: impl FnOnce(&mut File) -> Result<()>) -> Result<()> {
    match std::fs::metadata(path) {
        Ok(found) if !found.is_file() => write(&mut File::create(path)?),
        Ok(found) if found.permissions().readonly() => Err(Error::new(ErrorKind::PermissionDenied, "it is read-only")),
        // Replaces the target of a link, not the link.
        Ok(_) => replace_file_with(&std::fs::canonicalize(path)?, write),
        Err(error) if error.kind() == ErrorKind::NotFound => replace_file_with(path, write),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_whole_or_not_at_all() {
        let folder = std::env::temp_dir().join(format!("rewire-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("a.txt");
        write_file(&file, b"one").unwrap();
        write_file(&file, b"two").unwrap();
        assert_eq!(std::fs::read(&file).unwrap(), b"two");
        assert!(write_file(&folder, b"x").is_err());
        assert!(write_file(&folder.join("none/a.txt"), b"x").is_err());
        let names = || std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(names(), ["a.txt"]);
        let mut permissions = std::fs::metadata(&file).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&file, permissions).unwrap();
        assert_eq!(write_file(&file, b"x").unwrap_err().kind(), ErrorKind::PermissionDenied);
        assert_eq!((std::fs::read(&file).unwrap().as_slice(), names().len()), (&b"two"[..], 1));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    #[cfg(unix)]
    fn links_and_devices_stay_what_they_are() {
        let folder = std::env::temp_dir().join(format!("rewire-links-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("file"), b"old").unwrap();
        std::os::unix::fs::symlink(folder.join("file"), folder.join("link")).unwrap();
        write_file(&folder.join("link"), b"new").unwrap();
        assert_eq!(std::fs::read(folder.join("file")).unwrap(), b"new");
        assert!(std::fs::symlink_metadata(folder.join("link")).unwrap().is_symlink());
        std::fs::remove_dir_all(&folder).unwrap();
        write_file(Path::new("/dev/null"), b"x").unwrap();
        assert!(!std::fs::metadata("/dev/null").unwrap().is_file());
        if cfg!(target_os = "linux") {
            assert_eq!(write_file(Path::new("/dev/full"), b"x").unwrap_err().kind(), ErrorKind::StorageFull);
        }
    }
}
