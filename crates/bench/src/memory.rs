//! What a store in this process takes of memory, beside what the kernel says that the process takes.
//!
//! While a workload runs, a thread looks every few milliseconds. Each look has the bytes that are resident,
//! and what they are made of:
//!
//! - the parts that the store counts itself ([`argosy_embedded::Memory`]);
//! - the *program*: resident pages of files, the binary and its libraries, less the store's windows; and what
//!   else was resident beside the parts once the store was open, before anything was done with it;
//! - the *load*: what the bench keeps to verify answers. No store's, and in no budget.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use argosy_base::Clock;
use argosy_device::SystemClock;
use argosy_embedded::Memory;
use serde::Serialize;

use crate::report::{ratio, rounded};

/// Time from one look to the next.
const EVERY: Duration = Duration::from_millis(10);

/// The interval at which a store learns its resident bytes, and the allocator returns memory that other threads freed.
pub(crate) const TELL_EVERY: Duration = Duration::from_secs(1);

/// A look counts where the parts have moved by less meanwhile.
const STILL_BYTES: u64 = 1 << 20;

/// Bytes of a page of `/proc/self/statm`.
const PAGE_BYTES: u64 = 4096;

/// What a process takes of memory, by part.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryUse {
    /// Most bytes that were resident in any look, without what is the load's and the program's.
    pub store_peak_bytes: u64,
    /// Bytes that were resident in the look in which most were. The parts that follow are of that moment.
    pub resident_bytes: u64,
    /// All parts together.
    pub accounted_bytes: u64,
    /// The binary and its libraries, and what the process has of its own from its beginning.
    pub program_bytes: u64,
    /// What the bench keeps to verify answers.
    pub load_bytes: u64,
    /// Memtables, those that only scans still see among them.
    pub memtables_bytes: u64,
    /// Log windows.
    pub windows_bytes: u64,
    /// Entries of the cache.
    pub cache_bytes: u64,
    /// Indexes and filters that stay.
    pub pinned_bytes: u64,
    /// Buffers of merges, flushes, reads and logs, in use or kept for the next.
    pub buffers_bytes: u64,
    /// The difference between the sum of the parts and the resident memory, as a share of the resident memory.
    #[serde(flatten)]
    pub difference: MemoryDifference,
    /// How often it was looked.
    pub looks: u64,
}

/// A difference in all looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MemoryDifference {
    /// In the middle one.
    #[serde(rename = "difference_median")]
    pub median: f64,
    /// The most.
    #[serde(rename = "difference_max")]
    pub max: f64,
}

/// What was found by looking again and again.
struct Looks {
    found: MemoryUse,
    /// What the program [had of its own](own_bytes).
    own: u64,
    /// Looks by the thousandths by which the parts differed.
    differences: Vec<u64>,
}

impl Looks {
    fn new(own: u64) -> Self {
        Self {
            found: MemoryUse::default(),
            own,
            differences: vec![0; 1001],
        }
    }

    /// Looks at a process with `resident` in memory, at a store that takes `parts`, and a load that takes
    /// `load_bytes`.
    ///
    /// Returns what the store has.
    fn look(&mut self, resident: Resident, parts: &Memory, load_bytes: u64) -> u64 {
        let Resident {
            bytes: resident,
            files,
        } = resident;
        let program = files.saturating_sub(parts.windows) + self.own;
        let accounted = parts.sum() + program + load_bytes;
        let difference = ratio(accounted.abs_diff(resident), resident).min(1.0);
        let thousandth = accounted.abs_diff(resident) * 1000 / resident.max(1);
        let index = usize::try_from(thousandth).unwrap_or(usize::MAX).min(1000);
        self.differences[index] += 1;
        let store = resident.saturating_sub(program + load_bytes);
        let found = &mut self.found;
        found.looks += 1;
        found.difference.max = found.difference.max.max(rounded(difference, 3));
        found.store_peak_bytes = found.store_peak_bytes.max(store);
        if resident > found.resident_bytes {
            *found = MemoryUse {
                resident_bytes: resident,
                accounted_bytes: accounted,
                program_bytes: program,
                load_bytes,
                memtables_bytes: parts.memtables,
                windows_bytes: parts.windows,
                cache_bytes: parts.cache,
                pinned_bytes: parts.pinned,
                buffers_bytes: parts.buffers,
                ..*found
            };
        }
        store
    }

