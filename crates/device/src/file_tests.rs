//! Tests of the device that is a file: see [`super`].

use std::fs::File;
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

use argosy_base::limits::BLOCK_SIZE;

use super::*;
use crate::beneath::{Scarce, scarce_room};
use crate::io::OpKind;
use crate::testing::TempDir;

const LEN: u64 = 8 * SEGMENT_SIZE as u64;

fn create(dir: &TempDir) -> FileDevice {
    FileDevice::open_or_create(&dir.join("device"), LEN, &FileSettings::default()).unwrap()
}

fn write(device: &FileDevice, at: u64, byte: u8, len: usize) -> Ticket {
    let mut data = Buffer::zeroed(len);
    data.fill(byte);
    device.submit(Io::Write {
        at,
        data: Arc::new(data),
        range: 0..len,
    })
}

fn read(device: &FileDevice, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = Buffer::zeroed(len);
    device.read(at, &mut bytes).unwrap();
    bytes.to_vec()
}

#[test]
fn what_is_written_is_read_after_reopening() {
    let dir = TempDir::new();
    let device = create(&dir);
    assert_eq!(device.len(), LEN);
    let writes: Vec<_> = (0..50u8)
        .map(|n| write(&device, u64::from(n) * 8192, n, 8192))
        .collect();
    writes.iter().for_each(|t| t.wait().unwrap());
    device.submit(Io::Sync).wait().unwrap();
    assert_eq!(device.counters().write_bytes, 50 * 8192);
    assert_eq!(device.counters().syncs, 1);
    drop(device);

    let device = FileDevice::open(&dir.join("device"), &FileSettings::default()).unwrap();
    for n in 0..50u8 {
        assert_eq!(read(&device, u64::from(n) * 8192, 8192), [n; 8192]);
    }
    assert_eq!(device.counters().read_bytes, 50 * 8192);
}

#[test]
fn parts_of_a_buffer_and_unaligned_memory_work() {
    let dir = TempDir::new();
    let device = create(&dir);
    let mut data = Buffer::zeroed(4 * BLOCK_SIZE);
    for (n, block) in (0..).zip(data.chunks_mut(BLOCK_SIZE)) {
        block.fill(n);
    }
    let io = Io::Write {
        at: 4096,
        data: Arc::new(data),
        range: BLOCK_SIZE..3 * BLOCK_SIZE,
    };
    device.submit(io).wait().unwrap();
    let mut bytes = vec![9; 4 * BLOCK_SIZE + 1];
    device.read(0, &mut bytes[1..]).unwrap();
    let firsts: Vec<_> = bytes[1..].chunks(BLOCK_SIZE).map(|b| b[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 0]);
}

#[test]
fn plain_io_takes_the_place_of_direct_io() {
    let dir = TempDir::new();
    let settings = FileSettings {
        direct: false,
        ..FileSettings::default()
    };
    let device = FileDevice::open_or_create(&dir.join("device"), LEN, &settings).unwrap();
    assert!(!device.is_direct());
    write(&device, 0, 5, 4096).wait().unwrap();
    assert_eq!(read(&device, 0, 4096), [5; 4096]);
}

#[test]
fn a_device_is_opened_once() {
    let dir = TempDir::new();
    let device = create(&dir);
    let again = || FileDevice::open(&dir.join("device"), &FileSettings::default());
    let error = again().err().unwrap();
    assert!(
        matches!(error, DeviceError::InUse { here: true, .. }),
        "{error}"
    );
    assert!(error.to_string().contains("this process"), "{error}");
    drop(device);
    assert!(again().is_ok());
}

#[test]
fn a_lock_that_is_about_to_fall_is_waited_for() {
    use rustix::fs::{FlockOperation, flock};
    let dir = TempDir::new();
    drop(create(&dir));
    // As of a process that was killed a moment ago.
    let held = File::open(dir.join("device")).unwrap();
    flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
    let open = || FileDevice::open(&dir.join("device"), &FileSettings::default());
    let error = open().err().unwrap();
    assert!(
        matches!(error, DeviceError::InUse { here: false, .. }),
        "{error}"
    );
    assert_eq!(error.remedy(), argosy_base::Remedy::Retry);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::park_timeout(Duration::from_millis(100));
            flock(&held, FlockOperation::Unlock).unwrap();
        });
        assert_eq!(open().unwrap().len(), LEN);
    });
}

