//! The native front end and its client, over shared memory, against a service in memory.

#![allow(clippy::unwrap_used, reason = "a test may stop there")]

mod bell;
mod composites;
mod named;
mod stopped;

use std::io::Write as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use argosy_base::{Clock, EditSeq, Epoch, KeyRange, Lsn, Outcome, RegionId, ServerId, info};
use argosy_client::native::{
    Ask, Client, Completion, Options, Terms, Told, Until, ValueChange, WriteCondition,
};
use argosy_client::{ClientError, PutOnly, Span};
use argosy_coordinator::{
    ClusterId, ClusterMap, CopyStatus, PromotionClaim, Region, Replication, Server,
};
use argosy_device::SystemClock;
use argosy_engine::Reach;
use argosy_server::native::{Front, NativeListener, Place, Routes, Settings, Start};
use argosy_server::resp::fake::Fake;
use argosy_server::service::{
    Begun, Failure, InfoSection, Readiness, ReplySink, ReplyTo, Request, Response, Service,
};
use argosy_server::tasks::{Tasks, Workers};
use argosy_wire::native::VERSION;
use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

/// A directory that goes away, with one for each server.
fn temp() -> TempDir {
    // Longer than the address of a socket may be.
    let name = format!("argosy-native-{}-", "x".repeat(90));
    let dir = tempfile::Builder::new().prefix(&name).tempdir().unwrap();
    for server in 0..2 {
        std::fs::create_dir(dir.path().join(format!("server-{server}"))).unwrap();
    }
    dir
}

/// Two servers; keys from "m" on are the second's.
fn map(primaries: [u32; 2]) -> ClusterMap {
    map_at(1, primaries)
}

/// Why a primary was chosen, whatever is told of it.
const CLAIM: PromotionClaim = PromotionClaim {
    status: CopyStatus::Whole,
    cut: Epoch(1),
    edit: EditSeq(1),
    lsn: Lsn(1),
    member: true,
};

/// The same at an epoch.
fn map_at(epoch: u32, primaries: [u32; 2]) -> ClusterMap {
    let server = |id| Server {
        id: ServerId(id),
        resp: format!("127.0.0.1:{}", 7000 + id),
        admin: format!("127.0.0.1:{}", 8000 + id),
    };
    let region = |id: u32, from: &str, to: Option<&str>| {
        let range = KeyRange::new(from, to.map(Into::into));
        let primary = ServerId(primaries[id as usize - 1]);
        Region {
            epoch: Epoch(epoch),
            since: Epoch(epoch),
            claim: (epoch > 1).then_some(CLAIM),
            ..Region::first(RegionId(id), range, primary, vec![primary])
        }
    };
    let regions = vec![region(1, "", Some("m")), region(2, "m", None)];
    ClusterMap::new(
        ClusterId(5),
        Replication::None,
        vec![server(0), server(1)],
        regions,
    )
    .unwrap()
}

struct Running {
    front: Arc<Front>,
    fake: Arc<Fake>,
    listener: Option<NativeListener>,
    socket: PathBuf,
    _workers: Workers,
}

/// Server `id` of `map`.
fn start(dir: &Path, id: u32, map: &ClusterMap, fake: &Arc<Fake>, threads: usize) -> Running {
    let settings = Settings {
        server: ServerId(id),
        memory_bytes_max: 8 << 20,
        ..Settings::default()
    };
    let service: Arc<dyn Service> = Arc::clone(fake) as Arc<dyn Service>;
    let tasks = Arc::new(Tasks::new(256));
    let workers = Workers::start(&tasks, 2, &service).unwrap();
    let by = By {
        threads,
        tasks: Some(&tasks),
    };
    let (front, listener, socket) = serve(dir, settings, map, &service, by);
    Running {
        front,
        fake: Arc::clone(fake),
        listener: Some(listener),
        socket,
        _workers: workers,
    }
}

/// Serves `service`.
/// Who serves.
#[derive(Clone, Copy)]
struct By<'a> {
    threads: usize,
    tasks: Option<&'a Arc<Tasks>>,
}

impl By<'_> {
    const fn threads(threads: usize) -> Self {
        Self {
            threads,
            tasks: None,
        }
    }
}

fn serve(
    dir: &Path,
    settings: Settings,
    map: &ClusterMap,
    service: &Arc<dyn Service>,
    by: By<'_>,
) -> (Arc<Front>, NativeListener, PathBuf) {
    let id = settings.server.0;
    let place = Place { root: dir };
    let socket = place.socket(ServerId(id));
    let routes = Routes::new(ServerId(id), map, |id| place.socket(id));
    let front = Arc::new(Front::new(settings, routes, &socket));
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let listener = NativeListener::start(&Start {
        socket: &socket,
        front: &front,
        threads: by.threads,
        service,
        tasks: by.tasks,
        clock: &clock,
    })
    .unwrap();
    (front, listener, socket)
}

fn both(dir: &TempDir) -> [Running; 2] {
    [0, 1].map(|id| {
        start(
            dir.path(),
            id,
            &map([0, 1]),
            &Arc::new(Fake::new()),
            1 + id as usize,
        )
    })
}

fn client_of(server: &Running) -> Client {
    Client::connect(&server.socket.to_string_lossy()).unwrap()
}

/// Waits until `what` holds.
fn until(what: impl Fn() -> bool) {
    while !what() {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[test]
fn everything_that_can_be_asked_is_answered() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    assert_eq!(client.get(b"argo").unwrap(), None);
    client.put(b"argo", b"fifty oars").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"fifty oars");
    client.put(b"zeus", b"").unwrap();
    assert_eq!(client.get(b"zeus").unwrap().unwrap(), b"");
    assert!(!client.put_only(PutOnly::IfAbsent, b"argo", b"x").unwrap());
    assert!(
        client
            .put_only(PutOnly::IfPresent, b"argo", b"sixty")
            .unwrap()
    );
    assert!(!client.delete(b"nobody").unwrap());
    assert!(client.delete(b"zeus").unwrap());
    assert!(client.delete(b"argo").unwrap());

    let pairs: Vec<(Vec<u8>, Vec<u8>)> = (0..1000u32)
        .map(|n| {
            (
                format!("{}{n:05}", if n < 500 { "a" } else { "x" }).into_bytes(),
                vec![7; 100 + n as usize],
            )
        })
        .collect();
    let writes: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_slice(), Some(value.as_slice())))
        .collect();
    client.write_many(&writes).unwrap();
    let keys: Vec<_> = pairs
        .iter()
        .map(|(key, _)| key.as_slice())
        .rev()
        .chain([&b"none"[..]])
        .collect();
    let values = client.multi_get(&keys).unwrap();
    for (value, (_, expected)) in values.iter().zip(pairs.iter().rev()) {
        assert_eq!(value.as_ref(), Some(expected));
    }
    assert_eq!(values.last().unwrap(), &None);

    let (mut found, mut left) = (
        Vec::new(),
        Some(Span::of(KeyRange::new("a0", Some(b"y".to_vec())))),
    );
    while let Some(span) = left {
        let page = client.page(&span, 70).unwrap();
        assert!(page.pairs.len() <= 70);
        found.extend(page.pairs);
        left = page.rest;
    }
    assert!(found == pairs, "{} pairs of {}", found.len(), pairs.len());
    let calls = servers.each_ref().map(|server| server.fake.counts().0);
    assert!(
        calls[0] > 0 && calls[1] > 0,
        "each server is asked for its own: {calls:?}"
    );
}

