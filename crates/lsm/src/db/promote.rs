//! From a passive replica to an engine: what happens between opening a region and serving it.
//!
//! 1. The logs are read once more, and what is not in the levels goes into memtables ([`Tables`]).
//! 2. Of what lies behind the end, [a bounded part](crate::cut_segments) is kept, to be looked at.
//! 3. Where the replica built its own levels, its edits become the group's: an edit states its version
//!    anew, with a number above any of either sequence.
//! 4. Records that only windows hold, and closing marks that the device has lost, are written to the device.
//! 5. The *cut*: an edit seals every log segment at the end of what was found, so that nothing past
//!    it ever counts again, and reserves segment numbers that no one has used. It commits only
//!    when all of that is durable (I3).
//! 6. New log segments begin the chains anew. An engine that is alone declares them at once; one
//!    that has backups waits until all of them have the cut.

use std::sync::Arc;

use argosy_base::{BLOCK_SIZE, EditSeq, Epoch, LogId, Lsn, Position, RegionId, SegmentNumber};
use argosy_device::{Buffer, DeviceError, Store};
use argosy_engine::{Observer, Service};
use argosy_log::behind::{Behind, Left};
use argosy_log::segment::Writer as WriterName;
use argosy_log::value::reach;
use argosy_log::{Geometry, Holes, LogTail, LogWindows, Recovery, Replayed, recover};
use argosy_memory::{MemoryError, SharedMemory, WindowStore};

use super::replay::Tables;
use super::server_memory::{RegionMemory, ServerMemory};
use super::upkeep::tail_purpose;
use super::{GivenWindows, Lsm, Parts};
use crate::cache::NodeCache;
use crate::edit::{Edit, LogSegment};
use crate::names::logs::{LARGE_LOG, LOGS, RECOVERY_LOG, Recovered, log_name};
use crate::replica::{self, Replica, ReplicaError, ReplicaSurvivors, Slots};
use crate::settings::Settings;
use crate::storage::{Committed, Storage};
use crate::version::Version;
use crate::work::truncation::{LastLsns, truncate_logs};

pub use argosy_engine::cut::Cut;

/// A replica that becomes an engine, and waits for the device: everything that it has to read was read.
pub(super) struct Promoting {
    storage: Storage,
    stage: Stage,
    service: Service,
    windows: Slots,
    tables: Tables,
    memory: Arc<RegionMemory>,
    last: Lsn,
    cut: Option<Cut>,
    edits: Vec<Committed>,
    tails: Vec<(EditSeq, LogSegment)>,
}

/// What becomes durable.
enum Stage {
    /// The cut.
    Cutting,
    /// The first segments of the logs, of an engine that is alone.
    BeginningLogs,
}

/// What a step has come to.
pub(super) enum Step {
    /// The device is still working.
    Waits(Box<Promoting>),
    /// It serves.
    Done(Box<Lsm>),
}

/// See [`Lsm::promote`].
pub(super) fn promote(
    replica: Replica,
    server: &Arc<ServerMemory>,
    service: Service,
) -> Result<Lsm, ReplicaError> {
    begin(replica, server, service)?.finish()
}

/// The first half of [`promote`], which reads the logs. It waits for the device where the copy has edits under way, has
/// built its own levels, or was no member's, and where there are records behind the end.
pub(super) fn begin(
    replica: Replica,
    server: &Arc<ServerMemory>,
    service: Service,
) -> Result<Promoting, ReplicaError> {
    let replica::ReplicaParts {
        mut storage,
        windows,
        position,
    } = replica.into_parts()?;
    let mut settings = storage.settings().clone();
    let memory = server.join(&settings.memtables);
    settings.memtables.bytes = memory.table_bytes();
    let mut tables = Tables::new(&settings).behind(storage.current().duplicates());
    let recovered = replay(&storage, &windows, &mut tables)?;
    refuse_less(&position, &recovered)?;
    let kept = storage.keep_cut(&recovered)?;
    if settings.mutants.lose_duplicates() {
        tables = tables.behind(&Arc::default());
    }
    // From here on the history of the group is this copy's.
    let edits = storage.settle_standing()?;
    join_group(&mut storage)?;
    cut(&mut storage, &service, &recovered)?;
    Ok(Promoting {
        stage: Stage::Cutting,
        last: recovered.last,
        cut: recovered.cut_in_words(log_name).map(|words| Cut {
            records: recovered.cut.iter().map(|cut| cut.records).sum(),
            kept,
            words,
        }),
        tails: Vec::new(),
        storage,
        service,
        windows,
        tables,
        memory,
        edits,
    })
}

