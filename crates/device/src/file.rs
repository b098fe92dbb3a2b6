//! A device that is a file or a raw block device.
//!
//! - Opened once: an exclusive lock keeps a second server from opening it, and falls with the
//!   process that holds it. A block device is opened exclusively besides: one that is mounted, or part
//!   of a volume, is refused.
//! - Direct I/O, so that what is written is not kept in memory twice and a write's error is the
//!   writer's to see. Where the file system refuses direct I/O, plain I/O takes its place
//!   ([`FileDevice::is_direct`] tells).
//! - Reads run on the caller's thread, several together in one submission, long ones into memory that the
//!   kernel knows ([`FileDevice::io_method`](Device::io_method) tells whether it lets us). Submitted requests run on a
//!   few threads of the device, which park when there are none. A sync goes before waiting writes: it
//!   covers only those that had completed when it was submitted. One system call serves all syncs that
//!   wait when it begins; while it runs, later ones gather for the next.
//! - A failed sync is never tried again: the kernel may have dropped what it could not write, and
//!   would report success. After a sync or a write that failed every later one fails; reads go on.
//! - A device whose file was removed or moved fails in the same way, when it is next looked for.
//! - A write for which the file system has no room did nothing, and is *held*: it is tried again when a
//!   segment has been discarded, and a few times a second. Who blocks on it, or drops the device, gets
//!   the error instead.

use std::cell::Cell;
use std::fmt;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use argosy_base::DeviceSegment;
use argosy_base::limits::SEGMENT_SIZE;
use rustix::fs::{FallocateFlags, fallocate, fdatasync};
use rustix::io::Errno;

use crate::ahead::{Ahead, BegunRead};
use crate::beneath::Beneath;
use crate::buffer::Buffer;
use crate::fixed;
use crate::io::{Counters, Device, DeviceError, Io, Read, Ticket, Waker, check_range};
use crate::lock::{Opened, lock_device, open_device};
use crate::queue::{Job, Queue, Work};
use crate::ring::{self, IoMethod, Source};

mod holes;
mod name;
mod tally;

use name::{is_empty_file, is_in_place, open_file, sync_directory_of};
use tally::Tally;

/// How often a write that found no room is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// On whose account a device works: the CPU of its threads, and the bytes that it moves, are those
/// of what submitted the requests.
pub trait Accounts: fmt::Debug + Send + Sync {
    /// Under what the calling thread reads and submits.
    fn account(&self) -> u32;

    /// The calling thread, one of the device's, has used CPU for `account` since the last call
    /// from it.
    fn charge(&self, account: u32);

    /// So many bytes were read or written for `account`.
    fn moved(&self, account: u32, read_bytes: u64, write_bytes: u64);
}

/// Numbers that a user may set.
#[derive(Clone, Debug)]
pub struct FileSettings {
    /// Threads that perform submitted requests: 1 to 64. With two, a sync and a write go on at the
    /// same time.
    pub io_threads: usize,
    /// Whether direct I/O is used where the file system offers it.
    pub direct: bool,
    /// The most that reads make use of, where the kernel offers it.
    pub io_method: IoMethod,
    /// Who is told what the threads' CPU was used for.
    pub accounts: Option<Arc<dyn Accounts>>,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self {
            io_threads: 2,
            direct: true,
            io_method: IoMethod::Registered,
            accounts: None,
        }
    }
}

/// See the module documentation.
pub struct FileDevice {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl FileDevice {
    /// Opens the device at `path`, or makes a file of `bytes` bytes, rounded down to whole
    /// segments. The file is sparse: it takes room as it is written.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_or_create(
        path: &Path,
        bytes: u64,
        settings: &FileSettings,
    ) -> Result<Self, DeviceError> {
        let refused = |e| DeviceError::refused("create the device", path, e);
        let bytes = bytes - bytes % SEGMENT_SIZE as u64;
        let is_new = match open_file(path, true, false) {
            Ok(_) => true,
            // Whoever made it got no further.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => is_empty_file(path),
            Err(e) => return Err(refused(e)),
        };
        if is_new {
            Self::size(path, bytes)?;
        }
        Self::open(path, settings)
    }

    /// Gives an empty file its size, or removes it where the system refuses.
    fn size(path: &Path, bytes: u64) -> Result<(), DeviceError> {
        let refused = |e| DeviceError::refused("create the device", path, e);
        let file = open_file(path, false, false).map_err(refused)?;
        // Locked first: another process may be doing the same.
        let _here = lock_device(&file, path, false)?;
        if !is_empty_file(path) {
            return Ok(());
        }
        let sized = file.set_len(bytes).and_then(|()| file.sync_all());
        sized.and_then(|()| sync_directory_of(path)).map_err(|e| {
            let _ = std::fs::remove_file(path);
            refused(e)
        })
    }