#[test]
fn the_longest_key_value_and_batch_fit() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[1]);
    let (key, value) = (vec![b'a'; 4096], vec![3; 1 << 20]);
    client.put(&key, &value).unwrap();
    assert_eq!(client.get(&key).unwrap().unwrap(), value);
    assert_eq!(
        client.page(&Span::all(), 5).unwrap().pairs,
        [(key.clone(), value)]
    );
    assert!(client.delete(&key).unwrap());
    let error = client.put(&[0; 4097], b"").unwrap_err();
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::NotApplied);
    let value = vec![0; (1 << 20) + 1];
    let longer = Ask::Put {
        key: b"k",
        value: &value,
        only: None,
    };
    let longer = client.submit(longer).unwrap();
    let error = client.wait(longer, &mut Vec::new()).unwrap_err();
    assert!(error.to_string().contains("max_value_bytes"), "{error}");
}

#[test]
fn keys_that_no_user_has_are_refused_among_many() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"argo", b"sails").unwrap();
    let error = client.multi_get(&[&b"argo"[..], &[0xff; 12]]).unwrap_err();
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("reserved"), "{error}");
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
}

#[test]
fn many_are_in_flight_and_answered_in_any_order() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    servers[0].fake.set_late(true);
    let tickets: Vec<_> = (0..300u32)
        .map(|n| {
            client.submit(Ask::Put {
                key: format!("a{n}").as_bytes(),
                value: &[1; 2000],
                only: None,
            })
        })
        .collect::<Result<_, _>>()
        .unwrap();
    // A server may have gone to sleep in between.
    client.flush();
    until(|| servers[0].fake.held() == 300);
    while servers[0].fake.release(servers[0].fake.held() / 2) || servers[0].fake.held() > 0 {}
    let mut buffer = Vec::new();
    for ticket in tickets {
        assert_eq!(
            client.wait(ticket, &mut buffer).unwrap(),
            Completion::Done { existed: false }
        );
    }
    servers[0].fake.set_late(false);
    let mut tickets: Vec<_> = (0..300u32)
        .map(|n| {
            client
                .submit(Ask::Get {
                    key: format!("a{n}").as_bytes(),
                })
                .unwrap()
        })
        .collect();
    for ticket in &mut tickets {
        loop {
            match client.poll(ticket, &mut buffer).unwrap() {
                Some(answer) => {
                    break assert_eq!((answer, buffer.len()), (Completion::Value, 2000));
                }
                None => std::thread::yield_now(),
            }
        }
    }
}

#[test]
fn a_client_that_reads_nothing_is_bounded_and_harms_nobody() {
    let dir = temp();
    let servers = both(&dir);
    let slow = client_of(&servers[0]).with_deadline(Duration::from_millis(100));
    let other = client_of(&servers[0]);
    servers[0].fake.set_late(true);
    let mut tickets = Vec::new();
    let error = loop {
        match slow.submit(Ask::Put {
            key: b"k",
            value: &[0; 500],
            only: None,
        }) {
            Ok(ticket) => tickets.push(ticket),
            Err(error) => break error,
        }
    };
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    assert_eq!(tickets.len(), 1024);
    slow.flush();
    until(|| servers[0].fake.held() == 1024);
    servers[0].fake.set_late(false);
    other.put(b"argo", b"sails").unwrap();
    let late = slow.wait(tickets.remove(0), &mut Vec::new()).unwrap_err();
    assert_eq!(late.outcome(), Outcome::Unknown, "{late}");
    // It goes without having read an answer, and what it had comes back when the last is there.
    drop((tickets, slow));
    until(|| servers[0].front.clients() == 1);
    while servers[0].fake.release(0) {}
    assert_eq!(other.get(b"argo").unwrap().unwrap(), b"sails");
}

#[test]
fn requests_keep_their_order_across_both_channels_to_a_server() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let quick = client.with_deadline(Duration::from_millis(50));
    let fake = &servers[0].fake;
    let put = |value| Ask::Put {
        key: b"argo",
        value,
        only: None,
    };
    let get = Ask::Get { key: b"argo" };
    let large = vec![1; 300 << 10];
    let done = Completion::Done { existed: false };
    let mut value = Vec::new();
    for (first, second) in [(&large[..], &b"x"[..]), (b"x", &large)] {
        fake.set_late(true);
        let calls = fake.counts().0;
        // Nothing is laid behind a write in the other channel, which is told of by itself.
        let earlier = client.submit(put(first)).unwrap();
        let error = quick.submit(put(second)).unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
        if second.len() < first.len() {
            let error = quick.submit(get).unwrap_err();
            assert!(error.to_string().contains("earlier write"), "{error}");
        }
        until(|| fake.held() == 1);
        assert_eq!(fake.counts().0, calls + 1);
        // It need not be waited for, nor even be wanted any more: that it was answered will do.
        drop(earlier);
        fake.release(0);
        fake.set_late(false);
        let later = client.submit(put(second)).unwrap();
        let read = client.submit(get).unwrap();
        assert_eq!(client.wait(later, &mut value).unwrap(), done);
        assert_eq!(client.wait(read, &mut value).unwrap(), Completion::Value);
        assert_eq!(value, second);
    }
    // A read holds up nothing.
    fake.set_late(true);
    let read = client.submit(get).unwrap();
    let write = client.submit(put(&large)).unwrap();
    client.flush();
    until(|| fake.held() == 2);
    while fake.release(0) {}
    fake.set_late(false);
    assert_eq!(client.wait(write, &mut value).unwrap(), done);
    assert_eq!(client.wait(read, &mut value).unwrap(), Completion::Value);
}

