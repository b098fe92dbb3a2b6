//! What the heads of the tables mean, for whoever reads one for the first time.

/// The heads of both tables, and what stands below each.
const HEADS: [(&str, &str); 27] = [
    ("engine", "lsm, or the name of another store"),
    (
        "workload",
        "of YCSB: load-a fills the store, run-a to run-g ask it",
    ),
    (
        "mix",
        "the sizes of pairs: s small, m medium, l large, d with most of that size",
    ),
    (
        "placement",
        "where values lie: in leaves, in logs, or by their size",
    ),
    (
        "compaction",
        "in the first table: what a compaction takes, a part of a level or all of it",
    ),
    ("replication", "how the members of a region become equal"),
    ("address", "what pointers between segments hold"),
    (
        "kops/s",
        "thousand operations a second, the drain after the last one included",
    ),
    (
        "cpu us/op",
        "microseconds of CPU an operation, of all servers together",
    ),
    ("compact", "how many of these went into compactions"),
    (
        "client",
        "the same of the clients, which are not in cpu us/op",
    ),
    (
        "p50 us",
        "half of all operations took at most so many microseconds",
    ),
    ("p99 us", "99 % did"),
    ("p99.9 us", "99.9 % did"),
    ("p99.99 us", "99.99 % did"),
    (
        "io amp",
        "bytes read from and written to devices, for each byte that was asked for or written",
    ),
    (
        "no logs",
        "the same without logs that only recovery reads; - where that is not known",
    ),
    (
        "net amp",
        "bytes that servers sent each other, for each byte that was asked for or written",
    ),
    (
        "rss MiB",
        "the peak of resident memory, of all servers together",
    ),
    (
        "lv/cmp",
        "the deepest level that holds anything, and how many compactions there were",
    ),
    (
        "server",
        "whose CPU the line is about; all of them together, and the sum over what it went into:",
    ),
    ("request", "requests of clients"),
    ("log repl", "sending records to backups, and writing logs"),
    (
        "index ship",
        "sending finished segments to backups, and taking them",
    ),
    ("rewrite", "rewriting pointers in segments that came"),
    ("other", "anything else"),
    (
        "sum",
        "of these and of compaction: cpu us/op, but for threads that serve nobody",
    ),
];

/// The heads, a line each.
#[must_use]
pub fn explained() -> String {
    let lines = HEADS.map(|(head, text)| format!("  {head:<11} {text}"));
    format!("heads:\n{}", lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{activity_table, table_header};

    /// Every head of the tables is explained, and nothing else is.
    #[test]
    fn every_head_is_explained() {
        let mut heads = format!("{} {}", table_header(), activity_table(&[]));
        let mut longest_first = HEADS.map(|(head, _)| head);
        longest_first.sort_by_key(|head| std::cmp::Reverse(head.len()));
        for head in longest_first {
            assert!(heads.contains(head), "{head} is no head");
            heads = heads.replace(head, "");
        }
        assert_eq!(heads.trim(), "", "these are not explained");
    }
}