    /// Opens the device at `path`.
    ///
    /// # Errors
    /// [`DeviceError::Refused`] where the system refuses; [`DeviceError::InUse`] where the device is open,
    /// here or in another process, and still is after a second; [`DeviceError::Unusable`] where it is shorter
    /// than a segment.
    pub fn open(path: &Path, settings: &FileSettings) -> Result<Self, DeviceError> {
        assert!(
            (1..=64).contains(&settings.io_threads),
            "a device has 1 to 64 threads"
        );
        let direct = Cell::new(settings.direct);
        let file = open_device(path, || match open_file(path, false, direct.get()) {
            // How a file system without direct I/O answers.
            Err(e) if direct.get() && e.kind() == io::ErrorKind::InvalidInput => {
                direct.set(false);
                open_file(path, false, false)
            }
            opened => opened,
        })?;
        let opened = Opened::lock(file, path, direct.get())?;
        if opened.len == 0 {
            let what = "shorter than a segment; remove it, so that it is made anew";
            return Err(DeviceError::unusable(path, what));
        }
        Self::start(path, opened, settings)
    }

    fn start(path: &Path, opened: Opened, settings: &FileSettings) -> Result<Self, DeviceError> {
        let shared = Arc::new(Shared {
            path: std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
            opened,
            method: match settings.io_method {
                IoMethod::Plain => IoMethod::Plain,
                most => most.min(ring::method()),
            },
            accounts: settings.accounts.clone(),
            queue: Mutex::default(),
            work: Condvar::new(),
            broken: OnceLock::new(),
            waker: Mutex::new(None),
            no_discard: AtomicBool::new(false),
            room: Mutex::default(),
            tally: Tally::default(),
            ahead: OnceLock::new(),
        });
        let mut device = Self {
            shared,
            threads: Vec::new(),
        };
        for n in 0..settings.io_threads {
            let shared = device.shared.clone();
            let thread = std::thread::Builder::new()
                .name(format!("device-{n}"))
                .spawn(move || shared.work())
                .map_err(|e| DeviceError::refused("start a thread for", path, e))?;
            device.threads.push(thread);
        }
        Ok(device)
    }

    /// Where the device is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Whether direct I/O is used.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.shared.opened.direct
    }
}

impl Drop for FileDevice {
    /// Lets what was submitted end first.
    fn drop(&mut self) {
        self.shared.queue().closing = true;
        self.shared.work.notify_all();
        let this = std::thread::current().id();
        for thread in self.threads.drain(..) {
            // The last reference may be dropped by what a waker woke, on a thread of the device.
            if thread.thread().id() != this {
                let ended = thread.join();
                debug_assert!(ended.is_ok(), "a thread of the device does not panic");
            }
        }
    }
}

