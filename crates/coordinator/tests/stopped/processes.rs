//! Real processes that stop or kill themselves before a chosen operation on files. This program starts
//! itself again as such a process: see [`child`].

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

use argosy_coordinator::{Embedded, EmbeddedSettings, Entry};
use nix::sys::signal::{Signal, kill, raise};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::history::{Actor, LIST, TIMEOUT, Told, Written, judge, member};
use super::threads::scratch;

/// What the process is told by its environment: the coordinator's directory, before which operation it
/// raises which signal, and into which file it writes what it was told.
const DIR: &str = "ARGOSY_TEST_COORDINATOR";
const AT: &str = "ARGOSY_TEST_AT";
const SIGNAL: &str = "ARGOSY_TEST_SIGNAL";
const TOLD: &str = "ARGOSY_TEST_TOLD";

/// Transactions of a generation.
const TRANSACTIONS_MAX: usize = 2;

fn open(dir: &Path, name: u32, hook: Option<Box<dyn FnMut(&'static str) + Send>>) -> Actor {
    let settings = EmbeddedSettings {
        transactions_max: TRANSACTIONS_MAX,
        hook,
        ..EmbeddedSettings::default()
    };
    let handle = Embedded::open_with(dir, u128::from(name), settings);
    Actor::new(handle.expect("it opens"), name)
}

/// What the other process does: it appends over generations, has a session, and appends under it. Without
/// the environment of such a process this is no test.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(DIR) else {
        return;
    };
    let setting = |name| std::env::var(name).expect("the whole environment is set");
    let mut left: usize = setting(AT).parse().expect("a number");
    let signal = match &*setting(SIGNAL) {
        "stop" => Signal::SIGSTOP,
        _ => Signal::SIGKILL,
    };
    let hook = move |_| {
        left = left.wrapping_sub(1);
        if left == usize::MAX {
            raise(signal).expect("a process may signal itself");
        }
    };
    let mut actor = open(Path::new(&dir), 1, Some(Box::new(hook)));
    for _ in 0..2 * TRANSACTIONS_MAX {
        actor.append();
    }
    actor.appear();
    actor.append();
    let lines = actor.written.iter().map(|written| match written.told {
        Told::There(place) => format!("{} {place}\n", written.word),
        Told::NotThere => format!("{} not\n", written.word),
        Told::Unknown => format!("{} unknown\n", written.word),
    });
    std::fs::write(setting(TOLD), lines.collect::<String>()).expect("it is written");
}

/// What the other process has written down.
fn told(path: &Path) -> Vec<Written> {
    let text = std::fs::read_to_string(path).expect("it ended well");
    let written = text.lines().map(|line| {
        let (word, told) = line.split_once(' ').expect("two words");
        Written {
            word: word.to_owned(),
            told: match told {
                "not" => Told::NotThere,
                "unknown" => Told::Unknown,
                place => Told::There(place.parse().expect("a number")),
            },
        }
    });
    written.collect()
}

/// A process. It is killed when it is dropped.
struct Process(Pid);

impl Process {
    fn start(environment: [(&str, OsString); 4]) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let started = Command::new(program)
            .args(["--exact", "processes::child"])
            .envs(environment)
            .stdout(Stdio::null())
            .spawn();
        let id = started.expect("it starts").id();
        Self(Pid::from_raw(
            i32::try_from(id).expect("process ids are small"),
        ))
    }

    /// Waits until it has stopped or ended.
    fn wait(&self) -> WaitStatus {
        waitpid(self.0, Some(WaitPidFlag::WUNTRACED)).expect("it is our child")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ = kill(self.0, Signal::SIGKILL);
        let _ = waitpid(self.0, None);
    }
}

/// Runs a process until its operation `at`, does the work of another one, and lets it go on if it
/// still is. False: it has no such operation.
fn run(at: usize, signal: &str) -> bool {
    let scratch = scratch();
    let dir = scratch.path().join("coordinator");
    let told_at = scratch.path().join("told");
    let process = Process::start([
        (DIR, dir.clone().into()),
        (AT, at.to_string().into()),
        (SIGNAL, signal.into()),
        (TOLD, told_at.clone().into()),
    ]);
    let status = process.wait();
    let mut other = open(&dir, 2, None);
    for _ in 0..4 * TRANSACTIONS_MAX {
        other.append();
    }
    other.appear();
    other.pass(3 * TIMEOUT);
    assert_eq!(other.read(&member(1)), Entry::default(), "operation {at}");
    other.append();
    let mut written = other.written.clone();
    let has_stopped = match status {
        WaitStatus::Stopped(_, Signal::SIGSTOP) => {
            kill(process.0, Signal::SIGCONT).expect("it is there");
            let status = process.wait();
            assert!(
                matches!(status, WaitStatus::Exited(_, 0)),
                "{at}: {status:?}"
            );
            written.extend(told(&told_at));
            true
        }
        WaitStatus::Signaled(_, Signal::SIGKILL, _) => true,
        WaitStatus::Exited(_, 0) => {
            written.extend(told(&told_at));
            false
        }
        status => panic!("operation {at}: {status:?}"),
    };
    let list = open(&dir, 3, None).read(LIST);
    if let Err(what) = judge(&list, &written) {
        panic!("operation {at}: {what}");
    }
    has_stopped
}

fn run_all(signal: &str) {
    let operations = (0..).take_while(|at| run(*at, signal)).count();
    assert!(operations > 100, "{operations} are too few");
}

#[test]
fn a_process_that_is_stopped_anywhere_holds_nobody_up() {
    run_all("stop");
}

#[test]
fn a_process_that_is_killed_anywhere_leaves_nothing_in_the_way() {
    run_all("kill");
}
