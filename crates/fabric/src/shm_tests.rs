//! The shared-memory fabric keeps the contract: within one process, between threads, and between
//! real processes that are stopped and killed.
//!
//! A test that needs another process starts this same test binary again and has it run
//! [`other_process`] in the role that the environment names. The two talk over standard input and
//! output, a line at a time.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};

use super::*;
use crate::conformance::{self, Harness, mistakes};

const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);
const KEY: MemoryKey = MemoryKey(5);
const NEVER: Duration = Duration::from_secs(3600);

/// Connects to what B grants.
fn connect(fabric: &dyn Fabric) -> Result<Box<dyn RemoteMemory>, FabricError> {
    let found = fabric.find(B, KEY)?;
    let connected = fabric.connect(B, found, 0).poll()?;
    Ok(connected.expect("the first poll ends it"))
}

/// A directory of this process's own on tmpfs, gone at the end.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("argosy-fabric-test-{}-{count}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        std::fs::create_dir_all(&path).expect("/dev/shm can be written");
        Self(path)
    }

    fn fabric(&self, server: ServerId, incarnation: u64) -> ShmFabric {
        ShmFabric::open(&self.0, server, Incarnation(incarnation), incarnation << 32)
            .expect("room for a directory")
    }

    fn memory(&self, name: &str, len: usize) -> Arc<SharedMemory> {
        let path = self.0.join(name);
        let made = SharedMemory::create(&path, len, Incarnation(0));
        Arc::new(made.expect("room in /dev/shm"))
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct World {
    root: Root,
    made: u32,
}

impl Harness for World {
    fn start(&mut self, server: ServerId, incarnation: Incarnation) -> Arc<dyn Fabric> {
        Arc::new(self.root.fabric(server, incarnation.0))
    }

    fn memory(&mut self, _server: ServerId, len: usize) -> Arc<SharedMemory> {
        self.made += 1;
        self.root.memory(&format!("made-{}", self.made), len)
    }

    // An `ShmFabric` does nothing when it is dropped or left alone, so within one process there
    // is nothing to do here; for real processes see below.
    fn kill(&mut self, _server: ServerId) {}

    fn stop(&mut self, _server: ServerId) {}

    fn resume(&mut self, _server: ServerId) {}

    fn settle(&mut self) {}

    fn cut(&mut self, _a: ServerId, _b: ServerId) -> bool {
        false
    }

    fn heal(&mut self, _a: ServerId, _b: ServerId) {}

    fn sleeps(&self) -> bool {
        true
    }
}

#[test]
fn keeps_the_contract() {
    let mut make = || -> Box<dyn Harness> {
        Box::new(World {
            root: Root::new(),
            made: 0,
        })
    };
    conformance::run(&mut make);
}

#[test]
fn mistakes_in_connecting_are_found() {
    let mut make = || -> Box<dyn Harness> {
        Box::new(World {
            root: Root::new(),
            made: 0,
        })
    };
    mistakes::are_found(&mut make);
}

#[test]
fn memory_may_be_made_under_the_name_of_its_key() {
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let path = b.path_for(B, KEY);
    let made = SharedMemory::create(&path, 4096, Incarnation(1)).expect("room");
    b.grant(KEY, Arc::new(made), A).expect("it is in place");
    connect(&a).expect("it is offered");
    b.revoke(KEY);
    assert!(!path.exists());
    let left = std::fs::read_dir(path.parent().expect("a directory")).expect("it exists");
    assert_eq!(left.count(), 0, "no other name is left");
}

#[test]
fn revoking_removes_only_the_name_that_was_given_here() {
    let root = Root::new();
    let b = root.fabric(B, 1);
    let memory = root.memory("mine", 4096);
    b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
    b.revoke(KEY);
    assert!(root.0.join("mine").exists());
    assert!(!b.path_for(B, KEY).exists());
    assert_eq!(memory.access(), 0);
}

#[test]
fn garbage_in_the_directory_is_an_error_or_is_withdrawn() {
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let path = b.path_for(B, KEY);
    for garbage in [&b""[..], b"short", &[7; 5000], &[0; 4096]] {
        std::fs::write(&path, garbage).expect("room");
        let result = connect(&a).map(|_| ());
        assert!(
            matches!(result, Err(FabricError::System { .. })),
            "{result:?}"
        );
    }
    std::fs::write(root.0.join("server-2/bell"), b"garbage").expect("room");
    a.notify(B); // Nobody can be woken there: nothing happens.
    let b = root.fabric(B, 2);
    assert!(!path.exists());
    let seen = b.bell();
    a.notify(B);
    b.park(seen, NEVER);
}

/// A link that somebody planted where a bell or memory is looked for is not followed.
#[test]
fn a_link_is_no_bell_and_no_memory_and_what_it_leads_to_stays() {
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let (bell, path) = (root.0.join("server-2/bell"), b.path_for(B, KEY));
    let elsewhere = root.0.join("elsewhere");
    let target = BellFile::create(&elsewhere).expect("room");
    let missing = root.0.join("missing");
    for to in [&elsewhere, &missing] {
        std::fs::remove_file(&bell).expect("it is there");
        symlink(to, &bell).expect("the name is free");
        let refused = BellFile::open(&bell).expect_err("it is a link");
        assert_ne!(refused.kind(), io::ErrorKind::NotFound, "{refused}");
        BellFile::create(&bell).expect_err("it is a link");
        a.notify(B); // Nobody is woken behind it.
        let opened = ShmFabric::open(&root.0, B, Incarnation(2), 1);
        assert!(matches!(opened, Err(FabricError::System { .. })));
        assert!(bell.is_symlink() && !missing.exists());
    }
    assert_eq!(target.rings(), Bell(0), "it was never rung");

    // Where the bell is made, a link in the place of the new file gives way.
    std::fs::remove_file(&bell).expect("it is there");
    let before = std::fs::read(&elsewhere).expect("it is there");
    let new = bell.with_extension("new");
    symlink(&elsewhere, &new).expect("the name is free");
    BellFile::create(&bell).expect("room").ring();
    assert!(!bell.is_symlink() && !new.exists() && !new.is_symlink());
    assert_eq!(std::fs::read(&elsewhere).expect("it is there"), before);

    let memory = root.memory("memory", 4096);
    let (number, to, by) = (1, B, Incarnation(1));
    memory.grant(Grant { number, to, by });
    symlink(root.0.join("memory"), &path).expect("the name is free");
    let result = connect(&a).map(|_| ());
    assert!(
        matches!(result, Err(FabricError::System { .. })),
        "{result:?}"
    );
    drop(root.fabric(B, 3));
    assert!(!path.is_symlink(), "it was withdrawn");
    assert_ne!(memory.access(), 0, "and what it led to was not revoked");
}

/// Somebody plants a link again and again, also between the moment when the name is free and that when a bell is made.
#[test]
fn a_link_that_comes_in_between_is_not_followed() {
    let root = Root::new();
    let (bell, target) = (root.0.join("bell"), root.0.join("target"));
    std::fs::write(&target, b"somebody's").expect("room");
    let (done, mut refused) = (AtomicBool::new(false), 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = symlink(&target, bell.with_extension("new"));
            }
        });
        for _ in 0..5000 {
            let _ = std::fs::remove_file(&bell);
            refused += u32::from(BellFile::create(&bell).is_err());
            if refused == 20 {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let left = std::fs::read(&target).expect("it is there");
    assert_eq!(left, b"somebody's", "after {refused} links in between");
}

/// The order of fences in a write and in a revocation: a copy taken after the revocation holds
/// every write that succeeded, however the two threads meet.
#[test]
fn what_succeeds_is_in_the_copy() {
    const ROUNDS: u64 = 2_000;
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let memory = root.memory("raced", 4096);
    let round = AtomicU64::new(0);
    let best = AtomicU64::new(0);
    let ready = AtomicU64::new(0);
    let mut interrupted = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut done = 0;
            while done < ROUNDS {
                if round.load(Ordering::Acquire) == done {
                    std::thread::yield_now();
                    continue;
                }
                done += 1;
                let mut remote = connect(&a).expect("it is offered");
                ready.store(done, Ordering::Release);
                for seq in 1u64.. {
                    let _ = remote.write(0, &seq.to_le_bytes(), seq);
                    match remote.poll() {
                        Some(WriteCompletion {
                            seq,
                            result: Ok(()),
                        }) => best.store(seq, Ordering::Release),
                        _ => break,
                    }
                }
                ready.store(0, Ordering::Release);
            }
        });
        for number in 1..=ROUNDS {
            memory.fill_zero(0..8);
            best.store(0, Ordering::Release);
            b.grant(KEY, Arc::clone(&memory), A)
                .expect("it was revoked");
            round.store(number, Ordering::Release);
            while ready.load(Ordering::Acquire) != number
                || best.load(Ordering::Acquire) < number % 7
            {
                std::thread::yield_now();
            }
            b.revoke(KEY);
            let copy = memory.load_u64(0);
            while ready.load(Ordering::Acquire) != 0 {
                std::thread::yield_now();
            }
            let succeeded = best.load(Ordering::Acquire);
            assert!(
                succeeded <= copy,
                "write {succeeded} succeeded, the copy has {copy}"
            );
            interrupted += u64::from(succeeded > 0);
        }
    });
    assert!(interrupted > ROUNDS / 2, "{interrupted}");
}

