//! What a direct read costs in CPU and time, by the way in which it is asked for: the figures of decision 0027.
//!
//! ```text
//! cargo run --release -p argosy-device --example read_costs -- DIRECTORY
//! ```
//!
//! Writes three files of 128 MiB into the directory and removes them again. Each row is the median of three
//! rounds; ways take turns, so that what else the machine does falls on all of them.

use std::error::Error;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_device::{Buffer, Device, FileDevice, FileSettings, Io, IoMethod, Pages, Read};
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use rustix::time::{ClockId, clock_gettime};

const BYTES: u64 = 64 * SEGMENT_SIZE as u64;
const ROUNDS: usize = 3;
const SHORT: usize = 4 << 10;
const LONG: usize = 256 << 10;

/// A way to read so many bytes at a place, or several places.
type Way<'a> = (&'static str, usize, Box<dyn FnMut(&mut Places) + 'a>);

/// Places in the file, in no order.
struct Places(u64);

impl Places {
    /// The next place for so many bytes.
    fn next(&mut self, len: usize) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % (BYTES / len as u64) * len as u64
    }
}

/// Microseconds of a clock: what the process has used of CPU, or what has passed.
fn us(clock: ClockId) -> i64 {
    let time = clock_gettime(clock);
    time.tv_sec * 1_000_000 + time.tv_nsec / 1000
}

fn device(path: &Path, io_method: IoMethod) -> Result<FileDevice, Box<dyn Error>> {
    let settings = FileSettings {
        io_method,
        ..FileSettings::default()
    };
    Ok(FileDevice::open_or_create(path, BYTES, &settings)?)
}

fn fill(device: &FileDevice) -> Result<(), Box<dyn Error>> {
    let mut data = Buffer::zeroed(SEGMENT_SIZE);
    data.fill(7);
    let data = Arc::new(data);
    for segment in 0..BYTES / SEGMENT_SIZE as u64 {
        let (at, data) = (segment * SEGMENT_SIZE as u64, Arc::clone(&data));
        let range = 0..SEGMENT_SIZE;
        device.wait(&device.submit(Io::Write { at, data, range }))?;
    }
    Ok(device.wait(&device.submit(Io::Sync))?)
}

/// Reads by a ring of this program's own, alone, into memory that the ring knows or does not.
fn by_ring(
    path: &Path,
    registered: bool,
) -> Result<impl FnMut(&mut Places) + use<>, Box<dyn Error>> {
    let mut ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(8)?;
    let pages = Pages::new(SHORT);
    let memory = libc::iovec {
        iov_base: pages.start().as_ptr().cast(),
        iov_len: SHORT,
    };
    if registered {
        // SAFETY: ring and pages are dropped together, when nothing is under way.
        unsafe { ring.submitter().register_buffers(&[memory])? };
    }
    let direct = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECT;
    let file: File = rustix::fs::open(path, direct, rustix::fs::Mode::empty())?.into();
    let len = u32::try_from(SHORT)?;
    Ok(move |places: &mut Places| {
        let (fd, start, at) = (
            Fd(file.as_raw_fd()),
            pages.start().as_ptr(),
            places.next(SHORT),
        );
        let entry = match registered {
            true => opcode::ReadFixed::new(fd, start, len, 0).offset(at).build(),
            false => opcode::Read::new(fd, start, len).offset(at).build(),
        };
        // SAFETY: the pages are there until the read has ended, below.
        unsafe { ring.submission().push(&entry) }.expect("the queue is empty");
        ring.submit_and_wait(1).expect("a read");
        assert!(
            ring.completion()
                .all(|read: io_uring::cqueue::Entry| read.result() > 0)
        );
    })
}

/// Reads so many at a time, each of so many bytes.
fn by_device(device: &FileDevice, len: usize, together: usize) -> impl FnMut(&mut Places) {
    move |places| {
        let mut buffers: Vec<_> = (0..together).map(|_| Buffer::for_reading(len)).collect();
        let mut reads: Vec<_> = buffers
            .iter_mut()
            .map(|buffer| Read::new(places.next(len), buffer))
            .collect();
        device.read_together(&mut reads);
        assert!(reads.iter().all(|read| read.result.is_ok()));
    }
}

