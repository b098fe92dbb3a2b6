//! Tests of memory: see [`super`].

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::*;
use crate::testing::{TempDir, grant};

fn two_mappings(dir: &TempDir, len: usize) -> (SharedMemory, SharedMemory) {
    let path = dir.join("memory");
    let owner = SharedMemory::create(&path, len, Incarnation(1)).unwrap();
    (owner, SharedMemory::open(&path).unwrap())
}

#[test]
fn a_bit_flips_whoever_owns_the_memory() {
    let memory = SharedMemory::anonymous(16);
    memory.write(0, &[0b101; 16]);
    memory.disown();
    memory.flip_bit(3, 1);
    memory.flip_bit(15, 2);
    assert_eq!(memory.read_vec(2, 3), [0b101, 0b111, 0b101]);
    assert_eq!(memory.read_vec(14, 2), [0b101, 0b001]);
}

#[test]
fn new_memory_is_zero_and_revoked() {
    let dir = TempDir::in_memory();
    let file = SharedMemory::create(&dir.join("memory"), 10_000, Incarnation(3)).unwrap();
    assert_eq!(file.incarnation(), Incarnation(3));
    for memory in [file, SharedMemory::anonymous(10_000)] {
        assert_eq!((memory.len(), memory.access()), (10_000, 0));
        assert_eq!(memory.read_vec(0, 10_000), [0; 10_000]);
        assert_eq!(memory.write_checked(0, 0, b"x"), Err(Revoked));
    }
}

#[test]
fn what_one_mapping_writes_the_other_reads() {
    let dir = TempDir::in_memory();
    let (one, two) = two_mappings(&dir, 8192);
    one.write(4090, b"over a page");
    assert_eq!(two.read_vec(4090, 11), b"over a page");
    two.store_u64(8184, 0x0102_0304_0506_0708);
    assert_eq!(one.load_u64(8184), 0x0102_0304_0506_0708);
    assert_eq!(
        one.read_vec(8184, 8),
        [8, 7, 6, 5, 4, 3, 2, 1],
        "little-endian"
    );
    one.fill_zero(4092..4095);
    assert_eq!(two.read_vec(4090, 11), b"ov\0\0\0a page");
}

#[test]
fn a_checked_write_needs_the_present_grant() {
    let dir = TempDir::in_memory();
    let (owner, peer) = two_mappings(&dir, 64);
    owner.grant(grant(1, 5));
    let access = peer.access();
    assert_eq!(peer.incarnation(), Incarnation(5));
    peer.write_checked(access, 0, b"first").unwrap();
    peer.write_checked(access, 8, &7u64.to_le_bytes()).unwrap();
    assert_eq!(
        (owner.read_vec(0, 5), owner.load_u64(8)),
        (b"first".to_vec(), 7)
    );

    owner.revoke();
    assert_eq!(peer.write_checked(access, 0, b"after"), Err(Revoked));
    assert_eq!(owner.read_vec(0, 5), b"first");
    owner.grant(grant(2, 5));
    assert_ne!(owner.access(), access, "a grant never comes back");
    assert_eq!(peer.write_checked(access, 0, b"after"), Err(Revoked));
    assert!(peer.write_checked(peer.access(), 0, b"after").is_ok());
}

/// The protocol of the module documentation, with a real writer: what it was told had succeeded
/// is in the copy that the owner takes after revoking.
#[test]
fn no_successful_write_is_missing_after_a_revocation() {
    for round in 0..200u64 {
        let memory = Arc::new(SharedMemory::anonymous(4096));
        memory.grant(grant(1, 1));
        let access = memory.access();
        let started = Arc::new(AtomicBool::new(false));
        let writer = {
            let (memory, started) = (memory.clone(), started.clone());
            std::thread::Builder::new().spawn(move || {
                let mut last = 0;
                for n in 1u64.. {
                    let bytes = [n.to_le_bytes(), n.to_le_bytes()].concat();
                    started.store(true, Ordering::Relaxed);
                    if memory.write_checked(access, 8, &bytes).is_err() {
                        break;
                    }
                    last = n;
                }
                last
            })
        };
        while !started.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        for _ in 0..round {
            std::hint::spin_loop();
        }
        memory.revoke();
        let copy = memory.load_u64(8).max(memory.load_u64(16));
        let last = writer.unwrap().join().unwrap();
        assert!(
            copy >= last,
            "write {last} succeeded, and the copy holds {copy}"
        );
    }
}

