//! Handles that stop before a chosen operation on files, in threads. Every operation is tried, and
//! every pair of operations of two handles.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use argosy_coordinator::embedded::Mutants;
use argosy_coordinator::{Embedded, EmbeddedSettings, Entry};

use super::history::{Actor, LIST, TIMEOUT, Told, Written, judge, member};

/// Transactions of a generation: few, so that generations come and go.
const TRANSACTIONS_MAX: usize = 2;

/// Off.
const NEVER: usize = usize::MAX;

/// Where the coordinator of a test lies: in memory, where there is such a file system.
pub(crate) fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = match memory.is_dir() {
        true => tempfile::tempdir_in(memory),
        false => tempfile::tempdir(),
    };
    dir.expect("a directory for the test")
}

/// What a thread reports.
enum Report {
    /// It stands before this operation.
    Stopped(&'static str),
    /// It has done its work, or was killed.
    Ended,
}

/// Where a thread stops. Shared with the hook of its handle.
struct StopPoint {
    /// Operations before it.
    left: AtomicUsize,
    report: Sender<Report>,
    go_on: Mutex<Receiver<()>>,
}

impl StopPoint {
    fn before(&self, operation: &'static str) {
        let left = self.left.load(Ordering::Relaxed);
        if left == NEVER {
            return;
        }
        self.left.store(left.wrapping_sub(1), Ordering::Relaxed);
        if left > 0 {
            return;
        }
        let go_on = self.go_on.lock().expect("one thread uses it");
        self.report
            .send(Report::Stopped(operation))
            .expect("the test waits");
        if go_on.recv().is_err() {
            // Killed. Not a panic that anybody should hear of.
            drop(go_on);
            std::panic::resume_unwind(Box::new("killed"));
        }
    }
}

/// A handle that can be stopped.
struct Stoppable {
    dir: PathBuf,
    name: u32,
    mutants: Mutants,
    stop: Arc<StopPoint>,
    go_on: Sender<()>,
    reports: Receiver<Report>,
}

impl Stoppable {
    fn new(dir: &Path, name: u32, mutants: Mutants) -> Self {
        let (report, reports) = channel();
        let (go_on, waits) = channel();
        Self {
            dir: dir.to_path_buf(),
            name,
            mutants,
            stop: Arc::new(StopPoint {
                left: AtomicUsize::new(NEVER),
                report,
                go_on: Mutex::new(waits),
            }),
            go_on,
            reports,
        }
    }

    fn opened(&self) -> Actor {
        let stop = Arc::clone(&self.stop);
        let settings = EmbeddedSettings {
            transactions_max: TRANSACTIONS_MAX,
            mutants: self.mutants,
            hook: Some(Box::new(move |operation| stop.before(operation))),
        };
        let name = u128::from(self.name);
        let handle = Embedded::open_with(&self.dir, name, settings);
        Actor::new(handle.expect("it opens"), self.name)
    }

    /// Does `work` in a thread that stops before its operation `at`.
    fn start(self, at: usize, work: impl FnOnce(&Self) -> Actor + Send + 'static) -> Running {
        let Self {
            dir,
            name,
            mutants,
            stop,
            go_on,
            reports,
        } = self;
        stop.left.store(at, Ordering::Relaxed);
        let report = stop.report.clone();
        let thread = std::thread::Builder::new().spawn(move || {
            // The channels of the thread's own are not used.
            let (unused, _) = channel();
            let (_, no_reports) = channel();
            let me = Self {
                dir,
                name,
                mutants,
                stop,
                go_on: unused,
                reports: no_reports,
            };
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| work(&me)));
            me.stop.left.store(NEVER, Ordering::Relaxed);
            let _ = report.send(Report::Ended);
            match done {
                Ok(actor) => Some(actor),
                Err(cause) if cause.is::<&str>() && *cause.downcast_ref::<&str>()? == "killed" => {
                    None
                }
                Err(cause) => std::panic::resume_unwind(cause),
            }
        });
        let mut running = Running {
            thread: thread.expect("a thread starts"),
            go_on,
            reports,
            stopped: None,
        };
        running.stopped = running.wait();
        running
    }
}

/// A thread that has been started.
struct Running {
    thread: JoinHandle<Option<Actor>>,
    go_on: Sender<()>,
    reports: Receiver<Report>,
    /// Before which operation it stands.
    stopped: Option<&'static str>,
}

