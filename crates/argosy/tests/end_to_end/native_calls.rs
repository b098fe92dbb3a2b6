//! What the native client can ask beside single keys, against the built program, in every replication mode and
//! across regions and servers: ranges, snapshots, versions, and values of over 1 MiB.

use std::collections::BTreeMap;
use std::time::Duration;

use argosy_client::native::{Terms, WriteCondition};
use argosy_client::{Client, ClientError, KeyRange, Kv, RespClient, Span};
use rustix::process::Signal;

use crate::support::{ByHand, Playground, Rng, info as info_of, keep_ports, lives, signal, until};

const LEASE: Duration = Duration::from_secs(600);

type Pairs = BTreeMap<Vec<u8>, Vec<u8>>;

fn client_of(playground: &Playground) -> Client {
    Client::connect(&playground.servers[1].resp.to_string()).unwrap()
}

fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed, 0);
    let words = std::iter::repeat_with(|| rng.next_u64().to_le_bytes());
    words.take(len.div_ceil(8)).flatten().take(len).collect()
}

/// Pairs that spread over all regions, some of them long.
fn pairs() -> Pairs {
    let pairs = (0..700_u32).map(|n| {
        let spread = char::from_digit(n % 36, 36).unwrap();
        let len = match n {
            40 | 300 => 1_300_000 + n as usize,
            _ => (n as usize * 13) % 2000,
        };
        (
            format!("{spread}-{n:05}").into_bytes(),
            bytes(n.into(), len),
        )
    });
    pairs.collect()
}

/// All of `span`, a page after the other.
fn all(span: Span, page: impl Fn(&Span) -> argosy_client::Page) -> Pairs {
    let (mut found, mut left) = (Pairs::new(), Some(span));
    while let Some(span) = left {
        let page = page(&span);
        found.extend(page.pairs);
        left = page.rest;
    }
    found
}

fn open_snapshots(playground: &Playground) -> u64 {
    let of = |server: &crate::support::Server| -> u64 {
        info_of(server.resp, "snapshots")["snapshots_open"]
            .parse()
            .unwrap()
    };
    playground.servers.iter().map(of).sum()
}

fn everything(mode: &str) {
    let playground = Playground::start(&["--regions", "5", "--replication", mode]);
    let client = client_of(&playground);
    let mut resp = RespClient::connect(playground.servers[0].resp).unwrap();
    let pairs = pairs();
    let writes: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_slice(), Some(value.as_slice())))
        .collect();
    client.write_many(&writes).unwrap();
    let snapshot = client.snapshot(LEASE).unwrap();

    // A range of three of the regions, with a long value in it, is gone at once for everybody.
    let range = KeyRange::new(&b"3-00100"[..], Some(b"p-01".to_vec()));
    client.delete_range(&range).unwrap();
    let mut left = pairs.clone();
    left.retain(|key, _| !range.contains(key));
    assert!(left.len() > 200 && left.len() < 500);
    let now = |span| all(span, |span| client.page(span, 100).unwrap());
    assert!(now(Span::all()) == left, "{mode}: up");
    assert!(now(Span::all().reversed()) == left, "{mode}: down");
    for key in [&b"4-00040"[..], b"c-00300", b"0-00000", b"z-00035"] {
        let value = left.get(key).cloned();
        assert!(resp.get(key).unwrap() == value && client.get(key).unwrap() == value);
    }

    // The snapshot has everything, from whichever end, in however small pages.
    for (span, most) in [(Span::all(), 1000), (Span::all().reversed(), 37)] {
        let then = all(span, |span| snapshot.page(span, most).unwrap());
        assert!(then == pairs, "{mode}: {} pairs", then.len());
    }
    let keys: Vec<_> = pairs.keys().map(Vec::as_slice).collect();
    let found = snapshot.multi_get(&keys).unwrap();
    assert!(found.iter().flatten().eq(pairs.values()), "{mode}: by key");
    assert_eq!(open_snapshots(&playground), 5, "one of each region");

    // A write on a version, in each region, loses against any other write.
    for key in keys.iter().step_by(50) {
        let (value, version) = client.get_with_version(key).unwrap();
        assert!(value == left.get(*key).cloned());
        let terms = Terms {
            only: WriteCondition::Version(version),
            ..Terms::default()
        };
        let write = || client.write_on(key, Some(b"mine"), terms).unwrap().applied;
        assert!(write(), "{mode}: nobody has written it");
        resp.put(key, b"other").unwrap();
        let write = || client.write_on(key, None, terms).unwrap().applied;
        assert!(!write(), "{mode}: somebody has");
        assert_eq!(client.get(key).unwrap().as_deref(), Some(&b"other"[..]));
    }

    // Long values are the same by both protocols.
    let (one, two) = (bytes(1, 3_000_001), bytes(2, 2_500_000));
    client.put(b"long-1", &one).unwrap();
    resp.put(b"long-2", &two).unwrap();
    assert!(resp.get(b"long-1").unwrap() == Some(one.clone()));
    let found = client.multi_get(&[b"long-2", b"long-1"]).unwrap();
    assert!(found == [Some(two), Some(one)]);
    assert_eq!(snapshot.get(b"long-1").unwrap(), None);
    drop((client, snapshot));
    until("the snapshot is given back", || {
        open_snapshots(&playground) == 0
    });
}

#[test]
fn native_calls_work_where_levels_are_sent() {
    everything("send-index");
}

#[test]
fn native_calls_work_where_levels_are_built() {
    everything("build-index");
}

#[test]
fn native_calls_work_without_copies() {
    everything("none");
}

#[test]
fn the_longest_value_goes_in_and_comes_out() {
    let playground = Playground::start(&["--regions", "2"]);
    let client = client_of(&playground).with_deadline(Duration::from_secs(60));
    let value = bytes(3, 64 << 20);
    client.put(b"argo", &value).unwrap();
    assert!(client.get(b"argo").unwrap() == Some(value));
    let outline = client.outline(b"argo").unwrap().unwrap();
    assert_eq!(outline.len, 64 << 20);
}

#[test]
fn a_snapshot_is_refused_where_its_server_was_killed() {
    let playground = Playground::start(&["--regions", "6"]);
    let _ports = keep_ports();
    let client = client_of(&playground);
    let keys: Vec<_> = (0..36_u32)
        .map(|n| [char::from_digit(n, 36).unwrap() as u8; 3])
        .collect();
    for key in &keys {
        client.put(key, b"before").unwrap();
    }
    let snapshot = client.snapshot(LEASE).unwrap();
    let victim = &playground.servers[0];
    signal(victim.pid, Signal::KILL);
    until("the server dies", || !lives(victim.pid));
    let by_hand = ByHand::start(&victim.config);
    for key in &keys {
        until("it can be written", || client.put(key, b"behind").is_ok());
    }
    let (mut shown, mut refused) = (0, 0);
    for key in &keys {
        match snapshot.get(key) {
            Ok(value) => {
                assert_eq!(value.as_deref(), Some(&b"before"[..]));
                shown += 1;
            }
            Err(error) => {
                assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
                assert!(error.to_string().contains("is not open"), "{error}");
                refused += 1;
            }
        }
    }
    assert!(shown > 0 && refused > 0, "{shown} shown, {refused} refused");
    assert!(!snapshot.renew(LEASE).unwrap(), "not in every region");
    drop(by_hand);
}