#[test]
fn a_client_that_goes_gives_its_memory_back() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"argo", &vec![1; 900_000]).unwrap();
    assert_eq!(
        servers[0].front.clients(),
        2,
        "one channel for what is large"
    );
    assert!(servers[0].front.memory_bytes() > 4 << 20);
    drop(client);
    until(|| servers[0].front.clients() == 0);
    assert_eq!(servers[0].front.memory_bytes(), 0);
}

#[test]
fn there_is_a_bound_on_memory_that_is_told() {
    let dir = temp();
    let servers = both(&dir);
    let mut clients: Vec<Client> = Vec::new();
    let refused = loop {
        match Client::connect(&servers[0].socket.to_string_lossy()) {
            Ok(client) => clients.push(client),
            Err(error) => break error,
        }
    };
    assert!(
        refused.to_string().contains("raise memory.limit"),
        "{refused}"
    );
    assert!(servers[0].front.memory_bytes() <= 8 << 20);
    for (number, client) in clients.iter().enumerate() {
        client.put(&[number.try_into().unwrap()], b"here").unwrap();
    }
    clients.pop();
    until(|| Client::connect(&servers[0].socket.to_string_lossy()).is_ok());
}

#[test]
fn whoever_talks_nonsense_is_sent_away_and_nobody_else() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let meet = || {
        let dir = std::fs::File::open(servers[0].socket.parent().unwrap()).unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&dir);
        UnixStream::connect(format!("/proc/self/fd/{fd}/native")).unwrap()
    };
    let mut stranger = meet();
    stranger.write_all(&[0x55; 32]).unwrap();
    let mut silent = meet();
    silent.write_all(b"argosy").unwrap();
    // A version from the future is told which there is.
    let mut young = meet();
    let hello = argosy_wire::native::Hello {
        lowest: VERSION + 1,
        highest: VERSION + 3,
        requests: 4096,
        replies: 4096,
    };
    young.write_all(&hello.encode()).unwrap();
    let mut answer = String::new();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut young, &mut bytes).unwrap();
    answer.push_str(&String::from_utf8_lossy(&bytes[64..]));
    assert!(
        answer.contains(&format!("speaks version {VERSION} only")),
        "{answer}"
    );
    // One that was taken in, and then says something where nothing is to be said.
    let mut chatty = meet();
    let hello = argosy_wire::native::Hello {
        lowest: VERSION,
        highest: VERSION,
        requests: 4096,
        replies: 4096,
    };
    chatty.write_all(&hello.encode()).unwrap();
    until(|| servers[0].front.clients() == 2);
    chatty.write_all(b"more").unwrap();
    until(|| servers[0].front.clients() == 1);
    client.put(b"argo", b"sails").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
}

#[test]
fn a_map_that_is_old_is_replaced() {
    let dir = temp();
    let fakes = [Arc::new(Fake::new()), Arc::new(Fake::new())];
    let mut old = start(dir.path(), 0, &map([0, 0]), &fakes[0], 1);
    let client = client_of(&old);
    client.put(b"zeus", b"on the first").unwrap();
    drop(old.listener.take());
    let servers = [0, 1].map(|id| start(dir.path(), id, &map([0, 1]), &fakes[id as usize], 1));
    client.put(b"zeus", b"on the second").unwrap();
    assert_eq!(client.get(b"zeus").unwrap().unwrap(), b"on the second");
    assert_eq!(servers[1].front.clients(), 1);
    assert_eq!(fakes[1].counts().0, 2);
}

/// The first region moves to the second server while both go on.
#[test]
fn a_region_that_moves_is_found_by_whoever_asks_its_old_primary() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"argo", b"1").unwrap();
    client.put(b"zeus", b"1").unwrap();
    let before = servers[0].fake.counts().0;
    for server in &servers {
        server.front.set_map(&map_at(2, [1, 1]));
    }
    client.put(b"argo", b"2").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"2");
    let keys: [&[u8]; 2] = [b"argo", b"zeus"];
    let values = client.multi_get(&keys).unwrap();
    assert_eq!(values, [Some(b"2".to_vec()), Some(b"1".to_vec())]);
    assert_eq!(servers[0].fake.counts().0, before, "it has seen none of it");
}

/// Keys that were with one server are with two by now.
#[test]
fn keys_that_part_are_read_from_both_servers() {
    let dir = temp();
    let fakes = [Arc::new(Fake::new()), Arc::new(Fake::new())];
    let servers = [0, 1].map(|id| start(dir.path(), id, &map([0, 0]), &fakes[id as usize], 1));
    let client = client_of(&servers[0]);
    client.put(b"argo", b"1").unwrap();
    for server in &servers {
        server.front.set_map(&map_at(2, [0, 1]));
    }
    let keys: [&[u8]; 2] = [b"argo", b"zeus"];
    assert_eq!(
        client.multi_get(&keys).unwrap(),
        [Some(b"1".to_vec()), None]
    );
}

/// The primary of the first region is gone, and nobody tells the client but the other server, later.
#[test]
fn whoever_cannot_reach_a_primary_asks_other_servers_for_the_map() {
    let dir = temp();
    let mut servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"argo", b"1").unwrap();
    drop(servers[0].listener.take());
    std::thread::scope(|scope| {
        let asks = [0, 1, 2].map(|_| {
            scope.spawn(|| {
                client.put(b"argo", b"2").unwrap();
                client.get(b"argo").unwrap().unwrap()
            })
        });
        std::thread::park_timeout(Duration::from_millis(50));
        servers[1].front.set_map(&map_at(2, [1, 1]));
        for ask in asks {
            assert_eq!(ask.join().unwrap(), b"2");
        }
    });
}

/// A server that has not heard of a change is asked, too: what it tells is not believed.
#[test]
fn an_older_map_replaces_no_newer_one() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    servers[0].front.set_map(&map_at(3, [1, 1]));
    let late = client.with_deadline(Duration::from_millis(300));
    // The second server is the primary by the new map, and does not know it: it says so.
    let error = late.put(b"argo", b"1").unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied);
    assert_eq!(
        servers.each_ref().map(|server| server.fake.counts().0),
        [0, 0]
    );
    servers[1].front.set_map(&map_at(3, [1, 1]));
    client.put(b"argo", b"1").unwrap();
    assert_eq!(servers[1].fake.counts().0, 1);
}

