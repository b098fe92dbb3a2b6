//! Where the logs end: after an opening, after the windows were taken back, and after a checkpoint;
//! and reading segments for others.
//!
//! A scan goes this way:
//!
//! 1. [`recover`](fn@argosy_log::recover) merges what the device and the old windows hold into the
//!    history that is there without a gap, and tells where each log ends and which bytes below
//!    that are in windows only. A copy that is being filled has what declares LSNs durable before it has these LSNs:
//!    there a missing one is the end, whatever edits and marks declare. It is being filled from when it is begun anew,
//!    or as no member's, until it is told that it is whole.
//! 2. Of segments in front of the one in which a log ends, these bytes are made durable at once,
//!    so that "flushed up to" can be said by one position. (Blocks; there are at most as many bytes
//!    as windows.)
//! 3. The windows in front of each log's end are put into the fresh memory as they were, without
//!    anything behind the end, so that the primary, or a later flush, goes on right there. Where the windows have no
//!    memory, there was nothing in the old ones either, and the device has all of it: the windows stay *bare*, and
//!    are filled from there when they take memory.

use std::ops::Range;
use std::sync::Arc;

use argosy_base::{LogId, Standing};
use argosy_device::Buffer;
use argosy_engine::CopyError;
use argosy_log::segment::{
    WINDOW_HEADER_BYTES, Writer, decode_window_header, encode_window_header,
};
use argosy_log::verify::{LogFault, SentBytes, check_sent};
use argosy_log::{Holes, LogLayout, LogTail, Recovery, Replayed, recover};
use argosy_memory::SharedMemory;

use super::build::Builder;
use super::fill::Fill;
use super::logs::Logs;
use super::{ReplicaError, ReplicaSurvivors, block_down, block_up};
use crate::edit::LogSegment;
use crate::memtable::needed::Needed;
use crate::names::Entry;
use crate::names::logs::LOGS;
use crate::segments::StoredSegment;
use crate::storage::Storage;

impl Logs {
    /// See the module documentation. Of the old windows one private copy is made, by which everything
    /// is judged: a write that was interrupted when they were revoked may still change them.
    pub(super) fn scan(
        &mut self,
        storage: &mut Storage,
        mut builder: Option<&mut Builder>,
        survivors: &ReplicaSurvivors,
    ) -> Result<(), ReplicaError> {
        let survivors: &ReplicaSurvivors =
            &std::array::from_fn(|log| private_copies(&survivors[log]));
        let version = Arc::clone(storage.head());
        let chain = |log: LogId| -> Vec<LogSegment> {
            version.log(log).iter().map(|entry| entry.segment).collect()
        };
        let chains = LOGS.map(chain);
        let points = storage.log_points(&version);
        let stored = |segment: &LogSegment| {
            let stored = version.stored(segment.number);
            stored.expect("a chain's segments are stored")
        };
        let recovery = Recovery {
            region: self.region,
            geometry: self.geometry,
            chains: [&chains[0], &chains[1]],
            points: &points,
            windows: [&survivors[0], &survivors[1]],
            replay_from: version.replay_from(),
            durable: version.durable(),
            holes: match storage.standing() {
                _ if storage.settings().mutants.recover_past_hole() => Holes::Passed,
                Standing::BegunAnew | Standing::Filling => Holes::End,
                _ => Holes::Judged,
            },
            written: &|segment| stored(segment).written_up_to(),
        };
        let read =
            |segment: &LogSegment, offset: u32, out: &mut [u8]| stored(segment).read(offset, out);
        if let Some(builder) = &mut builder {
            builder.begin_again(storage);
        }
        let mut needed = Needed::default();
        let recovered = recover(&recovery, read, |replayed| {
            need(&mut needed, &replayed);
            if let Some(builder) = &mut builder {
                builder.replayed(&replayed);
            }
        })?;
        if let Some(builder) = &mut builder {
            builder.replayed_all(storage, &recovered);
            // What it found is all there is of them.
            self.flights.iter_mut().for_each(|flight| flight.fed = true);
        }
        self.lsn = recovered.last;
        self.needed = needed;
        self.bare = false;
        for (log, tail) in LOGS.into_iter().zip(&recovered.logs) {
            self.take_tail(log, tail, &survivors[log.index()], storage)?;
        }
        Ok(())
    }

