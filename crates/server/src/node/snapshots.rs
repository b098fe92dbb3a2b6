//! Snapshots that clients keep open: views of a region, by number, each with a lease.
//!
//! A snapshot of the cluster is one of every region, under the same number, each at the region's primary.
//! Within a region it is one moment; the regions' are taken one after the other. It sees what was answered
//! before it was asked for, and nothing that was asked for after it was answered.
//!
//! 1. Whoever opens one chooses its number and asks every region. Where one refuses, the others are closed.
//! 2. A lease ends by itself, however much the snapshot is read: a client that is gone keeps nothing for
//!    ever. It is looked at on every use, by the clock, and a few times a second.
//! 3. They are bounded: in number, for each region; and in memory. The memtables that a snapshot sees stay
//!    with it when the region has done with them, and where those of a server's snapshots come to more than
//!    their bound, the oldest snapshots end before their time.
//! 4. They do not outlive the process, nor the region's being served here. What is not there is refused:
//!    nothing is ever read from another moment instead.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use argosy_base::limits::SEGMENT_SIZE;
use argosy_base::{Instant, Outcome};
use argosy_engine::Snapshot;
use argosy_engine::stats::PinnedBySnapshots;
use parking_lot::{Mutex, MutexGuard};

use super::Node;
use super::context::Context;
use super::gate::{Reveals, Verdict};
use super::open::OpenRegion;
use super::region::engine_of;
use super::router::Router;
use super::serving::Serving;
use crate::service::{
    Begun, Failure, InfoSection, Lease, ReplySink, ReplyTo, Request, Response, SnapshotId,
};

/// Most snapshots of a region.
pub(crate) const SNAPSHOTS_MAX: usize = 64;

/// An open snapshot of a region.
struct Open {
    view: Arc<dyn Snapshot>,
    opened: Instant,
    until: Instant,
}

/// The open snapshots of a region, by number; numbers of one server rise.
#[derive(Default)]
pub(crate) struct Snapshots(Mutex<BTreeMap<u64, Open>>);

/// What the snapshots of a region come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SnapshotCounts {
    /// How many there are.
    pub(crate) open: usize,
    /// How long the oldest has been open.
    pub(crate) oldest: Duration,
    /// What they alone keep.
    pub(crate) pinned: PinnedBySnapshots,
}

impl Snapshots {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.0.lock()
    }

    /// Snapshot `id` of the region, which is `open`, or why there is none.
    pub(super) fn view(
        &self,
        id: SnapshotId,
        open: &OpenRegion<'_>,
    ) -> Result<Arc<dyn Snapshot>, Response> {
        let found = self.find(id, open.context.read_clock());
        let found = match open.context.settings.mutants.snapshot_of_now() {
            true => found.map(|_| Arc::from(open.engine.snapshot())),
            false => found,
        };
        found.ok_or_else(|| {
            let what = format!(
                "snapshot {id} is not open in {}: it was closed, its lease ended, its memory was \
                 needed, or the region has been opened anew; open another one",
                open.region.id()
            );
            Response::Failed(Failure::Invalid(what))
        })
    }

    /// The snapshot of this number, if it is open.
    fn find(&self, id: SnapshotId, now: Instant) -> Option<Arc<dyn Snapshot>> {
        let open = self.lock();
        let found = open.get(&id.0).filter(|open| open.until > now)?;
        Some(Arc::clone(&found.view))
    }

    /// Ends what is past its lease, or everything.
    pub(super) fn sweep(&self, now: Option<Instant>) {
        let ended: Vec<_> = {
            let mut open = self.lock();
            let is_over = |of: &Open| now.is_none_or(|now| of.until <= now);
            open.extract_if(.., |_, of| is_over(of)).collect()
        };
        // Without the lock: the last one to see a segment frees it.
        drop(ended);
    }

    fn views(&self) -> Vec<Arc<dyn Snapshot>> {
        let open = self.lock();
        open.values().map(|open| Arc::clone(&open.view)).collect()
    }

    /// When the oldest was opened, and its number.
    fn oldest(&self) -> Option<(Instant, u64)> {
        let open = self.lock();
        open.iter().map(|(id, open)| (open.opened, *id)).min()
    }

    /// What they come to, in a region that `engine` serves.
    pub(super) fn counts(&self, engine: &Serving, now: Instant) -> SnapshotCounts {
        let views = self.views();
        SnapshotCounts {
            open: views.len(),
            oldest: self
                .oldest()
                .map_or(Duration::ZERO, |(at, _)| now.since(at)),
            pinned: engine.pinned_by(&views),
        }
    }
}

