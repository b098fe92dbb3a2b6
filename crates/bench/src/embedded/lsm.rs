//! Our own engine, as a program gets it that embeds the store: clients' threads call [`Db`], whose background thread
//! flushes and merges.
//!
//! A write that finds no room waits for it, and the wait is part of its latency.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use argosy_embedded::{Db, Error, Memory, Settings, WriteBatch, WriteOptions};

use super::{Contender, Filters, Look, Pairs, run_all};
use crate::run::{BenchError, Configuration, Notice};

/// Where and how the engine stores.
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// An empty directory on the device to be measured.
    pub dir: PathBuf,
    /// An empty directory for log windows, on tmpfs.
    pub windows: PathBuf,
    /// Bytes of the device.
    pub device_bytes: u64,
    /// The engine's settings.
    pub settings: Settings,
    /// Bytes of memory for all that the store has, gaps and all, where it keeps to that.
    pub budget: Option<usize>,
    /// A write is answered once it is durable.
    pub sync: bool,
    /// Has the allocator give back what the calling thread has allocated and others have freed: called once a
    /// second by the store's thread and by each client's where there is a budget.
    pub trim_allocator: fn(),
}

/// Loads `config`'s records and runs its workloads. Hands each row to `tell`.
pub fn run(
    embedded: &EmbeddedOptions,
    config: &Configuration,
    tell: impl FnMut(Notice),
) -> Result<(), BenchError> {
    let budget = embedded.budget.map(|bytes| Budget {
        bytes,
        resident: Arc::new(AtomicU64::new(bytes as u64)),
        trim_allocator: embedded.trim_allocator,
    });
    let stage = Stage {
        db: open(embedded, budget.as_ref())?,
        options: WriteOptions {
            sync: embedded.sync,
            ..WriteOptions::default()
        },
        budget,
    };
    run_all(&stage, config, tell)?;
    Ok(stage.db.close()?)
}

fn open(embedded: &EmbeddedOptions, budget: Option<&Budget>) -> Result<Db, Error> {
    let mut builder = Db::builder()
        .engine_exactly(embedded.settings.clone())
        .device_bytes(embedded.device_bytes)
        .windows_in(&embedded.windows)
        // Reads of it would be measured as the workload's.
        .scrub_period(Duration::ZERO)
        .patience(Duration::MAX);
    if let Some(budget) = budget.cloned() {
        let bytes = budget.bytes;
        builder = builder.memory(bytes).measured_by(move || budget.look());
    }
    builder.open(&embedded.dir)
}

/// All the memory that a store may take.
#[derive(Clone)]
struct Budget {
    bytes: usize,
    /// What the store was found to take, until its thread has heard of it.
    resident: Arc<AtomicU64>,
    trim_allocator: fn(),
}

impl Budget {
    /// The resident bytes of the last sample, for the store's thread. Without a new sample it returns the budget, which
    /// leaves the store as it is.
    fn look(&self) -> u64 {
        (self.trim_allocator)();
        self.resident.swap(self.bytes as u64, Ordering::Relaxed)
    }
}

/// The store, and how it is written.
struct Stage {
    db: Db,
    options: WriteOptions,
    budget: Option<Budget>,
}

impl Contender for Stage {
    type Hand = WriteBatch;

    #[inline]
    fn put(&self, batch: &mut WriteBatch, key: &[u8], value: &[u8]) -> Result<(), BenchError> {
        batch.clear();
        batch.put(key, value).map_err(Error::from)?;
        self.db.write_with(batch, &self.options)?;
        Ok(())
    }

    #[inline]
    fn get<R>(&self, key: &[u8], found: impl FnOnce(Option<&[u8]>) -> R) -> Result<R, BenchError> {
        let value = self.db.get(key)?;
        Ok(found(value.as_deref()))
    }

    fn scan(&self, from: &[u8], count: u64, found: &mut Pairs) -> Result<(), BenchError> {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let scan = self.db.range(from..).read_ahead_at_most(count);
        for pair in scan.take(count) {
            found.push(pair?);
        }
        Ok(())
    }

    fn drain(&self) -> Result<(), BenchError> {
        Ok(self.db.drain()?)
    }

    fn memory(&self) -> Option<Memory> {
        Some(self.db.memory())
    }

    fn resident(&self, bytes: u64) {
        if let Some(budget) = &self.budget {
            budget.resident.store(bytes, Ordering::Relaxed);
        }
    }

    fn trim_allocator(&self) {
        if let Some(budget) = &self.budget {
            (budget.trim_allocator)();
        }
    }

    fn look(&self) -> Result<Look, BenchError> {
        let stats = self.db.stats();
        let engine = stats.engine;
        let deepest = engine.levels.iter().filter(|level| level.segments > 0);
        Ok(Look {
            log_bytes: Some(engine.log_work.recovery_write_bytes),
            space_bytes: stats.device.used_bytes,
            levels: deepest
                .map(|level| u64::from(level.level))
                .max()
                .unwrap_or(0),
            compactions: engine.work.flushes + engine.work.compactions,
            filters: Some(Filters {
                spared: engine.filters.spared,
                misled: engine.filters.misled,
                bytes: engine.filters.bytes,
            }),
        })
    }
}