    /// Takes over what a scan found of one log.
    fn take_tail(
        &mut self,
        log: LogId,
        tail: &LogTail,
        old: &[Option<Arc<SharedMemory>>],
        storage: &Storage,
    ) -> Result<(), ReplicaError> {
        let version = Arc::clone(storage.head());
        write_closing(storage, tail)?;
        let chain = version.log(log);
        let first_open = chain.iter().find(|entry| entry.segment.end.is_none());
        let found = tail.end.and_then(|at| {
            let entry = chain.iter().find(|e| e.segment.ordinal == at.ordinal)?;
            Some((entry, at.offset))
        });
        // A log that ends in a sealed segment goes on in the first open one.
        let found = found.filter(|(entry, _)| entry.segment.end.is_none());
        let (last, end) = match (found, first_open) {
            (Some(found), _) => found,
            (None, Some(open)) => (open, 0),
            (None, None) => {
                self.ends[log.index()] = chain.last().map(|last| last.segment.number);
                return Ok(());
            }
        };
        self.ends[log.index()] = Some(last.segment.number);
        for entry in chain.iter().filter(|entry| entry.segment.end.is_none()) {
            let number = entry.segment.number;
            let fill = Fill::new(entry.segment, Arc::clone(&entry.stored));
            let fill = self.fills.entry(number).or_insert(fill);
            let seal = tail.seals.iter().find(|seal| seal.number == number);
            fill.closed = seal.map_or(0, |seal| seal.to);
            if entry.segment.ordinal < last.segment.ordinal {
                fill.end = self.geometry.segment_bytes();
                let unflushed = tail.unflushed.iter();
                let unflushed = unflushed.filter(|u| u.segment.number == number);
                for bytes in unflushed {
                    let data = Arc::new(Buffer::from_slice(&bytes.bytes));
                    let range = 0..data.len();
                    let _ = entry.stored.write(bytes.from, data, range);
                }
            } else if number == last.segment.number {
                let unflushed = tail.unflushed.iter();
                let in_windows = unflushed.filter(|u| u.segment.number == number);
                let from = in_windows.map(|u| u.from).min().unwrap_or(end);
                fill.durable = fill.durable.max(block_down(from.min(end)));
                fill.written = fill.written.max(fill.durable);
                fill.found = from.min(end);
                fill.end = end.max(fill.durable);
            }
        }
        self.finish_earlier(log, last.segment.ordinal, storage)?;
        if self.have_memory() {
            return self.refill(&last.segment, tail, old);
        }
        let fill = &self.fills[&last.segment.number];
        let window = self.geometry.window_index(fill.durable);
        self.bare |= window * self.geometry.window_bytes() < fill.end;
        Ok(())
    }

    /// Fills windows that were bare, and have memory now.
    pub(super) fn fill_bare(&mut self) -> Result<(), ReplicaError> {
        if !self.bare {
            return Ok(());
        }
        for number in self.ends.into_iter().flatten() {
            let Some(fill) = self.fills.get(&number) else {
                // It was sealed since: nothing is written behind its end.
                continue;
            };
            fill.stored.wait()?;
            let segment = fill.segment;
            self.refill(&segment, &LogTail::default(), &[])?;
        }
        self.bare = false;
        Ok(())
    }

    /// Makes durable what was just written of open segments in front of `ordinal`.
    fn finish_earlier(
        &mut self,
        log: LogId,
        ordinal: u64,
        storage: &Storage,
    ) -> Result<(), ReplicaError> {
        let whole = self.geometry.segment_bytes();
        let earlier = self.fills.values_mut().filter(|fill| {
            (fill.segment.log, fill.durable < whole) == (log, true)
                && fill.segment.ordinal < ordinal
        });
        let mut any = false;
        for fill in earlier {
            fill.stored.wait()?;
            fill.written = whole;
            fill.durable = whole;
            any = true;
        }
        if any {
            let store = storage.store();
            store.wait(&store.sync())?;
        }
        Ok(())
    }