/// A bell that is rung while the owner goes to sleep wakes it; a lost wakeup hangs this test.
#[test]
fn no_wakeup_is_lost() {
    const RINGS: u64 = 20_000;
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let work = AtomicU64::new(0);
    let answered = AtomicU64::new(0);
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !finished.load(Ordering::Acquire) {
                let seen = b.bell();
                let found = work.load(Ordering::Acquire);
                if found == answered.load(Ordering::Acquire) {
                    b.park(seen, NEVER);
                } else {
                    answered.store(found, Ordering::Release);
                }
            }
        });
        for number in 1..=RINGS {
            work.store(number, Ordering::Release);
            a.notify(B);
            while answered.load(Ordering::Acquire) != number {
                std::thread::yield_now();
            }
        }
        finished.store(true, Ordering::Release);
        a.notify(B);
    });
    assert_eq!(answered.load(Ordering::Acquire), RINGS);
}

#[test]
fn nobody_parked_costs_no_wake() {
    let root = Root::new();
    let (a, b) = (root.fabric(A, 1), root.fabric(B, 1));
    let seen = b.bell();
    assert!(!b.bell.is_parked());
    a.notify(B);
    a.notify(B);
    assert_eq!(b.bell(), Bell(seen.0.wrapping_add(2)));
    b.park(seen, NEVER);
    assert!(!b.bell.is_parked(), "it never slept");
}

