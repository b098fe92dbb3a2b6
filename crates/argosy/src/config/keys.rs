//! Every key of a configuration file, and what was meant by one that is not there.

/// A key of the configuration.
pub(crate) struct Key {
    /// The section.
    pub section: &'static str,
    /// The key in it.
    pub name: &'static str,
    /// What it does.
    pub about: &'static str,
}

const fn key(section: &'static str, name: &'static str, about: &'static str) -> Key {
    Key {
        section,
        name,
        about,
    }
}

/// All keys. A test keeps this table and the types that are deserialised in step.
pub(crate) const KEYS: [Key; 43] = [
    key("server", "id", "This server's number in the region map."),
    key("server", "data-dir", "Where the device and the lock lie."),
    key("resp", "addr", "Where the Redis protocol is spoken."),
    key(
        "resp",
        "allow-remote",
        "Listen where other machines reach it, although no password is asked for.",
    ),
    key(
        "resp",
        "cross-region-exec",
        "A transaction over several regions is refused (refuse), or carried out in order without isolation (in-order).",
    ),
    key(
        "resp",
        "flush-all",
        "Whether FLUSHALL and FLUSHDB remove all keys; if not, they are refused.",
    ),
    key(
        "resp",
        "slowlog-log-slower-than",
        "Commands that waited at least this long are recorded for SLOWLOG.",
    ),
    key(
        "resp",
        "slowlog-max-len",
        "Commands that SLOWLOG keeps, the latest ones, up to 4096; 0: none is recorded.",
    ),
    key(
        "native",
        "threads",
        "Threads that serve native clients of this host; 0 for none.",
    ),
    key(
        "native",
        "spin",
        "How long such a thread looks for requests before it sleeps.",
    ),
    key(
        "native",
        "workers",
        "Threads that carry out what needs the device, for all clients; 0: those that read requests do.",
    ),
    key(
        "native",
        "queue",
        "Requests that may wait for a worker; then native clients with more have to wait.",
    ),
    key("admin", "addr", "Where /livez and /readyz are answered."),
    key(
        "admin",
        "hosts",
        "Names under which others reach the admin port, beside its address and those of this machine.",
    ),
    key(
        "coordinator",
        "dir",
        "The directory with the region map, shared by all servers.",
    ),
    key(
        "fabric",
        "shm-dir",
        "Shared memory of all servers, on a tmpfs.",
    ),
    key(
        "memory",
        "limit",
        "All memory: memtables, caches, log windows, rings, clients. Default: half of what there is.",
    ),
    key(
        "memory",
        "awake-regions",
        "Regions of which this server is primary that are written to at one time. The same on all servers.",
    ),
    key(
        "storage",
        "device-bytes",
        "Size of the device, when it is first made.",
    ),
    key(
        "storage",
        "l0-bytes",
        "Memtable bytes, divided over the regions of which this server keeps memtables; up to 3 exist of each.",
    ),
    key(
        "storage",
        "l0-per-replica",
        "Under build-index: divide by the regions that this server is primary of alone.",
    ),
    key(
        "storage",
        "placement",
        "Where values lie: hybrid, in-place or separated.",
    ),
    key(
        "storage",
        "large-bytes",
        "With hybrid: pairs of at least this many bytes are in the large log.",
    ),
    key(
        "storage",
        "growth-factor",
        "How many times larger a level is than the one above.",
    ),
    key(
        "storage",
        "medium-log-percent",
        "What the medium log may take, in hundredths of what the levels take; 0: there is none.",
    ),
    key(
        "storage",
        "compaction",
        "What a compaction takes: partial (a part of a level) or whole-level (all, as one tree).",
    ),
    key(
        "storage",
        "max-space-amplification",
        "What a region may take of what lives in it before garbage is collected.",
    ),
    key(
        "storage",
        "node-bytes",
        "Bytes of a leaf; equal on all servers.",
    ),
    key(
        "storage",
        "flush-interval",
        "How long a write may stay off the device.",
    ),
    key(
        "storage",
        "background-threads",
        "Threads that flush, merge and look after regions, each one region at a time.",
    ),
    key(
        "storage",
        "scrub-period",
        "How long it takes to read and check everything that is stored; 0: it is not done.",
    ),
    key(
        "storage",
        "scrub-rate",
        "Most bytes that are read for that in a second.",
    ),
    key(
        "replication",
        "deadline",
        "How long a request waits for members or room; then it fails, a write as unknown or not applied.",
    ),
    key(
        "failover",
        "enabled",
        "Whether regions move away from servers that fail. A primary then answers while it holds leases; equal on all.",
    ),
    key(
        "failover",
        "session-timeout",
        "How long nothing may be heard of a server before others take it for lost.",
    ),
    key(
        "failover",
        "remove-after",
        "After this time away, a member is removed from its group.",
    ),
    key(
        "failover",
        "replace-after",
        "How long a group has had too few members before another server is given a copy.",
    ),
    key(
        "failover",
        "min-copies",
        "No change leaves a group with fewer members.",
    ),
    key(
        "failover",
        "lease",
        "How long the leases last that servers grant each other; equal on all servers.",
    ),
    key(
        "failover",
        "clock-drift-ppm",
        "By how much clocks drift at most, in millionths of the time that passes.",
    ),
    key(
        "failover",
        "wait",
        "How long, of replication.deadline, a request waits for a primary; then it fails as not applied.",
    ),
    key(
        "log",
        "level",
        "error, warn, info, debug or trace; ARGOSY_LOG goes before it.",
    ),
    key(
        "log",
        "format",
        "How lines look: text, or json, an object each.",
    ),
];

/// Keys without a default, by section and name.
pub(crate) const REQUIRED: [(&str, &str); 4] = [
    ("server", "id"),
    ("server", "data-dir"),
    ("coordinator", "dir"),
    ("fabric", "shm-dir"),
];

/// The name among `names` that is nearest to `wrong`, if any is near enough to be meant.
pub(crate) fn nearest<'a>(wrong: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, name) = names.map(|name| (distance(wrong, name), name)).min()?;
    // A third of the letters wrong is a typing error; more is another word.
    (distance <= wrong.len().max(name.len()).div_ceil(3)).then_some(name)
}

/// How many letters have to be changed, added, left out or swapped with their neighbour.
fn distance(a: &str, b: &str) -> usize {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    let mut before_last = vec![0; b.len() + 1];
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let changed = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = changed.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before_last[j - 2] + 1);
            }
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_understood_and_other_words_are_not() {
        let names = || KEYS.iter().map(|key| key.name);
        assert_eq!(nearest("l0-byte", names()), Some("l0-bytes"));
        assert_eq!(nearest("placemnet", names()), Some("placement"));
        assert_eq!(nearest("data_dir", names()), Some("data-dir"));
        assert_eq!(nearest("shards", names()), None);
    }

    #[test]
    fn distances_count_letters() {
        for (a, b, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("abc", "acb", 1),
            ("", "ab", 2),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
