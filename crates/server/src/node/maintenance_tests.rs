//! Flushes and merges that are asked of a server that is alone, which takes a step only when it is told to.

use std::time::Duration;

use argosy_device::{Device, OpKind};
use argosy_engine::{Reach, WriteBatch, WriteOptions};

use super::super::Node;
use super::super::readers_tests::{Gate, alone};
use super::*;
use crate::service::{ReplySink, Request, Service};

/// More steps than anything takes.
const STEPS_MAX: usize = 10_000;
const START: Instant = Instant::from_nanos(1);

#[derive(Default)]
struct Answers(Mutex<Vec<(u64, Response)>>);

impl ReplySink for Answers {
    fn deliver(&self, token: u64, response: Response) {
        self.0.lock().push((token, response));
    }
}

struct Bench {
    gate: Arc<Gate>,
    node: Arc<Node>,
    region: Arc<Region>,
    answers: Arc<Answers>,
}

impl Bench {
    fn new() -> Self {
        let gate = Gate::new();
        let (node, region) = alone(&gate);
        while !region.is_open() {
            node.step_fabric(START);
            node.step_background(START);
        }
        Self {
            gate,
            node,
            region,
            answers: Arc::default(),
        }
    }

    fn engine(&self) -> Arc<Serving> {
        engine_of(&self.region).expect("it is open")
    }

    /// Asks; the answer is among the others, if it was given at once.
    fn ask(&self, token: u64, request: Request<'_>) {
        let sink: Arc<dyn ReplySink> = Arc::clone(&self.answers) as _;
        if let Some(now) = self
            .node
            .call(request, Reach::Device, ReplyTo::new(&sink, token))
            .answered()
        {
            sink.deliver(token, now);
        }
    }

    fn maintain(&self, token: u64, what: Maintenance) {
        self.ask(token, Request::Maintain { what });
    }

    fn put(&self, token: u64, key: &str, value: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.put(key.as_bytes(), value).expect("it is short");
        let options = WriteOptions::default();
        let batch = &batch;
        self.ask(token, Request::Write { batch, options });
    }

    /// What was answered since this was asked last.
    fn answered(&self) -> Vec<(u64, Response)> {
        std::mem::take(&mut *self.answers.0.lock())
    }

    /// The next answer, with as many steps as that takes.
    fn next(&self) -> (u64, Response) {
        for _ in 0..STEPS_MAX {
            let mut answers = self.answers.0.lock();
            if !answers.is_empty() {
                return answers.remove(0);
            }
            drop(answers);
            self.node.step_background(START);
        }
        panic!("there is no answer");
    }

    fn runs(&self) -> usize {
        let levels = self.engine().stored().levels();
        levels.iter().map(|level| level.runs).sum()
    }
}

fn is_written(response: &Response) -> bool {
    matches!(response, Response::Written { applied: true, .. })
}

#[test]
fn a_flush_is_answered_once_all_is_durable() {
    let bench = Bench::new();
    bench.put(0, "a", b"1");
    let last = bench.engine().last_lsn();
    for _ in 0..20 {
        bench.node.step_background(START);
    }
    assert!(is_written(&bench.next().1));
    assert!(bench.engine().durable_lsn() < last, "nobody has asked");
    bench.maintain(1, Maintenance::Flush);
    assert_eq!(bench.answered(), [], "it is not durable yet");
    assert_eq!(bench.next(), (1, Response::Done));
    assert!(bench.engine().durable_lsn() >= last);
    // There is nothing to be done.
    bench.maintain(2, Maintenance::Flush);
    assert_eq!(bench.answered(), [(2, Response::Done)]);
}

/// Whoever flushes behind a write that waits for room is answered when that is durable, too.
#[test]
fn a_flush_stands_behind_writes_that_wait() {
    const FLUSH: u64 = 1 << 20;
    let bench = Bench::new();
    let mut puts = 0;
    while !bench.region.waiting().is_queueing() {
        bench.put(puts, &format!("{puts:05}"), &[7; 100]);
        puts += 1;
        assert!(puts < 10_000, "memtables are bounded");
    }
    let before = bench.engine().last_lsn();
    assert_eq!(bench.answered().len() as u64, puts - 1, "one waits");
    bench.maintain(FLUSH, Maintenance::Flush);
    let (token, written) = bench.next();
    assert!(is_written(&written) && token == puts - 1);
    assert_eq!(bench.next(), (FLUSH, Response::Done));
    assert!(bench.engine().durable_lsn() > before);
}

