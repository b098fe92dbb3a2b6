//! What a store costs while it grows: it is filled with so many gibibytes, and tells after each twentieth how fast
//! that went, what it took of the CPU, and what it holds in memory. At the end a part of the pairs is read, and the
//! store is opened again.
//!
//! ```sh
//! cargo run --release -p argosy --example filling -- DIR [GIB] [VALUE_BYTES]
//! ```
//!
//! The memory of the store is 1 GiB. `DIR` must not exist.

use std::time::Duration;

use argosy::{Db, Error};
use argosy_base::{Clock as _, Instant};
use argosy_bench::clock::ProcessClock;

/// Lines that are printed.
const LINES: u64 = 20;
/// Pairs that are read at the end.
const READS: u64 = 100_000;
const SEGMENT_BYTES: u64 = 2 << 20;

/// Now, and the CPU time of the process.
fn now() -> (Instant, Duration) {
    (ProcessClock.now(), ProcessClock.process_cpu())
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
fn tell(db: &Db, pairs: u64, (began, cpu_before): (Instant, Duration)) {
    let (now, cpu) = now();
    let (stats, elapsed, used) = (db.stats(), now - began, cpu - cpu_before);
    let segments = stats.device_used_bytes / SEGMENT_BYTES;
    let memory = stats.memory;
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let each = |what: f64, of: u64| what / of.max(1) as f64;
    println!(
        "{:>8} {:>9.0} {:>9.2} {:>9} {:>8} {:>9.0} {:>8} {:>8} {:>8}",
        stats.device_used_bytes >> 20,
        1e-3 / each(elapsed.as_secs_f64(), pairs),
        each(used.as_secs_f64() * 1e6, pairs),
        segments,
        memory.versions >> 10,
        each(
            f64::from(u32::try_from(memory.versions).unwrap_or(u32::MAX)),
            segments
        ),
        memory.pinned >> 10,
        memory.sum() >> 20,
        stats.engine.edits,
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
        "device/M   kops/s CPU us/op  segments versions/K B/segment pinned/K memory/M    edits"
    );
    for line in 0..LINES {
        let before = now();
        for number in line * part..(line + 1) * part {
            db.put(key(number), value(number, value_len))?;
        }
        tell(&db, part, before);
    }
    let before = now();
    db.compact()?;
    tell(&db, part, before);
    println!(
        "the last line: merged as a whole, which took {:?}",
        now().0 - before.0
    );
    let (total, mut wrong) = (part * LINES, 0);
    for read in 0..READS {
        let number = read * (total / READS).max(1) % total;
        wrong += u64::from(db.get(key(number))? != Some(value(number, value_len)));
    }
    println!("{wrong} of {READS} pairs are not what was written");
    db.close()?;
    drop(db);
    let (began, _) = now();
    let db = open()?;
    println!("opened again in {:?}", now().0 - began);
    db.close()
}
