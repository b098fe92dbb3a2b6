//! Many seeds in several processes: a seed that ends its process does not end the run.
//!
//! A worker is this program with `--worker` and a few seeds. It tells on its standard output, in
//! lines, how they went:
//!
//! ```text
//! begin SEED
//! count NUMBER NAME          (any number of times)
//! passed | wrong TEXT        (line ends in TEXT as " / ")
//! ```

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use argosy_sim::coverage::Coverage;
use argosy_sim::{Profile, RunReport};

/// Seeds that a worker is given at a time.
const CHUNK: u64 = 8;

/// How a seed went.
pub(crate) enum Outcome {
    /// Nothing was wrong, and this has happened.
    Passed(Coverage),
    /// A checker found this.
    Wrong(String),
    /// The process ended: an assertion, most likely, which told why.
    Died,
}

/// A run of many seeds.
pub(crate) struct Workers {
    /// The first seed.
    pub(crate) first: u64,
    /// How many.
    pub(crate) seeds: u64,
    /// What they stand for.
    pub(crate) profile: Profile,
    /// Processes at a time; 0: one for each CPU.
    pub(crate) jobs: usize,
    /// The planted mistake, if there is one.
    pub(crate) mutant: Option<String>,
}

/// A worker begins with `seed`.
pub(crate) fn begin(seed: u64) {
    line(&format!("begin {seed}"));
}

/// A worker tells how its seed went.
pub(crate) fn tell(report: &RunReport) {
    match &report.wrong {
        Some(wrong) => line(&format!("wrong {}", wrong.trim_end().replace('\n', " / "))),
        None => {
            for (name, count) in report.coverage.all() {
                line(&format!("count {count} {name}"));
            }
            line("passed");
        }
    }
}

fn line(text: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever does not listen any more will end this process.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

impl Workers {
    /// Runs all seeds, and hands each outcome to `take` as it comes, in any order, until that
    /// answers false.
    pub(crate) fn run(&self, mut take: impl FnMut(u64, Outcome) -> bool) {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let jobs = if self.jobs == 0 { cpus } else { self.jobs };
        let next = AtomicU64::new(self.first);
        let enough = AtomicBool::new(false);
        let (sender, receiver) = mpsc::channel();
        std::thread::scope(|scope| {
            for job in 0..jobs {
                let (next, enough, sender) = (&next, &enough, sender.clone());
                let name = format!("worker {job}");
                std::thread::Builder::new()
                    .name(name)
                    .spawn_scoped(scope, move || self.work(next, enough, &sender))
                    .expect("a handful of threads can be started");
            }
            drop(sender);
            for (seed, outcome) in receiver {
                if !take(seed, outcome) {
                    enough.store(true, Ordering::Relaxed);
                }
            }
        });
    }

    /// Takes seeds, a few at a time, until there are none.
    fn work(&self, next: &AtomicU64, enough: &AtomicBool, sender: &mpsc::Sender<(u64, Outcome)>) {
        let end = self.first.saturating_add(self.seeds);
        loop {
            let mut from = next.fetch_add(CHUNK, Ordering::Relaxed);
            let to = from.saturating_add(CHUNK).min(end);
            // A worker that died is followed by another one behind the seed that it died of.
            while from < to && !enough.load(Ordering::Relaxed) {
                from = self.chunk(from, to, sender);
            }
            if to == end || enough.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Runs seeds `from..to` in a process. Returns the first that is left.
    fn chunk(&self, from: u64, to: u64, sender: &mpsc::Sender<(u64, Outcome)>) -> u64 {
        let program = std::env::current_exe().expect("a running program has a path");
        let mut command = Command::new(program);
        command.args(["--worker", "--first", &from.to_string()]);
        command.args(["--seeds", &(to - from).to_string()]);
        command.args(["--profile", self.profile.name()]);
        command.args(self.mutant.iter().flat_map(|name| ["--mutant", name]));
        let mut child = command
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started again");
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let (mut left, mut coverage) = (from, Coverage::default());
        for line in output.lines().map_while(Result::ok) {
            let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
            let outcome = match word {
                "count" => {
                    let (count, name) = rest.split_once(' ').expect("a number and a name");
                    coverage.add_named(name, count.parse().expect("a number"));
                    continue;
                }
                "passed" => Outcome::Passed(std::mem::take(&mut coverage)),
                "wrong" => Outcome::Wrong(rest.replace(" / ", "\n")),
                _ => continue,
            };
            // Nobody listens any more once enough is known.
            let _ = sender.send((left, outcome));
            left += 1;
        }
        let ended = child.wait().is_ok_and(|status| status.success());
        if !ended && left < to {
            let _ = sender.send((left, Outcome::Died));
            return left + 1;
        }
        left.max(if ended { to } else { left })
    }
}
