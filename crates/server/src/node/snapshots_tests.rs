//! Snapshots of a server that is alone: their leases and their bounds.

use std::sync::Arc;
use std::time::Duration;

use argosy_base::{Direction, Instant, KeyRange};
use argosy_engine::{Reach, Wanted, WriteBatch, WriteOptions};
use argosy_wire::api::{Scratch, Sender};
use parking_lot::Mutex;

use super::super::readers_tests::{Gate, alone, set_clock};
use super::super::region::Region;
use super::*;
use crate::service::{KeyList, Paging, Service};

#[derive(Default)]
struct Answers(Mutex<Vec<Response>>);

impl ReplySink for Answers {
    fn deliver(&self, _: u64, response: Response) {
        self.0.lock().push(response);
    }
}

struct Bench {
    node: Arc<Node>,
    region: Arc<Region>,
    answers: Arc<Answers>,
}

impl Bench {
    fn new() -> Self {
        let (node, region) = alone(&Gate::new());
        while !region.is_open() {
            node.step_fabric(Instant::from_nanos(1));
            node.step_background(Instant::from_nanos(1));
        }
        Self {
            node,
            region,
            answers: Arc::default(),
        }
    }

    fn ask(&self, request: Request<'_>) -> Response {
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        let now = self
            .node
            .call(request, Reach::Device, ReplyTo::new(&sink, 0))
            .answered();
        now.unwrap_or_else(|| self.answers.0.lock().remove(0))
    }

    fn put(&self, key: &str, value: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), value).expect("it is short");
        let options = WriteOptions::default();
        let batch = &batch;
        let written = self.ask(Request::Write { batch, options });
        assert!(matches!(written, Response::Written { applied: true, .. }));
    }

    fn lease(&self, id: Option<SnapshotId>, lease: Lease) -> Response {
        self.ask(Request::Snapshot { id, lease })
    }

    fn open(&self, seconds: u64) -> SnapshotId {
        match self.lease(None, Lease::Open(Duration::from_secs(seconds))) {
            Response::Snapshot(Some(id)) => id,
            other => panic!("{other:?}"),
        }
    }

    fn get(&self, key: &str, at: Option<SnapshotId>) -> Response {
        let keys = &KeyList::of([key.as_bytes()]);
        let wanted = Wanted::Values(100);
        self.ask(Request::GetMany { keys, wanted, at })
    }

    fn at(&self, seconds: u64) {
        self.node
            .context()
            .set_now(Instant::from_nanos(seconds * 1_000_000_000));
        sweep(&self.node.context());
    }

    fn counts(&self) -> SnapshotCounts {
        counts(&self.node.context())
    }
}

fn value(value: Option<&[u8]>) -> Response {
    Response::Values(vec![value.map(<[u8]>::to_vec)])
}

fn is_gone(response: &Response) -> bool {
    match response {
        Response::Failed(Failure::Invalid(what)) => what.contains("is not open"),
        _ => false,
    }
}

#[test]
fn a_snapshot_shows_its_moment_until_its_lease_ends() {
    let bench = Bench::new();
    bench.put("a", b"1");
    let (first, second) = (bench.open(10), bench.open(20));
    assert!(second > first);
    bench.put("a", b"2");
    bench.put("b", b"2");
    assert_eq!(bench.get("a", Some(first)), value(Some(b"1")));
    assert_eq!(bench.get("b", Some(first)), value(None));
    assert_eq!(bench.get("a", None), value(Some(b"2")));
    let paging = Paging {
        direction: Direction::Down,
        pairs_max: 9,
        bytes_max: 1000,
        keys_only: false,
        at: Some(second),
    };
    let range = &KeyRange::all();
    let page = bench.ask(Request::Scan { range, paging });
    let pairs = vec![(b"a".to_vec(), b"1".to_vec())];
    assert_eq!(page, Response::Page { pairs, next: None });

    bench.at(5);
    assert_eq!(
        (bench.counts().open, bench.counts().oldest.as_secs()),
        (2, 4)
    );
    let span = Duration::from_secs(30);
    assert_eq!(
        bench.lease(Some(second), Lease::Renew(span)),
        Response::Snapshot(Some(second))
    );
    bench.at(25);
    assert!(is_gone(&bench.get("a", Some(first))));
    assert_eq!(bench.get("a", Some(second)), value(Some(b"1")));
    assert_eq!(
        bench.lease(Some(first), Lease::Renew(span)),
        Response::Snapshot(None)
    );
    assert_eq!(
        bench.lease(Some(second), Lease::Close),
        Response::Snapshot(Some(second))
    );
    assert!(is_gone(&bench.get("a", Some(second))));
    assert!(is_gone(&bench.ask(Request::Scan { range, paging })));
    assert_eq!(bench.counts().open, 0);
}

