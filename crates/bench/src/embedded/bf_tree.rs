//! Bf-Tree beside ours, on the same load and with the same memory.

use std::path::Path;

use argosy_peers::bf_tree::{BfTree, BfTreeSettings};

use super::{Contender, Look, Pairs, bytes_of, run_all};
use crate::run::{BenchError, Configuration, Notice};

/// Loads `config`'s records into a new store in `dir`, which is there, and runs its workloads. Hands each row to
/// `tell`.
pub fn run(
    dir: &Path,
    settings: &BfTreeSettings,
    config: &Configuration,
    tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let beside = Beside {
        store: BfTree::open(dir, settings)?,
        dir,
    };
    run_all(&beside, config, tell)
}

struct Beside<'a> {
    store: BfTree,
    dir: &'a Path,
}

impl Contender for Beside<'_> {
    type Hand = ();

    #[inline]
    fn put(&self, (): &mut (), key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        Ok(self.store.put(key, value)?)
    }

    #[inline]
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        Ok(self.store.get(key, found)?)
    }

    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let each = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
        Ok(self.store.scan(from, count, each)?)
    }

    /// It has no work of its own.
    fn drain(&self) -> Result<(), BenchError> {
        Ok(())
    }

    fn look(&self) -> Result<Look, BenchError> {
        Ok(Look {
            // A block of its log is written again and again until it is full, and it does not say how often.
            log_bytes: None,
            space_bytes: bytes_of(self.dir),
            levels: 1,
            compactions: 0,
            filters: None,
        })
    }
}