#[test]
fn a_compaction_leaves_one_run_of_what_lives() {
    let bench = Bench::new();
    for round in 0..3_u8 {
        for key in 0..10 {
            bench.put(0, &format!("{key}"), &[round; 100]);
        }
        // Each round becomes a run of its own.
        bench.engine().freeze_now();
        while bench.engine().stats().memtables.entries > 0 {
            bench.node.step_background(START);
        }
    }
    bench.answered();
    assert_eq!(bench.runs(), 3);
    bench.maintain(1, Maintenance::Compact);
    assert_eq!(bench.next(), (1, Response::Done));
    assert_eq!(bench.runs(), 1);
    let stats = bench.engine().stats();
    let entries = stats.levels.iter().map(|of| of.entries);
    assert_eq!(entries.sum::<u64>(), 10, "what was overwritten is gone");
}

#[test]
fn who_is_too_late_may_ask_again() {
    let bench = Bench::new();
    bench.put(0, "a", b"1");
    bench.answered();
    bench.maintain(1, Maintenance::Compact);
    bench.maintain(2, Maintenance::Flush);
    let late = START + Duration::from_secs(6);
    bench.node.context().set_now(late);
    bench.node.context().sweep();
    for ((token, response), what) in bench.answered().into_iter().zip(["merged", "made durable"]) {
        let Response::Failed(Failure::Unavailable { what: said, .. }) = &response else {
            panic!("{token}: {response:?}");
        };
        assert!(said.contains(what) && said.contains("goes on"), "{said}");
    }
    assert!(bench.region.maintained().waiting().is_empty());
    for what in [Maintenance::Compact, Maintenance::Flush] {
        bench.maintain(3, what);
        assert_eq!(bench.next(), (3, Response::Done));
    }
}

#[test]
fn so_many_wait_and_no_more() {
    let bench = Bench::new();
    for token in 0..WAITING_MAX as u64 {
        bench.maintain(token, Maintenance::Compact);
    }
    assert_eq!(bench.answered(), []);
    bench.maintain(5000, Maintenance::Compact);
    let refused = bench.answered();
    let [(5000, Response::Failed(Failure::Busy { .. }))] = refused.as_slice() else {
        panic!("{refused:?}");
    };
    assert_eq!(bench.next(), (0, Response::Done));
    assert_eq!(bench.answered().len(), WAITING_MAX - 1);
}

#[test]
fn a_device_that_fails_is_told() {
    for what in [Maintenance::Flush, Maintenance::Compact] {
        let bench = Bench::new();
        bench.put(0, "a", b"1");
        bench.answered();
        bench.gate.inner().fail_after(OpKind::Write, 0);
        bench.maintain(1, what);
        let (_, response) = bench.next();
        assert!(
            matches!(&response, Response::Failed(Failure::Storage { .. })),
            "{response:?}"
        );
        // Whoever comes later is told at once.
        bench.maintain(2, what);
        assert_eq!(bench.answered().len(), 1);
    }
}

#[test]
fn logs_become_durable_while_a_merge_waits_for_the_device() {
    let bench = Bench::new();
    for round in 0..3 {
        for key in 0..100 {
            bench.put(0, &format!("key {key}"), &[round; 400]);
            assert!(is_written(&bench.next().1));
        }
        bench.maintain(1, Maintenance::Flush);
        assert_eq!(bench.next(), (1, Response::Done));
        bench.engine().freeze_now();
    }
    for _ in 0..200 {
        bench.node.step_background(START);
    }
    bench.maintain(2, Maintenance::Compact);
    bench.gate.shut(true);
    let node = Arc::clone(&bench.node);
    let merging = std::thread::Builder::new().spawn(move || {
        // It returns once the merge is over.
        for _ in 0..STEPS_MAX {
            node.step_next(START);
        }
    });
    bench.gate.wait_for_read();
    for round in 0..5 {
        bench.put(3, "key", &[round]);
        bench.maintain(4, Maintenance::Flush);
        let before = bench.gate.counters().syncs;
        for _ in 0..100 {
            bench.node.step_logs(START);
        }
        let answered = bench.answered();
        assert!(is_written(&answered[0].1), "{answered:?}");
        assert_eq!(answered[1..], [(4, Response::Done)]);
        let syncs = bench.gate.counters().syncs - before;
        assert!((1..=2).contains(&syncs), "{syncs}");
    }
    bench.gate.shut(false);
    assert!(merging.expect("it was started").join().is_ok());
    assert_eq!(bench.answered(), [(2, Response::Done)]);
}
