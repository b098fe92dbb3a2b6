//! What getting many keys at once is worth: random gets of a data set larger than the cache, one by one and
//! several together.
//!
//! ```sh
//! cargo run --release -p argosy-embedded --example get_many -- DIR PAIRS VALUE_BYTES [KEYS_TOGETHER]
//! ```

use std::time::Duration;

use argosy_embedded::{Db, Error};
use rustix::time::{ClockId, clock_gettime};

fn clock(id: ClockId) -> Duration {
    Duration::try_from(clock_gettime(id)).unwrap_or_default()
}

fn key(number: u64) -> [u8; 8] {
    // Spread over the whole range of keys.
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()
}

fn main() -> Result<(), Error> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().unwrap_or_else(|| "get-many-db".to_owned());
    let mut number = |otherwise| {
        let given = args.next().and_then(|arg| arg.parse().ok());
        given.unwrap_or(otherwise)
    };
    let (pairs, value_bytes, together) = (number(2_000_000_u64), number(400), number(32));
    let db = Db::builder()
        .memory(32 << 20)
        .l0_bytes(4 << 20)
        .open(&dir)?;
    if db.get(key(pairs - 1))?.is_none() {
        let value = vec![7; usize::try_from(value_bytes).unwrap_or(400)];
        for number in 0..pairs {
            db.put(key(number), &value)?;
        }
        db.compact()?;
    }
    let operations = 64_000;
    for group in [1, together, 1, together] {
        let before = (clock(ClockId::Monotonic), clock(ClockId::ProcessCPUTime));
        let read = db.stats().device.read_bytes;
        let mut random = 88_172_645_463_325_252_u64;
        let mut done = 0;
        while done < operations {
            let keys = (0..group).map(|_| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                key(random % pairs)
            });
            if group == 1 {
                for key in keys {
                    assert!(db.get(key)?.is_some(), "every key was put");
                }
            } else {
                assert!(db.get_many(keys)?.iter().all(Option::is_some));
            }
            done += group;
        }
        let took = clock(ClockId::Monotonic) - before.0;
        let cpu = clock(ClockId::ProcessCPUTime) - before.1;
        println!(
            "{group:3} together: {:7} gets/s, {:5.2} us of CPU each, {} bytes read each",
            u128::from(done) * 1_000_000 / took.as_micros(),
            cpu.as_secs_f64() * 1e6 / f64::from(u32::try_from(done).unwrap_or(u32::MAX)),
            (db.stats().device.read_bytes - read) / done,
        );
    }
    db.close()
}
