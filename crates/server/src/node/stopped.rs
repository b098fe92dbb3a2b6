//! The record that a server has stopped and owes nothing: whoever was promised a lease by it has handed it back, or
//! that has run out. The next start need not wait then before it serves in place of another server.
//!
//! It is memory that goes the way of the windows, so that it is gone with the boot whose clock it is of:
//!
//! ```text
//! 0              8          12        16
//! +--------------+----------+---------+-------
//! | incarnation  | version  | crc32c  | zeros
//! +--------------+----------+---------+-------
//! ```
//!
//! Integers are little-endian. `incarnation` is that of the start that has stopped; `crc32c` covers what is in front of
//! it, with the identity (stopped). A record of another version does not count: the next start waits. It is good for
//! the next start alone, and removed by that before anything is promised.

use argosy_base::{Identity, Kind};
use argosy_memory::{MemoryError, SharedMemory};
use argosy_replication::lease::LastStop;

use super::{World, keys};

/// Bytes of the record's memory.
const RECORD_BYTES: usize = 4096;
const CRC_AT: usize = 12;
const VERSION: u32 = 1;
const IDENTITY: Identity = Identity::of_server(Kind::Stopped, 0);

/// How the server stopped the last time. The record of that is gone when this returns.
pub(super) fn take(world: &World) -> LastStop {
    let name = keys::stopped().0;
    let left = world.windows.survivors(name);
    let before = left.and_then(|left| says(&left));
    match world.windows.forget_survivors(name) {
        Ok(()) if before.and_then(|it| it.checked_add(1)) == Some(world.store.incarnation().0) => {
            LastStop::Clean
        }
        Ok(()) => LastStop::Other,
        Err(error) => {
            tracing::warn!(%error, "the record of the last stop stays, and does not count");
            LastStop::Other
        }
    }
}

/// Records that the server stops and owes nothing.
///
/// # Errors
/// [`MemoryError`] where there is no memory: then the next start waits.
pub(super) fn record(world: &World) -> Result<(), MemoryError> {
    let memory = world.windows.create(keys::stopped().0, RECORD_BYTES)?;
    let bytes = encode(world.store.incarnation().0, VERSION);
    memory.write(CRC_AT, &IDENTITY.checksum(&bytes).to_le_bytes());
    memory.write(0, &bytes);
    world.windows.forget_survivors(keys::stopped().0)
}

/// Which start has stopped.
fn says(memory: &SharedMemory) -> Option<u64> {
    if memory.len() < RECORD_BYTES {
        return None;
    }
    let (bytes, sum) = (memory.read_vec(0, CRC_AT), memory.read_vec(CRC_AT, 4));
    let is_right = sum == IDENTITY.checksum(&bytes).to_le_bytes();
    let incarnation = bytes.first_chunk().copied().map(u64::from_le_bytes)?;
    (is_right && bytes == encode(incarnation, VERSION)).then_some(incarnation)
}

/// What the checksum covers.
fn encode(incarnation: u64, version: u32) -> [u8; CRC_AT] {
    let mut bytes = [0; CRC_AT];
    bytes[..8].copy_from_slice(&incarnation.to_le_bytes());
    bytes[8..].copy_from_slice(&version.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use argosy_base::ServerId;
    use argosy_device::Device;
    use argosy_fabric::sim::SimWorld;
    use argosy_memory::AnonymousWindows;

    use super::super::readers_tests::{Gate, surroundings};
    use super::*;

    /// Starts of one server, each with what the one before left.
    struct Starts {
        fabric: SimWorld,
        device: Arc<Gate>,
        windows: AnonymousWindows,
    }

    impl Starts {
        fn next(&mut self) -> World {
            self.windows = self.windows.restart();
            let device: Arc<dyn Device> = Arc::<Gate>::clone(&self.device);
            World {
                windows: Arc::new(self.windows.clone()),
                ..surroundings(&self.fabric, ServerId(0), device)
            }
        }
    }

    #[test]
    fn a_record_is_good_for_the_next_start_alone() {
        let mut starts = Starts {
            fabric: SimWorld::new(1),
            device: Gate::new(),
            windows: AnonymousWindows::new(),
        };
        let first = starts.next();
        assert_eq!(take(&first), LastStop::Other, "nothing is recorded");
        record(&first).expect("there is memory");
        let second = starts.next();
        assert_eq!(take(&second), LastStop::Clean);
        assert_eq!(take(&second), LastStop::Other, "it is gone");
        let third = starts.next();
        assert_eq!(take(&third), LastStop::Other, "the second was killed");
        record(&third).expect("there is memory");
        // One start comes between that does not get as far as to look.
        starts.next();
        let fifth = starts.next();
        assert_eq!(take(&fifth), LastStop::Other, "it is of the third");
    }

    #[test]
    fn a_damaged_record_says_nothing() {
        let memory = SharedMemory::anonymous(RECORD_BYTES);
        assert_eq!(says(&memory), None);
        let bytes = encode(7, VERSION);
        memory.write(0, &bytes);
        assert_eq!(says(&memory), None);
        memory.write(CRC_AT, &IDENTITY.checksum(&bytes).to_le_bytes());
        assert_eq!(says(&memory), Some(7));
        memory.write(3, &[1]);
        assert_eq!(says(&memory), None);
        let later = encode(7, VERSION + 1);
        memory.write(0, &later);
        memory.write(CRC_AT, &IDENTITY.checksum(&later).to_le_bytes());
        assert_eq!(says(&memory), None);
        assert_eq!(says(&SharedMemory::anonymous(64)), None);
    }
}