    /// Puts the bytes of `segment` in front of the log's end, as far as they are not durable, into
    /// their windows, with all that precedes them in the window.
    fn refill(
        &mut self,
        segment: &LogSegment,
        tail: &LogTail,
        old: &[Option<Arc<SharedMemory>>],
    ) -> Result<(), ReplicaError> {
        let fill = &self.fills[&segment.number];
        let window_bytes = self.geometry.window_bytes();
        let first = self.geometry.window_index(fill.durable);
        let mut index = first;
        while index * window_bytes < fill.end {
            let from = index * window_bytes;
            let to = fill.end.min(from + window_bytes);
            let mut bytes = Buffer::zeroed(window_bytes as usize);
            fill.stored.read(from, &mut bytes)?;
            bytes[(to - from) as usize..].fill(0);
            for unflushed in tail
                .unflushed
                .iter()
                .filter(|u| u.segment.number == segment.number)
            {
                overlay(
                    &mut bytes[..(to - from) as usize],
                    from,
                    unflushed.from,
                    &unflushed.bytes,
                );
            }
            let slot = self.geometry.slot(segment.ordinal, index);
            let writer = old.get(slot).and_then(Option::as_ref).map(writer_of);
            let header =
                encode_window_header(self.region, segment, index, writer.unwrap_or_default());
            let memory = &self.windows[segment.log.index()][slot];
            memory.write(0, &header);
            memory.fill_zero(header.len()..WINDOW_HEADER_BYTES);
            memory.write(WINDOW_HEADER_BYTES, &bytes);
            index += 1;
        }
        Ok(())
    }

    /// Bytes `from..to`, whole blocks, of `segment`. See [`Replica::read`](super::Replica::read).
    pub(super) fn read(
        &self,
        segment: &LogSegment,
        stored: &StoredSegment,
        from: u32,
        to: u32,
    ) -> Result<Buffer, ReplicaError> {
        let number = segment.number;
        let gone = ReplicaError::from(CopyError::Gone { number, to });
        let fill = self.fills.get(&number);
        let end = match (segment.end, fill) {
            (Some(end), _) => end,
            (None, Some(fill)) => fill.end.max(fill.durable),
            (None, None) => 0,
        };
        if to > block_up(end) {
            return Err(gone);
        }
        // Of windows that are bare the device has what was found.
        let on_device = |fill: &Fill| match self.bare {
            true => fill.durable.max(block_up(fill.found)),
            false => fill.durable,
        };
        let place = LogPlace {
            segment,
            stored,
            end,
            durable: fill.map_or(u32::MAX, on_device),
        };
        let durable = fill.map_or(0, on_device);
        if fill.is_some() && from >= durable {
            // All of it is in memory.
            return self.sent_bytes(&place, from..to).ok_or(gone)?;
        }
        // A record may begin in front of what is durable here, and end behind it. So the check goes on to the end
        // of the window.
        let window_end = durable.next_multiple_of(self.geometry.window_bytes());
        let until = window_end.min(block_up(end)).max(to);
        let bytes = match self.sent_bytes(&place, from..until) {
            Some(bytes) => bytes?,
            None => self.sent_bytes(&place, from..to).ok_or(gone)??,
        };
        let of = LogLayout {
            region: self.region,
            geometry: self.geometry,
        };
        let sent = SentBytes {
            from,
            bytes: &bytes,
        };
        let mut read = |_: &LogSegment, at, out: &mut [u8]| stored.read_copied(at, out);
        match check_sent(of, segment, durable, &mut read, sent)? {
            None if until > to => Ok(Buffer::from_slice(&bytes[..(to - from) as usize])),
            None => Ok(bytes),
            Some(LogFault {
                number,
                offset,
                what,
            }) => Err(ReplicaError::CorruptLog {
                log: segment.log,
                segment: number,
                offset,
                what,
            }),
        }
    }