#[test]
fn a_device_whose_making_failed_does_not_stand_in_the_way() {
    let dir = TempDir::new();
    let path = dir.join("device");
    let settings = FileSettings::default();
    let error = FileDevice::open_or_create(&path, u64::MAX, &settings)
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::Refused { .. }), "{error}");
    assert!(!path.exists(), "it is removed");
    // Killed before it had its size.
    std::fs::write(&path, b"").unwrap();
    let device = FileDevice::open_or_create(&path, LEN, &settings).unwrap();
    assert_eq!(device.len(), LEN);
    drop(device);
    // What has bytes is somebody's.
    std::fs::write(&path, b"text").unwrap();
    assert!(FileDevice::open_or_create(&path, LEN, &settings).is_err());
    assert_eq!(std::fs::read(&path).unwrap(), b"text");
}

#[test]
fn a_missing_or_short_file_is_an_error() {
    let dir = TempDir::new();
    let settings = FileSettings::default();
    let error = FileDevice::open(&dir.join("none"), &settings)
        .err()
        .unwrap();
    assert!(
        matches!(&error, DeviceError::Refused { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{error}"
    );
    std::fs::write(dir.join("short"), b"text").unwrap();
    let error = FileDevice::open(&dir.join("short"), &settings)
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::Unusable { .. }), "{error}");
    let path = dir.join("no/such/directory");
    let error = FileDevice::open_or_create(&path, LEN, &settings)
        .err()
        .unwrap();
    assert!(matches!(error, DeviceError::Refused { .. }), "{error}");
}

#[test]
fn a_discarded_segment_takes_no_room_and_reads_as_zeros() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new();
    let device = create(&dir);
    let segment = DeviceSegment(3);
    write(&device, segment.start(), 1, SEGMENT_SIZE)
        .wait()
        .unwrap();
    device.submit(Io::Sync).wait().unwrap();
    let room = || std::fs::metadata(device.path()).unwrap().blocks() * 512;
    assert!(room() >= SEGMENT_SIZE as u64);
    device.discard(segment);
    assert_eq!(room(), 0);
    assert_eq!(
        read(&device, segment.start(), SEGMENT_SIZE),
        vec![0; SEGMENT_SIZE]
    );
    assert_eq!(std::fs::metadata(device.path()).unwrap().len(), LEN);
}

#[test]
fn a_failed_sync_breaks_the_device() {
    let dir = TempDir::new();
    let device = create(&dir);
    write(&device, 0, 1, 4096).wait().unwrap();
    let failed = device.shared.synced(Err(io::Error::from_raw_os_error(5)));
    assert!(failed.is_err());
    for ticket in [device.submit(Io::Sync), write(&device, 0, 2, 4096)] {
        let error = ticket.wait().unwrap_err();
        let told = error.to_string();
        assert!(told.contains("reopened, since sync"), "{told}");
        assert_eq!(error.remedy(), argosy_base::Remedy::Reopen);
    }
    assert_eq!(read(&device, 0, 4096), [1; 4096], "reads go on");
    assert_eq!(device.counters().syncs, 0, "it was not tried again");
}

#[test]
fn a_failed_write_breaks_the_device() {
    let dir = TempDir::new();
    let device = create(&dir);
    write(&device, 0, 1, 4096).wait().unwrap();
    let io = Io::Write {
        at: 4096,
        data: Arc::new(Buffer::zeroed(4096)),
        range: 0..4096,
    };
    let failed = Err(io::Error::from_raw_os_error(5));
    assert!(device.shared.written(&io, 4096, 0, failed).is_err());
    assert!(device.failure().is_some());
    for ticket in [device.submit(Io::Sync), write(&device, 0, 2, 4096)] {
        let told = ticket.wait().unwrap_err().to_string();
        let cause = "since write of 4096 bytes at byte 4096";
        assert!(told.contains(cause), "{told}");
    }
    assert_eq!(read(&device, 0, 4096), [1; 4096], "reads go on");
    assert_eq!(device.counters().syncs, 0);
}

/// A device that never has room.
fn without_room() -> FileDevice {
    let path = Path::new("/dev/full");
    let file = open_file(path, false, false).unwrap();
    let here = lock_device(&file, path, false).unwrap();
    let opened = Opened {
        file,
        _here: here,
        len: LEN,
        direct: false,
    };
    FileDevice::start(path, opened, &FileSettings::default()).unwrap()
}