#[test]
fn a_server_that_restarts_leaves_writes_unknown_and_is_found_again() {
    let dir = temp();
    let fake = Arc::new(Fake::new());
    let mut server = start(dir.path(), 0, &map([0, 0]), &fake, 1);
    let client = client_of(&server);
    client.put(b"argo", b"sails").unwrap();
    fake.set_late(true);
    let write = client
        .submit(Ask::Put {
            key: b"argo",
            value: b"rows",
            only: None,
        })
        .unwrap();
    let read = client.submit(Ask::Get { key: b"argo" }).unwrap();
    client.flush();
    until(|| fake.held() == 2);
    drop(server.listener.take());
    fake.set_late(false);
    let error = client.wait(write, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ClientError::Lost { .. }), "{error}");
    assert_eq!(error.outcome(), Outcome::Unknown);
    let quick = client.with_deadline(Duration::from_millis(30));
    let error = quick.put(b"argo", b"x").unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    let again = std::thread::scope(|scope| {
        let waiting = std::thread::Builder::new();
        let mut value = Vec::new();
        let waiting = waiting.spawn_scoped(scope, || {
            client.wait(read, &mut value).map(|answer| (answer, value))
        });
        let server = start(dir.path(), 0, &map([0, 0]), &fake, 1);
        let (answer, value) = waiting.unwrap().join().unwrap().unwrap();
        assert_eq!((answer, value), (Completion::Value, b"rows".to_vec()));
        server
    });
    client.put(b"argo", b"sails again").unwrap();
    while fake.release(0) {}
    drop(again);
}

#[test]
fn failures_come_as_they_are() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let what = "the device is on fire".to_owned();
    let outcome = Outcome::Unknown;
    servers[0]
        .fake
        .fail_next(Failure::Storage { what, outcome });
    let error = client.put(b"argo", b"").unwrap_err();
    assert!(matches!(&error, ClientError::Storage { what, .. } if what == "the device is on fire"));
    assert_eq!(error.outcome(), Outcome::Unknown);
    // What surely was not applied is tried again.
    let what = "a member is away".to_owned();
    let outcome = Outcome::NotApplied;
    servers[0]
        .fake
        .fail_next(Failure::Unavailable { what, outcome });
    client.put(b"argo", b"sails").unwrap();
    assert_eq!(client.get(b"argo").unwrap().unwrap(), b"sails");
}

#[test]
fn many_threads_share_a_client() {
    let dir = temp();
    let servers = both(&dir);
    let options = Options {
        spin: Duration::ZERO,
        ..Options::default()
    };
    let client = Client::connect_with(&servers[0].socket.to_string_lossy(), options).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            let client = client.clone();
            let body = move || {
                for n in 0..500u32 {
                    let key = [&[thread * 32][..], &n.to_le_bytes()].concat();
                    client.put(&key, &n.to_le_bytes()).unwrap();
                    assert_eq!(client.get(&key).unwrap().unwrap(), n.to_le_bytes());
                }
            };
            std::thread::Builder::new()
                .spawn_scoped(scope, body)
                .unwrap();
        }
    });
    let clients = servers.each_ref().map(|server| server.front.clients());
    assert_eq!(clients, [1, 1], "they share one connection to each server");
}

#[test]
fn what_is_asked_is_counted_by_command_and_result() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    for n in 0..40u8 {
        client.put(&[b'a', n], &[n]).unwrap();
    }
    assert_eq!(client.multi_get(&[b"a\x01", b"nobody"]).unwrap().len(), 2);
    client.get(b"argo").unwrap();
    let what = "there is no room".to_owned();
    let outcome = Outcome::NotApplied;
    servers[0].fake.fail_next(Failure::Busy { what, outcome });
    client.put(b"argo", b"").unwrap_err();
    let counted = |server: usize| -> Vec<_> {
        let counts = servers[server].front.meter.counts();
        let some = counts.filter(|(.., count)| *count > 0);
        some.map(|(command, outcome, count)| (command, outcome.name(), count))
            .collect()
    };
    let expected = [
        ("map", "ok", 1),
        ("get", "ok", 1),
        ("multi-get", "ok", 1),
        ("write", "ok", 40),
        ("write", "busy", 1),
    ];
    until(|| counted(0) == expected);
    until(|| counted(1) == [("multi-get", "ok", 1)]);
    let timed: u64 = servers[0]
        .front
        .meter
        .durations()
        .map(|of| of.cumulative.last().copied().unwrap())
        .sum();
    // 43 calls, of which the first is timed, and every sixteenth after it.
    assert_eq!(timed, 3);
    let told = servers[0].front.describe().1;
    let told = |name: &str| told.iter().find(|(key, _)| key == name).unwrap().1.clone();
    assert_eq!(told(info::NATIVE_ANSWERS), "44");
    assert_eq!(told(info::NATIVE_TAKEN_IN), "1");
}

/// A service that reads keys with a `c` from a device that does not answer until its gate is opened.
#[derive(Default)]
struct Gated {
    fake: Fake,
    open: Mutex<bool>,
    bell: Condvar,
    blocked: AtomicU32,
}

impl Gated {
    fn open(&self) {
        *self.open.lock() = true;
        self.bell.notify_all();
    }
}

fn is_cold(request: &Request<'_>) -> bool {
    match request {
        Request::Get { key } => key.starts_with(b"c"),
        Request::GetMany { keys, .. } => keys.iter().any(|key| key.starts_with(b"c")),
        Request::Scan { .. } => true,
        _ => false,
    }
}

impl Service for Gated {
    fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        match reach {
            Reach::Memory if is_cold(&request) => return Begun::NeedsDevice,
            Reach::Device if is_cold(&request) => {
                self.blocked.fetch_add(1, Ordering::Relaxed);
                let mut open = self.open.lock();
                self.bell.wait_while(&mut open, |open| !*open);
            }
            _ => {}
        }
        self.fake.call(request, reach, reply)
    }

    fn flush(&self) {}

    fn info(&self) -> Vec<InfoSection> {
        Vec::new()
    }

    fn ready(&self) -> Readiness {
        Readiness::default()
    }
}

