//! Several keys at once: what it takes of the device is read together.
//!
//! The same places are asked in the same order as by [`read`](crate::read), for each key by itself, newest
//! first; only that a key which comes to something that is not in memory stops there, and the next key is
//! looked at. Then everything at which keys stopped is read as *one request*, and they go on from where they
//! stopped. Filters send nearly every key to one leaf, so as a rule there is one such round, and one more
//! where values lie in a log.
//!
//! 1. `Gathering` is where bytes are read from: it has what earlier rounds have read, and notes what it
//!    does not have.
//! 2. A request is bounded, in reads and in bytes; what does not fit waits for the next one. Keys are looked
//!    up in groups, so what is read for them and held is bounded, too.
//! 3. A key that needs more rounds than `ROUNDS_MAX` is read by itself. So is one in a tree across segments.
//! 4. What is told of them may be bounded, too ([`Wanted`]): behind a key whose value goes over that, keys
//!    are left alone as soon as it is known how long that value is, which is before it is read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use argosy_base::{DeviceSegment, Lsn, Moment};
use argosy_device::{Buffer, DeviceError};
use argosy_engine::{EngineError, Wanted};

use crate::addresses::name_of;
use crate::cache::CacheKey;
use crate::filter::KeyHash;
use crate::level::{ReadAt, medium};
use crate::log::ValueRef;
use crate::names::{Entry, Form, LevelError, OwnedEntry};
use crate::read::{ReadView, Reading, VersionLog, open_reader, read_unaligned};
use crate::segments::StoredSegment;
use crate::version::{LevelEntry, LogEntry};

/// Keys that are looked up at a time.
const GROUP_KEYS: usize = 128;

/// Most bytes of a request; one read may go beyond.
const REQUEST_BYTES: usize = 2 << 20;

/// Rounds after which what is left is read key by key.
const ROUNDS_MAX: usize = 12;

/// What has to be read first.
enum Stop {
    /// Something that the next round reads.
    Later,
    Failed(EngineError),
}

/// Where a read begins, and how long it is.
type Span = (DeviceSegment, u32, usize);

/// What was read for a group of keys, and what is to be read next.
#[derive(Default)]
struct Gathered {
    read: BTreeMap<Span, Buffer>,
    wanted: BTreeMap<Span, Arc<StoredSegment>>,
    wanted_bytes: usize,
    /// The last thing that was asked for is not there.
    missed: bool,
}

/// See the module documentation.
#[derive(Default)]
struct Gathering(RefCell<Gathered>);

impl Gathering {
    /// Fills `out` if that was read; otherwise notes that it has to be.
    fn fill(&self, stored: &Arc<StoredSegment>, offset: u32, out: &mut [u8]) -> bool {
        let mut gathered = self.0.borrow_mut();
        let span = (stored.place(), offset, out.len());
        if let Some(bytes) = gathered.read.get(&span) {
            out.copy_from_slice(&bytes[..out.len()]);
            return true;
        }
        gathered.missed = true;
        let fits = gathered.wanted.is_empty() || gathered.wanted_bytes + out.len() <= REQUEST_BYTES;
        if fits && gathered.wanted.insert(span, Arc::clone(stored)).is_none() {
            gathered.wanted_bytes += out.len();
        }
        false
    }

    /// Whether something was missing since the last call.
    fn missed(&self) -> bool {
        std::mem::take(&mut self.0.borrow_mut().missed)
    }

    /// What came of a look that reads from here: an error is one only if nothing was missing.
    fn outcome<T, E: Into<EngineError>>(&self, looked: Result<T, E>) -> Result<T, Stop> {
        match looked {
            Ok(found) => Ok(found),
            Err(_) if self.missed() => Err(Stop::Later),
            Err(error) => Err(Stop::Failed(error.into())),
        }
    }

