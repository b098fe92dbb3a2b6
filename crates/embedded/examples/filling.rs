//! What a store costs while it grows: it is filled with so many gibibytes, and tells after each twentieth how fast
//! that went, what it took of the CPU, and what it holds in memory. At the end a part of the pairs is read, and the
//! store is opened again.
//!
//! ```sh
//! cargo run --release -p argosy-embedded --example filling -- DIR [GIB] [VALUE_BYTES]
//! ```
//!
//! The memory of the store is 1 GiB. `DIR` must not exist.

use std::time::Duration;

use argosy_base::{Clock as _, Instant, SEGMENT_SIZE};
use argosy_device::SystemClock;
use argosy_embedded::{Db, Error};

/// Lines that are printed.
const LINES: u64 = 20;
/// Pairs that are read at the end.
const READS: u64 = 100_000;

/// When something began.
struct Began {
    at: Instant,
    /// CPU time of the process until then.
    cpu: Duration,
}

impl Began {
    fn now() -> Self {
        Self {
            at: SystemClock.now(),
            cpu: SystemClock.process_cpu(),
        }
    }

    fn elapsed(&self) -> Duration {
        SystemClock.now() - self.at
    }
}

fn key(number: u64) -> [u8; 16] {
    // Spread over the whole range of keys.
    let spread = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    spread.to_le_bytes()
}

fn value(number: u64, bytes: usize) -> Vec<u8> {
    number.to_le_bytes().repeat(bytes.div_ceil(8))
}

/// Prints what `pairs` more pairs took since `began`, and what the store holds.
fn tell(db: &Db, pairs: u64, began: &Began) {
    let (elapsed, cpu) = (began.elapsed(), SystemClock.process_cpu() - began.cpu);
    let stats = db.stats();
    let segments = stats.device.used_bytes / SEGMENT_SIZE as u64;
    let (memory, engine) = (stats.memory, stats.engine);
    let waits = [
        engine.busy.windows,
        engine.busy.memtable,
        engine.busy.debt,
        engine.busy.space,
    ];
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let per_pair = |seconds: f64| seconds / pairs as f64;
    println!(
        "{:>8} {:>9.0} {:>9.2} {:>9} {:>8} {:>9} {:>8} {:>8} {:>8} {waits:?}",
        stats.device.used_bytes >> 20,
        1e-3 / per_pair(elapsed.as_secs_f64()),
        1e6 * per_pair(cpu.as_secs_f64()),
        segments,
        memory.versions >> 10,
        memory.versions / segments.max(1),
        memory.pinned >> 10,
        memory.sum() >> 20,
        engine.work.edits,
    );
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "filling-db".to_owned());
    let mut number = |otherwise| {
        let given = args.next().and_then(|arg| arg.parse().ok());
        given.unwrap_or(otherwise)
    };
    let (gib, value_bytes) = (number(40_u64), number(1200));
    let value_len = usize::try_from(value_bytes).unwrap_or(1200);
    let part = (gib << 30) / (16 + value_bytes) / LINES;
    let open = || {
        Db::builder()
            .memory(1 << 30)
            .device_bytes(gib << 31)
            .open(&dir)
    };
    let db = open()?;
    println!(
        "device/M   kops/s CPU us/op  segments versions/K B/segment pinned/K memory/M    edits \
         waits for [windows, memtables, merges, space]"
    );
    for line in 0..LINES {
        let began = Began::now();
        for number in line * part..(line + 1) * part {
            db.put(key(number), value(number, value_len))?;
        }
        tell(&db, part, &began);
    }
    let began = Began::now();
    db.compact()?;
    tell(&db, part, &began);
    println!(
        "the last line: merged as a whole, which took {:?}",
        began.elapsed()
    );
    let (total, mut wrong) = (part * LINES, 0);
    for read in 0..READS {
        let number = read * (total / READS).max(1) % total;
        wrong += u64::from(db.get(key(number))? != Some(value(number, value_len)));
    }
    println!("{wrong} of {READS} pairs are not what was written");
    db.close()?;
    drop(db);
    let began = Began::now();
    let db = open()?;
    println!("opened again in {:?}", began.elapsed());
    db.close()
}
