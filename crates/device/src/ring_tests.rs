//! Tests of how a device that is a file is read: see [`super`](crate::file).

use std::fs::OpenOptions;
use std::sync::Arc;

use argosy_base::limits::{BLOCK_SIZE, SEGMENT_SIZE};
use parking_lot::Mutex;

use super::IoMethod;
use crate::fixed::PIECE_BYTES;
use crate::testing::{TempDir, skipped};
use crate::{Buffer, Counters, Device, DeviceError, FileDevice, FileSettings, Io, OpKind, Read};

/// Held by tests that count reads into registered memory, or use all of it: there is one for the process.
pub(crate) static PIECES: Mutex<()> = Mutex::new(());

const LEN: u64 = 8 * SEGMENT_SIZE as u64;

/// Whether reads can go in this way here; if not, the test is skipped.
pub(crate) fn can(method: IoMethod) -> bool {
    let here = super::method();
    if here < method {
        skipped(&format!(
            "the best way to read that this machine allows is {here}"
        ));
    }
    here >= method
}

/// A device that is read by this method at most.
pub(crate) fn create(dir: &TempDir, method: IoMethod) -> FileDevice {
    let settings = FileSettings {
        io_method: method,
        ..FileSettings::default()
    };
    FileDevice::open_or_create(&dir.join(method.name()), LEN, &settings).unwrap()
}

pub(crate) fn write(device: &FileDevice, at: u64, byte: u8, len: usize) {
    let mut data = Buffer::zeroed(len);
    data.fill(byte);
    let data = Arc::new(data);
    device
        .submit(Io::Write {
            at,
            data,
            range: 0..len,
        })
        .wait()
        .unwrap();
}

/// Reads of each kind since the device was opened: through a ring, and of these into registered memory.
fn counts(device: &FileDevice) -> (u64, u64) {
    let Counters {
        ring_reads,
        fixed_reads,
        ..
    } = device.counters();
    (ring_reads, fixed_reads)
}

/// Reads `len` bytes at `at`, in the memory that reads ahead use; all of them have to be `byte`.
fn check(device: &FileDevice, at: u64, len: usize, byte: u8) {
    let mut bytes = Buffer::for_reading(len);
    bytes.fill(0xff);
    device.read(at, &mut bytes).unwrap();
    assert!(bytes.iter().all(|b| *b == byte), "{len} bytes at {at}");
}

#[test]
fn long_reads_go_into_registered_memory() {
    let _alone = PIECES.lock();
    if !can(IoMethod::Registered) {
        return;
    }
    let dir = TempDir::new();
    let device = create(&dir, IoMethod::Registered);
    assert_eq!(device.io_method(), IoMethod::Registered);
    for n in 0..20u8 {
        write(&device, u64::from(n) * PIECE_BYTES as u64, n, PIECE_BYTES);
    }
    for n in 0..20u8 {
        let len = (19 + usize::from(n) * 2) * BLOCK_SIZE;
        check(&device, u64::from(n) * PIECE_BYTES as u64, len, n);
    }
    assert_eq!(counts(&device), (20, 20));
    // Longer than a piece; shorter than is worth one.
    check(&device, 0, BLOCK_SIZE, 0);
    let mut long = Buffer::for_reading(PIECE_BYTES + BLOCK_SIZE);
    device.read(0, &mut long).unwrap();
    assert_eq!(counts(&device), (20, 20));
    // Another thread has another ring, with the same memory.
    let other = || check(&device, PIECE_BYTES as u64, PIECE_BYTES, 1);
    std::thread::scope(|scope| scope.spawn(other).join().unwrap());
    assert_eq!(counts(&device), (21, 21));
}

#[test]
fn reads_together_mix_both_kinds_of_memory() {
    let _alone = PIECES.lock();
    if !can(IoMethod::Registered) {
        return;
    }
    let dir = TempDir::new();
    let device = create(&dir, IoMethod::Registered);
    write(&device, 0, 1, BLOCK_SIZE);
    write(&device, SEGMENT_SIZE as u64, 2, PIECE_BYTES);
    let (mut short, mut long) = (
        Buffer::for_reading(BLOCK_SIZE),
        Buffer::for_reading(PIECE_BYTES),
    );
    let mut reads = [
        Read::new(0, &mut short),
        Read::new(SEGMENT_SIZE as u64, &mut long),
    ];
    device.read_together(&mut reads);
    assert!(reads.iter().all(|read| read.result.is_ok()));
    assert!(short.iter().all(|b| *b == 1) && long.iter().all(|b| *b == 2));
    assert_eq!(counts(&device), (2, 1));
}