#[test]
fn a_get_that_waits_for_the_device_holds_up_no_other_client() {
    let dir = temp();
    let gated = Arc::new(Gated::default());
    let service: Arc<dyn Service> = Arc::clone(&gated) as Arc<dyn Service>;
    let tasks = Arc::new(Tasks::new(4));
    let workers = Workers::start(&tasks, 2, &service).unwrap();
    let by = By {
        threads: 1,
        tasks: Some(&tasks),
    };
    let (front, listener, socket) =
        serve(dir.path(), Settings::default(), &map([0, 0]), &service, by);
    let connect = || Client::connect(&socket.to_string_lossy()).unwrap();
    let (cold, warm) = (connect(), connect());
    // Both workers are blocked, four more wait, and the seventh finds no room.
    let keys: Vec<_> = (0..7).map(|n| format!("c{n}").into_bytes()).collect();
    let mut gets = Vec::new();
    for (n, key) in (0..).zip(&keys) {
        gets.push(cold.submit(Ask::Get { key }).unwrap());
        if n < 2 {
            cold.flush();
            until(|| gated.blocked.load(Ordering::Relaxed) == n + 1);
        }
    }
    cold.flush();
    until(|| front.tasks().queue_full == 1);
    for n in 0..200u32 {
        warm.put(b"argo", &n.to_le_bytes()).unwrap();
        assert_eq!(warm.get(b"argo").unwrap().unwrap(), n.to_le_bytes());
    }
    assert_eq!(front.tasks().queued, 4);
    gated.open();
    for get in gets {
        assert_eq!(cold.wait(get, &mut Vec::new()).unwrap(), Completion::Absent);
    }
    let page = cold.page(&Span::all(), 10).unwrap();
    assert_eq!(page.pairs.len(), 1);
    assert_eq!(cold.multi_get(&[b"argo", b"c1"]).unwrap()[1], None);
    until(|| front.tasks().done == 9);
    assert_eq!((front.tasks().queued, front.tasks().queue_full), (0, 1));
    drop((cold, warm, listener, workers));
}

#[test]
fn requests_about_many_keys_are_with_all_servers_at_the_same_time() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let pairs: Vec<_> = (0..600u32)
        .map(|n| (format!("{}{n}", ["a", "z"][n as usize % 2]), vec![1; 500]))
        .collect();
    let keys: Vec<_> = pairs.iter().map(|(key, _)| key.as_bytes()).collect();
    let writes: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.as_bytes(), Some(value.as_slice())))
        .collect();
    for fake in servers.each_ref().map(|server| &server.fake) {
        fake.set_late(true);
    }
    let held = || servers.each_ref().map(|server| server.fake.held());
    let release = || {
        for server in &servers {
            while server.fake.release(0) {}
        }
    };
    std::thread::scope(|scope| {
        let client = &client;
        let writer = std::thread::Builder::new();
        let writer = writer.spawn_scoped(scope, || client.write_many(&writes));
        // 300 pairs of 500 bytes for each are three batches: the first of both are there.
        until(|| held() == [1, 1]);
        let writer = writer.unwrap();
        while !writer.is_finished() {
            release();
        }
        writer.join().unwrap().unwrap();
        let reader = std::thread::Builder::new();
        let reader = reader.spawn_scoped(scope, || client.multi_get(&keys));
        // 300 keys for each are three requests.
        until(|| held() == [3, 3]);
        let reader = reader.unwrap();
        while !reader.is_finished() {
            release();
        }
        let values = reader.join().unwrap().unwrap();
        assert!(
            values
                .iter()
                .zip(&pairs)
                .all(|(found, (_, value))| found.as_ref() == Some(value))
        );
    });
}

#[test]
fn values_that_do_not_fit_a_connection_together_are_read_in_parts() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    // Ten mebibytes in 60 values, most of them in the last few.
    let value = |n: u32| vec![u8::try_from(n).unwrap(); if n < 52 { 40_000 } else { 1 << 20 }];
    let keys: Vec<_> = (0..60u32).map(|n| format!("a{n}")).collect();
    for (n, key) in (0..).zip(&keys) {
        client.put(key.as_bytes(), &value(n)).unwrap();
    }
    let keys: Vec<_> = keys.iter().map(|key| key.as_bytes()).collect();
    let found = client.multi_get(&keys).unwrap();
    assert_eq!(found.len(), 60);
    for (n, found) in (0..).zip(found) {
        assert!(found == Some(value(n)), "value {n}");
    }
}

#[test]
fn the_last_write_of_a_key_among_many_is_the_last() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let values: Vec<_> = (0..2000u32).map(|n| n.to_le_bytes().repeat(50)).collect();
    let keys: [&[u8]; 2] = [b"argo", b"zeus"];
    let writes: Vec<_> = values
        .iter()
        .flat_map(|value| keys.map(|key| (key, Some(value.as_slice()))))
        .collect();
    client.write_many(&writes).unwrap();
    for key in keys {
        assert_eq!(client.get(key).unwrap().as_ref(), values.last());
    }
}

#[test]
fn clients_with_large_values_take_turns_where_there_is_room_for_one() {
    let dir = temp();
    let fake = Arc::new(Fake::new());
    let service: Arc<dyn Service> = Arc::clone(&fake) as Arc<dyn Service>;
    let settings = Settings {
        // The least that a server gives.
        memory_bytes_max: Settings::share_of(0),
        ..Settings::default()
    };
    let (front, listener, socket) =
        serve(dir.path(), settings, &map([0, 0]), &service, By::threads(2));
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..8u8)
            .map(|id| {
                let socket = socket.to_string_lossy().into_owned();
                let body = move || large_values(&Client::connect(&socket).unwrap(), id);
                std::thread::Builder::new()
                    .spawn_scoped(scope, body)
                    .unwrap()
            })
            .collect();
        let done: usize = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        // Whoever was refused for as long as it would wait was told so; most are not.
        assert!(done >= 8 * 12, "{done} of {}", 8 * 24);
    });
    assert!(front.memory_bytes() <= settings.memory_bytes_max);
    assert!(front.evicted() > 0);
    assert_eq!(front.garbled(), 0);
    drop(listener);
}

