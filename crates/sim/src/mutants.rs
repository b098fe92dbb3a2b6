//! The seeds that are known to find each planted mistake: a table, and how it is checked and made anew.
//!
//! ```text
//! # prose
//! NAME SEED
//! NAME SEED PROFILE
//! NAME elsewhere
//! NAME nowhere
//! ```
//!
//! Where a profile is named, the seed is one of it. A mistake that is found *elsewhere* is found by a test of its
//! crate, and neither checked nor looked for here. Of one that is found *nowhere* no seed is known: that is told, and
//! `make mutants` looks for one.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use argosy_sim::{Mutants, Profile};
use parking_lot::Mutex;

use crate::say;
use crate::workers::{Outcome, Workers};

/// What stands in front of the table.
const HEAD: &str = "\
# A seed of the simulator that finds each planted mistake. `make mutants-recorded` checks that each still
# does; `make mutants` looks for others where one does not, and writes this file. A name behind the seed: it is
# one of that profile. Elsewhere: a test of its crate finds it. Nowhere: no seed is known that does.
";

/// How many other seeds are tried where the recorded one finds a mistake no more. A run goes another way once
/// anything in it comes sooner or later; that a mistake can be found is what has to hold.
const OTHERS_MAX: u64 = 120;

/// See the module documentation.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Table(BTreeMap<String, Finder>);

/// What finds a mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Finder {
    Seed(u64, Profile),
    Elsewhere,
    Nowhere,
}

impl Finder {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "elsewhere" => Some(Self::Elsewhere),
            "nowhere" => Some(Self::Nowhere),
            seed => {
                let (seed, profile) = seed.split_once(' ').unwrap_or((seed, "usual"));
                let profile = Profile::named(profile.trim())?;
                seed.parse().ok().map(|seed| Self::Seed(seed, profile))
            }
        }
    }
}

impl fmt::Display for Finder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seed(seed, Profile::Usual) => write!(f, "{seed}"),
            Self::Seed(seed, profile) => write!(f, "{seed} {}", profile.name()),
            Self::Elsewhere => f.write_str("elsewhere"),
            Self::Nowhere => f.write_str("nowhere"),
        }
    }
}

impl Table {
    /// The table that `text` is.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut table = BTreeMap::new();
        for line in lines {
            let parts = line
                .split_once(' ')
                .and_then(|(name, finder)| Some((name.to_owned(), Finder::parse(finder.trim())?)));
            let (name, finder) = parts.ok_or_else(|| format!("not a name and a seed: {line}"))?;
            if !Mutants::names().any(|known| known == name) {
                return Err(format!("no such mistake: {name}"));
            }
            if table.insert(name, finder).is_some() {
                return Err(format!("listed twice: {line}"));
            }
        }
        Ok(Self(table))
    }

    /// As it is written.
    fn to_text(&self) -> String {
        let lines = self.0.iter();
        let lines = lines.map(|(name, finder)| format!("{name} {finder}\n"));
        HEAD.to_owned() + &lines.collect::<String>()
    }

    /// Checks that each mistake is found by its seed, or by one of the first [`OTHERS_MAX`] of its profile, `jobs`
    /// at a time. Returns whether all are.
    pub(crate) fn check(&self, jobs: usize) -> bool {
        let missed = each(jobs, |name| match self.0.get(name) {
            Some(Finder::Elsewhere) => false,
            Some(Finder::Nowhere) => {
                say(&format!("{name}: no seed is known that finds it\n"));
                false
            }
            Some(finder @ Finder::Seed(seed, profile)) => {
                if found(name, *seed, 1, *profile).is_some() {
                    say(&format!("{name} was found by seed {finder}\n"));
                    return false;
                }
                let others = match profile {
                    Profile::Usual => OTHERS_MAX,
                    _ => OTHERS_MAX.min(profile.seeds()),
                };
                if let Some(other) = found(name, 1, others, *profile) {
                    say(&format!(
                        "{name} was found by seed {other}, and is not by seed {finder} any more\n"
                    ));
                    return false;
                }
                say(&format!(
                    "{name} is not found by seed {finder} any more, nor by {others} others\n"
                ));
                true
            }
            None => {
                say(&format!("{name} is not in the table\n"));
                true
            }
        });
        if missed {
            say("`make mutants` looks for seeds that find what was missed, and records them\n");
        }
        !missed
    }

    /// Finds a seed for each mistake: the one that is known, or the first of `seeds`. Returns whether all
    /// were found that had been before.
    pub(crate) fn search(&mut self, seeds: u64, jobs: usize) -> bool {
        let table = Mutex::new(std::mem::take(&mut self.0));
        let lock = || table.lock();
        let missed = each(jobs, |name| {
            let known = lock().get(name).copied();
            let again = match known {
                Some(Finder::Elsewhere) => return false,
                Some(Finder::Seed(seed, profile)) => found(name, seed, 1, profile),
                Some(Finder::Nowhere) | None => None,
            };
            // First among the seeds of the profile in which one was known. Where none was, each profile may have one.
            let profiles = match known {
                Some(Finder::Seed(_, Profile::Usual)) => vec![Profile::Usual, Profile::WhenDue],
                Some(Finder::Seed(_, profile)) => vec![profile, Profile::Usual],
                Some(Finder::Elsewhere | Finder::Nowhere) | None => Profile::ALL.to_vec(),
            };
            let mut another = profiles.into_iter().filter_map(|profile| match profile {
                Profile::Usual => found(name, 1, seeds, profile),
                _ => found(name, 1, profile.seeds(), profile),
            });
            if let Some(finder) = again.or_else(|| another.next()) {
                say(&format!("{name} was found by seed {finder}\n"));
                lock().insert(name.to_owned(), finder);
                return false;
            }
            say(&format!("{name} was not found by {seeds} seeds\n"));
            let before = lock().insert(name.to_owned(), Finder::Nowhere);
            before != Some(Finder::Nowhere)
        });
        self.0 = table.into_inner();
        !missed
    }

    /// Writes it to `path`.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.to_text())
    }
}