impl Running {
    fn wait(&self) -> Option<&'static str> {
        match self.reports.recv().expect("it reports its end") {
            Report::Stopped(operation) => Some(operation),
            Report::Ended => None,
        }
    }

    /// Lets it go on to its end.
    fn finish(self) -> Actor {
        if self.stopped.is_some() {
            self.go_on.send(()).expect("it waits");
            assert!(self.wait().is_none(), "it stops once");
        }
        let done = self.thread.join();
        let done = done.unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        done.expect("nobody has killed it")
    }

    /// It never goes on.
    fn kill(self) {
        drop(self.go_on);
        let _ = self.thread.join();
    }
}

fn open(dir: &Path, name: u32, mutants: Mutants) -> Actor {
    Stoppable::new(dir, name, mutants).opened()
}

/// Enough for everything of `generation` and the next one to be removed.
fn many_appends(actor: &mut Actor) {
    for _ in 0..4 * TRANSACTIONS_MAX {
        actor.append();
    }
}

/// Who is stopped, and for whom nothing fails, learns what became of each word.
fn judge_certainty(written: &[Written]) -> Result<(), String> {
    match written.iter().find(|written| written.told == Told::Unknown) {
        Some(unknown) => Err(format!("the outcome of {unknown:?}")),
        None => Ok(()),
    }
}

/// The list, as a new handle sees it.
fn list(dir: &Path, mutants: Mutants) -> Entry {
    open(dir, 99, mutants).read(LIST)
}

/// Generations are retired in their order, and do not come again.
fn judge_generations(dir: &Path) -> Result<(), String> {
    let names = std::fs::read_dir(dir).expect("it is there");
    let names = names.map(|entry| entry.expect("it is read").file_name());
    let names: Vec<_> = names.filter_map(|name| name.into_string().ok()).collect();
    let numbers = names
        .iter()
        .filter_map(|name| name.strip_prefix("generation-"));
    let numbers: BTreeSet<u64> = numbers
        .map(|number| number.parse().expect("a number"))
        .collect();
    let (first, last) = (numbers.first(), numbers.last());
    let span = last.zip(first).map(|(last, first)| last - first + 1);
    match span == Some(numbers.len() as u64) && numbers.len() < 5 {
        true => Ok(()),
        false => Err(format!("generations {numbers:?}")),
    }
}

/// Begins the coordinator, and appends once.
fn begun(dir: &Path, mutants: Mutants) -> Actor {
    let mut first = open(dir, 10, mutants);
    first.append();
    first
}

/// One handle opens, appends over generations, has a session and appends under it. It is stopped before
/// its operation `at`, and another one does the same, until the first one's session is over.
/// `None`: it has no such operation.
fn one_stopped(at: usize, mutants: Mutants) -> Option<Result<(), String>> {
    let scratch = scratch();
    let dir = scratch.path();
    let one = Stoppable::new(dir, 1, mutants).start(at, |me| {
        let mut actor = me.opened();
        many_appends(&mut actor);
        actor.appear();
        actor.append();
        actor.pass(TIMEOUT / 2);
        actor.append();
        actor
    });
    let stopped = one.stopped?;
    let mut two = open(dir, 2, mutants);
    many_appends(&mut two);
    two.appear();
    two.pass(TIMEOUT * 3);
    let vanished = two.read(&member(1));
    if vanished != Entry::default() {
        return Some(Err(format!(
            "stopped before {stopped:?}: its ephemeral stays"
        )));
    }
    two.append();
    let seen = two.read(LIST).version.0;
    let one = one.finish();
    let list = list(dir, mutants);
    let written = [one.written.as_slice(), two.written.as_slice()].concat();
    // Its third last word, and the last, were written under a session. Where that ended, they were
    // written before it did, or not under it.
    let is_late = |written: &Written| matches!(written.told, Told::There(at) if at > seen);
    let under_session = one.session.is_some() && one.written.iter().any(is_late);
    let survived = under_session && two.read(&member(1)) == Entry::default();
    let judged = judge(&list, &written)
        .and_then(|()| judge_certainty(&written))
        .and_then(|()| judge_generations(dir))
        .and_then(|()| match survived {
            true => Err("it goes on under a session that has ended".to_owned()),
            false => Ok(()),
        });
    Some(judged.map_err(|what| format!("operation {at}, before {stopped:?}: {what}")))
}