/// Writes and reads values of all sizes. Returns how often that went well; otherwise it was said that
/// nothing was done, and what would help.
fn large_values(client: &Client, id: u8) -> usize {
    let mut done = 0;
    for n in 0..12usize {
        let value = vec![id; [100, 40_000, 300_000, 1 << 20][n % 4]];
        let key = [b'a', id, u8::try_from(n).unwrap()];
        match client.put(&key, &value) {
            Ok(()) => done += 1,
            Err(error) => {
                assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
                assert!(error.to_string().contains("memory.limit"), "{error}");
                continue;
            }
        }
        match client.get(&key) {
            Ok(found) => {
                assert!(found.unwrap() == value);
                done += 1;
            }
            Err(error) => assert!(error.to_string().contains("memory.limit"), "{error}"),
        }
    }
    done
}

#[test]
fn writes_on_terms_and_changes_are_decided_by_the_server() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let on = |only, previous| Terms {
        only,
        previous,
        until: Until::Never,
    };
    let write = |value: Option<&[u8]>, terms| {
        let written = client.write_on(b"zeus", value, terms).unwrap();
        (written.applied, written.previous)
    };
    assert_eq!(
        write(Some(b"1"), on(WriteCondition::Absent, true)),
        (true, None)
    );
    let equals = on(WriteCondition::Equals(b"2"), false);
    assert_eq!(write(Some(b"3"), equals), (false, None));
    let equals = on(WriteCondition::Equals(b"1"), true);
    assert_eq!(write(Some(b"41"), equals), (true, Some(b"1".to_vec())));
    let change = |change| client.change(b"zeus", change).unwrap();
    assert_eq!(change(ValueChange::Add(1)), Told::Number(42));
    assert_eq!(
        change(ValueChange::AddFloat(0.5)),
        Told::Value(b"42.5".to_vec())
    );
    assert_eq!(change(ValueChange::Append(b"00")), Told::Number(6));
    assert_eq!(change(ValueChange::Overwrite(0, b"x")), Told::Number(6));
    let refused = client.change(b"zeus", ValueChange::Add(1)).unwrap_err();
    assert_eq!(refused.outcome(), Outcome::NotApplied);
    assert_eq!(client.get(b"zeus").unwrap(), Some(b"x2.500".to_vec()));

    let outline = client.outline(b"zeus").unwrap().unwrap();
    assert_eq!((outline.len, outline.expires), (6, None));
    let late = outline.now + 5000;
    assert_eq!(
        change(ValueChange::Expire(Until::At(late))),
        Told::Number(1)
    );
    let outline = client.outline(b"zeus").unwrap().unwrap();
    assert_eq!(outline.expires, Some(late));
    let found = client.get_and_expire(b"zeus", Until::Never).unwrap();
    assert_eq!(found, Some(b"x2.500".to_vec()));
    assert_eq!(client.outline(b"zeus").unwrap().unwrap().expires, None);
    let removed = write(None, on(WriteCondition::Present, true));
    assert_eq!(removed, (true, Some(b"x2.500".to_vec())));
    assert_eq!(client.outline(b"zeus").unwrap(), None);
    // The longest value comes back whole.
    let long = vec![7; 1 << 20];
    client.put(b"argo", &long).unwrap();
    let found = client.get_and_expire(b"argo", Until::At(late)).unwrap();
    assert!(found == Some(long));
}

#[test]
fn a_write_on_a_version_loses_against_any_other() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let write_if = |value: Option<&[u8]>, version| {
        let only = WriteCondition::Version(version);
        let terms = Terms {
            only,
            ..Terms::default()
        };
        client.write_on(b"argo", value, terms).unwrap().applied
    };
    let (value, absent) = client.get_with_version(b"argo").unwrap();
    assert_eq!(value, None);
    assert!(write_if(Some(b"sails"), absent), "nobody has written it");
    assert!(!write_if(Some(b"rows"), absent), "it was written since");
    let (value, sails) = client.get_with_version(b"argo").unwrap();
    assert_eq!(value.as_deref(), Some(&b"sails"[..]));
    assert!(sails > absent);
    // The same value once more is another version.
    client.put(b"argo", b"sails").unwrap();
    assert!(!write_if(None, sails));
    let (_, again) = client.get_with_version(b"argo").unwrap();
    assert!(write_if(None, again));
    assert_eq!(client.get(b"argo").unwrap(), None);
    // What waits for the device comes back the same way, and the longest value whole.
    let long = vec![3; 1 << 20];
    client.put(b"argo", &long).unwrap();
    servers[0].fake.cool_next();
    let (value, _) = client.get_with_version(b"argo").unwrap();
    assert!(value == Some(long));
    let refused = client.get_with_version(&[0xff; 9]).unwrap_err();
    assert!(matches!(refused, ClientError::Invalid { .. }), "{refused}");
}

#[test]
fn a_snapshot_shows_what_was_until_it_ends() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let lease = Duration::from_secs(60);
    client.put(b"argo", b"sails").unwrap();
    client.put(b"boat", b"oars").unwrap();
    let snapshot = client.snapshot(lease).unwrap();
    client.put(b"argo", b"rows").unwrap();
    client.delete(b"boat").unwrap();
    client.put(b"cog", b"new").unwrap();
    assert_eq!(snapshot.get(b"argo").unwrap(), Some(b"sails".to_vec()));
    let found = snapshot.multi_get(&[b"cog", b"boat", b"anybody"]).unwrap();
    assert_eq!(found, [None, Some(b"oars".to_vec()), None]);
    let here = Span::of(KeyRange::new("a", Some(b"m".to_vec())));
    let pairs = |span: &Span| {
        // By a worker, too, which is told of the snapshot.
        servers[0].fake.cool_next();
        let pairs = snapshot.page(span, 10).unwrap().pairs.into_iter();
        let keys = pairs.map(|(key, value)| [key, value].map(|it| String::from_utf8(it).unwrap()));
        keys.map(|pair| pair.join("=")).collect::<Vec<_>>()
    };
    assert_eq!(pairs(&here), ["argo=sails", "boat=oars"]);
    assert_eq!(pairs(&here.clone().reversed()), ["boat=oars", "argo=sails"]);
    servers[0].fake.cool_next();
    assert_eq!(snapshot.get(b"boat").unwrap(), Some(b"oars".to_vec()));
    assert_eq!(client.get(b"argo").unwrap(), Some(b"rows".to_vec()));
    assert!(snapshot.renew(lease).unwrap());
    let open = || servers[0].fake.snapshots();
    assert_eq!(open(), 1);
    assert!(snapshot.close().unwrap());
    assert_eq!(open(), 0);
    drop(client.snapshot(lease).unwrap());
    until(|| open() == 0);
    // Where it is not open, nothing is read from another moment.
    let snapshot = client.snapshot(lease).unwrap();
    let error = snapshot.get(b"zeus").unwrap_err();
    assert!(matches!(error, ClientError::Invalid { .. }), "{error}");
    assert!(error.to_string().contains("not open"), "{error}");
    drop(client);
    assert_eq!(open(), 1, "it needs its client's connections");
    drop(snapshot);
    until(|| open() == 0);
}