/// What is done about a snapshot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Leasing {
    pub(super) id: SnapshotId,
    pub(super) lease: Lease,
}

impl Leasing {
    /// Has it done in every region.
    pub(super) fn ask_all(self, router: &Router<'_>, reply: ReplyTo) -> Begun {
        let parts = LeaseParts {
            node: Weak::clone(router.me),
            reply,
            what: self,
            state: Mutex::new((router.regions(), Ok(true))),
        };
        let parts: Arc<dyn ReplySink> = Arc::new(parts);
        self.ask_each(router, &parts);
        Begun::Waits
    }

    fn ask_each(self, router: &Router<'_>, sink: &Arc<dyn ReplySink>) {
        let Self { id, lease } = self;
        let id = Some(id);
        router.call_every(Request::Snapshot { id, lease }, sink);
    }

    /// Has it done in `open`, which was asked.
    pub(super) fn answer(id: Option<SnapshotId>, lease: Lease, open: &OpenRegion<'_>) -> Response {
        let Some(id) = id else {
            let odd = "a region was asked for a snapshot without a number".to_owned();
            return Response::Failed(Failure::Invalid(odd));
        };
        let context = open.context;
        // What was acknowledged by this thread's other requests is seen.
        context.pump_dirty();
        // A lease begins now.
        match (Self { id, lease }).carry_out(open, context.read_clock()) {
            Ok(true) => Response::Snapshot(Some(id)),
            Ok(false) => Response::Snapshot(None),
            Err(error) => Response::Failed(error),
        }
    }

    /// Opens, renews or closes the snapshot of the region. Returns whether there is one.
    fn carry_out(self, open: &OpenRegion<'_>, now: Instant) -> Result<bool, Failure> {
        let Self { id, lease } = self;
        let region = open.region;
        region.snapshots().sweep(Some(now));
        match lease {
            Lease::Open(span) => {
                let may_show = || {
                    let verdict = region.gate().show_committed(open.engine, Reveals::Snapshot);
                    verdict == Verdict::Now
                };
                // Before it is taken, so that it has all that was acknowledged; and after, so that nobody else
                // has shown more by then.
                let take = || match region.gate().shows_uncommitted() {
                    true => Arc::from(open.engine.snapshot_of_all()),
                    false => Arc::from(open.engine.snapshot()),
                };
                let view = may_show().then(take);
                let Some(view) = view.filter(|_| may_show()) else {
                    let what = format!("{}: what it has cannot be shown yet; retry", region.id());
                    let outcome = Outcome::NotApplied;
                    return Err(Failure::Unavailable { what, outcome });
                };
                let mut open = region.snapshots().lock();
                if open.len() >= SNAPSHOTS_MAX {
                    let what = format!(
                        "{} has {SNAPSHOTS_MAX} open snapshots, the most that there may be; close some",
                        region.id()
                    );
                    let outcome = Outcome::NotApplied;
                    return Err(Failure::Busy { what, outcome });
                }
                let until = now + span;
                let opened = now;
                open.insert(
                    id.0,
                    Open {
                        view,
                        opened,
                        until,
                    },
                );
                Ok(true)
            }
            Lease::Renew(span) => {
                let mut open = region.snapshots().lock();
                let found = open.get_mut(&id.0);
                Ok(found.map(|open| open.until = now + span).is_some())
            }
            Lease::Close => {
                let ended = region.snapshots().lock().remove(&id.0);
                Ok(ended.is_some())
            }
        }
    }
}