/// An owner has died. Who watches its session is stopped before its operation `at`, and another one ends the
/// session, and goes on over generations. `None`: it has no such operation.
fn watcher_stopped(at: usize, mutants: Mutants) -> Option<Result<(), String>> {
    let scratch = scratch();
    let dir = scratch.path();
    let mut owner = open(dir, 3, mutants);
    owner.appear();
    let stoppable = Stoppable::new(dir, 1, mutants);
    let mut watcher = stoppable.opened();
    let watcher = stoppable.start(at, move |_| {
        watcher.pass(3 * TIMEOUT);
        watcher
    });
    let stopped = watcher.stopped?;
    let mut two = open(dir, 2, mutants);
    two.pass(3 * TIMEOUT);
    let stays = two.read(&member(3)) != Entry::default();
    many_appends(&mut two);
    owner.now = two.now;
    owner.append();
    let mut watcher = watcher.finish();
    watcher.append();
    let written = [&*watcher.written, &*two.written, &*owner.written].concat();
    let judged = judge(&list(dir, mutants), &written)
        .and_then(|()| judge_certainty(&written))
        .and_then(|()| judge_generations(dir));
    let judged = match stays {
        true => Err("an ephemeral stays".to_owned()),
        false => judged,
    };
    Some(judged.map_err(|what| format!("operation {at}, before {stopped:?}: {what}")))
}

/// Two handles have the same state, in a generation that is full or not. One is stopped before its
/// operation `at`, another before its operation `then`, and a third one does its work. Then they go on, in
/// either order, or the second one never does. `None`: the first has no such operation.
fn two_stopped(
    at: usize,
    then: usize,
    order: Order,
    mutants: Mutants,
) -> Option<Result<Second, String>> {
    let scratch = scratch();
    let dir = scratch.path();
    let mut first = begun(dir, mutants);
    let entry = first.read(LIST);
    // It has folded all, so that it stands at `at` within its append.
    let one = {
        let stoppable = Stoppable::new(dir, 1, mutants);
        let mut actor = stoppable.opened();
        actor.read(LIST);
        stoppable.start(at, move |_| {
            actor.append_to(&entry);
            actor
        })
    };
    let stopped = one.stopped?;
    let two = {
        let stoppable = Stoppable::new(dir, 2, mutants);
        let mut actor = stoppable.opened();
        actor.read(LIST);
        // As many as it takes until the generation of the first is removed.
        stoppable.start(then, move |_| {
            for _ in 0..2 * TRANSACTIONS_MAX {
                actor.append();
            }
            actor
        })
    };
    let second = match two.stopped {
        Some(_) => Second::Stopped,
        None => Second::Done,
    };
    first.append();
    let mut written = first.written.clone();
    let mut ones = Vec::new();
    match order {
        Order::FirstFirst => {
            ones = one.finish().written;
            first.append();
            written.extend(two.finish().written);
        }
        Order::SecondFirst => {
            written.extend(two.finish().written);
            first.append();
            ones = one.finish().written;
        }
        Order::SecondKilled => {
            match second {
                Second::Stopped => two.kill(),
                Second::Done => written.extend(two.finish().written),
            }
            ones.extend(one.finish().written);
        }
    }
    first.append();
    written.extend_from_slice(&first.written[1..]);
    written.extend_from_slice(&ones);
    let judged = judge(&list(dir, mutants), &written);
    let judged = judged.and_then(|()| judge_certainty(&written));
    let judged = judged.and_then(|()| judge_generations(dir));
    Some(match judged {
        Ok(()) => Ok(second),
        Err(what) => Err(format!(
            "operations {at}, before {stopped:?}, and {then}: {what}"
        )),
    })
}

/// One handle opens, and is stopped before its operation `at`, while another one begins the coordinator and
/// goes on over generations. `None`: it has no such operation.
fn opening_stopped(at: usize, mutants: Mutants) -> Option<Result<(), String>> {
    let scratch = scratch();
    let dir = scratch.path();
    let one = Stoppable::new(dir, 1, mutants).start(at, Stoppable::opened);
    let stopped = one.stopped?;
    let mut two = open(dir, 2, mutants);
    many_appends(&mut two);
    let mut one = one.finish();
    let judged = judge_generations(dir);
    one.append();
    let written = [one.written.as_slice(), two.written.as_slice()].concat();
    let judged = judged.and_then(|()| judge(&two.read(LIST), &written));
    Some(judged.map_err(|what| format!("operation {at}, before {stopped:?}: {what}")))
}