#[test]
fn a_file_outlives_its_maker_and_a_name_its_file() {
    let dir = TempDir::in_memory();
    let path = dir.join("memory");
    let first = SharedMemory::create(&path, 64, Incarnation(1)).unwrap();
    first.write(0, b"first");
    drop(first);
    let mapped = SharedMemory::open(&path).unwrap();
    // A new file takes the name; who has the old one mapped keeps it.
    let second = SharedMemory::create(&path, 128, Incarnation(2)).unwrap();
    assert_eq!(mapped.read_vec(0, 5), b"first");
    assert_eq!(second.read_vec(0, 5), [0; 5]);
    assert_eq!(SharedMemory::open(&path).unwrap().len(), 128);
}

#[test]
fn published_memory_has_one_more_name() {
    let dir = TempDir::in_memory();
    let owner = SharedMemory::create(&dir.join("window.new"), 64, Incarnation(1)).unwrap();
    // Whatever its name is by now.
    std::fs::rename(dir.join("window.new"), dir.join("window")).unwrap();
    let other = SharedMemory::create(&dir.join("key"), 64, Incarnation(1)).unwrap();
    owner.publish(&dir.join("key")).unwrap();
    owner.write(0, b"owner");
    drop(other);
    std::fs::remove_file(dir.join("window")).unwrap();
    assert_eq!(
        SharedMemory::open(&dir.join("key")).unwrap().read_vec(0, 5),
        b"owner"
    );
    assert_eq!(std::fs::read_dir(dir.join("")).unwrap().count(), 1);
}

#[test]
fn what_is_no_memory_is_refused() {
    let dir = TempDir::new();
    let path = dir.join("memory");
    assert!(SharedMemory::open(&path).unwrap_err().is_not_found());
    for bytes in [vec![], vec![1; 4095], vec![1; 9000]] {
        std::fs::write(&path, &bytes).unwrap();
        let error = SharedMemory::open(&path).unwrap_err();
        assert!(matches!(error, MemoryError::Unusable { .. }), "{error}");
    }
    drop(SharedMemory::create(&path, 64, Incarnation(1)).unwrap());
    let good = std::fs::read(&path).unwrap();
    for at in [0, 8, 32] {
        let mut bytes = good.clone();
        bytes[at] ^= 4;
        std::fs::write(&path, &bytes).unwrap();
        let error = SharedMemory::open(&path).unwrap_err();
        assert!(
            matches!(error, MemoryError::Unusable { .. }),
            "{at}: {error}"
        );
    }
}

/// A link that somebody planted is not followed: neither is what it leads to mapped, nor made, nor written.
#[test]
fn a_link_is_no_memory_and_what_it_leads_to_stays() {
    let dir = TempDir::in_memory();
    let (target, link, missing) = (dir.join("target"), dir.join("link"), dir.join("missing"));
    // What could be opened by its own name.
    let memory = SharedMemory::create(&target, 64, Incarnation(1)).unwrap();
    memory.grant(grant(1, 1));
    let before = std::fs::read(&target).unwrap();
    let plant = |at: &Path, to: &Path| {
        let _ = std::fs::remove_file(at);
        symlink(to, at).unwrap();
    };
    for to in [&target, &missing] {
        plant(&link, to);
        let error = SharedMemory::open(&link).unwrap_err();
        assert!(
            matches!(error, MemoryError::Refused { .. }) && !error.is_not_found(),
            "{error}"
        );
        assert!(link.is_symlink(), "opening leaves it there");
    }
    // Whoever makes memory takes the name from the link.
    let made_at = |at: &Path| {
        assert!(!at.is_symlink());
        assert_eq!(SharedMemory::open(at).unwrap().len(), 128);
        assert_eq!(std::fs::read(&target).unwrap(), before);
        assert!(!missing.exists());
    };
    for to in [&target, &missing] {
        plant(&link, to);
        let made = SharedMemory::create(&link, 128, Incarnation(2)).unwrap();
        made.write(0, b"made");
        made_at(&link);
        let (published, beside) = (dir.join("key"), dir.join("key.publishing"));
        plant(&published, to);
        plant(&beside, to);
        made.publish(&published).unwrap();
        made_at(&published);
        assert!(!beside.is_symlink());
    }
}

/// Somebody plants a link again and again, also between the moment when the name is free and that when memory is made.
#[test]
fn a_link_that_comes_in_between_is_not_followed() {
    let dir = TempDir::in_memory();
    let (target, link) = (dir.join("target"), dir.join("link"));
    std::fs::write(&target, b"somebody's").unwrap();
    let done = AtomicBool::new(false);
    let mut refused = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = symlink(&target, &link);
            }
        });
        for _ in 0..5000 {
            refused += u32::from(SharedMemory::create(&link, 64, Incarnation(1)).is_err());
            if refused == 20 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let left = std::fs::read(&target).unwrap();
    assert_eq!(left, b"somebody's", "after {refused} links in between");
}