    /// Reads all that is wanted. Returns whether anything was.
    fn read(&self) -> Result<bool, DeviceError> {
        let mut gathered = self.0.borrow_mut();
        let wanted = std::mem::take(&mut gathered.wanted);
        gathered.wanted_bytes = 0;
        let Some(first) = wanted.values().next() else {
            return Ok(false);
        };
        let mut buffers: Vec<_> = wanted
            .keys()
            .map(|span| Buffer::for_reading(span.2))
            .collect();
        let spans = wanted.keys().zip(&mut buffers);
        let reads = spans.map(|(span, buffer)| (span.0, span.1, &mut buffer[..span.2]));
        let results = first.store().read_together(reads);
        results.into_iter().collect::<Result<(), _>>()?;
        gathered.read.extend(wanted.into_keys().zip(buffers));
        Ok(true)
    }
}

/// A segment, as far as it was read.
struct Source<'a> {
    stored: &'a Arc<StoredSegment>,
    gathering: &'a Gathering,
}

impl ReadAt for Source<'_> {
    fn read_at(&self, offset: u32, out: &mut [u8]) -> Result<(), LevelError> {
        match self.gathering.fill(self.stored, offset, out) {
            true => Ok(()),
            false => Err(LevelError::Device(not_read_yet())),
        }
    }
}

/// Stands for what the next round reads; nobody is shown it.
fn not_read_yet() -> DeviceError {
    DeviceError::Unusable {
        path: String::new(),
        what: String::new(),
    }
}

/// What a key is bound to, if it is, the LSN of that while it is in a memtable, and when it expires.
type Value = (Option<Vec<u8>>, Lsn, Option<Moment>);

/// How far a key has come.
enum At {
    /// The runs before this one do not have it.
    Run(usize),
    /// It is bound to this, which has this LSN if it is in a memtable.
    Bound(OwnedEntry, Lsn),
    Done(Value),
}

impl At {
    /// Bytes of the value, as far as that is known.
    fn value_len(&self) -> usize {
        match self {
            Self::Run(_) => 0,
            Self::Bound(entry, _) => entry.as_entry().value_len().unwrap_or(0),
            Self::Done((value, ..)) => value.as_ref().map_or(0, Vec::len),
        }
    }
}

/// A key that is being looked up.
struct Wanting<'a> {
    key: &'a [u8],
    hash: KeyHash,
    at: At,
}

/// That there is a value, as an empty one.
fn presence(entry: &OwnedEntry) -> Option<Vec<u8>> {
    entry.as_entry().value_len().map(|_| Vec::new())
}

impl ReadView {
    /// What is `wanted` of the first of `keys` as of `lsn`, in their order, each with its LSN as
    /// [`Located`](crate::read::Located) has it.
    ///
    /// # Errors
    /// As [`locate`](Self::locate) and [`value`](Self::value) of any of them.
    pub fn get_some(
        &self,
        (keys, wanted): (&[&[u8]], Wanted),
        lsn: Lsn,
        reading: &Reading,
    ) -> Result<Vec<Value>, EngineError> {
        let mut found = Vec::with_capacity(keys.len());
        let mut left = wanted;
        for group in keys.chunks(GROUP_KEYS) {
            let before = found.len();
            self.get_group((group, left), lsn, reading, &mut found)?;
            let told = &found[before..];
            if let Wanted::Values(bytes) = &mut left {
                let values = told.iter().filter_map(|(value, ..)| value.as_ref());
                *bytes = bytes.saturating_sub(values.map(Vec::len).sum());
            }
            if told.len() < group.len() || left == Wanted::Values(0) {
                break;
            }
        }
        Ok(found)
    }

