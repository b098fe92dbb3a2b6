//! The native client against the built program: everything that it can ask, and servers that are
//! killed and restarted under it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::{Outcome, info};
use argosy_client::native::{Ask, Completion};
use argosy_client::{Client, ClientError, KeyRange, Kv, PutOnly, RespClient, Span};
use rustix::process::Signal;

use crate::support::{ByHand, Playground, info as info_of, lives, signal, until};

/// Kills of one server after the other.
const ROUNDS: usize = 3;
/// Writes that have to be acknowledged between two of them.
const WRITES_BETWEEN_KILLS: u64 = 300;
const WRITERS: u64 = 2;
const KEYS: u64 = 100;

fn client_of(playground: &Playground) -> Client {
    Client::connect(&playground.servers[1].resp.to_string()).unwrap()
}

#[test]
fn the_native_client_and_that_of_redis_see_the_same() {
    let playground = Playground::start(&["--regions", "5"]);
    let mut native = client_of(&playground);
    let mut resp = RespClient::connect(playground.servers[0].resp).unwrap();
    let clients: [&mut dyn Kv; 2] = [&mut native, &mut resp];
    let [a, b] = clients;
    let pairs: Vec<_> = (0..2000u32)
        .map(|n| {
            let spread = char::from_digit(n % 36, 36).unwrap();
            let value = vec![b'.'; (n as usize * 7) % 3000];
            (format!("{spread}-{n:05}").into_bytes(), value)
        })
        .collect();
    let writes: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_slice(), Some(value.as_slice())))
        .collect();
    a.write_many(&writes).unwrap();
    let expected: BTreeMap<_, _> = pairs.iter().cloned().collect();
    let all = |kv: &mut dyn Kv, span: Span, page: usize| {
        let (mut found, mut left) = (Vec::new(), Some(span));
        while let Some(span) = left {
            let page = kv.page(&span, page).unwrap();
            found.extend(page.pairs);
            left = page.rest;
        }
        found
    };
    for kv in [&mut *a, &mut *b] {
        let up = all(kv, Span::all(), 300);
        assert!(up.iter().cloned().eq(expected.clone()), "what was written");
        for page in [7, 300, 5000] {
            let mut down = all(kv, Span::all().reversed(), page);
            down.reverse();
            assert!(down == up, "pages of {page} from the highest key down");
        }
        // Over three of the regions, neither from a boundary on nor to one.
        let some = Span::of(KeyRange::new(&b"3-00100"[..], Some(b"p-01".to_vec())));
        let part = all(kv, some.clone(), 50);
        assert!(part.len() > 500 && part.len() < 1500);
        let mut down = all(kv, some.reversed(), 50);
        down.reverse();
        assert!(down == part, "a part, from the highest key down");
        let keys: Vec<_> = pairs.iter().map(|(key, _)| key.as_slice()).collect();
        let values = kv.multi_get(&keys).unwrap();
        let equal = values
            .iter()
            .zip(&pairs)
            .all(|(found, (_, value))| found.as_ref() == Some(value));
        assert!(equal, "so does a read of all keys");
        assert!(!kv.put_only(PutOnly::IfAbsent, keys[7], b"x").unwrap());
        assert!(
            kv.put_only(PutOnly::IfPresent, keys[7], &pairs[7].1)
                .unwrap()
        );
        assert_eq!(kv.get(b"nobody").unwrap(), None);
        assert!(!kv.delete(b"nobody").unwrap());
    }
    let few = KeyRange::new(&b"1-"[..], Some(b"2".to_vec()));
    let one = b.page(&Span::of(few.clone()), 10_000).unwrap();
    assert_eq!(a.page(&Span::of(few), 10_000).unwrap().pairs, one.pairs);
    let info = info_of(playground.servers[1].resp, info::SECTION_NATIVE);
    assert_eq!(info[info::NATIVE_CLIENTS], "1");
    let tasks: u64 = info[info::NATIVE_TASKS].parse().unwrap();
    assert!(tasks > 0, "scans are carried out by workers");
    drop(native);
    until("its memory is given back", || {
        info_of(playground.servers[1].resp, info::SECTION_NATIVE)[info::NATIVE_MEMORY] == "0"
    });
}

