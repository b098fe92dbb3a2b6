//! Reads that are begun by one call and fetched by another.
//!
//! A merge knows what it will read next. It begins that read and goes on with what it has; when it gets
//! there, the bytes are mostly there, too. Such reads go through one ring of the device, which those that
//! begin and fetch share under a lock. Long reads go into pieces of [`fixed`], which are few; short reads go into
//! memory of the allocator. Where there is no such ring, or no free place in it, nothing is begun, and
//! fetching reads in the usual way. It does so, too, where a read that was begun did not end well: so an error comes
//! out where the bytes are wanted, and is the one that a plain read gets.
//!
//! The kernel writes into the buffer of a read until that has ended, whoever has lost interest. So the
//! buffers of reads under way belong to the ring, and it is not given up before all have ended.

use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use argosy_base::DeviceSegment;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};
use parking_lot::{Mutex, MutexGuard};

use crate::buffer::Buffer;
use crate::fixed;
use crate::ring;
use crate::store::Store;

/// Most reads under way.
const UNDER_WAY_MAX: usize = 32;

/// A read that was begun by [`Device::begin_read`](crate::Device::begin_read), or that is done when it is fetched.
#[derive(Debug)]
pub struct BegunRead(Way);

#[derive(Debug)]
enum Way {
    /// Nothing was begun.
    Later(Buffer),
    Begun(Begun),
}

/// A read under way, or ended, of a ring.
struct Begun {
    ring: Arc<Ahead>,
    /// `None` once it was fetched.
    place: Option<usize>,
}

impl BegunRead {
    /// A read into `buffer` that is done when it is fetched.
    #[must_use]
    pub const fn later(buffer: Buffer) -> Self {
        Self(Way::Later(buffer))
    }

    /// The buffer with what was read. `read` reads it now, where that was not begun or did not end well.
    /// Blocks the calling thread until the bytes are there.
    ///
    /// # Errors
    /// Those of `read`.
    pub fn finish<E>(self, read: impl FnOnce(&mut Buffer) -> Result<(), E>) -> Result<Buffer, E> {
        let (mut buffer, whole) = match self.0 {
            Way::Later(buffer) => (buffer, false),
            Way::Begun(begun) => begun.fetch(),
        };
        if !whole {
            read(&mut buffer)?;
        }
        Ok(buffer)
    }
}

impl Begun {
    /// The buffer, and whether it was read whole.
    fn fetch(mut self) -> (Buffer, bool) {
        let place = self.place.take().expect("it is fetched once");
        let mut state = self.ring.state();
        loop {
            state.take_ended();
            match std::mem::replace(&mut state.places[place], Place::Free) {
                Place::Ended(buffer, whole) => return (buffer, whole),
                under_way => state.places[place] = under_way,
            }
            state.wait();
        }
    }
}

impl Drop for Begun {
    /// Nobody will fetch it: its buffer goes when it has ended.
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let mut state = self.ring.state();
        state.take_ended();
        state.places[place] = match std::mem::replace(&mut state.places[place], Place::Free) {
            Place::UnderWay(buffer, _) => Place::UnderWay(buffer, false),
            _ => Place::Free,
        };
    }
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Begun({:?})", self.place)
    }
}

/// What stands at a place of a ring.
enum Place {
    Free,
    /// Under way; whether somebody wants it.
    UnderWay(Buffer, bool),
    /// Ended; whether it was read whole.
    Ended(Buffer, bool),
}

/// The reads that were begun on a device.
pub(crate) struct Ahead(Mutex<State>);

struct State {
    ring: IoUring,
    places: Vec<Place>,
    /// The ring did not take a request, which is still in its queue: no other is given to it.
    stuck: bool,
}

impl Ahead {
    /// A ring that reads into registered memory; `None` where there can be none.
    pub(crate) fn open() -> Option<Arc<Self>> {
        let ring = IoUring::new(u32::try_from(UNDER_WAY_MAX).ok()?).ok()?;
        ring::lend(&ring).then(|| {
            let places = (0..UNDER_WAY_MAX).map(|_| Place::Free).collect();
            let stuck = false;
            Arc::new(Self(Mutex::new(State {
                ring,
                places,
                stuck,
            })))
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Begins to read byte `at` of `file` and those behind it into `buffer`, or leaves that for later.
    pub(crate) fn begin(
        self: &Arc<Self>,
        file: &File,
        at: u64,
        buffer: Buffer,
    ) -> (BegunRead, bool) {
        match self.state().begin(file, at, buffer) {
            Ok(place) => {
                let (ring, place) = (Arc::clone(self), Some(place));
                (BegunRead(Way::Begun(Begun { ring, place })), true)
            }
            Err(buffer) => (BegunRead::later(buffer), false),
        }
    }
}

impl State {
    /// The place of the read that was begun, or the buffer where it was not.
    fn begin(&mut self, file: &File, at: u64, mut buffer: Buffer) -> Result<usize, Buffer> {
        self.take_ended();
        let free = |place: &Place| matches!(place, Place::Free);
        let place = self.places.iter().position(free);
        let (Some(place), Ok(len), false) = (place, u32::try_from(buffer.len()), self.stuck) else {
            return Err(buffer);
        };
        let (file, bytes) = (Fd(file.as_raw_fd()), buffer.as_mut_ptr());
        let read = match fixed::holds(&buffer) {
            true => opcode::ReadFixed::new(file, bytes, len, 0)
                .offset(at)
                .build(),
            false => opcode::Read::new(file, bytes, len).offset(at).build(),
        };
        let entry = read.user_data(place as u64);
        // SAFETY: the buffer stays with the ring until the read has ended; the kernel keeps the file.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("each request is taken at once, or is the last");
        // A signal may come before it was taken.
        while self
            .ring
            .submit()
            .is_err_and(|error| error.kind() == ErrorKind::Interrupted)
        {}
        if !self.ring.submission().is_empty() {
            self.stuck = true;
            return Err(buffer);
        }
        self.places[place] = Place::UnderWay(buffer, true);
        Ok(place)
    }

    /// Notes which reads have ended.
    fn take_ended(&mut self) {
        for completion in self.ring.completion() {
            let place = usize::try_from(completion.user_data()).expect("it was a place");
            let len = usize::try_from(completion.result());
            let place = &mut self.places[place];
            *place = match std::mem::replace(place, Place::Free) {
                Place::UnderWay(buffer, true) => {
                    let whole = len == Ok(buffer.len());
                    Place::Ended(buffer, whole)
                }
                _ => Place::Free,
            };
        }
    }

    /// Waits until some read has ended, or a signal comes.
    fn wait(&self) {
        // An error is that of a signal; whoever waits looks again.
        let _ = ring::wait(&self.ring, 1);
    }
}

impl Drop for State {
    /// The kernel still writes where reads are under way.
    fn drop(&mut self) {
        let under_way = |place: &Place| matches!(place, Place::UnderWay(..));
        while self.places.iter().any(under_way) {
            self.wait();
            self.take_ended();
        }
    }
}

impl Store {
    /// Begins to read whole blocks at `offset` of a segment into `buffer`. What is begun is fetched by
    /// [`BegunRead::finish`]; the segment stays in use until then.
    #[must_use]
    pub fn begin_read(&self, segment: DeviceSegment, offset: u32, buffer: Buffer) -> BegunRead {
        let at = self.position(segment, offset, buffer.len());
        self.device().begin_read(at, buffer)
    }
}

#[cfg(test)]
#[path = "ahead_tests.rs"]
mod tests;