    /// Bytes of a log segment, whole blocks, from the device as far as they are durable, and from memory behind that.
    /// `None` where they are in neither.
    fn sent_bytes(
        &self,
        place: &LogPlace<'_>,
        range: Range<u32>,
    ) -> Option<Result<Buffer, ReplicaError>> {
        let (from, to) = (range.start, range.end);
        let mut bytes = Buffer::zeroed((to - from) as usize);
        let on_device = place.durable.clamp(from, to);
        let split = (on_device - from) as usize;
        if split > 0
            && let Err(error) = place.stored.read(from, &mut bytes[..split])
        {
            return Some(Err(error.into()));
        }
        let window_bytes = self.geometry.window_bytes();
        let mut at = on_device;
        while at < to {
            let piece = (window_bytes - at % window_bytes).min(to - at);
            let memory = self.window(place.segment, at)?;
            let out = (at - from) as usize..(at - from + piece) as usize;
            let offset = WINDOW_HEADER_BYTES + (at % window_bytes) as usize;
            memory.read(offset, &mut bytes[out]);
            at += piece;
        }
        if place.end < to {
            let valid = place.end.saturating_sub(from) as usize;
            bytes[valid..].fill(0);
        }
        Some(Ok(bytes))
    }
}

/// Adds to what is `needed` to hold what is `replayed`.
fn need(needed: &mut Needed, replayed: &Replayed<'_>) {
    match (replayed.time(), replayed.range()) {
        (Some(_), _) => {}
        (None, Some(range)) => needed.add_range(&range),
        (None, None) => needed.add_entry(replayed.key.len(), &Entry::of(replayed)),
    }
}

/// Makes the closing marks durable that were not there.
fn write_closing(storage: &Storage, tail: &LogTail) -> Result<(), ReplicaError> {
    if tail.closing.is_empty() {
        return Ok(());
    }
    for closing in &tail.closing {
        let stored = storage.head().stored(closing.segment.number);
        let stored = stored.expect("the chain is the version's");
        let data = Arc::new(Buffer::from_slice(&closing.bytes));
        let range = 0..data.len();
        let _ = stored.write(closing.from, data, range);
        stored.wait()?;
    }
    let store = storage.store();
    Ok(store.wait(&store.sync())?)
}

/// A log segment, and where its bytes are.
struct LogPlace<'a> {
    segment: &'a LogSegment,
    stored: &'a StoredSegment,
    /// Bytes behind it are zero.
    end: u32,
    /// Bytes below are on the device, those behind in memory.
    durable: u32,
}

/// Copies the part of `bytes`, which belong at `at`, that lies in `out`, which begins at `from`.
fn overlay(out: &mut [u8], from: u32, at: u32, bytes: &[u8]) {
    let start = at.max(from);
    let skip = ((start - from) as usize).min(out.len());
    let out = &mut out[skip..];
    let skip = ((start - at) as usize).min(bytes.len());
    let bytes = &bytes[skip..];
    let len = out.len().min(bytes.len());
    out[..len].copy_from_slice(&bytes[..len]);
}

/// Memory of this process with what `windows` hold at this moment. Those that hold nothing share the memory of one
/// that does not.
fn private_copies(windows: &[Option<Arc<SharedMemory>>]) -> Vec<Option<Arc<SharedMemory>>> {
    let mut empty: Option<Arc<SharedMemory>> = None;
    let mut copy = |memory: &Arc<SharedMemory>| {
        if holds_a_window(memory) {
            return Arc::new(memory.private_copy());
        }
        let as_long = empty.take().filter(|it| it.len() == memory.len());
        let none = as_long.unwrap_or_else(|| Arc::new(SharedMemory::anonymous(memory.len())));
        Arc::clone(empty.insert(none))
    };
    windows
        .iter()
        .map(|window| window.as_ref().map(&mut copy))
        .collect()
}

/// Whether a window was ever entered in `memory` since it was zero: without a header nothing in it counts.
pub(crate) fn holds_a_window(memory: &Arc<SharedMemory>) -> bool {
    memory.peek(0, 64).iter().any(|byte| *byte != 0)
}

/// Whose window `memory` was.
fn writer_of(memory: &Arc<SharedMemory>) -> Writer {
    let header = memory.peek(0, 64);
    decode_window_header(&header).map_or(Writer::default(), |(_, writer)| writer)
}
