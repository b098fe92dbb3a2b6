//! What one server asks of another that needs the device: who reads that, and in which order it is carried out.

use std::sync::Arc;

use argosy_base::{Direction, KeyRange};
use argosy_engine::{Condition, Reach, WriteBatch, WriteOptions};
use argosy_fabric::sim::SimSettings;

use super::Mutants;
use super::copies_tests::{Pair, REGIONS};
use super::readers_tests::Answers;
use super::region::engine_of;
use crate::service::{Paging, ReplySink, ReplyTo, Request, Response, Service};
use crate::tasks::Tasks;

/// One of the first pairs, which are on the device alone.
const COLD: &[u8] = b"a000000000";

/// The first server has `tasks_max` tasks at most. Some of its pairs are on the device alone.
fn cold(mutants: Mutants, tasks_max: usize) -> (Pair, Arc<Tasks>) {
    let mut pair = Pair::new(SimSettings::default(), mutants);
    pair.open();
    for key in 0..20 {
        pair.put(0, key);
        pair.run(1);
    }
    let engine = engine_of(pair.nodes[0].region(REGIONS[0]).expect("a member"));
    assert!(engine.expect("it is open").freeze_now());
    pair.run(500);
    let tasks = Arc::new(Tasks::new(tasks_max));
    pair.nodes[0].set_tasks(Arc::clone(&tasks));
    (pair, tasks)
}

fn put(value: &[u8]) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(COLD, value).expect("it is short");
    batch
}

/// Has the second server ask this, under its place as token.
fn ask(pair: &Pair, requests: &[Request<'_>]) -> Arc<Answers> {
    let told = Arc::<Answers>::default();
    let sink: Arc<dyn ReplySink> = Arc::<Answers>::clone(&told);
    for (token, request) in (0..).zip(requests) {
        let begun = pair.nodes[1].call(*request, Reach::Device, ReplyTo::new(&sink, token));
        assert_eq!(begun.answered(), None);
    }
    pair.nodes[1].flush();
    told
}

/// Answers, by their requests.
fn told(answers: &Answers) -> Vec<(u64, Response)> {
    let mut told = answers.0.lock().clone();
    told.sort_by_key(|(token, _)| *token);
    told
}

/// Links move for ten milliseconds. Returns how often the first server's device was read meanwhile.
fn move_links(pair: &mut Pair) -> usize {
    let before = pair.devices[0].reads();
    for _ in 0..40 {
        pair.step_fabric();
    }
    pair.devices[0].reads() - before
}

/// One is asked to write where nothing is bound, to write all the same, for what was written, and for a page. Returns
/// how often the fabric's thread has read the device, and how many were answered before a worker came.
fn read_on_the_way(mutants: Mutants) -> (usize, usize) {
    let (mut pair, tasks) = cold(mutants, 100);
    let (absent, always) = (put(b"absent"), put(b"always"));
    let condition = Condition::Absent;
    let range = KeyRange::new(b"a".to_vec(), None);
    let answers = ask(
        &pair,
        &[
            Request::Write {
                batch: &absent,
                options: WriteOptions {
                    condition,
                    return_previous: false,
                },
            },
            Request::Write {
                batch: &always,
                options: WriteOptions::default(),
            },
            Request::Get { key: COLD },
            Request::Scan {
                range: &range,
                paging: Paging {
                    direction: Direction::Up,
                    pairs_max: 1,
                    bytes_max: 1000,
                    keys_only: false,
                    at: None,
                },
            },
        ],
    );
    let mut reads = move_links(&mut pair);
    let early = told(&answers).len();
    while tasks.step(&*pair.nodes[0]) {
        pair.nodes[0].flush();
    }
    reads += move_links(&mut pair);
    let told = told(&answers);
    assert_eq!(told.len(), 4, "{told:?}");
    let applied = |at: usize| matches!(told[at].1, Response::Written { applied: true, .. });
    assert!(!applied(0) && applied(1), "{told:?}");
    assert_eq!(told[2].1, Response::Value(Some(b"always".to_vec())));
    let Response::Page { pairs, .. } = &told[3].1 else {
        panic!("{told:?}");
    };
    // It shows what was committed when it was read.
    let keys: Vec<_> = pairs.iter().map(|(key, _)| key.as_slice()).collect();
    assert_eq!(keys, [COLD]);
    (reads, early)
}

#[test]
fn the_thread_of_the_fabric_reads_no_device() {
    assert_eq!(read_on_the_way(Mutants::default()), (0, 0));
    let mutants = Mutants {
        read_on_fabric: true,
        ..Mutants::default()
    };
    let (reads, early) = read_on_the_way(mutants);
    assert!(reads > 0 && early == 4, "{reads} {early}");
}

/// What waits for room is carried out when there is some, and stands in nobody's way once it is not there any more.
#[test]
fn calls_wait_at_their_link_while_workers_have_no_room() {
    let (mut pair, tasks) = cold(Mutants::default(), 1);
    let keys: Vec<String> = (0..6).map(|key| format!("a{key:08}1")).collect();
    let requests: Vec<_> = keys
        .iter()
        .map(|key| Request::Get {
            key: key.as_bytes(),
        })
        .collect();
    let answers = ask(&pair, &requests);
    assert_eq!(move_links(&mut pair), 0);
    assert_eq!((tasks.counts().queued, told(&answers).len()), (1, 0));
    for _ in 0..3 {
        assert!(tasks.step(&*pair.nodes[0]));
        move_links(&mut pair);
    }
    assert_eq!((tasks.counts().queued, told(&answers).len()), (1, 3));
    for _ in 0..3 {
        assert!(tasks.step(&*pair.nodes[0]));
        move_links(&mut pair);
    }
    let told = told(&answers);
    let is_value = |(_, told): &(u64, Response)| matches!(told, Response::Value(Some(_)));
    assert!(told.len() == 6 && told.iter().all(is_value), "{told:?}");

    // A link breaks with what waits.
    let answers = ask(&pair, &requests);
    move_links(&mut pair);
    pair.nodes[0]
        .link(argosy_base::ServerId(1))
        .reset("the test wants it");
    assert!(tasks.step(&*pair.nodes[0]));
    move_links(&mut pair);
    drop(answers);
    while tasks.step(&*pair.nodes[0]) {
        move_links(&mut pair);
    }
    let nobody: Arc<dyn ReplySink> = Arc::<Answers>::default();
    let call = |_, _| crate::service::Begun::NeedsDevice;
    let reply = ReplyTo::new(&nobody, 0);
    let begun = tasks.call_or_push(Request::Get { key: COLD }, reply, call);
    assert_eq!(begun, crate::service::Begun::NeedsDevice);
    assert_eq!(tasks.counts().queued, 1, "nobody has waited longer");
}