#[test]
fn no_more_is_used_than_is_allowed() {
    let dir = TempDir::new();
    for method in [IoMethod::Plain, IoMethod::Ring] {
        if !can(method) {
            return;
        }
        let device = create(&dir, method);
        assert_eq!(device.io_method(), method);
        write(&device, 0, 3, SEGMENT_SIZE);
        check(&device, 0, PIECE_BYTES, 3);
        assert_eq!(counts(&device), (0, 0), "one read needs no ring");
        let (mut one, mut two) = (
            Buffer::for_reading(BLOCK_SIZE),
            Buffer::for_reading(PIECE_BYTES),
        );
        let mut reads = [
            Read::new(0, &mut one),
            Read::new(BLOCK_SIZE as u64, &mut two),
        ];
        device.read_together(&mut reads);
        assert!(one.iter().chain(&*two).all(|b| *b == 3));
        let ring = if method == IoMethod::Ring { 2 } else { 0 };
        assert_eq!(counts(&device), (ring, 0));
    }
}

#[test]
fn errors_of_reads_into_registered_memory_are_as_others() {
    let _alone = PIECES.lock();
    if !can(IoMethod::Registered) {
        return;
    }
    let dir = TempDir::new();
    let mut told = Vec::new();
    for method in [IoMethod::Plain, IoMethod::Registered] {
        let device = create(&dir, method);
        write(&device, 0, 7, PIECE_BYTES);
        // The file has become shorter than the device was: of the first read a part is there.
        let file = OpenOptions::new().write(true).open(dir.join(method.name()));
        file.unwrap().set_len(PIECE_BYTES as u64).unwrap();
        let mut bytes = Buffer::for_reading(PIECE_BYTES);
        for at in [PIECE_BYTES as u64 - 8192, SEGMENT_SIZE as u64] {
            told.push(device.read(at, &mut bytes).unwrap_err().to_string());
        }
        check(&device, 0, PIECE_BYTES, 7);
    }
    assert_eq!(told[..2], told[2..]);
    assert!(
        told[1].contains("read of 270336 bytes at byte 2097152"),
        "{}",
        told[1]
    );
}

#[test]
fn more_reads_ahead_than_pieces_are_read_as_well() {
    let _alone = PIECES.lock();
    let dir = TempDir::new();
    let device = create(&dir, IoMethod::Registered);
    write(&device, 0, 9, PIECE_BYTES);
    let mut buffers: Vec<_> = (0..40).map(|_| Buffer::for_reading(PIECE_BYTES)).collect();
    for buffer in &mut buffers {
        device.read(0, buffer).unwrap();
    }
    assert!(buffers.iter().all(|buffer| buffer.iter().all(|b| *b == 9)));
    assert!(counts(&device).1 < 40, "there are fewer pieces");
}

#[test]
fn reads_together_are_as_reads_one_by_one() {
    let dir = TempDir::new();
    for direct in [true, false] {
        let path = dir.join(if direct { "direct" } else { "plain" });
        let settings = FileSettings {
            direct,
            ..FileSettings::default()
        };
        let device = FileDevice::open_or_create(&path, LEN, &settings).unwrap();
        for n in 0..100u8 {
            write(&device, u64::from(n) * 8192, n, 8192);
        }
        // More than fit in one submission, of several lengths, the last of them where nothing was written.
        for count in [0, 1, 2, 31, 32, 33, 101] {
            let mut buffers: Vec<_> = (0..count)
                .map(|n| Buffer::zeroed(if n % 3 == 0 { 4096 } else { 8192 }))
                .collect();
            buffers.iter_mut().for_each(|buffer| buffer.fill(0xff));
            let mut reads: Vec<_> = (0..)
                .zip(&mut buffers)
                .map(|(n, buffer)| Read::new(n * 8192, buffer))
                .collect();
            device.read_together(&mut reads);
            assert!(reads.iter().all(|read| read.result.is_ok()));
            for (n, buffer) in (0..).zip(&buffers) {
                let byte = if n < 100 { n } else { 0 };
                assert!(
                    buffer.iter().all(|b| *b == byte),
                    "{count} reads, place {n}"
                );
            }
        }
        // Memory that direct I/O cannot use.
        let mut odd = vec![0; 3 * 4096 + 1];
        let (_, odd) = odd.split_at_mut(1);
        let (first, second) = odd.split_at_mut(4096);
        let mut reads = [Read::new(8192, first), Read::new(3 * 8192, second)];
        device.read_together(&mut reads);
        assert!(reads.iter().all(|read| read.result.is_ok()));
        assert!(first.iter().all(|b| *b == 1) && second.iter().all(|b| *b == 3));
    }
}

#[test]
fn of_reads_together_each_has_its_own_end() {
    let dir = TempDir::new();
    let device = create(&dir, IoMethod::Ring);
    write(&device, 0, 7, 8192);
    // The file has become shorter than the device was: what lies behind its end cannot be read.
    let file = OpenOptions::new()
        .write(true)
        .open(dir.join(IoMethod::Ring.name()));
    file.unwrap().set_len(8192).unwrap();
    let (mut first, mut second) = (Buffer::zeroed(8192), Buffer::zeroed(8192));
    let mut reads = [Read::new(0, &mut first), Read::new(16384, &mut second)];
    device.read_together(&mut reads);
    assert!(reads[0].result.is_ok());
    let error = reads[1].result.clone().unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::Io {
                op: OpKind::Read,
                at: 16384,
                ..
            }
        ),
        "{error}"
    );
    assert!(first.iter().all(|b| *b == 7));
}