/// A value of so many bytes, of which no two pieces are equal.
fn long_value(len: u32, salt: u32) -> Vec<u8> {
    let words = (0..len.div_ceil(4)).map(|n| n.wrapping_mul(0x9e37_79b1) ^ salt);
    let mut value: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
    value.truncate(len as usize);
    value
}

#[test]
fn values_of_over_a_mebibyte_are_written_and_read_in_parts() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let mib = 1 << 20;
    for len in [mib + 1, 3 * mib, 5 * mib - 7] {
        let value = long_value(len, len);
        client.put(b"argo", &value).unwrap();
        assert!(client.get(b"argo").unwrap() == Some(value), "{len}");
        let outline = client.outline(b"argo").unwrap().unwrap();
        assert_eq!(outline.len, u64::from(len));
    }
    let (first, second) = (long_value(2 * mib, 1), long_value(4 * mib, 2));
    client.put(b"argo", &first).unwrap();
    client.put(b"zeus", &second).unwrap();
    client.put(b"boat", b"oars").unwrap();
    // Among others, of several servers, in parts that are asked for by workers.
    for fake in servers.each_ref().map(|server| &server.fake) {
        fake.cool_next();
    }
    let keys: [&[u8]; 4] = [b"zeus", b"boat", b"argo", b"none"];
    let found = client.multi_get(&keys).unwrap();
    let oars = b"oars".to_vec();
    let expected = [Some(second.clone()), Some(oars), Some(first.clone()), None];
    assert!(found == expected);
    // By ticket.
    let ticket = client.submit(Ask::Get { key: b"zeus" }).unwrap();
    let mut value = Vec::new();
    assert_eq!(client.wait(ticket, &mut value).unwrap(), Completion::Value);
    assert!(value == second);
    // On terms.
    assert!(
        !client
            .put_only(PutOnly::IfAbsent, b"argo", &second)
            .unwrap()
    );
    assert!(client.get(b"argo").unwrap() == Some(first.clone()));
    let (value, version) = client.get_with_version(b"argo").unwrap();
    assert!(value == Some(first.clone()));
    let terms = Terms {
        only: WriteCondition::Version(version),
        previous: true,
        until: Until::After(Duration::from_secs(100)),
    };
    let written = client.write_on(b"argo", Some(&second), terms).unwrap();
    assert!(written.applied && written.previous == Some(first));
    assert!(client.outline(b"argo").unwrap().unwrap().expires.is_some());
    let written = client.write_on(b"argo", Some(&second), terms).unwrap();
    assert!(!written.applied && written.previous == Some(second.clone()));
    let value = client.get_and_expire(b"argo", Until::Never).unwrap();
    assert!(value == Some(second.clone()));
    let refused = client
        .change(b"argo", ValueChange::Append(b"x"))
        .unwrap_err();
    assert!(refused.to_string().contains("as a whole only"), "{refused}");
    // Many at once.
    let long = long_value(mib + 1, 3);
    let writes: [(&[u8], _); 4] = [
        (b"a", Some(&b"a"[..])),
        (b"b", Some(&long)),
        (b"b", None),
        (b"y", Some(&long)),
    ];
    client.write_many(&writes).unwrap();
    assert_eq!(client.get(b"b").unwrap(), None);
    assert!(client.get(b"y").unwrap() == Some(long));
}

#[test]
fn a_page_ends_behind_the_first_long_value() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let long = long_value(2 << 20, 1);
    for (key, value) in [("a", &b"1"[..]), ("b", &long), ("c", b"3"), ("d", &long)] {
        client.put(key.as_bytes(), value).unwrap();
    }
    let here = Span::of(KeyRange::new("a", Some(b"m".to_vec())));
    for (span, expected) in [
        (here.clone(), ["a b", "c d"]),
        (here.reversed(), ["d", "c b"]),
    ] {
        let (mut left, mut pages) = (Some(span), Vec::new());
        while let Some(span) = left {
            let page = client.page(&span, 10).unwrap();
            for (key, value) in &page.pairs {
                let is_long = [b"b", b"d"].contains(&key.as_slice().try_into().unwrap());
                assert_eq!(*value == long, is_long);
            }
            let keys = page.pairs.into_iter().map(|(key, _)| key);
            let keys: Vec<_> = keys.map(|key| String::from_utf8(key).unwrap()).collect();
            pages.push(keys.join(" "));
            left = page.rest;
        }
        pages.retain(|page| !page.is_empty());
        assert_eq!(pages[..2], expected);
    }
    // A snapshot shows them as they were.
    let snapshot = client.snapshot(Duration::from_secs(60)).unwrap();
    client.put(b"b", b"short").unwrap();
    assert!(snapshot.get(b"b").unwrap() == Some(long.clone()));
    let page = snapshot.page(&Span::prefix(b"b"), 1).unwrap();
    assert!(page.pairs == [(b"b".to_vec(), long)]);
}