/// Whether the second handle has come to its operation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Second {
    Stopped,
    Done,
}

#[derive(Clone, Copy, Debug)]
enum Order {
    FirstFirst,
    SecondFirst,
    SecondKilled,
}

/// Tries every operation. The first contradiction, or how many operations there were.
fn all(mut of: impl FnMut(usize) -> Option<Result<(), String>>) -> Result<usize, String> {
    for at in 0.. {
        match of(at) {
            Some(judged) => judged?,
            None => return Ok(at),
        }
    }
    unreachable!("some handle has done its work")
}

/// [`opening_stopped`], [`one_stopped`] and [`watcher_stopped`], at every operation.
fn all_of_one(mutants: Mutants) -> Result<usize, String> {
    let opening = all(|at| opening_stopped(at, mutants))?;
    assert!(opening > 12, "{opening} are too few");
    let one = all(|at| one_stopped(at, mutants))?;
    let watching = all(|at| watcher_stopped(at, mutants))?;
    assert!(watching > 50, "{watching} are too few");
    Ok(one)
}

/// Tries every pair of operations; with a `stride`, only each so many of the second for one of the first. The
/// first contradiction, or how many pairs there were.
fn all_of_two(order: Order, stride: usize, mutants: Mutants) -> Result<usize, String> {
    let mut pairs = 0;
    for at in 0.. {
        for then in (at % stride..).step_by(stride) {
            match two_stopped(at, then, order, mutants) {
                Some(judged) => {
                    if judged? == Second::Done {
                        break;
                    }
                }
                None => return Ok(pairs),
            }
            pairs += 1;
        }
    }
    unreachable!("some handle has done its work")
}

fn planted(names: &[&str]) -> Mutants {
    let mut mutants = Mutants::default();
    for name in names {
        assert!(mutants.plant(name), "there is a mistake {name}");
    }
    mutants
}

#[test]
fn one_that_is_stopped_anywhere_holds_nobody_up() {
    let operations = all_of_one(Mutants::default()).unwrap();
    println!("{operations} operations");
    assert!(operations > 200, "{operations} are too few");
}

#[test]
fn two_that_are_stopped_anywhere_hold_nobody_up() {
    let pairs = all_of_two(Order::FirstFirst, 1, Mutants::default()).unwrap();
    println!("{pairs} pairs");
    assert!(pairs > 500, "{pairs} are too few");
    all_of_two(Order::SecondFirst, 5, Mutants::default()).unwrap();
    all_of_two(Order::SecondKilled, 5, Mutants::default()).unwrap();
}

/// What the tests above say of a program with mistakes.
fn found(names: &[&str]) -> String {
    let mutants = planted(names);
    let one = std::panic::catch_unwind(|| all_of_one(mutants));
    let found = one.unwrap_or_else(|_| Err("a panic".to_owned()));
    let found = found.and_then(|_| {
        let two = std::panic::catch_unwind(|| all_of_two(Order::FirstFirst, 1, mutants));
        two.unwrap_or_else(|_| Err("a panic".to_owned()))
    });
    let what = found.expect_err("the mistake is found");
    println!("{names:?}: {what}");
    what
}

#[test]
fn a_number_that_is_taken_by_a_rename_is_found() {
    found(&["rename_to_take"]);
}

#[test]
fn a_condition_that_is_evaluated_once_is_found() {
    found(&["evaluate_once"]);
}

#[test]
fn a_generation_that_is_removed_in_place_is_found() {
    found(&["remove_in_place"]);
}

#[test]
fn a_generation_that_comes_again_is_found() {
    found(&["build_outside"]);
    found(&["begin_unchecked"]);
}

/// A process may be held up inside of `link(2)`, when it has found the directory. Then the order of removals
/// keeps it from taking a number that was removed.
#[test]
fn a_directory_that_was_found_long_ago_is_of_no_use() {
    all_of_two(Order::FirstFirst, 1, planted(&["resolve_early"])).unwrap();
    found(&["resolve_early", "remove_in_any_order"]);
}