impl Promoting {
    /// Goes on as far as that is possible without waiting.
    ///
    /// # Errors
    /// The device's, also that it is full.
    pub(super) fn step(mut self) -> Result<Step, ReplicaError> {
        loop {
            self.edits.extend(self.storage.step()?);
            self.storage.check_room()?;
            if !self.storage.is_idle() {
                return Ok(Step::Waits(Box::new(self)));
            }
            match self.stage {
                Stage::Cutting => self.storage.mend_cut()?,
                Stage::BeginningLogs => return Ok(Step::Done(Box::new(self.start()))),
            }
            if self.service.observer.is_some() {
                return Ok(Step::Done(Box::new(self.start())));
            }
            let mark = self.storage.current().mark();
            self.storage.mark_recorded(mark);
            let epoch = self.service.epoch;
            self.tails = begin_logs(&mut self.storage, epoch, self.last, &self.tables)?;
            self.stage = Stage::BeginningLogs;
        }
    }

    /// Goes on to the end, and waits for the device.
    ///
    /// # Errors
    /// The device's, also that it is full.
    pub(super) fn finish(self) -> Result<Lsm, ReplicaError> {
        let mut promoting = self;
        loop {
            promoting = match promoting.step()? {
                Step::Waits(promoting) => *promoting,
                Step::Done(lsm) => return Ok(*lsm),
            };
            promoting.storage.wait_for_data()?;
        }
    }

    fn start(self) -> Lsm {
        let stamp = self.windows[0][0].stamp();
        let windows = log_windows(&self.storage, self.windows);
        let service = self.service;
        let lsm = Lsm::start(Parts {
            storage: self.storage,
            epoch: service.epoch,
            windows: GivenWindows {
                of_logs: windows,
                room: service.room,
            },
            writer: WriterName {
                boot: stamp.boot,
                incarnation: stamp.incarnation,
            },
            tables: self.tables,
            last: self.last,
            cut: self.cut,
            tails: self.tails,
            edits: self.edits,
            memory: self.memory,
            marks: service.marks,
            observer: service.observer,
        });
        service
            .clock
            .into_iter()
            .for_each(|clock| lsm.set_clock(clock));
        service
            .waker
            .into_iter()
            .for_each(|waker| lsm.set_waker(waker));
        lsm
    }
}

/// See [`Lsm::open`].
pub(super) fn open(
    store: &Arc<Store>,
    region: RegionId,
    windows: &dyn WindowStore,
    settings: &Settings,
    observer: Option<Arc<dyn Observer>>,
) -> Result<Lsm, ReplicaError> {
    let survivors = survivors(windows, region, settings);
    let fresh = fresh_windows(windows, region, settings)?;
    let known = store.region(region).is_some();
    if !known {
        store.finish_recovery();
    }
    let replica = Replica::open(store, region, fresh, &survivors, settings)?;
    if observer.is_none() && !settings.accept_loss {
        refuse_damage(&replica, settings.layout.log_geometry(), &survivors)?;
    }
    if known {
        store.finish_recovery();
    }
    let epoch = replica.version().epoch().max(Epoch(1));
    let service = Service {
        epoch,
        since: replica.version().seq().cut_epoch(),
        observer,
        ..Service::default()
    };
    let cache = Arc::new(NodeCache::new(settings.cache_bytes));
    let lsm = promote(replica, &ServerMemory::new(cache), service)?;
    // Everything that survived is durable now, and new windows were begun.
    for log in LOGS {
        for slot in 0..settings.layout.window_slots {
            windows.forget_survivors(window_name(region, log, slot))?;
        }
    }
    Ok(lsm)
}

/// The name under which a region's window is kept.
#[must_use]
pub fn window_name(region: RegionId, log: LogId, slot: usize) -> u64 {
    let slot = u16::try_from(slot).expect("a log has few windows");
    u64::from(region.0) << 32 | u64::from(log.raw()) << 16 | u64::from(slot)
}

