//! Tests of what nobody's program has left in the directory, and of what the system may say or lose: see
//! [`super`].

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;

use super::tests::{names, open, scratch};
use super::*;

/// Sets `k` so often that generation 1 is retired, if anything is.
fn fill_generations(coordinator: &mut Embedded) {
    for n in 0..3 * TRANSACTIONS_MAX as u64 {
        coordinator.set_now("k", EntryVersion(n), vec![]).unwrap();
    }
}

#[test]
fn what_a_link_leads_to_is_not_removed() {
    let (dir, precious) = (scratch(), scratch());
    std::fs::create_dir(precious.path().join("below")).unwrap();
    std::fs::write(precious.path().join("below/file"), "").unwrap();
    let mut coordinator = open(dir.path(), 1);
    for name in ["trash-x", "first-x", "format-x", "generation-1/next-x"] {
        symlink(precious.path(), dir.path().join(name)).unwrap();
    }
    fill_generations(&mut coordinator);
    assert_eq!(names(&precious.path().join("below")), ["file"]);
    let expected = ["format", "generation-2", "generation-3", "sessions"];
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn strange_names_keep_no_generation() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    for name in ["trash-x", "first-x", "generation-1/next-x"] {
        std::fs::write(dir.path().join(name), "").unwrap();
    }
    std::fs::create_dir(dir.path().join("format-x")).unwrap();
    for name in ["first-y", "trash-first-y"] {
        std::fs::create_dir_all(dir.path().join(name).join("below")).unwrap();
    }
    let no_text = OsStr::from_bytes(b"new-\xff");
    std::fs::write(dir.path().join("generation-1").join(no_text), "").unwrap();
    fill_generations(&mut coordinator);
    let expected = ["format", "generation-2", "generation-3", "sessions"];
    assert_eq!(names(dir.path()), expected);
}

#[test]
fn a_name_that_is_no_number_of_ours_is_no_generation() {
    let dir = scratch();
    let mut coordinator = open(dir.path(), 1);
    let strange = [
        "generation-+7",
        "generation-007",
        "generation-0",
        "generation-18446744073709551615",
    ];
    for name in strange {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    fill_generations(&mut coordinator);
    let entry = open(dir.path(), 2).read_now("k").unwrap();
    assert_eq!(entry.version, EntryVersion(3 * TRANSACTIONS_MAX as u64));
}
