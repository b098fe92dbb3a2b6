//! fjall beside ours, on the same load and with the same memory, but for what it finds in the system's page
//! cache.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_peers::fjall::{Fjall, FjallSettings};

use super::{Contender, Look, Pairs, bytes_of, run_all};
use crate::run::{BenchError, Configuration, Notice};

/// How often it is asked whether it has drained.
const DRAIN_POLL: Duration = Duration::from_millis(5);
/// So many times in a row it has to have nothing to do. A compaction that is due is begun by a message to a
/// worker, and nothing tells of messages under way.
const IDLE_LOOKS: usize = 10;

/// Loads `config`'s records into a new store in `dir`, and runs its workloads. Hands each row to
/// `tell`.
pub fn run(
    dir: &Path,
    settings: &FjallSettings,
    config: &Configuration,
    tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let beside = Beside {
        store: Fjall::open(dir, settings)?,
        dir,
        journal_bytes: AtomicU64::new(0),
    };
    run_all(&beside, config, tell)
}

struct Beside<'a> {
    store: Fjall,
    dir: &'a Path,
    journal_bytes: AtomicU64,
}

impl Contender for Beside<'_> {
    type Hand = ();

    #[inline]
    fn put(&self, (): &mut (), key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.store.put(key, value)?;
        let bytes = Fjall::journal_bytes(key.len(), value.len());
        // Relaxed: a counter, read when all is done.
        self.journal_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    #[inline]
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(self.store.get(key, found)?)
    }

    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        Ok(self.store.scan(from, count, each)?)
    }

    fn drain(&self) -> Result<(), BenchError> {
        let mut idle_looks = 0;
        while idle_looks < IDLE_LOOKS {
            match self.store.pending() {
                0 => idle_looks += 1,
                _ => idle_looks = 0,
            }
            std::thread::park_timeout(DRAIN_POLL);
        }
        Ok(())
    }

    fn look(&self) -> Result<Look, BenchError> {
        Ok(Look {
            log_bytes: Some(self.journal_bytes.load(Ordering::Relaxed)),
            space_bytes: bytes_of(self.dir),
            levels: self.store.levels(),
            compactions: self.store.compactions(),
            filters: None,
        })
    }
}
