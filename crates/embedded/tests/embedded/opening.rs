//! What a store is opened on: nothing is made over what is left of one, and what stands in the way is named.

use std::os::unix::fs::FileExt;
use std::path::Path;

use argosy_embedded::{Builder, Db, Error, Remedy, Settings};

use crate::support::{Dir, small};

/// A store with some pairs in the levels.
fn filled(dir: &Dir) {
    let db = small().open(dir).unwrap();
    for n in 0..2000_u32 {
        db.put(n.to_le_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    db.close().unwrap();
}

fn zero_head(dir: &Dir, bytes: usize) {
    let device = device(dir);
    let file = std::fs::File::options().write(true).open(device).unwrap();
    file.write_all_at(&vec![0; bytes], 0).unwrap();
}

fn device(dir: &Dir) -> std::path::PathBuf {
    dir.as_ref().join("device")
}

fn refused(builder: &Builder, dir: &Dir) -> String {
    let error = builder.open(dir).unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    error.to_string()
}

#[test]
fn no_store_is_made_over_one_that_lost_its_head() {
    for bytes in [1 << 20, 4 << 20] {
        let dir = Dir::new("headless");
        filled(&dir);
        zero_head(&dir, bytes);
        for create in [false, true] {
            let error = refused(&small().create(create), &dir);
            assert!(error.contains("is not zero"), "{error}");
            // Nor where its windows are gone as well.
            let windows = dir.as_ref().join("windows");
            let aside = dir.as_ref().join("aside");
            std::fs::rename(&windows, &aside).unwrap();
            let error = refused(&small().create(create), &dir);
            assert!(error.contains("is not zero"), "{error}");
            std::fs::rename(&aside, &windows).unwrap();
        }
    }
}

#[test]
fn no_store_is_made_beside_windows_of_another() {
    let dir = Dir::new("windows");
    filled(&dir);
    std::fs::remove_file(device(&dir)).unwrap();
    let error = refused(&small(), &dir);
    assert!(error.contains("windows has the ends"), "{error}");
    assert!(!device(&dir).exists(), "nothing was made");
    // All of it may have been in the windows.
    std::fs::write(device(&dir), b"").unwrap();
    refused(&small(), &dir);
    let file = std::fs::File::options().write(true).open(device(&dir));
    file.unwrap().set_len(1 << 30).unwrap();
    refused(&small(), &dir);
    std::fs::remove_dir_all(dir.as_ref().join("windows")).unwrap();
    let db = small().open(&dir).unwrap();
    assert_eq!(db.get(0_u32.to_le_bytes()).unwrap(), None);
}

#[test]
fn a_store_whose_making_failed_or_was_cut_short_is_made() {
    let dir = Dir::new("begun");
    assert!(small().device_bytes(u64::MAX).open(&dir).is_err());
    assert!(!device(&dir).exists());
    // Killed before the file had its size, and before anything was in it.
    for bytes in [0, 1 << 30] {
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(device(&dir), b"").unwrap();
        let file = std::fs::File::options().write(true).open(device(&dir));
        file.unwrap().set_len(bytes).unwrap();
        refused(&small().create(false), &dir);
        small().open(&dir).unwrap().put("k", "v").unwrap();
        let db = small().create(false).open(&dir).unwrap();
        assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"v"[..]));
        drop(db);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

#[test]
fn a_store_that_this_process_has_is_said_to_be_here() {
    let dir = Dir::new("here");
    let db = small().open(&dir).unwrap();
    db.put("k", "v").unwrap();
    let snapshot = db.snapshot();
    db.close().unwrap();
    drop(db);
    let here = || {
        let error = small().open(&dir).unwrap_err();
        assert!(matches!(error, Error::InUse { .. }), "{error}");
        assert_eq!(error.remedy(), Remedy::Retry);
        let said = error.to_string();
        assert!(
            said.contains("in this process (a `Db` of it is left, or a snapshot"),
            "{said}"
        );
    };
    here();
    std::fs::remove_file(dir.as_ref().join("lock")).unwrap();
    here();
    drop(snapshot);
    small().open(&dir).unwrap();
}

/// Opens what is refused for too little memory with what the error names.
fn opens_with_what_is_named(path: &Path, builder: &Builder) -> usize {
    let error = builder.open(path).unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error}");
    let said = error.to_string();
    let (_, named) = said.split_once("set `memory` to ").unwrap();
    let (named, _) = named.split_once(' ').unwrap();
    let bytes: usize = named.parse().unwrap();
    builder.clone().memory(bytes).open(path).unwrap();
    let less = builder.clone().memory(bytes - 1).open(path);
    assert!(matches!(less, Err(Error::Settings(_))), "it is the least");
    bytes
}

#[test]
fn the_memory_that_an_error_names_is_enough() {
    let dir = Dir::new("memory");
    let mib = |n: usize| n << 20;
    // What docs/embedding.md says to be enough.
    let told = |l0: usize| (Some(l0), mib(22) + 3 * l0);
    for (l0_bytes, enough) in [(None, mib(32)), told(64 << 10), told(mib(1)), told(mib(16))] {
        let mut builder = Db::builder().memory(1 << 20).device_bytes(8 << 30);
        if let Some(bytes) = l0_bytes {
            builder = builder.l0_bytes(bytes);
        }
        let least = opens_with_what_is_named(dir.as_ref(), &builder);
        let about = enough - mib(3)..=enough;
        assert!(about.contains(&least), "{least} of {enough}: {l0_bytes:?}");
        builder.memory(enough).open(&dir).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
    }
}

/// Where a program divides its memory by itself, the builder does not, and refuses nothing for it.
#[test]
fn settings_may_be_taken_as_they_are() {
    let dir = Dir::new("exactly");
    let settings = Settings::small().with(|of| {
        of.memtables.bytes = 2 << 20;
        of.memtables.log_bytes = 4 << 20;
    });
    let builder = Builder::new().memory(4 << 20).device_bytes(4 << 30);
    let divided = builder.clone().l0_bytes(settings.memtables.bytes);
    let error = divided.engine(settings.clone()).open(&dir).unwrap_err();
    assert!(matches!(error, Error::Settings(_)), "{error}");
    let db = builder.engine_exactly(settings).open(&dir).unwrap();
    for n in 0..5000_u32 {
        db.put(n.to_le_bytes(), [7; 100]).unwrap();
    }
    db.drain().unwrap();
    let stats = db.stats().engine;
    assert_eq!((stats.work.flushes, stats.memtables.entries), (0, 5000));
}