/// What a key may hold.
#[derive(Default)]
struct Model {
    settled: Option<Vec<u8>>,
    possible: BTreeSet<Vec<u8>>,
}

/// Writes until `stop`. Returns what it knows.
fn write(
    client: &Client,
    id: u64,
    stop: &AtomicBool,
    acknowledged: &AtomicU64,
) -> BTreeMap<Vec<u8>, Model> {
    let client = client.with_deadline(Duration::from_secs(1));
    let mut models: BTreeMap<Vec<u8>, Model> = BTreeMap::new();
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        // Several in flight, on keys of all regions.
        let writes: Vec<_> = (0..8)
            .map(|_| {
                number += 1;
                let spread = char::from_digit(u32::try_from(number % 36).unwrap(), 36).unwrap();
                let key = format!("{spread}-{id}-{}", number % KEYS).into_bytes();
                (key, format!("{id}-{number}").into_bytes())
            })
            .collect();
        let sent = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let only = None;
            client.submit(Ask::Put { key, value, only })
        };
        let tickets: Vec<_> = writes.iter().map(sent).collect();
        for ((key, value), ticket) in writes.into_iter().zip(tickets) {
            let end = ticket.and_then(|ticket| client.wait(ticket, &mut Vec::new()));
            let model = models.entry(key).or_default();
            match end {
                Ok(answer) => {
                    assert!(matches!(answer, Completion::Done { .. }));
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                    model.settled = Some(value);
                }
                Err(error) => match error.outcome() {
                    Outcome::NotApplied => {}
                    Outcome::Unknown => {
                        model.possible.insert(value);
                    }
                    Outcome::Applied => panic!("an error of an applied write: {error}"),
                },
            }
        }
    }
    models
}

#[test]
fn what_was_acknowledged_to_a_native_client_survives_kill_9() {
    let playground = Playground::start(&["--regions", "3"]);
    let client = client_of(&playground);
    let mut by_hand: Vec<Option<ByHand>> = vec![None, None, None];
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicU64::new(0));
    let models = std::thread::scope(|scope| {
        let (stop, acknowledged, client) = (&stop, &acknowledged, &client);
        let writers: Vec<_> = (0..WRITERS)
            .map(|id| scope.spawn(move || write(client, id, stop, acknowledged)))
            .collect();
        let goal = || {
            let goal = acknowledged.load(Ordering::Relaxed) + WRITES_BETWEEN_KILLS;
            until("writes are acknowledged", || {
                let failed = writers
                    .iter()
                    .any(std::thread::ScopedJoinHandle::is_finished);
                failed || acknowledged.load(Ordering::Relaxed) >= goal
            });
        };
        for victim in (0..3).cycle().take(ROUNDS) {
            goal();
            let server = &playground.servers[victim];
            let pid = by_hand[victim].as_ref().map_or(server.pid, ByHand::pid);
            signal(pid, Signal::KILL);
            if let Some(mut process) = by_hand[victim].take() {
                process.wait();
            }
            until("the server dies", || !lives(pid));
            by_hand[victim] = Some(ByHand::start(&server.config));
        }
        goal();
        stop.store(true, Ordering::Relaxed);
        let models = writers.into_iter().map(|writer| writer.join().unwrap());
        models.collect::<Vec<_>>()
    });
    for (key, model) in models.iter().flatten() {
        let mut found: Option<Result<Option<Vec<u8>>, ClientError>> = None;
        until("a key can be read", || {
            found = Some(client.get(key));
            found.as_ref().is_some_and(Result::is_ok)
        });
        let found = found.unwrap().unwrap();
        let possible = found == model.settled
            || found
                .as_ref()
                .is_some_and(|found| model.possible.contains(found));
        assert!(possible, "{key:?} holds {found:?}, not {:?}", model.settled);
    }
    drop(by_hand);
}