impl Device for FileDevice {
    fn len(&self) -> u64 {
        self.shared.opened.len
    }

    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        check_range(self.shared.opened.len, at, buffer.len());
        let mut read = [Read::new(at, buffer)];
        self.shared.read(&mut read);
        let [read] = read;
        read.result
    }

    fn read_together(&self, reads: &mut [Read<'_>]) {
        for read in &*reads {
            check_range(self.shared.opened.len, read.at, read.buffer.len());
        }
        self.shared.read(reads);
    }

    fn begin_read(&self, at: u64, buffer: Buffer) -> BegunRead {
        check_range(self.shared.opened.len, at, buffer.len());
        self.shared.begin_read(at, buffer)
    }

    fn submit(&self, io: Io) -> Ticket {
        io.check(self.shared.opened.len);
        let ticket = Ticket::new();
        let accounts = self.shared.accounts.as_ref();
        self.shared.queue().push(Job {
            io,
            ticket: ticket.clone(),
            account: accounts.map_or(0, |accounts| accounts.account()),
        });
        self.shared.work.notify_one();
        ticket
    }

    fn wait(&self, ticket: &Ticket) -> Result<(), DeviceError> {
        if ticket.poll().is_none() {
            let mut queue = self.shared.queue();
            queue.waited_for.push(ticket.clone());
            queue.try_held();
            drop(queue);
            self.shared.work.notify_all();
            let _ = ticket.wait();
            let mut queue = self.shared.queue();
            let place = queue.waited_for.iter().position(|other| other.is(ticket));
            queue
                .waited_for
                .swap_remove(place.expect("it was put there"));
        }
        ticket.wait()
    }

    fn discard(&self, segment: DeviceSegment) {
        check_range(self.shared.opened.len, segment.start(), SEGMENT_SIZE);
        if self.shared.no_discard.load(Ordering::Relaxed) {
            return;
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let done = fallocate(
            &self.shared.opened.file,
            flags,
            segment.start(),
            SEGMENT_SIZE as u64,
        );
        // Only space is lost by a failure; where it can never succeed it is not tried again.
        if matches!(done, Err(Errno::OPNOTSUPP | Errno::NOSYS)) {
            self.shared.no_discard.store(true, Ordering::Relaxed);
        }
        self.shared.tally.discards.fetch_add(1, Ordering::Relaxed);
        let mut queue = self.shared.queue();
        if !queue.held.is_empty() {
            queue.try_held();
            drop(queue);
            self.shared.work.notify_all();
        }
    }

    fn set_waker(&self, waker: Waker) {
        *self.shared.waker.lock().expect("no holder panics") = Some(waker);
    }

    fn counters(&self) -> Counters {
        self.shared.tally.counters()
    }

    fn io_method(&self) -> IoMethod {
        self.shared.method
    }

    fn failure(&self) -> Option<DeviceError> {
        self.shared.broken.get().cloned()
    }

    fn look_for_place(&self) {
        self.shared.look_for_place();
    }

    fn written_from(&self, at: u64) -> Option<(u64, u64)> {
        holes::written_from(&self.shared.opened.file, at)
    }

    fn written_up_to(&self, range: Range<u64>) -> u64 {
        holes::written_up_to(&self.shared.opened.file, range)
    }

    fn is_sparse(&self) -> bool {
        let meta = self.shared.opened.file.metadata();
        meta.is_ok_and(|meta| meta.is_file())
    }

    fn wants_room(&self) -> bool {
        !self.shared.queue().held.is_empty()
    }

    fn room_beneath(&self, used: u64, freed: u64) -> Option<u64> {
        let shared = &self.shared;
        let written = shared.tally.write_bytes.load(Ordering::Relaxed);
        // Where nothing can be given back, all that was ever written keeps its room.
        let freed = match shared.no_discard.load(Ordering::Relaxed) {
            true => u64::MAX,
            false => freed,
        };
        let mut room = shared.room.lock().expect("no holder panics");
        let scarce = room.scarce(&shared.opened.file, shared.opened.len, written)?;
        Some(scarce.room(used, freed))
    }
}

struct Shared {
    opened: Opened,
    path: PathBuf,
    method: IoMethod,
    accounts: Option<Arc<dyn Accounts>>,
    queue: Mutex<Queue>,
    work: Condvar,
    /// The write or sync that failed.
    broken: OnceLock<DeviceError>,
    room: Mutex<Beneath>,
    waker: Mutex<Option<Waker>>,
    no_discard: AtomicBool,
    tally: Tally,
    /// Made when the first read is begun; `None`: none can be.
    ahead: OnceLock<Option<Arc<Ahead>>>,
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().expect("no holder of the lock panics")
    }

    /// The life of a thread of the device.
    fn work(&self) {
        loop {
            let mut queue = self.queue();
            let work = loop {
                match queue.pop() {
                    Some(work) => break work,
                    None if queue.held.is_empty() => {
                        queue = self.work.wait(queue).expect("no holder panics");
                    }
                    None => {
                        let waited = self.work.wait_timeout(queue, TRY_AGAIN);
                        let (mut after, timeout) = waited.expect("no holder panics");
                        if timeout.timed_out() {
                            after.try_held();
                        }
                        queue = after;
                    }
                }
            };
            drop(queue);
            match work {
                Work::Write(job) => {
                    let account = job.account;
                    let result = self.write(&job.io, account);
                    let job = match &result {
                        Err(error) if error.is_full() => self.queue().hold(job),
                        _ => Some(job),
                    };
                    self.end(job.map(|job| job.ticket), result);
                    self.charge(account);
                }
                Work::Sync(jobs) => {
                    let account = jobs.first().map_or(0, |job| job.account);
                    let result = self.sync();
                    self.queue().syncing = false;
                    // Syncs have gathered meanwhile, or another thread waits to end.
                    self.work.notify_all();
                    self.end(jobs.into_iter().map(|job| job.ticket), result);
                    self.charge(account);
                }
                Work::End => return,
            }
        }
    }

    fn charge(&self, account: u32) {
        if let Some(accounts) = &self.accounts {
            accounts.charge(account);
        }
    }

    fn end(&self, tickets: impl IntoIterator<Item = Ticket>, result: Result<(), DeviceError>) {
        for ticket in tickets {
            ticket.end(result.clone());
        }
        let waker = self.waker.lock().expect("no holder panics").clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    fn read(&self, reads: &mut [Read<'_>]) {
        self.count_read(reads.iter().map(|read| read.buffer.len()).sum());
        let source = Source {
            file: &self.opened.file,
            direct: self.opened.direct,
            method: self.method,
        };
        let tally = ring::read_together(source, reads);
        if tally.ring > 0 {
            self.tally
                .ring_reads
                .fetch_add(tally.ring, Ordering::Relaxed);
            self.tally
                .fixed_reads
                .fetch_add(tally.fixed, Ordering::Relaxed);
        }
    }

    fn begin_read(&self, at: u64, buffer: Buffer) -> BegunRead {
        let ring = match self.method {
            IoMethod::Registered => self.ahead.get_or_init(Ahead::open).as_ref(),
            IoMethod::Plain | IoMethod::Ring => None,
        };
        let Some(ring) = ring else {
            return BegunRead::later(buffer);
        };
        let (len, is_fixed) = (buffer.len(), fixed::holds(&buffer));
        let (reading, is_begun) = ring.begin(&self.opened.file, at, buffer);
        if is_begun {
            self.count_read(len);
            self.tally.ring_reads.fetch_add(1, Ordering::Relaxed);
            self.tally.ahead_reads.fetch_add(1, Ordering::Relaxed);
            self.tally
                .fixed_reads
                .fetch_add(u64::from(is_fixed), Ordering::Relaxed);
        }
        reading
    }

    fn count_read(&self, bytes: usize) {
        self.tally
            .read_bytes
            .fetch_add(bytes as u64, Ordering::Relaxed);
        if let Some(accounts) = &self.accounts {
            accounts.moved(accounts.account(), bytes as u64, 0);
        }
    }

    fn write(&self, io: &Io, account: u32) -> Result<(), DeviceError> {
        let Io::Write { at, data, range } = io else {
            unreachable!("syncs are queued apart");
        };
        self.check_broken(io)?;
        let bytes = &data[range.clone()];
        let done = self.opened.file.write_all_at(bytes, *at);
        self.written(io, bytes.len(), account, done)
    }

    /// Counts a write, and remembers one that failed.
    fn written(
        &self,
        io: &Io,
        bytes: usize,
        account: u32,
        done: io::Result<()>,
    ) -> Result<(), DeviceError> {
        let error = done.err().map(|source| io.error(full_or(source)));
        if let Some(error) = error.as_ref().filter(|error| error.is_full()) {
            return Err(error.clone());
        }
        let len = bytes as u64;
        self.tally.write_bytes.fetch_add(len, Ordering::Relaxed);
        if let Some(accounts) = &self.accounts {
            accounts.moved(account, 0, len);
        }
        match error {
            None => Ok(()),
            Some(error) => Err(self.broke(error)),
        }
    }

    /// See [`Device::look_for_place`].
    fn look_for_place(&self) {
        if !is_in_place(&self.opened.file, &self.path) && self.broken.get().is_none() {
            let path = self.path.display().to_string();
            self.broke(DeviceError::Gone { path });
        }
    }

    /// Ends all writing because of `error`.
    fn broke(&self, error: DeviceError) -> DeviceError {
        let _ = self.broken.set(error.clone());
        error
    }

    fn sync(&self) -> Result<(), DeviceError> {
        self.check_broken(&Io::Sync)?;
        self.tally.syncs.fetch_add(1, Ordering::Relaxed);
        self.synced(fdatasync(&self.opened.file).map_err(io::Error::from))
    }

    /// Remembers a failed sync.
    fn synced(&self, done: io::Result<()>) -> Result<(), DeviceError> {
        done.map_err(|source| {
            // Whatever it was: a sync that found no room is not tried again either.
            let source = io::Error::other(source.to_string());
            self.broke(Io::Sync.error(source))
        })
    }

    fn check_broken(&self, io: &Io) -> Result<(), DeviceError> {
        match self.broken.get() {
            None => Ok(()),
            Some(earlier) => Err(io.refused_since(earlier)),
        }
    }
}

/// `error`, which says that there is no room if that is what it means.
fn full_or(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::QuotaExceeded => io::ErrorKind::StorageFull.into(),
        _ => error,
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
