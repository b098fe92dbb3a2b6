//! Tests of reads that are begun and fetched: see [`super`].

use std::fs::OpenOptions;

use argosy_base::limits::SEGMENT_SIZE;
use parking_lot::MutexGuard;

use super::*;
use crate::ring::tests::{PIECES, can, create, write};
use crate::testing::TempDir;
use crate::{Device, DeviceError, FileDevice, IoMethod};

const LEN: usize = 128 << 10;

fn fetch(device: &FileDevice, at: u64, reading: BegunRead) -> Result<Buffer, DeviceError> {
    reading.finish(|bytes| device.read(at, bytes))
}

fn begin(device: &FileDevice, at: u64) -> BegunRead {
    let mut buffer = Buffer::for_reading(LEN);
    buffer.fill(0xff);
    device.begin_read(at, buffer)
}

/// Where part `n` of a device is, which holds `n` after [`fill`].
fn part(n: u8) -> u64 {
    u64::from(n) * LEN as u64
}

/// What a test has that uses all registered memory of the process.
struct Alone {
    dir: TempDir,
    _pieces: MutexGuard<'static, ()>,
}

/// `None` where the system has no registered memory.
fn alone() -> Option<Alone> {
    let pieces = PIECES.lock();
    can(IoMethod::Registered).then(|| Alone {
        dir: TempDir::new(),
        _pieces: pieces,
    })
}

impl Alone {
    fn filled(&self) -> FileDevice {
        let device = create(&self.dir, IoMethod::Registered);
        fill(&device);
        device
    }
}

fn fill(device: &FileDevice) {
    for n in 0..32 {
        write(device, part(n), n, LEN);
    }
}

#[test]
fn what_was_begun_is_fetched_in_any_order_on_any_thread() {
    let Some(alone) = alone() else { return };
    let device = &alone.filled();
    let readings: Vec<_> = (0..10).map(|n| (n, begin(device, part(n)))).collect();
    assert_eq!(device.counters().ahead_reads, 10);
    std::thread::scope(|scope| {
        for (n, reading) in readings.into_iter().rev() {
            scope.spawn(move || {
                let bytes = fetch(device, part(n), reading).unwrap();
                assert!(bytes.iter().all(|b| *b == n), "part {n}");
            });
        }
    });
    assert_eq!(
        device.counters().read_bytes,
        10 * LEN as u64,
        "each was read once"
    );
}

#[test]
fn short_reads_take_no_registered_memory() {
    let Some(alone) = alone() else { return };
    let device = alone.filled();
    let begin = |n: u8| {
        let mut buffer = Buffer::for_reading_ahead(64 << 10).expect("it is short");
        buffer.fill(0xff);
        (n, device.begin_read(part(n), buffer))
    };
    // More than there are pieces.
    let readings: Vec<_> = (0..30).map(begin).collect();
    let counters = device.counters();
    assert_eq!((counters.ahead_reads, counters.fixed_reads), (30, 0));
    for (n, reading) in readings {
        let bytes = fetch(&device, part(n), reading).unwrap();
        assert_eq!(bytes.len(), 64 << 10);
        assert!(bytes.iter().all(|b| *b == n), "part {n}");
    }
}

#[test]
fn what_nobody_fetches_is_let_go() {
    let Some(alone) = alone() else { return };
    let device = alone.filled();
    for round in 0..10u8 {
        let readings: Vec<_> = (0..12).map(|n| begin(&device, part(n))).collect();
        drop(readings);
        let bytes = fetch(&device, part(round), begin(&device, part(round))).unwrap();
        assert!(bytes.iter().all(|b| *b == round));
    }
    // More than there is room for: the others are read when they are fetched.
    let readings: Vec<_> = (0..32).map(|n| (n, begin(&device, part(n)))).collect();
    for (n, reading) in readings {
        assert!(
            fetch(&device, part(n), reading)
                .unwrap()
                .iter()
                .all(|b| *b == n)
        );
    }
    // What was let go may be under way still; nothing is begun then.
    let last = (0..10_000).find_map(|_| {
        let before = device.counters().ahead_reads;
        let reading = begin(&device, part(3));
        if device.counters().ahead_reads > before {
            return Some(reading);
        }
        fetch(&device, part(3), reading).unwrap();
        None
    });
    let last = last.expect("room comes back");
    drop(device);
    let bytes = last.finish(|_| Err("it was not begun")).unwrap();
    assert!(bytes.iter().all(|b| *b == 3), "it outlives the device");
}

#[test]
fn an_error_comes_out_where_it_is_fetched_and_is_a_plain_read_s() {
    let _alone = PIECES.lock();
    let dir = TempDir::new();
    for method in [IoMethod::Plain, IoMethod::Registered] {
        let device = create(&dir, method);
        fill(&device);
        // The file has become shorter than the device was.
        let file = OpenOptions::new().write(true).open(dir.join(method.name()));
        file.unwrap().set_len(part(3) + 4096).unwrap();
        for at in [part(3), SEGMENT_SIZE as u64] {
            let reading = begin(&device, at);
            let error = fetch(&device, at, reading).unwrap_err().to_string();
            let expected = format!("read of {LEN} bytes at byte {at}");
            assert!(error.contains(&expected), "{error}");
        }
        let whole = fetch(&device, part(2), begin(&device, part(2))).unwrap();
        assert!(whole.iter().all(|b| *b == 2), "others go on");
        let begun = device.counters().ahead_reads;
        assert!(
            method == IoMethod::Registered || begun == 0,
            "nothing is begun"
        );
    }
}
