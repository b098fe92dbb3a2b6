//! How the two sides of a connection sleep, in every order that the memory model allows: no request and no
//! answer lies there unseen.
//!
//! `native/signs.rs` is compiled here once more, over the atomics of the model checker `loom` instead of the
//! standard library's. Where somebody sleeps although there is something for it, nobody wakes it, and loom
//! says so. Requests and answers are words that order nothing by themselves.

#![allow(
    dead_code,
    unreachable_pub,
    reason = "some of the source's parts serve others, and lints look at them where they live"
)]

#[path = "../src/native"]
mod native {
    pub(crate) mod signs;

    /// The twin of `src/native/sync.rs`.
    mod sync {
        pub(super) use loom::sync::atomic::{AtomicU32, Ordering, fence};
    }
}

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Condvar, Mutex};
use native::signs::{Asleep, Parking, Unrung};

/// Runs `test` in all orders in which threads are interrupted at most `interruptions` times.
fn model(interruptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(test);
}

/// What wakes a server: it can be read from the first ring on until it is silenced.
struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn new() -> Self {
        Self {
            rung: Mutex::new(false),
            heard: Condvar::new(),
        }
    }

    fn ring(&self) {
        *self.rung.lock().expect("nobody panics with it") = true;
        self.heard.notify_all();
    }

    /// Waits for a ring, and silences the bell.
    fn wait(&self) {
        let mut rung = self.rung.lock().expect("nobody panics with it");
        while !*rung {
            rung = self.heard.wait(rung).expect("nobody panics with it");
        }
        *rung = false;
    }
}

/// A client's memory, as far as it is for requests, and what its threads share beside it.
struct Client {
    /// One for each request.
    laid: [AtomicU32; 2],
    asleep: AtomicU32,
    /// How many requests were laid.
    writer: Mutex<u32>,
    unrung: Unrung,
}

impl Client {
    fn new() -> Self {
        Self {
            laid: [(); 2].map(|()| AtomicU32::new(0)),
            asleep: AtomicU32::new(0),
            writer: Mutex::new(0),
            unrung: Unrung::default(),
        }
    }

    /// Lays a request, as a channel does.
    fn lay(&self) {
        let mut laid = self.writer.lock().expect("nobody panics with it");
        self.laid[*laid as usize].store(1, Ordering::Relaxed);
        self.unrung.add(&mut laid);
    }

    fn ring(&self, bell: &Bell) {
        if self.unrung.take() && Asleep(&self.asleep).has_to_be_rung() {
            bell.ring();
        }
    }

    /// How many requests there are, one behind the other.
    fn requests(&self) -> u32 {
        let there = |word: &&AtomicU32| word.load(Ordering::Relaxed) == 1;
        let requests = self.laid.iter().take_while(there).count();
        u32::try_from(requests).expect("two at most")
    }
}

/// A server takes what threads of its clients lay, as many for each client as are named, and sleeps in between.
fn every_request_is_seen<const CLIENTS: usize>(threads: [u32; CLIENTS]) {
    model(3, move || {
        let clients = Arc::new(threads.map(|_| Client::new()));
        let bell = Arc::new(Bell::new());
        for (number, threads) in threads.into_iter().enumerate() {
            for _ in 0..threads {
                let (clients, bell) = (Arc::clone(&clients), Arc::clone(&bell));
                loom::thread::spawn(move || {
                    clients[number].lay();
                    clients[number].ring(&bell);
                });
            }
        }
        let mut taken = [0; CLIENTS];
        let asleep = || clients.iter().map(|client| Asleep(&client.asleep));
        while taken != threads {
            let has_next = || {
                taken
                    .iter()
                    .zip(&*clients)
                    .any(|(n, it)| it.requests() > *n)
            };
            if Asleep::may_sleep(asleep(), has_next) {
                bell.wait();
            }
            asleep().for_each(Asleep::awake);
            taken = std::array::from_fn(|number| clients[number].requests());
        }
    });
}

#[test]
fn a_server_that_goes_to_sleep_sees_the_request() {
    every_request_is_seen([1]);
}

#[test]
fn a_server_that_goes_to_sleep_sees_the_requests_of_either_client() {
    every_request_is_seen([1, 1]);
}

/// Each of two threads may ring for the other, or leave it to it.
#[test]
fn a_server_that_goes_to_sleep_sees_what_two_threads_lay() {
    every_request_is_seen([2]);
}

/// What neither of two threads rings for would not be seen.
#[test]
fn one_of_two_threads_rings_for_both_requests() {
    model(3, || {
        let client = Arc::new(Client::new());
        let lay = |client: &Client| {
            client.lay();
            client.unrung.take().then(|| client.requests())
        };
        let other = loom::thread::spawn({
            let client = Arc::clone(&client);
            move || lay(&client)
        });
        let seen = lay(&client).max(other.join().expect("it laid a request"));
        assert_eq!(seen, Some(2), "as many as who rings has seen");
    });
}

/// A client's memory, as far as it is for answers.
struct Answers {
    answers: [AtomicU32; 2],
    parked: AtomicU32,
    rings: AtomicU32,
    kernel: Mutex<()>,
    woken: Condvar,
}

impl Answers {
    fn new() -> Self {
        Self {
            answers: [(); 2].map(|()| AtomicU32::new(0)),
            parked: AtomicU32::new(0),
            rings: AtomicU32::new(u32::MAX),
            kernel: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    fn parking(&self) -> Parking<'_> {
        Parking {
            parked: &self.parked,
            rings: &self.rings,
        }
    }

    fn has_answer(&self, place: usize) -> bool {
        self.answers[place].load(Ordering::Relaxed) != 0
    }

    /// Waits for an answer, as a client's thread does.
    fn wait(&self, place: usize) {
        while !self.has_answer(place) {
            self.parking().sleep(
                || self.has_answer(place),
                // As a futex does it: looks and goes to sleep at once.
                |seen| {
                    let kernel = self.kernel.lock().expect("nobody panics with it");
                    if self.rings.load(Ordering::SeqCst) == seen {
                        drop(self.woken.wait(kernel).expect("nobody panics with it"));
                    }
                },
            );
        }
    }

    fn answer(&self, place: usize) {
        self.answers[place].store(1, Ordering::Relaxed);
        self.parking().wake(|| {
            let kernel = self.kernel.lock().expect("nobody panics with it");
            self.woken.notify_all();
            drop(kernel);
        });
    }
}

/// As many threads wait for an answer each, which the server gives one by one.
fn every_answer_is_seen(threads: usize) {
    model(3, move || {
        let shared = Arc::new(Answers::new());
        for place in 0..threads {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.wait(place));
        }
        (0..threads).for_each(|place| shared.answer(place));
    });
}

#[test]
fn a_client_that_goes_to_sleep_sees_the_answer() {
    every_answer_is_seen(1);
}

#[test]
fn threads_that_go_to_sleep_see_their_answers() {
    every_answer_is_seen(2);
}