/// What an earlier process left of a region's windows.
#[must_use]
pub fn survivors(
    windows: &dyn WindowStore,
    region: RegionId,
    settings: &Settings,
) -> ReplicaSurvivors {
    LOGS.map(|log| {
        (0..settings.layout.window_slots)
            .map(|slot| windows.survivors(window_name(region, log, slot)))
            .collect()
    })
}

/// New memory for a region's windows.
///
/// # Errors
/// Where there is no room for it.
pub fn fresh_windows(
    windows: &dyn WindowStore,
    region: RegionId,
    settings: &Settings,
) -> Result<Slots, MemoryError> {
    let len = settings.layout.log_geometry().slot_bytes();
    let mut slots = Slots::default();
    for log in LOGS {
        for slot in 0..settings.layout.window_slots {
            slots[log.index()].push(windows.create(window_name(region, log, slot), len)?);
        }
    }
    Ok(slots)
}

/// Makes sure that nothing is missing in windows in front of what they hold. Without other members, one
/// process wrote them.
fn refuse_damage(
    replica: &Replica,
    geometry: Geometry,
    survivors: &ReplicaSurvivors,
) -> Result<(), ReplicaError> {
    let version = replica.version();
    let in_levels = Lsn(version.replay_from().0.saturating_sub(1));
    let last = replica.position().lsn.max(in_levels);
    match find_behind(version, geometry, survivors, last) {
        Some(behind) => Err(ReplicaError::DamagedWindow {
            region: version.region(),
            behind,
        }),
        None => Ok(()),
    }
}

/// Makes sure that everything is there that was when the replica stood at `position`. Its windows may have been damaged
/// since.
fn refuse_less(position: &Position, recovered: &Recovered) -> Result<(), ReplicaError> {
    if recovered.last >= position.lsn {
        return Ok(());
    }
    let found = |log: LogId| {
        let end = recovered.logs[log.index()].end;
        end.map_or((0, 0), |end| (end.ordinal, end.offset))
    };
    let mut ends = LOGS
        .into_iter()
        .filter_map(|log| Some((log, position.logs.get(log)?)));
    let was = ends.find(|(log, was)| found(*log) < (was.ordinal, was.end));
    let unknown = (RECOVERY_LOG, SegmentNumber(0), 0);
    let (log, segment, offset) = was.map_or(unknown, |(log, was)| (log, was.segment, was.end));
    Err(ReplicaError::CorruptLog {
        log,
        segment,
        offset,
        what: "what lies in front of this was whole when the copy was opened, and is not any more",
    })
}

/// What windows of the logs of `version` hold that cannot be there if the history ends at `last`.
#[must_use]
pub fn find_behind(
    version: &Version,
    geometry: Geometry,
    windows: &ReplicaSurvivors,
    last: Lsn,
) -> Option<Behind> {
    let chains = LOGS.map(|log| -> Vec<LogSegment> {
        version.log(log).iter().map(|entry| entry.segment).collect()
    });
    let left = Left {
        region: version.region(),
        geometry,
        chains: [&chains[0], &chains[1]],
        windows: [&windows[0], &windows[1]],
    };
    left.find_behind(last)
}

/// Reads the logs, and puts what is not in the levels into `tables`.
fn replay(
    storage: &Storage,
    windows: &Slots,
    tables: &mut Tables,
) -> Result<Recovered, ReplicaError> {
    let version = Arc::clone(storage.current());
    let chains = LOGS.map(|log| -> Vec<LogSegment> {
        version.log(log).iter().map(|entry| entry.segment).collect()
    });
    let windows = LOGS.map(|log| -> Vec<Option<Arc<SharedMemory>>> {
        windows[log.index()].iter().cloned().map(Some).collect()
    });
    let points = storage.log_points(&version);
    let stored = |segment: &LogSegment| {
        let stored = version.stored(segment.number);
        stored.expect("the chain is the version's")
    };
    let recovery = Recovery {
        region: storage.region(),
        geometry: storage.settings().layout.log_geometry(),
        chains: [&chains[0], &chains[1]],
        points: &points,
        windows: [&windows[0], &windows[1]],
        replay_from: version.replay_from(),
        durable: version.durable(),
        holes: match storage.settings().mutants.recover_past_hole() {
            true => Holes::Passed,
            false => Holes::Judged,
        },
        written: &|segment| stored(segment).written_up_to(),
    };
    let mut read = |segment: &LogSegment, offset: u32, out: &mut [u8]| -> Result<(), DeviceError> {
        stored(segment).read(offset, out)
    };
    let mut visit = |replayed: Replayed<'_>| {
        tables.replay(&replayed);
    };
    let mut recovered = recover(&recovery, &mut read, &mut visit)?;
    recovered.last = recovered
        .last
        .max(Lsn(version.replay_from().0.saturating_sub(1)));
    Ok(recovered)
}

