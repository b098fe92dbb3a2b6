//! RocksDB beside ours, on the same load and with the same memory.

use std::path::Path;
use std::time::Duration;

use argosy_peers::rocksdb::{LogBytes, RocksDb, Settings};

use super::{Look, Pairs, Store, run_all};
use crate::run::{BenchError, Configuration, Event};

/// How often it is asked whether it has drained.
const DRAIN_POLL: Duration = Duration::from_millis(5);

/// Loads `config`'s records into a new store in `dir`, and runs its workloads. Hands each row to
/// `tell`.
pub fn run(
    dir: &Path,
    settings: &Settings,
    config: &Configuration,
    tell: impl FnMut(Event),
) -> Result<(), BenchError> {
    let mut client = Client {
        db: RocksDb::open(dir, settings)?,
        dir,
        log: LogBytes::default(),
    };
    run_all(&mut client, config, tell)
}

struct Client<'a> {
    db: RocksDb,
    dir: &'a Path,
    log: LogBytes,
}

impl Store for Client<'_> {
    #[inline]
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        self.db.put(key, value)?;
        self.log.put(key.len(), value.len());
        Ok(())
    }

    #[inline]
    fn get<R>(
        &mut self,
        key: &[u8],
        found: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, BenchError> {
        Ok(self.db.get(key, found)?)
    }

    fn scan(&mut self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        Ok(self.db.scan(from, count, each)?)
    }

    fn drain(&mut self) -> Result<(), BenchError> {
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

    fn look(&mut self) -> Result<Look, BenchError> {
        Ok(Look {
            log_bytes: self.log.get(),
            space_bytes: bytes_of(self.dir),
            levels: self.db.levels()?,
            compactions: self.db.compactions()?,
        })
    }
}

/// Bytes of all files in `dir`. One that goes away meanwhile is not counted.
fn bytes_of(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let lengths = entries.filter_map(|entry| entry.metadata().ok());
    lengths.map(|metadata| metadata.len()).sum()
}
