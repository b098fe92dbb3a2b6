//! A server that has stopped: its memory takes requests, and nobody answers them. Another server leads its regions by
//! then, and tells so whoever asks.

use std::thread;

use super::*;

/// The first of two servers, which leads the keys below "m", has stopped.
struct Halted {
    gated: Arc<Gated>,
    second: Running,
    /// A client whose request has stopped it.
    _other: Client,
    _listener: NativeListener,
    _dir: TempDir,
}

impl Halted {
    /// Stops the first server once a client has done `before` with it. Returns the client, too.
    fn after(before: impl FnOnce(&Client)) -> (Self, Client) {
        let dir = temp();
        let gated = Arc::new(Gated::default());
        let service: Arc<dyn Service> = Arc::clone(&gated) as Arc<dyn Service>;
        let (settings, by) = (Settings::default(), By::threads(1));
        let (_, listener, socket) = serve(dir.path(), settings, &map([0, 1]), &service, by);
        let second = start(dir.path(), 1, &map([0, 1]), &Arc::new(Fake::new()), 1);
        let connect = || Client::connect(&socket.to_string_lossy()).unwrap();
        let (client, other) = (connect(), connect());
        before(&client);
        // Its only thread waits for the device.
        drop(other.submit(Ask::Get { key: b"cold" }).unwrap());
        other.flush();
        until(|| gated.blocked.load(Ordering::Relaxed) == 1);
        let halted = Self {
            gated,
            second,
            _other: other,
            _listener: listener,
            _dir: dir,
        };
        (halted, client)
    }

    /// The second server leads everything from now on. The first does not know.
    fn move_regions(&self) {
        self.second.front.set_map(&map_at(2, [1, 1]));
    }

    /// The first server goes on. Returns how many requests it has carried out, once there are so many.
    fn goes_on(&self, calls: u64) {
        self.gated.open();
        until(|| self.gated.fake.counts().0 == calls);
    }
}

impl Drop for Halted {
    /// Whoever waits for its threads would wait for ever.
    fn drop(&mut self) {
        self.gated.open();
    }
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Ask<'a> {
    let only = None;
    Ask::Put { key, value, only }
}

/// That a write ended since its region has moved, and not at its deadline.
fn assert_is_lost(ended: Result<Completion, ClientError>) {
    let error = ended.unwrap_err();
    assert_eq!(error.outcome(), Outcome::Unknown, "{error}");
    assert!(error.to_string().contains("has another primary"), "{error}");
}

#[test]
fn writes_to_a_stopped_server_are_unknown_once_its_region_has_moved() {
    let (halted, client) = Halted::after(|_| ());
    let keys: Vec<_> = (0..8).map(|n| format!("a{n}").into_bytes()).collect();
    let tickets: Vec<_> = keys
        .iter()
        .map(|key| client.submit(put(key, b"1")).unwrap())
        .collect();
    let read = client.submit(Ask::Get { key: &keys[0] }).unwrap();
    client.flush();
    let ended = thread::scope(|scope| {
        let waits = scope.spawn(|| client.put(b"argo", b"1"));
        halted.move_regions();
        waits.join().unwrap()
    });
    // It has a name, and was sent again.
    ended.unwrap();
    for ticket in tickets {
        assert_is_lost(client.wait(ticket, &mut Vec::new()));
    }
    // A read is asked again, where the region is by now.
    let mut value = Vec::new();
    assert_eq!(client.wait(read, &mut value).unwrap(), Completion::Absent);
    client.put(&keys[0], b"2").unwrap();
    assert_eq!(client.get(&keys[0]).unwrap().unwrap(), b"2");
    assert_eq!(halted.second.fake.counts().0, 4);
    // So it is true that nobody knew: one that has not heard of the change carries them out. With the read that is
    // given up, and the one that has stopped it.
    halted.goes_on(8 + 1 + 2);
}

#[test]
fn whoever_polls_learns_of_it_too() {
    let (halted, client) = Halted::after(|_| ());
    let mut write = client.submit(put(b"argo", b"1")).unwrap();
    let mut read = client.submit(Ask::Get { key: b"argo" }).unwrap();
    halted.move_regions();
    let mut value = Vec::new();
    let mut poll = |ticket: &mut _| loop {
        match client.poll(ticket, &mut value) {
            Ok(None) => thread::park_timeout(Duration::from_millis(1)),
            Ok(Some(done)) => return Ok(done),
            Err(error) => return Err(error),
        }
    };
    assert_is_lost(poll(&mut write));
    assert_eq!(poll(&mut read).unwrap(), Completion::Absent);
    assert_eq!(halted.second.fake.counts().0, 1);
}

/// What finds no room in the memory of a stopped server was never sent: it goes to the new primary.
#[test]
fn what_waits_for_room_goes_to_the_new_primary() {
    let (halted, client) = Halted::after(|_| ());
    halted.move_regions();
    // The ring has 256 KiB.
    let value = vec![1; 60 << 10];
    let tickets: Vec<_> = (0..6)
        .map(|n: u8| client.submit(put(&[b'a', n], &value)).unwrap())
        .collect();
    let ended = tickets
        .into_iter()
        .map(|ticket| client.wait(ticket, &mut Vec::new()));
    let (done, lost): (Vec<_>, Vec<_>) = ended.partition(Result::is_ok);
    assert_eq!((done.len(), lost.len()), (2, 4));
    lost.into_iter().for_each(assert_is_lost);
    assert_eq!(halted.second.fake.counts().0, 2);
}

/// So does what waits until the writes before it have been answered, since it needs the larger connection.
#[test]
fn what_waits_for_earlier_writes_goes_to_the_new_primary() {
    let large = vec![1; 300 << 10];
    let (halted, client) = Halted::after(|client| client.put(b"large", &large).unwrap());
    let small = client.submit(put(b"argo", b"1")).unwrap();
    halted.move_regions();
    client.put(b"large", &large).unwrap();
    assert_eq!(halted.second.fake.counts().0, 1);
    assert_is_lost(client.wait(small, &mut Vec::new()));
}

/// A server that leads a region no more knows best what became of what it was sent.
#[test]
fn an_answer_that_is_there_counts_whatever_the_map_says() {
    let dir = temp();
    let servers = both(&dir);
    let client = client_of(&servers[0]);
    servers[0].fake.set_late(true);
    let write = client.submit(put(b"argo", b"1")).unwrap();
    client.flush();
    until(|| servers[0].fake.held() == 1);
    servers[1].front.set_map(&map_at(2, [1, 1]));
    // Refused under the first epoch, so that the client asks for the map.
    client.put(b"zeus", b"1").unwrap();
    client.put(b"argos", b"1").unwrap();
    assert_eq!(servers[1].fake.counts().0, 2);
    assert!(servers[0].fake.release(0));
    let done = client.wait(write, &mut Vec::new()).unwrap();
    assert!(matches!(done, Completion::Done { .. }));
}