/// Ends the sequence of edits of a member that built its own levels: see [`replica`].
fn join_group(storage: &mut Storage) -> Result<(), ReplicaError> {
    let version = Arc::clone(storage.current());
    if !version.builds_levels() {
        return Ok(());
    }
    let mut edit = Edit {
        seq: version.seq().max(version.group_edit()).next(),
        ..version.checkpoint_for_others()
    };
    edit.numbers.follows = None;
    storage.commit(&edit)?;
    storage.settle()?;
    Ok(())
}

/// Begins to make what was found durable, and to commit the cut. Its number is the first of its promotion, unless the
/// edits are further already.
fn cut(
    storage: &mut Storage,
    service: &Service,
    recovered: &Recovered,
) -> Result<(), ReplicaError> {
    let version = Arc::clone(storage.current());
    let mut edit = storage.next_edit(service.epoch);
    edit.seq = edit.seq.max(EditSeq::first_of(service.since));
    for log in LOGS {
        let tail = &recovered.logs[log.index()];
        write_unflushed(&version, tail);
        edit.logs.sealed.extend(&tail.seals);
    }
    if recovered.gap && !storage.settings().mutants.forget_gap() {
        edit.numbers.logged_from = Some(version.replay_from());
    }
    storage.raise_mark(&mut edit);
    Ok(storage.commit(&edit)?)
}

fn write_unflushed(version: &Version, tail: &LogTail) {
    for unflushed in tail.unflushed.iter().chain(&tail.closing) {
        let stored = version.stored(unflushed.segment.number);
        let stored = stored.expect("the chain is the version's");
        let len = unflushed.bytes.len();
        assert!(len.is_multiple_of(BLOCK_SIZE), "whole blocks are written");
        let bytes = Arc::new(Buffer::from_slice(&unflushed.bytes));
        stored.write(unflushed.from, bytes, 0..len);
    }
}

/// Begins both logs with a segment each; where the device is full, the recovery log alone, for
/// deletes, or none, so that the region can at least be read. Upkeep adds them as soon as there is room.
fn begin_logs(
    storage: &mut Storage,
    epoch: Epoch,
    last: Lsn,
    tables: &Tables,
) -> Result<Vec<(EditSeq, LogSegment)>, ReplicaError> {
    let in_use = !tables.is_empty();
    let mut edit = storage.next_edit(epoch);
    let mut tails = Vec::new();
    for log in LOGS {
        let number = storage
            .allocate_number()
            .expect("a block was just reserved");
        match storage.allocate(number, tail_purpose(log, in_use)) {
            Ok(_) => {}
            Err(error) if error.is_full() => continue,
            Err(error) => return Err(error.into()),
        }
        let before = storage.head().log(log).last();
        let segment = LogSegment {
            log,
            ordinal: before.map_or(0, |entry| entry.segment.ordinal + 1),
            number,
            epoch,
            base_lsn: last.next(),
            end: None,
        };
        edit.logs.added.push(segment);
        tails.push((edit.seq, segment));
    }
    // What an earlier start began and nobody wrote to goes at once.
    let head = Arc::clone(storage.head());
    let reach = reach(storage.settings().layout.segment_bytes);
    truncate_logs(&head, reach, &mut LastLsns::new(last), &mut edit);
    if !tails.is_empty() || !edit.logs.removed.is_empty() {
        storage.commit(&edit)?;
    }
    Ok(tails)
}

fn log_windows(storage: &Storage, windows: Slots) -> [Arc<LogWindows>; LOGS.len()] {
    let geometry = storage.settings().layout.log_geometry();
    let region = storage.region();
    let [recovery, large] = windows;
    [
        Arc::new(LogWindows::new(region, RECOVERY_LOG, geometry, recovery)),
        Arc::new(LogWindows::new(region, LARGE_LOG, geometry, large)),
    ]
}