#[test]
fn a_value_that_is_overwritten_while_it_is_read_is_read_anew() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let fake = &servers[0].fake;
    let sink: Arc<dyn ReplySink> = Arc::new(Nobody);
    let options = argosy_engine::WriteOptions::default();
    let write = |batch: &argosy_engine::WriteBatch| {
        let reply = ReplyTo::new(&sink, 0);
        let _ = fake.call(Request::Write { batch, options }, Reach::Device, reply);
    };
    let mut no_parts = argosy_engine::WriteBatch::new();
    let all = argosy_engine::long::parts();
    no_parts.delete_range_any(&all).unwrap();
    client.put(b"argo", &long_value(2 << 20, 1)).unwrap();
    fake.set_late(true);
    std::thread::scope(|scope| {
        let client = &client;
        let reader = std::thread::Builder::new();
        let reader = reader.spawn_scoped(scope, || client.get(b"argo").unwrap());
        until(|| fake.held() == 1);
        let mut short = argosy_engine::WriteBatch::new();
        short.put(b"argo", b"short").unwrap();
        write(&short);
        write(&no_parts);
        fake.set_late(false);
        while fake.release(0) {}
        let found = reader.unwrap().join().unwrap();
        assert_eq!(found.as_deref(), Some(&b"short"[..]));
    });
    // One whose parts are gone though nobody has overwritten it is no value, and neither is another.
    client.put(b"argo", &long_value(2 << 20, 1)).unwrap();
    let page = Request::Scan {
        range: &all,
        paging: argosy_server::service::Paging {
            direction: argosy_base::Direction::Up,
            pairs_max: 1,
            bytes_max: 1,
            keys_only: true,
            at: None,
        },
    };
    let reply = ReplyTo::new(&sink, 0);
    let Begun::Answered(Response::Page { pairs, .. }) = fake.call(page, Reach::Device, reply)
    else {
        panic!("it is answered at once");
    };
    let mut other = argosy_engine::WriteBatch::new();
    let bytes = vec![0; 512 << 10];
    let never = argosy_engine::Expiry::Never;
    other.put_any(&pairs[0].0, &bytes, never).unwrap();
    write(&other);
    let error = client.get(b"argo").unwrap_err();
    assert!(matches!(error, ClientError::Storage { .. }), "{error}");
    write(&no_parts);
    let error = client.get(b"argo").unwrap_err();
    assert!(matches!(error, ClientError::Unavailable { .. }), "{error}");
}

#[test]
fn a_long_value_that_cannot_be_written_leaves_what_was_there() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    client.put(b"argo", b"sails").unwrap();
    let value = vec![1; (64 << 20) + 1];
    let error = client.put(b"argo", &value).unwrap_err();
    assert!(
        error.to_string().contains("max_long_value_bytes"),
        "{error}"
    );
    let value = &value[..2 << 20];
    let error = client.put(&[b'a'; 4096], value).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    let refused = client.put(&[0xff; 8], value).unwrap_err();
    assert!(refused.to_string().contains("reserved"), "{refused}");
    // A part that is not written is no write that anybody would have to ask about.
    let what = "the device is on fire".to_owned();
    let outcome = Outcome::Unknown;
    let failure = Failure::Storage { what, outcome };
    servers[0].fake.fail_next(failure);
    let error = client.put(b"argo", value).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    let terms = Terms {
        only: WriteCondition::Equals(value),
        ..Terms::default()
    };
    let error = client.write_on(b"argo", Some(b"x"), terms).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
    assert_eq!(client.get(b"argo").unwrap(), Some(b"sails".to_vec()));
}

/// All keys that there are.
fn keys_of(client: &Client) -> Vec<String> {
    let users = KeyRange::new("", Some(argosy_engine::long::RESERVED.to_vec()));
    let (mut found, mut left) = (Vec::new(), Some(Span::of(users)));
    while let Some(span) = left {
        let page = client.page(&span, 100).unwrap();
        let keys = page.pairs.into_iter().map(|(key, _)| key);
        found.extend(keys.map(|key| String::from_utf8(key).unwrap()));
        left = page.rest;
    }
    found
}

#[test]
fn ranges_are_removed_on_all_servers_that_have_some_of_them() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[1]);
    for key in ["a", "b", "l", "m", "n", "z"] {
        client.put(key.as_bytes(), b"here").unwrap();
    }
    let delete_range = |from: &[u8], to: Option<&[u8]>| {
        client
            .delete_range(&KeyRange::new(from, to.map(<[u8]>::to_vec)))
            .unwrap();
        keys_of(&client).join(" ")
    };
    assert_eq!(
        delete_range(b"n", Some(b"b")),
        "a b l m n z",
        "none is empty"
    );
    assert_eq!(delete_range(b"c", Some(b"d")), "a b l m n z");
    assert_eq!(delete_range(b"b", Some(b"c")), "a l m n z");
    assert_eq!(delete_range(b"b", Some(b"n")), "a n z", "across the border");
    // It is asked of those servers only in whose regions it has keys.
    let calls = servers[0].fake.counts().0;
    client.delete_range(&KeyRange::prefix(b"z")).unwrap();
    assert_eq!(servers[0].fake.counts().0, calls);
    assert_eq!(keys_of(&client).join(" "), "a n");
    // Parts of values lie behind all keys of users, and stay.
    let part = argosy_engine::long::Part {
        key: b"z",
        version: 7,
        index: 0,
    };
    let mut batch = argosy_engine::WriteBatch::new();
    let put = batch.put_any(&part.to_key(), b"a part", argosy_engine::Expiry::Never);
    put.unwrap();
    let sink: Arc<dyn ReplySink> = Arc::new(Nobody);
    let options = argosy_engine::WriteOptions::default();
    let batch = &batch;
    let parts = Request::Write { batch, options };
    servers[1]
        .fake
        .call(parts, Reach::Device, ReplyTo::new(&sink, 0))
        .answered()
        .unwrap();
    assert_eq!(delete_range(b"", None), "");
    let left = servers[1]
        .fake
        .call(Request::Count, Reach::Device, ReplyTo::new(&sink, 0))
        .answered()
        .unwrap();
    assert_eq!(left, Response::Count(1));
    // From behind the longest key on, where no key has so many bytes.
    client.put(b"a", b"here").unwrap();
    client.put(b"c", b"here").unwrap();
    let longest = [&[b'b'][..], &[0xff; 4095]].concat();
    let behind = [longest.as_slice(), b"\0"].concat();
    assert_eq!(delete_range(&behind, None), "a");
    let error = client.delete_range(&KeyRange::new(vec![b'a'; 4098], None));
    assert_eq!(error.unwrap_err().outcome(), Outcome::NotApplied);
}

#[test]
fn a_range_that_is_removed_in_part_is_told_as_unknown() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    let what = "the device is on fire".to_owned();
    let outcome = Outcome::NotApplied;
    let failure = Failure::Storage { what, outcome };
    servers[1].fake.fail_next(failure.clone());
    let error = client.delete_range(&KeyRange::all()).unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert!(error.to_string().contains("part of the request"), "{error}");
    servers[1].fake.fail_next(failure);
    let theirs = KeyRange::new("m", None);
    let error = client.delete_range(&theirs).unwrap_err();
    assert_eq!(error.outcome(), Outcome::NotApplied, "{error}");
}

/// Has no use for answers.
struct Nobody;

impl ReplySink for Nobody {
    fn deliver(&self, _: u64, _: Response) {}
}
