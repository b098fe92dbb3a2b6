//! Directories that belong to one user alone.
//!
//! Where a name can be guessed, in a directory in which everybody may make files, somebody else may have made it
//! first: a directory of his own, in which he exchanges what is put there, or a link to a place where only we may
//! write. So a directory is used only where it is one, no link, and ours; what others could do there is taken
//! from them.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, openat};
use rustix::process::geteuid;

/// What may be done in the directory, and by whom: everything, by its owner.
const MODE: u32 = 0o700;

/// Makes a directory, and those above it that are missing, that only this user can look into. One that is there
/// already stays as it is: whoever made it decided who may.
///
/// # Errors
/// The system's.
pub fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(MODE).create(path)
}

/// Makes a directory of this user's own, or makes sure that the one that is there is: no link, his, and closed
/// to all others from now on.
///
/// # Errors
/// `PermissionDenied` where it belongs to somebody else, `NotADirectory` where it is a link or a file; or the
/// system's.
pub fn own_directory(path: &Path) -> io::Result<()> {
    make_directory(path)?;
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
    let directory = openat(CWD, path, flags, Mode::empty()).map_err(|error| {
        let what =
            "it is no directory, but a link or a file: name the directory itself, or remove it";
        match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
                io::Error::new(io::ErrorKind::NotADirectory, what)
            }
            other => other.into(),
        }
    })?;
    let found = fstat(&directory)?;
    let owner = geteuid().as_raw();
    if found.st_uid != owner {
        let what = format!(
            "it belongs to user {}, and this is user {owner}: remove it, or name another directory",
            found.st_uid
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    if found.st_mode & 0o777 != MODE {
        fchmod(&directory, Mode::from_raw_mode(MODE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;
    use crate::testing::TempDir;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn only_a_directory_of_ones_own_is_used_and_closed_to_others() {
        let dir = TempDir::new();
        let deep = dir.join("a").join("b");
        own_directory(&deep).unwrap();
        assert_eq!([mode(&dir.join("a")), mode(&deep)], [MODE, MODE]);
        std::fs::set_permissions(&deep, PermissionsExt::from_mode(0o777)).unwrap();
        own_directory(&deep).unwrap();
        assert_eq!(mode(&deep), MODE);

        let link = dir.join("link");
        symlink(&deep, &link).unwrap();
        let refused = own_directory(&link).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::NotADirectory, "{refused}");
        let file = dir.join("file");
        std::fs::write(&file, "").unwrap();
        own_directory(&file).unwrap_err();

        // Only root can give a directory away.
        if geteuid().is_root() {
            chown(&deep, Some(65_534), None).unwrap();
            let refused = own_directory(&deep).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{refused}");
            assert!(refused.to_string().contains("65534"), "{refused}");
        }
    }
}