/// Ends snapshots that are over, and the oldest while they keep too much memory.
pub(super) fn sweep(context: &Context<'_>) {
    let now = context.now();
    let mut is_any_open = false;
    for region in context.regions.iter() {
        let snapshots = region.snapshots();
        snapshots.sweep(region.is_open().then_some(now));
        is_any_open |= snapshots.oldest().is_some();
    }
    let max = context.settings.memory.memtables / 2;
    while is_any_open && counts(context).pinned.memtable_bytes > max {
        let regions = context.regions.iter();
        let oldest = regions.filter_map(|region| {
            let (opened, id) = region.snapshots().oldest()?;
            Some((opened, id, region))
        });
        let Some((_, id, region)) = oldest.min_by_key(|(opened, ..)| *opened) else {
            return;
        };
        let ended = region.snapshots().lock().remove(&id);
        tracing::warn!(
            region = region.id().0,
            "a snapshot was ended: it pinned too much memory"
        );
        drop(ended);
    }
}

/// What the snapshots of all regions here come to.
pub(super) fn counts(context: &Context<'_>) -> SnapshotCounts {
    let now = context.now();
    let mut all = SnapshotCounts::default();
    for region in context.regions.iter() {
        let Some(engine) = engine_of(region) else {
            continue;
        };
        let of = region.snapshots().counts(&engine, now);
        all.open += of.open;
        all.oldest = all.oldest.max(of.oldest);
        all.pinned.memtable_bytes += of.pinned.memtable_bytes;
        all.pinned.segments += of.pinned.segments;
    }
    all
}

/// What is told of them in `INFO`.
pub(super) fn describe(context: &Context<'_>) -> InfoSection {
    let counts = counts(context);
    let fields = [
        ("snapshots_open", counts.open as u64),
        ("snapshots_oldest_seconds", counts.oldest.as_secs()),
        ("snapshots_device_bytes", pinned_bytes(counts.pinned)),
        (
            "snapshots_memory_bytes",
            counts.pinned.memtable_bytes as u64,
        ),
    ];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_string()));
    ("snapshots", fields.into())
}

/// Bytes of the device that only snapshots pin.
pub(super) const fn pinned_bytes(pinned: PinnedBySnapshots) -> u64 {
    (pinned.segments * SEGMENT_SIZE) as u64
}

/// The answers of all regions to one request about a snapshot.
struct LeaseParts {
    node: Weak<Node>,
    reply: ReplyTo,
    what: Leasing,
    /// Regions that have not answered; whether all others have the snapshot.
    state: Mutex<(usize, Result<bool, Failure>)>,
}

impl ReplySink for LeaseParts {
    fn deliver(&self, _: u64, response: Response) {
        let mut state = self.state.lock();
        match (&mut state.1, response) {
            (Ok(all), Response::Snapshot(id)) => *all &= id.is_some(),
            (Ok(_), Response::Failed(error)) => state.1 = Err(error),
            _ => {}
        }
        state.0 -= 1;
        if state.0 > 0 {
            return;
        }
        let whole = state.1.clone();
        drop(state);
        let Leasing { id, lease } = self.what;
        let failed = whole.is_err() && matches!(lease, Lease::Open(_));
        if failed && let Some(node) = self.node.upgrade() {
            // Nobody will use it. Where this does not get through, the lease ends by itself.
            let nobody: Arc<dyn ReplySink> = Arc::new(Nobody);
            let lease = Lease::Close;
            let close = Leasing { id, lease };
            close.ask_each(&node.router(), &nobody);
            node.links.flush();
        }
        self.reply.clone().send(match whole {
            Ok(true) => Response::Snapshot(Some(id)),
            Ok(false) => Response::Snapshot(None),
            Err(error) => Response::Failed(error),
        });
    }
}

/// Has no use for answers.
struct Nobody;

impl ReplySink for Nobody {
    fn deliver(&self, _: u64, _: Response) {}
}

#[cfg(test)]
#[path = "snapshots_tests.rs"]
mod tests;
