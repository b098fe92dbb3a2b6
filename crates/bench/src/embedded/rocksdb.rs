//! RocksDB beside ours, on the same load and with the same memory.

use std::path::Path;
use std::time::Duration;

use argosy_peers::rocksdb::{LogBytes, RocksDb, RocksDbSettings};
use parking_lot::{Mutex, MutexGuard};

use super::{Contender, Look, Pairs, bytes_of, run_all};
use crate::run::{BenchError, Configuration, Notice};

/// How often it is asked whether it has drained.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Loads `config`'s records into a new store in `dir`, and runs its workloads. Hands each row to
/// `tell`.
pub fn run(
    dir: &Path,
    settings: &RocksDbSettings,
    config: &Configuration,
    tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let beside = Beside {
        db: RocksDb::open(dir, settings)?,
        dir,
        log: Mutex::default(),
    };
    run_all(&beside, config, tell)
}

struct Beside<'a> {
    db: RocksDb,
    dir: &'a Path,
    log: Mutex<LogBytes>,
}

impl Beside<'_> {
    fn log(&self) -> MutexGuard<'_, LogBytes> {
        self.log.lock()
    }
}

impl Contender for Beside<'_> {
    type Hand = ();

    #[inline]
    fn put(&self, (): &mut (), key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.db.put(key, value)?;
        self.log().put(key.len(), value.len());
        Ok(())
    }

    #[inline]
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(self.db.get(key, found)?)
    }

    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        Ok(self.db.scan(from, count, each)?)
    }

    fn drain(&self) -> Result<(), BenchError> {
        let mut idle_looks = 0;
        // A compaction that ends may be due to be followed by another, which is not begun yet.
        while idle_looks < 2 {
            match self.db.pending()? {
                0 => idle_looks += 1,
                _ => idle_looks = 0,
            }
            std::thread::park_timeout(DRAIN_POLL);
        }
        Ok(())
    }

    fn look(&self) -> Result<Look, BenchError> {
        Ok(Look {
            log_bytes: Some(self.log().get()),
            space_bytes: bytes_of(self.dir),
            levels: self.db.levels()?,
            compactions: self.db.compactions()?,
            filters: None,
        })
    }
}
