//! The logs of a cluster's servers, bounded: a file that has grown over [`LOG_BYTES_MAX`] becomes `log.1`, that
//! becomes `log.2`, and so on up to `log.N`. The old `log.N` is removed.
//!
//! A server writes to the file that it was given, whatever its name is by then. So the file is copied, and cut to
//! nothing where it lies: servers append, and go on at its beginning. What a server says between the copy and the cut,
//! and what comes on top before somebody looks, is not bounded by this: lines that may come often are, each by itself.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Bytes of a log from which on it is set aside.
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How many logs are kept that were set aside.
const KEPT: u32 = 3;
/// How often somebody looks.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Sets the log at `path` aside, if it has grown over the bound. One that cannot be set aside stays as it is.
pub(crate) fn rotate(path: &Path) {
    if let Err(error) = rotate_over(path, LOG_BYTES_MAX) {
        tracing::debug!("{} is not set aside: {error}", path.display());
    }
}

fn rotate_over(path: &Path, bytes_max: u64) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.is_file() && meta.len() > bytes_max => {}
        _ => return Ok(()),
    }
    for number in (1..KEPT).rev() {
        match std::fs::rename(numbered(path, number), numbered(path, number + 1)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    std::fs::copy(path, numbered(path, 1))?;
    std::fs::File::options().write(true).open(path)?.set_len(0)
}

fn numbered(path: &Path, number: u32) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{number}"));
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::io::Write as _;

    #[test]
    fn a_log_is_set_aside_once_it_is_long_and_the_oldest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        rotate_over(&path, 10).unwrap();
        assert!(!path.exists(), "nothing is made");
        let mut log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(&path)
            .unwrap();
        for round in 0..6 {
            write!(log, "line {round:05}").unwrap();
            rotate_over(&path, 10).unwrap();
            assert_eq!(
                std::fs::metadata(&path).unwrap().len(),
                10,
                "as long as it may be"
            );
            write!(log, "!").unwrap();
            rotate_over(&path, 10).unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
        }
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(
            [read("log"), read("log.1"), read("log.2"), read("log.3")],
            ["", "line 00005!", "line 00004!", "line 00003!"]
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 4);
        // What is no file is left alone.
        rotate_over(dir.path(), 0).unwrap();
    }
}