/// Reads into memory that was never used before, and gives it back.
fn fresh(device: &FileDevice, len: usize) -> impl FnMut(&mut Places) {
    move |places| {
        let pages = Pages::new(len);
        // SAFETY: they are zero, and this function's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pages.start().as_ptr(), len) };
        device.read(places.next(len), bytes).expect("a read");
    }
}

/// What a merge does with what it has read: looks at each byte a few times.
fn work(bytes: &[u8]) {
    for _ in 0..10 {
        std::hint::black_box(xor(std::hint::black_box(bytes)));
    }
}

fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte.rotate_left(3))
}

/// Reads and works, one after the other.
fn in_turn(device: &FileDevice) -> impl FnMut(&mut Places) {
    move |places| {
        let mut buffer = Buffer::for_reading(LONG);
        device.read(places.next(LONG), &mut buffer).expect("a read");
        work(&buffer);
    }
}

/// Works while the next bytes are read.
fn ahead(device: &FileDevice) -> impl FnMut(&mut Places) {
    let mut next = None;
    move |places| {
        let at = places.next(LONG);
        let begun = device.begin_read(at, Buffer::for_reading(LONG));
        if let Some((at, begun)) = next.replace((at, begun)) {
            let read: Result<_, argosy_device::DeviceError> =
                begun.finish(|bytes| device.read(at, bytes));
            work(&read.expect("a read"));
        }
    }
}

fn measure(ways: &mut [Way<'_>]) {
    let mut costs = vec![Vec::new(); ways.len()];
    let mut places = Places(88_172_645_463_325_252);
    for _ in 0..ROUNDS {
        for ((_, count, way), costs) in ways.iter_mut().zip(&mut costs) {
            let before = [ClockId::ProcessCPUTime, ClockId::Monotonic].map(us);
            (0..*count).for_each(|_| way(&mut places));
            let after = [ClockId::ProcessCPUTime, ClockId::Monotonic].map(us);
            let each =
                |of: usize| (after[of] - before[of]) * 10 / i64::try_from(*count).unwrap_or(1);
            costs.push([each(0), each(1)]);
        }
    }
    for ((name, ..), costs) in ways.iter().zip(&costs) {
        let median = |of: usize| {
            let mut all: Vec<_> = costs.iter().map(|cost| cost[of]).collect();
            all.sort_unstable();
            format!("{:5}.{}", all[ROUNDS / 2] / 10, all[ROUNDS / 2] % 10)
        };
        println!("  {name:36} CPU {} us, time {} us", median(0), median(1));
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::args().nth(1).ok_or("name a directory")?;
    let path = |method: IoMethod| Path::new(&directory).join(format!("read-costs-{method}"));
    let methods = [IoMethod::Plain, IoMethod::Ring, IoMethod::Registered];
    let mut devices = Vec::new();
    for method in methods {
        let device = device(&path(method), method)?;
        fill(&device)?;
        devices.push((device.io_method().name(), device));
    }
    let lengths: [(&str, usize, usize, usize); 4] = [
        ("4 KiB", SHORT, 1, 8000),
        ("8 x 4 KiB together", SHORT, 8, 2000),
        ("256 KiB", LONG, 1, 800),
        ("4 x 256 KiB together", LONG, 4, 200),
    ];
    for (what, len, together, count) in lengths {
        let mut ways: Vec<Way<'_>> = Vec::new();
        for (method, device) in &devices {
            ways.push((method, count, Box::new(by_device(device, len, together))));
        }
        if (len, together) == (SHORT, 1) {
            let path = path(IoMethod::Plain);
            ways.push(("a ring of its own", count, Box::new(by_ring(&path, false)?)));
            ways.push((
                "with registered memory",
                count,
                Box::new(by_ring(&path, true)?),
            ));
        }
        if (len, together) == (LONG, 1) {
            let (_, device) = &devices[0];
            ways.push((
                "plain, into new memory",
                count,
                Box::new(fresh(device, len)),
            ));
        }
        println!("{what}");
        measure(&mut ways);
    }
    let (_, device) = &devices[2];
    println!("256 KiB, and work on them");
    measure(&mut [
        ("in turn", 800, Box::new(in_turn(device))),
        ("begun ahead", 800, Box::new(ahead(device))),
    ]);
    for method in methods {
        std::fs::remove_file(path(method))?;
    }
    Ok(())
}