/// The first of `seeds` seeds from `first` that finds the mistake, of this profile.
fn found(name: &str, first: u64, seeds: u64, profile: Profile) -> Option<Finder> {
    let workers = Workers {
        first,
        seeds,
        profile,
        jobs: 1,
        mutant: Some(name.to_owned()),
    };
    let mut found = None;
    workers.run(|seed, outcome| {
        // An assertion may be faster than a checker; that does not count.
        if matches!(outcome, Outcome::Wrong(_)) {
            found.get_or_insert(Finder::Seed(seed, profile));
        }
        found.is_none()
    });
    found
}

/// Does `what` for every mistake, `jobs` at a time. Returns whether it answered true for any.
fn each(jobs: usize, what: impl Fn(&str) -> bool + Sync) -> bool {
    let names: Vec<String> = Mutants::names().collect();
    let (next, any) = (AtomicUsize::new(0), Mutex::new(false));
    let work = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let is = what(name);
            *any.lock() |= is;
        }
    };
    std::thread::scope(|scope| {
        for job in 0..jobs {
            let builder = std::thread::Builder::new().name(format!("mistakes {job}"));
            let started = builder.spawn_scoped(scope, work);
            started.expect("a handful of threads can be started");
        }
    });
    any.into_inner()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_table_names_mistakes_that_are_there() {
        let table = Table::parse(include_str!("../mutants.txt")).expect("a table");
        let missing: Vec<_> = Mutants::names()
            .filter(|name| !table.0.contains_key(name))
            .collect();
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        let table = Table::parse(
            "# prose\n\nskip-rewrite 7\nacknowledge-early 12 when-due\nreuse-early elsewhere\ncount-twice nowhere\n",
        );
        let table = table.expect("a table");
        assert_eq!(table.0.len(), 4);
        assert_eq!(Table::parse(&table.to_text()), Ok(table));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        for text in [
            "skip-rewrite",
            "skip-rewrite x",
            "skip-rewrite 1 no-profile",
            "no-such-mistake 1",
        ] {
            assert!(Table::parse(text).is_err(), "{text}");
        }
        assert!(Table::parse("skip-rewrite 1\nskip-rewrite 2").is_err());
    }
}