#[test]
fn a_write_without_room_waits_for_some() {
    let device = without_room();
    let tickets = [write(&device, 0, 1, 4096), write(&device, 4096, 1, 4096)];
    // Each has been tried, and a third is told at once since somebody blocks on it.
    let error = device.wait(&write(&device, 8192, 1, 4096)).unwrap_err();
    assert!(error.is_full(), "{error}");
    assert!(tickets.iter().all(|ticket| ticket.poll().is_none()));
    assert!(device.failure().is_none(), "it is a passing state");
    assert!(device.submit(Io::Sync).wait().is_err(), "it has no sync");
    drop(device);
    for ticket in tickets {
        assert!(ticket.poll().unwrap().is_err(), "they end with the device");
    }
}

#[test]
fn a_file_system_with_room_limits_nothing() {
    let dir = TempDir::new();
    let device = create(&dir);
    assert_eq!(device.room_beneath(0, 0), None);
    // A file that is longer than its file system.
    let file = open_file(device.path(), false, false).unwrap();
    let Scarce { taken, left } = scarce_room(&file, 1 << 60).unwrap();
    assert!(left > 0 && taken < LEN, "{taken} {left}");
}

#[test]
fn an_error_of_the_system_is_reported() {
    let dir = TempDir::new();
    let device = create(&dir);
    // The file ends before the device does.
    let file = File::options().write(true).open(device.path()).unwrap();
    file.set_len(SEGMENT_SIZE as u64).unwrap();
    let error = device
        .read(SEGMENT_SIZE as u64, &mut vec![0; 4096])
        .unwrap_err();
    assert!(
        matches!(
            error,
            DeviceError::Io {
                op: OpKind::Read,
                ..
            }
        ),
        "{error}"
    );
}

#[test]
fn the_waker_is_called_after_the_end() {
    let dir = TempDir::new();
    let device = create(&dir);
    let ticket = Arc::new(Mutex::new(None::<Ticket>));
    let (sender, receiver) = std::sync::mpsc::channel();
    let seen = ticket.clone();
    device.set_waker(Arc::new(move || {
        let ended = seen.lock().unwrap().as_ref().and_then(Ticket::poll);
        sender.send(ended.is_some()).unwrap();
    }));
    let mut slot = ticket.lock().unwrap();
    *slot = Some(write(&device, 0, 1, 4096));
    drop(slot);
    assert!(receiver.recv().unwrap());
}

#[test]
fn many_threads_write_and_sync() {
    let dir = TempDir::new();
    let device = &create(&dir);
    std::thread::scope(|scope| {
        for n in 0..4u8 {
            scope.spawn(move || {
                for round in 0..25u64 {
                    let at = u64::from(n) * SEGMENT_SIZE as u64 + round * 4096;
                    write(device, at, n + 1, 4096).wait().unwrap();
                    device.submit(Io::Sync).wait().unwrap();
                }
            });
        }
    });
    for n in 0..4u8 {
        let at = u64::from(n) * SEGMENT_SIZE as u64;
        assert_eq!(read(device, at, 25 * 4096), vec![n + 1; 25 * 4096]);
    }
    let syncs = device.counters().syncs;
    assert!((25..=100).contains(&syncs), "{syncs}");
}

#[test]
fn what_was_submitted_ends_before_the_device_closes() {
    let dir = TempDir::new();
    let device = create(&dir);
    let tickets: Vec<_> = (0..64u64)
        .map(|n| write(&device, n * 4096, 1, 4096))
        .collect();
    let sync = device.submit(Io::Sync);
    drop(device);
    assert!(tickets.iter().all(|t| t.poll().unwrap().is_ok()));
    assert!(sync.poll().unwrap().is_ok());
}

#[test]
fn queued_syncs_share_one_call() {
    let mut queue = Queue::default();
    let job = |io| Job {
        io,
        ticket: Ticket::new(),
        account: 0,
    };
    queue.push(job(Io::Write {
        at: 0,
        data: Arc::new(Buffer::zeroed(1)),
        range: 0..4096,
    }));
    queue.push(job(Io::Sync));
    queue.push(job(Io::Sync));
    assert!(matches!(queue.pop(), Some(Work::Sync(jobs)) if jobs.len() == 2));
    queue.push(job(Io::Sync));
    assert!(
        matches!(queue.pop(), Some(Work::Write(_))),
        "one sync at a time"
    );
    assert!(queue.pop().is_none());
    queue.closing = true;
    assert!(queue.pop().is_none(), "a sync still waits");
    queue.syncing = false;
    assert!(matches!(queue.pop(), Some(Work::Sync(_))));
    queue.syncing = false;
    assert!(matches!(queue.pop(), Some(Work::End)));
}