    fn end(self) -> MemoryUse {
        let mut below = 0;
        let median = self.differences.iter().zip(0_u64..).find(|(count, _)| {
            below += **count;
            2 * below >= self.found.looks
        });
        MemoryUse {
            difference: MemoryDifference {
                median: median.map_or(0.0, |(_, thousandth)| ratio(thousandth, 1000)),
                ..self.found.difference
            },
            ..self.found
        }
    }
}

/// Bytes that this process had in memory beside files and `parts`, those of the first store that it opened, with
/// which nothing was done yet. What later stores find beside theirs may be what the allocator kept of the first.
pub(crate) fn own_bytes(parts: &Memory) -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| {
        let Resident { bytes, files } = resident().unwrap_or_default();
        (bytes - files).saturating_sub(parts.sum() - parts.windows)
    })
}

/// Samples resident memory until `over`. Reports the store's share, without the program's [own](own_bytes), every
/// [`TELL_EVERY`]. Also returns the CPU time of the sampling.
pub(crate) fn watch(
    over: &AtomicBool,
    own: u64,
    memory: impl Fn() -> Option<(Memory, u64)>,
    tell: impl Fn(u64),
) -> (Option<MemoryUse>, Duration) {
    let mut looks = Looks::new(own);
    let mut told = SystemClock.now();
    while let Some((before, _)) = memory() {
        let resident = resident();
        let after = memory();
        // What moved in between belongs to no moment.
        if let Some((resident, (parts, load_bytes))) = resident.zip(after)
            && parts.sum().abs_diff(before.sum()) < STILL_BYTES
        {
            let store = looks.look(resident, &parts, load_bytes);
            if SystemClock.now() - told >= TELL_EVERY {
                told = SystemClock.now();
                tell(store);
            }
        }
        if over.load(Ordering::Acquire) {
            return (Some(looks.end()), SystemClock.thread_cpu());
        }
        std::thread::park_timeout(EVERY);
    }
    (None, SystemClock.thread_cpu())
}

/// Resident memory of a process, in bytes.
#[derive(Clone, Copy, Default)]
struct Resident {
    bytes: u64,
    /// Those of them that are of files or shared.
    files: u64,
}

/// That of this process.
fn resident() -> Option<Resident> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = text.split_ascii_whitespace().skip(1).map(str::parse::<u64>);
    let (resident, shared) = (pages.next()?.ok()?, pages.next()?.ok()?);
    Some(Resident {
        bytes: resident * PAGE_BYTES,
        files: shared * PAGE_BYTES,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_look_the_middle_one_and_the_worst_are_told() {
        let mut looks = Looks::new(4);
        for (bytes, cache) in [(1000, 900), (900, 890), (2000, 1000), (500, 400)] {
            let parts = Memory {
                cache,
                ..Memory::default()
            };
            looks.look(Resident { bytes, files: 6 }, &parts, 5);
        }
        let found = looks.end();
        assert_eq!((found.looks, found.resident_bytes), (4, 2000));
        assert_eq!((found.accounted_bytes, found.program_bytes), (1015, 10));
        assert_eq!(found.store_peak_bytes, 1985);
        assert_eq!(
            (found.difference.median, found.difference.max),
            (0.085, 0.493)
        );
    }

    #[test]
    fn this_process_can_be_looked_at() {
        let (found, _) = watch(
            &AtomicBool::new(true),
            own_bytes(&Memory::default()),
            || Some((Memory::default(), 7)),
            |_| (),
        );
        let found = found.unwrap();
        assert!(found.looks == 1 && found.resident_bytes > 1 << 20 && found.program_bytes > 0);
        assert!(
            watch(&AtomicBool::new(true), 0, || None, |_| ())
                .0
                .is_none()
        );
    }
}