    /// The newest binding of each of `keys`, in their order.
    ///
    /// # Errors
    /// As [`locate`](Self::locate) of any of them.
    pub(crate) fn locate_some(
        &self,
        keys: &[&[u8]],
        reading: &Reading,
    ) -> Result<Vec<Option<OwnedEntry>>, EngineError> {
        let mut found = Vec::with_capacity(keys.len());
        for group in keys.chunks(GROUP_KEYS) {
            let gathering = Gathering::default();
            let mut wanted = self.begin(group, Lsn(u64::MAX));
            for _ in 0..ROUNDS_MAX {
                for wanted in &mut wanted {
                    match self.bind(wanted, reading, &gathering) {
                        Ok(()) | Err(Stop::Later) => {}
                        Err(Stop::Failed(error)) => return Err(error),
                    }
                }
                if !gathering.read()? {
                    break;
                }
            }
            for Wanting { key, at, .. } in wanted {
                found.push(match at {
                    At::Bound(entry, _) => Some(entry),
                    At::Done(_) => None,
                    At::Run(_) => self.locate(key, Lsn(u64::MAX), reading)?.entry,
                });
            }
        }
        Ok(found)
    }

    /// `keys` as of `lsn`, as far as memtables bind them.
    fn begin<'a>(&self, keys: &[&'a [u8]], lsn: Lsn) -> Vec<Wanting<'a>> {
        let at = |key: &[u8]| match self.in_memory(key, lsn) {
            Some((lsn, entry)) => At::Bound(entry.to_owned(), lsn),
            None => At::Run(0),
        };
        let wanted = keys.iter().map(|key| Wanting {
            key,
            hash: KeyHash::of(key),
            at: at(key),
        });
        wanted.collect()
    }

    fn get_group(
        &self,
        (keys, what): (&[&[u8]], Wanted),
        lsn: Lsn,
        reading: &Reading,
        found: &mut Vec<Value>,
    ) -> Result<(), EngineError> {
        let gathering = Gathering::default();
        let mut wanted = self.begin(keys, lsn);
        for _ in 0..ROUNDS_MAX {
            let mut left = what;
            let mut taken = 0;
            for wanted in &mut wanted {
                if left == Wanted::Values(0) && taken > 0 {
                    break;
                }
                taken += 1;
                match self.go_on((wanted, what), reading, &gathering) {
                    Ok(()) | Err(Stop::Later) => {}
                    Err(Stop::Failed(error)) => return Err(error),
                }
                if let Wanted::Values(bytes) = &mut left {
                    *bytes = bytes.saturating_sub(wanted.at.value_len());
                }
            }
            wanted.truncate(taken);
            if !gathering.read()? {
                break;
            }
        }
        for Wanting { key, at, .. } in wanted {
            found.push(match at {
                At::Done(found) => found,
                At::Run(_) | At::Bound(..) => self.get_alone((key, what), lsn, reading)?,
            });
        }
        Ok(())
    }

    /// One key, by itself.
    fn get_alone(
        &self,
        (key, what): (&[u8], Wanted),
        lsn: Lsn,
        reading: &Reading,
    ) -> Result<Value, EngineError> {
        let located = self.locate(key, lsn, reading)?;
        let expiry = located.entry.as_ref().and_then(OwnedEntry::expiry);
        let value = match located.entry {
            Some(entry) if what == Wanted::Presence => presence(&entry),
            Some(entry) => self.value(key, entry, reading)?,
            None => None,
        };
        Ok((value, located.lsn, expiry))
    }

    /// Goes on with a key as far as what was read allows.
    fn go_on(
        &self,
        (wanted, what): (&mut Wanting<'_>, Wanted),
        reading: &Reading,
        gathering: &Gathering,
    ) -> Result<(), Stop> {
        self.bind(wanted, reading, gathering)?;
        if let At::Bound(entry, lsn) = &wanted.at {
            let expiry = entry.expiry();
            let value = match entry.as_entry().lasting() {
                _ if what == Wanted::Presence => presence(entry),
                Entry::Tombstone | Entry::Until(..) => None,
                Entry::Inline(value) => Some(value.to_vec()),
                Entry::Pointer { at, value_len } => {
                    let key = wanted.key;
                    let value = ValueRef { at, value_len, key };
                    Some(self.logged(&value, reading, gathering)?)
                }
            };
            wanted.at = At::Done((value, *lsn, expiry));
        }
        Ok(())
    }

    /// Finds out what a key is bound to, as far as what was read allows.
    fn bind(
        &self,
        wanted: &mut Wanting<'_>,
        reading: &Reading,
        gathering: &Gathering,
    ) -> Result<(), Stop> {
        if let At::Run(_) = wanted.at {
            let entry = self.find(wanted, reading, gathering)?;
            wanted.at = match entry {
                Some(entry) => At::Bound(entry, Lsn(0)),
                None => At::Done((None, Lsn(0), None)),
            };
        }
        Ok(())
    }

    /// The binding of a key in the run that it has come to, or one behind it.
    fn find(
        &self,
        wanted: &mut Wanting<'_>,
        reading: &Reading,
        gathering: &Gathering,
    ) -> Result<Option<OwnedEntry>, Stop> {
        let At::Run(from) = wanted.at else {
            return Ok(None);
        };
        let runs = self.version.runs().enumerate().skip(from);
        for (index, (_, run)) in runs {
            wanted.at = At::Run(index);
            let Some(entry) = run.find(wanted.key) else {
                continue;
            };
            if entry.segment.form == Form::Leaves {
                return self.in_levels(wanted.key, reading).map_err(Stop::Failed);
            }
            let found = self.in_segment(entry, wanted, reading, gathering)?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The binding of a key in one segment, with its filter asked and counted.
    fn in_segment(
        &self,
        entry: &LevelEntry,
        wanted: &Wanting<'_>,
        reading: &Reading,
        gathering: &Gathering,
    ) -> Result<Option<OwnedEntry>, Stop> {
        let source = Source {
            stored: &entry.stored,
            gathering,
        };
        let cached = CacheKey::reader(reading.region, entry.segment.number);
        let opened = entry.stored.reader(cached, &reading.cache, |_| {
            open_reader(entry, reading.region, &source)
        });
        let segment = gathering.outcome(opened)?;
        if !segment.may_contain(wanted.hash) {
            reading.filters.count(1, 0);
            return Ok(None);
        }
        let found = segment.get(wanted.key, wanted.hash, &source, Some(&reading.cache));
        let mut found = gathering.outcome(found)?;
        match found.as_mut().map(OwnedEntry::pointer_mut) {
            None => reading.filters.count(0, 1),
            Some(Some(at)) => {
                *at = self.version.resolve(*at).ok_or_else(|| {
                    let what = "a pointer leads to a place where the region has nothing";
                    Stop::Failed(segment.name().corrupt(0, what).into())
                })?;
            }
            Some(None) => {}
        }
        Ok(found)
    }

    /// A value that lies in a log.
    fn logged(
        &self,
        wanted: &ValueRef<'_>,
        reading: &Reading,
        gathering: &Gathering,
    ) -> Result<Vec<u8>, Stop> {
        if let Some(entry) = self.version.medium_log().get(&wanted.at.segment()) {
            let source = Source {
                stored: &entry.stored,
                gathering,
            };
            let of = (name_of(&self.version, &entry.segment), entry.segment.len);
            let place = (wanted.at.offset(), wanted.value_len);
            let cache = Some(&*reading.cache);
            let read = medium::read_value(of, &source, place, wanted.key, cache);
            let value = gathering.outcome(read)?;
            reading.filters.followed.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        if let Some(value) = self.large_value_in_memory(wanted, reading) {
            return Ok(value);
        }
        reading.cache.count_value(false);
        let version = &*self.version;
        let read = |entry: &LogEntry, offset, out: &mut [u8]| {
            let fill = |at, blocks: &mut [u8]| match gathering.fill(&entry.stored, at, blocks) {
                true => Ok(()),
                false => Err(not_read_yet()),
            };
            read_unaligned(offset, out, fill)
        };
        gathering.outcome(reading.value(wanted, &VersionLog { version, read }))
    }
}