/// Charges by account, in the order in which they came; the account under which is submitted; and
/// the bytes moved.
#[derive(Debug, Default)]
struct Charges(
    std::sync::Mutex<Vec<u32>>,
    AtomicU64,
    std::sync::Mutex<Vec<(u32, u64, u64)>>,
);

impl Accounts for Charges {
    fn account(&self) -> u32 {
        u32::try_from(self.1.load(Ordering::Relaxed)).unwrap()
    }

    fn charge(&self, account: u32) {
        self.0.lock().unwrap().push(account);
    }

    fn moved(&self, account: u32, read: u64, written: u64) {
        self.2.lock().unwrap().push((account, read, written));
    }
}

#[test]
fn who_submits_is_charged() {
    let dir = TempDir::new();
    let charges = Arc::new(Charges::default());
    let settings = FileSettings {
        accounts: Some(Arc::clone(&charges) as Arc<dyn Accounts>),
        ..FileSettings::default()
    };
    let device = FileDevice::open_or_create(&dir.join("device"), LEN, &settings).unwrap();
    for account in [3, 1, 4] {
        charges.1.store(account, Ordering::Relaxed);
        let io = match account {
            1 => Io::Sync,
            _ => Io::Write {
                at: 0,
                data: Arc::new(Buffer::zeroed(BLOCK_SIZE)),
                range: 0..BLOCK_SIZE,
            },
        };
        device.submit(io).wait().unwrap();
    }
    let mut block = Buffer::zeroed(BLOCK_SIZE);
    device.read(0, &mut block).unwrap();
    drop(device);
    let moved = charges.2.lock().unwrap().clone();
    let block = BLOCK_SIZE as u64;
    assert_eq!(moved, [(3, 0, block), (4, 0, block), (4, block, 0)]);
    let mut charged = charges.0.lock().unwrap().clone();
    charged.sort_unstable();
    assert_eq!(charged, [1, 3, 4]);
}

#[test]
fn a_device_whose_file_is_gone_takes_no_more_writes() {
    let at = |dir: &TempDir| dir.join("device");
    let harms: [fn(&TempDir); 4] = [
        |dir| std::fs::remove_file(dir.join("device")).unwrap(),
        |dir| std::fs::rename(dir.join("device"), dir.join("other")).unwrap(),
        // Another one in its place.
        |dir| {
            std::fs::rename(dir.join("device"), dir.join("other")).unwrap();
            std::fs::copy(dir.join("other"), dir.join("device")).unwrap();
        },
        |dir| std::fs::remove_dir_all(dir.join("")).unwrap(),
    ];
    for harm in harms {
        let dir = TempDir::new();
        let device = FileDevice::open_or_create(&at(&dir), LEN, &FileSettings::default()).unwrap();
        let write = || write(&device, 0, 1, BLOCK_SIZE);
        device.look_for_place();
        device.wait(&write()).unwrap();
        harm(&dir);
        assert!(device.failure().is_none(), "nobody has looked");
        device.look_for_place();
        let failure = device.failure();
        assert!(
            matches!(failure, Some(DeviceError::Gone { .. })),
            "{failure:?}"
        );
        for ticket in [write(), device.submit(Io::Sync)] {
            let refused = device.wait(&ticket).unwrap_err();
            assert!(refused.to_string().contains("is gone"), "{refused}");
        }
    }
}

#[test]
fn where_what_was_written_ends_is_known_until_it_is_discarded() {
    let dir = TempDir::new();
    let device = create(&dir);
    let segment = |n: u64| n * SEGMENT_SIZE as u64..(n + 1) * SEGMENT_SIZE as u64;
    assert_eq!(device.written_up_to(segment(1)), segment(1).start);
    for at in [0, 3 * 4096] {
        write(&device, segment(1).start + at, 7, 4096)
            .wait()
            .unwrap();
    }
    assert_eq!(
        device.written_up_to(segment(1)),
        segment(1).start + 4 * 4096
    );
    assert_eq!(device.written_up_to(segment(0)), segment(0).start);
    assert_eq!(device.written_up_to(segment(2)), segment(2).start);
    write(&device, segment(3).end - 4096, 7, 4096)
        .wait()
        .unwrap();
    assert_eq!(device.written_up_to(segment(3)), segment(3).end);
    device.discard(DeviceSegment(1));
    assert_eq!(device.written_up_to(segment(1)), segment(1).start);
}
