//! How the owner of a memory takes it back from a peer, in every order that the memory model allows: what the
//! peer takes for written is in the owner's copy.
//!
//! `shared/access.rs` is compiled here once more, over the atomics of the model checker `loom` instead of the
//! standard library's. The payload is a word that orders nothing by itself.

#![allow(unreachable_pub, reason = "lints look at the source where it lives")]

#[path = "../src/shared"]
mod memory {
    mod access;

    /// The twin of `src/shared/sync.rs`.
    mod sync {
        pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
    }

    use sync::{AtomicU64, Ordering};

    #[derive(Debug, PartialEq, Eq)]
    pub(crate) struct Revoked;

    /// A memory with a payload of two words.
    pub(crate) struct Memory {
        access: AtomicU64,
        payload: [AtomicU64; 2],
    }

    impl Memory {
        pub(crate) fn new() -> Self {
            Self {
                access: AtomicU64::new(0),
                payload: [(); 2].map(|()| AtomicU64::new(0)),
            }
        }

        pub(crate) fn grant(&self, number: u64) {
            access::Access(&self.access).grant(number);
        }

        pub(crate) fn revoke(&self) {
            access::Access(&self.access).revoke();
        }

        pub(crate) fn write(&self, number: u64, value: u64) -> Result<(), Revoked> {
            access::Access(&self.access).write(number, || {
                for word in &self.payload {
                    word.store(value, Ordering::Relaxed);
                }
            })
        }

        pub(crate) fn read(&self) -> [u64; 2] {
            [0, 1].map(|at| self.payload[at].load(Ordering::Relaxed))
        }
    }
}

use loom::sync::Arc;
use memory::{Memory, Revoked};

/// A peer writes while the owner takes the memory back, copies it, and does `then`.
fn what_succeeded_is_in_the_copy(then: impl Fn(&Memory) + Send + Sync + 'static) {
    loom::model(move || {
        let memory = Arc::new(Memory::new());
        memory.grant(1);
        let peer = loom::thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.write(1, 7)
        });
        memory.revoke();
        let copy = memory.read();
        then(&memory);
        let written = peer.join().expect("it wrote or not");
        assert!(written == Err(Revoked) || copy == [7, 7], "{copy:?}");
    });
}

#[test]
fn what_a_revoked_peer_has_written_is_in_the_copy() {
    what_succeeded_is_in_the_copy(|_| ());
}

/// The next grant is another's: the peer does not take it for its own.
#[test]
fn what_a_revoked_peer_has_written_is_in_the_copy_although_another_may_write() {
    what_succeeded_is_in_the_copy(|memory| memory.grant(2));
}

/// A grant that was taken back is none.
#[test]
fn a_write_after_the_owner_has_revoked_fails() {
    let memory = || Arc::new(Memory::new());
    loom::model(move || {
        let memory = memory();
        memory.grant(1);
        memory.revoke();
        let peer = loom::thread::spawn({
            let memory = Arc::clone(&memory);
            move || memory.write(1, 7)
        });
        let written = peer.join().expect("it wrote or not");
        assert_eq!((written, memory.read()), (Err(Revoked), [0, 0]));
    });
}