// --- Real processes ---

/// This test binary, run again as another server.
struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Other {
    fn start(root: &Root, role: &str) -> Self {
        let binary = std::env::current_exe().expect("a running test has a binary");
        let mut child = Command::new(binary)
            .args([
                "--exact",
                "shm::tests::other_process",
                "--nocapture",
                "--test-threads=1",
            ])
            .env("ARGOSY_FABRIC_ROLE", role)
            .env("ARGOSY_FABRIC_ROOT", &root.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this binary can be run");
        let to = child.stdin.take().expect("it was piped");
        let from = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut other = Self { child, to, from };
        other.expect("ready");
        other
    }

    /// Reads lines until one says `word`, and returns what follows the word.
    fn expect(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            let read = self.from.read_line(&mut line).expect("a pipe can be read");
            assert_ne!(read, 0, "the other process ended before it said {word}");
            // The test harness writes its own words in front of ours.
            if let Some(at) = line.find(&format!("@{word}")) {
                return line[at + 1 + word.len()..].trim().to_string();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").expect("the other process reads");
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a child has a number"), signal).expect("our own child");
    }

    fn kill(mut self) {
        self.signal(Signal::KILL);
        self.child.wait().expect("our own child");
    }

    fn end(mut self) {
        self.tell("end");
        assert!(self.child.wait().expect("our own child").success());
    }
}

fn say(line: &str) {
    println!("@{line}");
    std::io::stdout().flush().expect("the parent reads");
}

fn hear() -> String {
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .expect("the parent writes");
    line.trim().to_string()
}

/// What the other process does; nothing when it is run as a test of its own.
#[test]
fn other_process() {
    let Ok(role) = std::env::var("ARGOSY_FABRIC_ROLE") else {
        return;
    };
    // No test leaves a process behind, not even one that fails.
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a valid signal");
    // The directory is the parent's: it must not be removed here.
    let path = PathBuf::from(std::env::var("ARGOSY_FABRIC_ROOT").expect("the parent sets it"));
    let root = std::mem::ManuallyDrop::new(Root(path));
    match role.as_str() {
        "target" => {
            let b = root.fabric(B, 7);
            let memory = root.memory("window", 64 << 10);
            b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
            say("ready");
            while hear() != "end" {
                say(&format!("first {}", memory.load_u64(0)));
            }
        }
        "writer" => {
            let a = root.fabric(A, 1);
            say("ready");
            hear();
            let mut remote = connect(&a).expect("the parent offers it");
            let mut best = 0;
            for seq in 1u64.. {
                let _ = remote.write(
                    usize::try_from(seq % 8).expect("small") * 8,
                    &seq.to_le_bytes(),
                    seq,
                );
                match remote.poll() {
                    Some(WriteCompletion {
                        seq,
                        result: Ok(()),
                    }) => best = seq,
                    _ => break,
                }
            }
            say(&format!("best {best}"));
            hear();
        }
        "sleeper" => {
            let b = root.fabric(B, 1);
            let memory = root.memory("window", 4096);
            b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
            say("ready");
            let mut answered = 0;
            while answered < u64::MAX {
                let seen = b.bell();
                let found = memory.load_u64(0);
                if found == answered {
                    b.park(seen, NEVER);
                } else {
                    answered = found;
                    memory.store_u64(8, found);
                    b.notify(A);
                }
            }
            hear();
        }
        other => panic!("no role {other}"),
    }
}

#[test]
fn another_process_is_written_idle_stopped_and_killed() {
    let root = Root::new();
    let a = root.fabric(A, 1);
    let mut other = Other::start(&root, "target");
    let mut remote = connect(&a).expect("it is offered");
    assert_eq!(remote.incarnation(), Incarnation(7));
    let mut seq = 0;
    let mut write = |remote: &mut dyn RemoteMemory| {
        seq += 1u64;
        let written = remote.write(0, &seq.to_le_bytes(), seq);
        written.and_then(|()| remote.poll().expect("it has ended").result)
    };

    assert_eq!(write(&mut *remote), Ok(()));
    other.tell("look");
    assert_eq!(other.expect("first"), "1");

    other.signal(Signal::STOP);
    assert_eq!(write(&mut *remote), Ok(()));
    other.signal(Signal::CONT);
    other.tell("look");
    assert_eq!(other.expect("first"), "2");

    other.kill();
    assert_eq!(write(&mut *remote), Ok(()), "memory outlives its process");

    // The server starts again: first it revokes, then it reads what was left.
    let b = root.fabric(B, 8);
    assert_eq!(write(&mut *remote), Err(FabricError::Revoked));
    let left = SharedMemory::open(&root.0.join("window")).expect("it was left");
    assert_eq!(left.load_u64(0), 3);
    let result = connect(&a).map(|_| ());
    assert_eq!(result, Err(FabricError::NotThere { peer: B, key: KEY }));
    let memory = root.memory("window-2", 4096);
    b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
    let mut fresh = connect(&a).expect("it is offered");
    assert_eq!(fresh.incarnation(), Incarnation(8));
    assert_eq!(write(&mut *fresh), Ok(()));
    assert_eq!(memory.load_u64(0), 5);
}

#[test]
fn another_process_is_revoked_under_its_writes() {
    let root = Root::new();
    let b = root.fabric(B, 1);
    for _ in 0..10 {
        let memory = root.memory("window", 4096);
        b.grant(KEY, Arc::clone(&memory), A)
            .expect("in place of the last");
        let mut other = Other::start(&root, "writer");
        other.tell("go");
        while memory.load_u64(0) < 100 {
            std::thread::yield_now();
        }
        b.revoke(KEY);
        let copy = (0..8)
            .map(|word| memory.load_u64(word * 8))
            .max()
            .expect("eight words");
        let best: u64 = other.expect("best").parse().expect("a number");
        assert!(best >= 99);
        assert!(best <= copy, "write {best} succeeded, the copy has {copy}");
        other.end();
    }
}

#[test]
fn a_writer_that_is_killed_harms_nobody() {
    let root = Root::new();
    let b = root.fabric(B, 1);
    let memory = root.memory("window", 4096);
    b.grant(KEY, Arc::clone(&memory), A).expect("it is new");
    let mut other = Other::start(&root, "writer");
    other.tell("go");
    while memory.load_u64(0) < 1000 {
        std::thread::yield_now();
    }
    other.kill();
    let a = root.fabric(A, 2);
    let mut remote = connect(&a).expect("it is still offered");
    remote.write(0, &[0xff; 8], 1).expect("taken");
    assert_eq!(memory.load_u64(0), u64::MAX);
    b.revoke(KEY);
}

/// A process that was killed in its sleep leaves its flag up; the next start takes it down.
#[test]
fn a_killed_sleeper_leaves_a_usable_bell() {
    let root = Root::new();
    let a = root.fabric(A, 1);
    let other = Other::start(&root, "sleeper");
    let bell = BellFile::open(&root.0.join("server-2/bell")).expect("it was made");
    while !bell.is_parked() {
        std::thread::yield_now();
    }
    other.kill();
    assert!(bell.is_parked());
    a.notify(B);
    let b = root.fabric(B, 2);
    assert!(!bell.is_parked());
    assert_eq!(b.bell(), Bell(1), "the bell is kept over a restart");
    a.notify(B);
    assert_eq!(b.bell(), Bell(2));
}

#[test]
fn another_process_is_woken() {
    let root = Root::new();
    let a = root.fabric(A, 1);
    let other = Other::start(&root, "sleeper");
    let mut remote = connect(&a).expect("it is offered");
    let answers = SharedMemory::open(&root.0.join("window")).expect("it was made");
    for number in (1..=3_000u64).chain([u64::MAX]) {
        let seen = a.bell();
        remote
            .write(0, &number.to_le_bytes(), number)
            .expect("taken");
        assert_eq!(remote.poll().map(|ended| ended.result), Some(Ok(())));
        a.notify(B);
        let mut seen = seen;
        while answers.load_u64(8) != number {
            a.park(seen, NEVER);
            seen = a.bell();
        }
    }
    other.end();
}
