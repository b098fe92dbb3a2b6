//! How much memory there is for a process: of the machine, or of its control group if that has less.
//!
//! Limits nest: a group has at most what those around it have, so all on the way up are looked at. They are
//! found as `/proc/self/cgroup` and `/proc/self/mountinfo` name them:
//!
//! ```text
//! version 1   MOUNT/PATH/memory.limit_in_bytes    a number; without a limit one near 2^63
//! version 2   MOUNT/PATH/memory.max               a number, or `max`
//! ```
//!
//! A container may see its own group as the root of what is mounted; then `PATH` is counted from there.

use std::path::{Path, PathBuf};

/// Bytes of memory that this process may take, together with all others of its control group: that of the
/// machine, or the least limit of the group and those around it. `None` where the system does not tell.
#[must_use]
pub fn memory_bytes() -> Option<u64> {
    memory_below(Path::new("/"))
}

/// What there is for a process whose `/proc` and `/sys` lie below `root`.
fn memory_below(root: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap_or_default();
    let machine = machine_bytes(&read("proc/meminfo"));
    let (groups, mounts) = (read("proc/self/cgroup"), read("proc/self/mountinfo"));
    let limits = mounts.lines().filter_map(|line| {
        let mount = Mount::parse(line)?;
        least_limit(root, &mount, mount.path_among(&groups)?)
    });
    machine.into_iter().chain(limits).min()
}

fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Where a hierarchy of control groups is mounted that limits memory.
struct Mount {
    /// The group that lies at `point`.
    root: PathBuf,
    point: PathBuf,
    is_v2: bool,
}

impl Mount {
    /// ID PARENT MAJOR:MINOR ROOT POINT OPTIONS … - TYPE SOURCE OPTIONS
    fn parse(line: &str) -> Option<Self> {
        let (before, behind) = line.split_once(" - ")?;
        let mut before = before.split(' ').skip(3);
        let mut behind = behind.split(' ');
        let (root, point) = (before.next()?, before.next()?);
        let is_v2 = match behind.next()? {
            "cgroup2" => true,
            "cgroup" if behind.nth(1)?.split(',').any(|option| option == "memory") => false,
            _ => return None,
        };
        let (root, point) = (root.into(), point.into());
        Some(Self { root, point, is_v2 })
    }

    /// This process's group in the hierarchy, as `/proc/self/cgroup` has it: ID:CONTROLLERS:PATH, without
    /// controllers of version 2.
    fn path_among<'a>(&self, groups: &'a str) -> Option<&'a Path> {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            let mine = match self.is_v2 {
                true => controllers.is_empty(),
                false => controllers.split(',').any(|name| name == "memory"),
            };
            mine.then_some(Path::new(path))
        })
    }
}

/// The least limit of the group `path` and those around it, as far as they can be seen.
fn least_limit(root: &Path, mount: &Mount, path: &Path) -> Option<u64> {
    let seen = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
    // A group outside of what is mounted cannot be seen; what is mounted is around it.
    let below = path.strip_prefix(&mount.root).unwrap_or(Path::new(""));
    let top = seen(&mount.point);
    let group = top.join(below);
    let name = match mount.is_v2 {
        true => "memory.max",
        false => "memory.limit_in_bytes",
    };
    let around = group
        .ancestors()
        .take_while(|group| group.starts_with(&top));
    around
        .filter_map(|group| {
            let text = std::fs::read_to_string(group.join(name)).ok()?;
            text.trim().parse().ok()
        })
        .min()
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