#[test]
fn no_room_is_a_clear_error() {
    let dir = TempDir::in_memory();
    let path = dir.join("memory");
    let error = SharedMemory::create(&path, 1 << 46, Incarnation(1)).unwrap_err();
    assert!(
        error.to_string().contains("find room for shared memory"),
        "{error}"
    );
    assert!(!path.exists());
}

#[test]
fn the_file_has_all_its_room_from_the_start() {
    use std::os::unix::fs::MetadataExt;
    for dir in [TempDir::new(), TempDir::in_memory()] {
        let path = dir.join("memory");
        let _memory = SharedMemory::create(&path, 1 << 20, Incarnation(1)).unwrap();
        let room = std::fs::metadata(&path).unwrap().blocks() * 512;
        assert!(room >= (1 << 20) + 4096, "{room}");
    }
}

#[test]
#[should_panic(expected = "outside the memory")]
fn a_write_past_the_end_panics() {
    SharedMemory::anonymous(64).write(60, b"12345");
}

#[test]
#[should_panic(expected = "outside the memory")]
fn an_offset_that_wraps_around_panics() {
    let _ = SharedMemory::anonymous(64).read_vec(usize::MAX - 2, 8);
}

#[test]
fn a_boot_id_is_read_from_text() {
    let text = "0123abcd-4567-89ef-0000-111122223333\n";
    assert_eq!(BootId::parse(text), Some(BootId(0x0123_abcd_4567_89ef)));
    for bad in ["", "0123", "zzzzzzzz-zzzz-zzzz"] {
        assert_eq!(BootId::parse(bad), None);
    }
}

#[test]
fn a_checked_write_of_any_length_lands_at_any_offset() {
    let memory = SharedMemory::anonymous(128);
    memory.grant(grant(1, 1));
    let bytes: Vec<u8> = (1..=64).collect();
    for offset in 0..24 {
        for len in 0..=bytes.len() {
            memory.fill_zero(0..128);
            memory
                .write_checked(memory.access(), offset, &bytes[..len])
                .unwrap();
            let mut expected = vec![0; 128];
            expected[offset..offset + len].copy_from_slice(&bytes[..len]);
            assert_eq!(memory.read_vec(0, 128), expected, "{len} bytes at {offset}");
        }
    }
}

/// What a ring's reader does: it takes what is complete, and zeroes it, while the writer may still
/// be in the middle of its write.
#[test]
fn a_checked_write_does_not_come_back_behind_a_reader_that_has_zeroed_it() {
    const LEN: usize = 4096 + 96;
    const MESSAGE: usize = 32;
    const ROUNDS: u64 = 20_000;
    let memory = SharedMemory::anonymous(LEN);
    memory.grant(grant(1, 1));
    let done = AtomicU64::new(0);
    let taken = AtomicU64::new(0);
    let wait = |word: &AtomicU64, round| {
        while word.load(Ordering::Acquire) < round {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                let bytes = [0xa5; LEN];
                memory.write_checked(memory.access(), 0, &bytes).unwrap();
                done.store(round, Ordering::Release);
                wait(&taken, round);
            }
        });
        for round in 1..=ROUNDS {
            for message in (0..LEN).step_by(MESSAGE) {
                let words = (message..message + MESSAGE).step_by(8);
                while words.clone().any(|at| memory.load_u64(at) == 0) {
                    std::hint::spin_loop();
                }
                memory.fill_zero(message..message + MESSAGE);
            }
            wait(&done, round);
            assert_eq!(memory.read_vec(0, LEN), [0; LEN], "in round {round}");
            taken.store(round, Ordering::Release);
        }
    });
}

#[test]
fn memory_that_is_passed_on_is_one_and_cannot_be_made_shorter() {
    let made = SharedMemory::passed(8192).unwrap();
    let descriptor = made.descriptor().try_clone_to_owned().unwrap();
    assert!(
        File::from(descriptor.try_clone().unwrap())
            .set_len(0)
            .is_err()
    );
    let received = SharedMemory::receive(descriptor).unwrap();
    assert_eq!(received.len(), 8192);
    received.write(100, b"oars");
    assert_eq!(made.read_vec(100, 4), b"oars");
    made.sign(64).store(7, Ordering::SeqCst);
    assert_eq!(received.sign(64).load(Ordering::SeqCst), 7);
    // Not the value that was seen: does not sleep.
    received.sleep_while(64, 6, Duration::from_secs(3600));
    made.wake(64);
}

#[test]
fn a_descriptor_of_something_else_is_refused() {
    let file = File::open("/dev/zero").unwrap();
    assert!(SharedMemory::receive(file.into()).is_err());
}