/// Asks for a lease as another server does.
fn forwarded(bench: &Bench, id: SnapshotId, lease: Lease) -> Response {
    let mut bytes = Vec::new();
    let id = Some(id);
    Request::Snapshot { id, lease }.encode(&mut bytes);
    match Request::decode(&bytes, Sender::Server, &mut Scratch::default()) {
        Ok(Request::Snapshot { id, lease }) => {
            let engine = engine_of(&bench.region).expect("it is open");
            let open = OpenRegion {
                context: &bench.node.context(),
                region: &bench.region,
                engine: &engine,
            };
            Leasing::answer(id, lease, &open)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_does_not_end_before_what_was_asked_for() {
    let bench = Bench::new();
    let mut began = 1;
    for span in [1, 999_999, 1_000_000, 1_000_001, 59_999_999_999] {
        let lease = Duration::from_nanos(span);
        let opened = bench.open(3600);
        for (number, renews) in [(SnapshotId(7), false), (opened, true)] {
            // The server has done nothing for long.
            began += 500_000_000;
            set_clock(began);
            let told = match renews {
                true => forwarded(&bench, number, Lease::Renew(lease)),
                false => forwarded(&bench, number, Lease::Open(lease)),
            };
            assert_eq!(told, Response::Snapshot(Some(number)));
            let end = began + span;
            for (now, there) in [(end - 1, true), (end + 1_000_000, false)] {
                bench.node.context().set_now(Instant::from_nanos(now));
                let gone = is_gone(&bench.get("a", Some(number)));
                assert_eq!(gone, !there, "{span} ns, {renews}, {now} of {end}");
            }
            began = end + 1_000_000;
        }
    }
    set_clock(1);
}

#[test]
fn a_lease_ends_in_time_although_no_step_has_seen_it() {
    let bench = Bench::new();
    let paging = Paging {
        direction: Direction::Up,
        pairs_max: 9,
        bytes_max: 1000,
        keys_only: false,
        at: Some(bench.open(1)),
    };
    let range = &KeyRange::all();
    let end = 1_000_000_001;
    for (now, there) in [(end - 1, true), (end, false)] {
        // The server was stopped: its last step is as long ago.
        set_clock(now);
        assert_eq!(is_gone(&bench.get("a", paging.at)), !there, "{now}");
        let page = bench.ask(Request::Scan { range, paging });
        assert_eq!(is_gone(&page), !there, "{now}");
    }
    set_clock(1);
}

#[test]
fn there_are_so_many_and_no_more() {
    let bench = Bench::new();
    let all: Vec<_> = (0..SNAPSHOTS_MAX).map(|_| bench.open(60)).collect();
    let refused = bench.lease(None, Lease::Open(Duration::from_secs(1)));
    assert!(
        matches!(&refused, Response::Failed(Failure::Busy { .. })),
        "{refused:?}"
    );
    assert_eq!(
        bench.lease(Some(all[7]), Lease::Close),
        Response::Snapshot(Some(all[7]))
    );
    bench.open(1);
    assert_eq!(bench.counts().open, SNAPSHOTS_MAX);
}

#[test]
fn what_snapshots_keep_is_told_and_bounded() {
    let bench = Bench::new();
    bench.put("a", &[1; 500]);
    let id = bench.open(60);
    assert_eq!(bench.counts().pinned, PinnedBySnapshots::default());
    // The memtable that it sees goes to the levels.
    let engine = engine_of(&bench.region).expect("it is open");
    for round in 0..2 {
        assert!(engine.freeze_now());
        while engine.step(Instant::from_nanos(1)).expect("it works").made {}
        bench.put("a", &[round; 500]);
    }
    let pinned = bench.counts().pinned;
    assert!(pinned.memtable_bytes > 500, "{pinned:?}");
    assert!(matches!(bench.get("a", Some(id)), Response::Values(_)));
    // This server may keep none.
    bench.at(1);
    assert!(is_gone(&bench.get("a", Some(id))));
    assert_eq!(bench.counts().pinned, PinnedBySnapshots::default());
}
