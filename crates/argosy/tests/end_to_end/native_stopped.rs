//! The native client while a server is halted, and after it goes on. A halted server's memory stays, but nobody
//! answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use argosy_base::Outcome;
use argosy_client::Client;
use argosy_client::native::Options;

use crate::playground_commands::{done, states};
use crate::support::{Playground, until, until_ready};

const WRITERS: usize = 3;
/// Keys of each writer, which lie in all three regions.
const KEYS: u32 = 36;

/// The values that a key may hold: the last one that was acknowledged, and those of later writes with unknown outcomes.
#[derive(Default)]
struct Model {
    settled: Option<Vec<u8>>,
    possible: BTreeSet<Vec<u8>>,
}

/// How the puts of one writer have ended.
#[derive(Default)]
struct Ended {
    /// Those that have, while it writes.
    puts: AtomicU64,
    unknown: AtomicU64,
}

/// Puts key after key until `stop`. Returns what it knows.
fn write(client: &Client, id: usize, stop: &AtomicBool, ended: &Ended) -> BTreeMap<Vec<u8>, Model> {
    let mut models: BTreeMap<Vec<u8>, Model> = BTreeMap::new();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let spread = char::from_digit(number % KEYS, 36).unwrap();
        let key = format!("{spread}-{id}").into_bytes();
        let value = format!("{id}-{number}").into_bytes();
        let put = client.put(&key, &value);
        let model = models.entry(key).or_default();
        match put.map_err(|error| error.outcome()) {
            Ok(()) => {
                model.settled = Some(value);
                model.possible.clear();
            }
            Err(Outcome::NotApplied) => {}
            Err(Outcome::Unknown) => {
                model.possible.insert(value);
                ended.unknown.fetch_add(1, Ordering::Relaxed);
            }
            Err(Outcome::Applied) => panic!("an error of an applied write"),
        }
        ended.puts.fetch_add(1, Ordering::Relaxed);
    }
    models
}

/// All that writers have begun ends, and later writes are acknowledged, while one of three servers is halted. The
/// client's deadline is far away, and that of the server does not pass.
#[test]
fn puts_to_a_halted_server_end_before_it_goes_on() {
    let playground = Playground::start(&[]);
    let (dir, servers) = (playground.data_dir.clone(), playground.servers.clone());
    let options = Options {
        deadline: Duration::from_secs(3600),
        ..Options::default()
    };
    let client = Client::connect_with(&servers[0].resp.to_string(), options).unwrap();
    let stop = AtomicBool::new(false);
    let ended: [Ended; WRITERS] = Default::default();
    let models = std::thread::scope(|scope| {
        let (client, stop) = (&client, &stop);
        let writers: Vec<_> = (0..)
            .zip(&ended)
            .map(|(id, ended)| scope.spawn(move || write(client, id, stop, ended)))
            .collect();
        // Each puts all of its keys, and so some in the regions of each server.
        let each_ends = |puts: u64| {
            let puts_of = |ended: &Ended| ended.puts.load(Ordering::Relaxed);
            let goals: Vec<_> = ended.iter().map(|ended| puts_of(ended) + puts).collect();
            until("puts end", || {
                let mut all = ended.iter().zip(&goals);
                all.all(|(ended, goal)| puts_of(ended) >= *goal)
            });
        };
        each_ends(u64::from(KEYS));
        done(&dir, &["stop", "1"]);
        each_ends(2 * u64::from(KEYS));
        stop.store(true, Ordering::Relaxed);
        let models = writers.into_iter().map(|writer| writer.join().unwrap());
        models.collect::<Vec<_>>()
    });
    assert_eq!(states(&dir), ["running", "stopped", "running"]);
    let unknown = ended
        .each_ref()
        .map(|of| of.unknown.load(Ordering::Relaxed));
    // What was in doubt was sent again under its name.
    assert_eq!(unknown, [0; WRITERS]);
    done(&dir, &["cont", "1"]);
    until_ready(servers[1].admin);
    for (key, model) in models.iter().flatten() {
        let found = client.get(key).unwrap();
        let is_possible = found == model.settled
            || found
                .as_ref()
                .is_some_and(|found| model.possible.contains(found));
        assert!(
            is_possible,
            "{key:?} holds {found:?}, not {:?}",
            model.settled
        );
    }
    assert!(playground.interrupt().success());
}
