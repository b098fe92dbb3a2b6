//! Commands that tell of the server: `INFO`, `CONFIG`, `TIME`, `ROLE`, `CLUSTER`.
//!
//! `INFO` has the sections and fields of Redis that tools look for, where they mean something here;
//! then a section of limits, then what the server says of itself.

use std::fmt::Display;
use std::sync::atomic::Ordering;

use argosy_base::limits::{
    BATCH_BYTES_MAX, BATCH_PAIRS_MAX, KEY_BYTES_MAX, LONG_VALUE_BYTES_MAX, VALUE_BYTES_MAX,
};
use argosy_wire::resp::parse::REQUEST_BYTES_MAX;

use super::command::{Command, NO_KEYS, Step, Turn, unknown_subcommand, wrong_arity};
use super::front::REDIS_VERSION;
use super::glob;
use super::transactions;
use crate::meter::CommandCounts;
use crate::service::InfoSection;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "info",
        arity: -1,
        flags: "loading stale",
        keys: NO_KEYS,
        group: "server",
        summary: "Tells of the server, all of it or by section.",
        usage: "[section [section ...]]",
        run: info,
    },
    Command {
        name: "config",
        arity: -2,
        flags: "admin noscript loading stale",
        keys: NO_KEYS,
        group: "server",
        summary: "CONFIG GET pattern returns settings in the words of Redis.",
        usage: "GET pattern [pattern ...] | RESETSTAT",
        run: config,
    },
    Command {
        name: "time",
        arity: 1,
        flags: "loading stale fast",
        keys: NO_KEYS,
        group: "server",
        summary: "Returns seconds and microseconds since 1970.",
        usage: "",
        run: time,
    },
    Command {
        name: "role",
        arity: 1,
        flags: "noscript loading stale fast",
        keys: NO_KEYS,
        group: "server",
        summary: "Returns master: every server takes writes.",
        usage: "",
        run: role,
    },
    Command {
        name: "cluster",
        arity: -2,
        flags: "stale",
        keys: NO_KEYS,
        group: "server",
        summary: "Refused, as by a Redis that is no cluster.",
        usage: "subcommand",
        run: cluster,
    },
];

/// Lines of a section: name and value.
type Fields = Vec<(String, String)>;

fn info(turn: &mut Turn<'_>) -> Step {
    let wanted: Vec<Vec<u8>> = turn.args.from(1).map(<[u8]>::to_ascii_lowercase).collect();
    let names = |names: &[&str]| {
        let named = |wanted: &Vec<u8>| names.iter().any(|name| name.as_bytes() == wanted);
        wanted.iter().any(named)
    };
    let everything = names(&["all", "everything"]);
    let all = everything || wanted.is_empty() || names(&["default"]);
    let mut text = String::new();
    let mut add = |title: &str, fields: Fields| {
        if !text.is_empty() {
            text.push_str("\r\n");
        }
        text.push_str(&format!("# {title}\r\n"));
        for (name, value) in fields {
            text.push_str(&format!("{name}:{value}\r\n"));
        }
    };
    let is_wanted = |title: &str| {
        let named = names(&[&title.to_ascii_lowercase()]);
        named || everything || all && title != COMMAND_STATS
    };
    let mut told = turn.context.service.info();
    for (title, fields) in SECTIONS {
        if is_wanted(title) {
            let mut fields = fields(turn);
            // What the server says under the same title stands in the same section.
            let same = |(other, _): &mut InfoSection| other.eq_ignore_ascii_case(title);
            told.extract_if(.., same)
                .for_each(|(_, more)| fields.extend(more));
            if title == MEMORY {
                add_totals(&mut fields);
            }
            add(title, fields);
        }
    }
    let is_new = |(title, _): &InfoSection| {
        let mut titles = SECTIONS.iter().map(|(other, _)| other);
        !titles.any(|other| other.eq_ignore_ascii_case(title))
    };
    for (title, fields) in told.into_iter().filter(is_new) {
        if is_wanted(title) {
            add(title, fields);
        }
    }
    turn.core.reply(|out| out.verbatim(&text))
}

/// A section of `INFO`: its title, and what makes its fields.
type Section = (&'static str, fn(&Turn<'_>) -> Fields);

const MEMORY: &str = "Memory";
/// A section that is told only to those who ask for it, or for everything.
const COMMAND_STATS: &str = "Commandstats";

const SECTIONS: [Section; 10] = [
    ("Server", server),
    ("Clients", clients),
    (MEMORY, memory),
    ("Persistence", persistence),
    ("Stats", stats),
    ("Replication", replication),
    ("Cluster", cluster_section),
    ("Keyspace", |_| Vec::new()),
    (COMMAND_STATS, command_stats),
    ("Limits", limits),
];

fn field(name: &str, value: impl Display) -> (String, String) {
    (name.to_owned(), value.to_string())
}

fn server(turn: &Turn<'_>) -> Fields {
    let front = turn.context.front;
    let seconds = turn.context.now.since(front.started).as_secs();
    vec![
        field("redis_version", REDIS_VERSION),
        field("redis_mode", "standalone"),
        field("argosy_version", env!("CARGO_PKG_VERSION")),
        field("server_id", front.settings.server.0),
        field("incarnation", front.settings.incarnation.0),
        field("os", std::env::consts::OS),
        field("arch_bits", usize::BITS),
        field("process_id", std::process::id()),
        field("tcp_port", front.settings.port),
        field("uptime_in_seconds", seconds),
        field("uptime_in_days", seconds / (24 * 60 * 60)),
    ]
}

fn clients(turn: &Turn<'_>) -> Fields {
    let front = turn.context.front;
    vec![
        field("connected_clients", front.clients().len()),
        field("maxclients", front.settings.policy.connections_max),
        field("blocked_clients", 0),
    ]
}

fn memory(turn: &Turn<'_>) -> Fields {
    let front = turn.context.front;
    // Relaxed: a number for people.
    let clients = front.held_bytes();
    vec![
        field("maxmemory_policy", "noeviction"),
        field("mem_clients_normal", clients),
        field("maxmemory_clients", front.settings.memory_bytes_max),
    ]
}

/// What is in use, by the fields of `INFO memory`.
const IN_USE: [&str; 9] = [
    "memory_program",
    "memory_memtables",
    "memory_windows",
    "memory_links",
    "memory_native",
    "memory_answers",
    "memory_buffers",
    "memory_cache",
    "mem_clients_normal",
];

/// Puts in front what tools of Redis read: the sum of what is in use, and the limit.
fn add_totals(fields: &mut Fields) {
    let of = |name: &str| {
        let found = fields.iter().find(|(field, _)| field == name);
        found
            .and_then(|(_, value)| value.parse::<u64>().ok())
            .unwrap_or(0)
    };
    let (used, limit) = (
        IN_USE.iter().map(|name| of(name)).sum::<u64>(),
        of("memory_limit"),
    );
    let totals = [
        field("used_memory", used),
        field("used_memory_human", human(used)),
        field("maxmemory", limit),
        field("maxmemory_human", human(limit)),
    ];
    fields.splice(..0, totals);
}

/// Bytes as Redis has them for people: `1.50M`.
fn human(bytes: u64) -> String {
    const UNITS: [(u32, char); 4] = [(40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let unit = UNITS.iter().find(|(bits, _)| bytes >> bits > 0);
    let Some((bits, letter)) = unit else {
        return format!("{bytes}B");
    };
    let hundredths = (u128::from(bytes) * 100) >> bits;
    format!("{}.{:02}{letter}", hundredths / 100, hundredths % 100)
}

fn command_stats(turn: &Turn<'_>) -> Fields {
    let line = |of: CommandCounts| {
        let calls: u64 = of.answers.iter().sum();
        let [_, invalid, failed @ ..] = of.answers;
        // One call in some is timed.
        let each = of.took.as_nanos() / u128::from(of.timed.max(1));
        let all = each * u128::from(calls) / 1000;
        let value = format!(
            "calls={calls},usec={all},usec_per_call={}.{:02},rejected_calls={invalid},failed_calls={}",
            each / 1000,
            each % 1000 / 10,
            failed.iter().sum::<u64>()
        );
        (format!("cmdstat_{}", of.name), value)
    };
    turn.context.front.meter.by_command().map(line).collect()
}

fn persistence(turn: &Turn<'_>) -> Fields {
    let loading = u8::from(turn.context.service.ready().reads.is_some());
    vec![field("loading", loading), field("aof_enabled", 0)]
}

fn stats(turn: &Turn<'_>) -> Fields {
    let front = turn.context.front;
    let (hits, misses) = front.meter.hits_and_misses();
    // Relaxed: counters for people, each by itself.
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    vec![
        field("total_connections_received", load(&front.connections)),
        field("total_commands_processed", front.commands.total()),
        field(
            "instantaneous_ops_per_sec",
            front.commands.per_second(turn.context.now),
        ),
        field("keyspace_hits", hits),
        field("keyspace_misses", misses),
        field("rejected_connections", load(&front.refused)),
        field("evicted_clients", load(&front.evicted)),
    ]
}

fn replication(_: &Turn<'_>) -> Fields {
    vec![field("role", "master")]
}

fn cluster_section(_: &Turn<'_>) -> Fields {
    vec![field("cluster_enabled", 0)]
}

fn limits(turn: &Turn<'_>) -> Fields {
    let limits = turn.context.front.settings.limits;
    vec![
        field("max_key_bytes", KEY_BYTES_MAX),
        field("max_value_bytes", VALUE_BYTES_MAX),
        field("max_long_value_bytes", LONG_VALUE_BYTES_MAX),
        field("max_batch_pairs", BATCH_PAIRS_MAX),
        field("max_batch_bytes", BATCH_BYTES_MAX),
        field("max_request_bytes", REQUEST_BYTES_MAX),
        field("max_reply_bytes", limits.reply_bytes_max),
        field("max_pattern_bytes", glob::PATTERN_BYTES_MAX),
        field("max_transaction_commands", transactions::QUEUED_MAX),
        field("max_transaction_bytes", transactions::QUEUED_BYTES_MAX),
        field("max_watched_keys", transactions::WATCHED_MAX),
        field("max_in_flight", limits.in_flight_max),
        field("max_in_flight_bytes", limits.asked_bytes_max),
    ]
}

fn config(turn: &mut Turn<'_>) -> Step {
    let subcommand = turn.args.at(1).to_ascii_lowercase();
    match (subcommand.as_slice(), turn.args.len()) {
        (b"get", 3..) => config_get(turn),
        (b"get", _) => wrong_arity(turn, "config|get"),
        (b"resetstat", 2) => turn.core.reply(|out| out.simple("OK")),
        (b"set" | b"rewrite", _) => turn.core.error(
            "ERR settings cannot be changed while the server runs: change argosy.toml and restart \
             (not applied)",
        ),
        _ => unknown_subcommand(turn, "CONFIG"),
    }
}

fn config_get(turn: &mut Turn<'_>) -> Step {
    let settings = &turn.context.front.settings;
    let slow = settings.policy.slow_log;
    let told = turn.context.service.info();
    let mut fields = told.iter().flat_map(|(_, fields)| fields);
    let limit = fields.find(|(name, _)| name == "memory_limit");
    let limit = limit.map_or_else(|| "0".to_owned(), |(_, value)| value.clone());
    let all: [(&str, String); 12] = [
        ("appendfsync", "no".into()),
        ("appendonly", "no".into()),
        ("cluster-enabled", "no".into()),
        ("databases", "1".into()),
        ("maxclients", settings.policy.connections_max.to_string()),
        ("maxmemory", limit),
        ("port", settings.port.to_string()),
        ("proto-max-bulk-len", LONG_VALUE_BYTES_MAX.to_string()),
        ("save", String::new()),
        (
            "slowlog-log-slower-than",
            slow.slower_than.as_micros().to_string(),
        ),
        ("slowlog-max-len", slow.entries_max.to_string()),
        ("timeout", "0".into()),
    ];
    let patterns: Vec<Vec<u8>> = turn.args.from(2).map(<[u8]>::to_ascii_lowercase).collect();
    if patterns
        .iter()
        .any(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX)
    {
        let max = glob::PATTERN_BYTES_MAX;
        return turn.core.error(&format!(
            "ERR a pattern is over {max} bytes (max_pattern_bytes)"
        ));
    }
    let chosen: Vec<_> = all
        .iter()
        .filter(|(name, _)| {
            patterns
                .iter()
                .any(|pattern| glob::matches(pattern, name.as_bytes()))
        })
        .collect();
    turn.core.reply(|out| {
        out.map(chosen.len());
        for (name, value) in chosen {
            out.bulk(name.as_bytes());
            out.bulk(value.as_bytes());
        }
    })
}

fn time(turn: &mut Turn<'_>) -> Step {
    let wall = turn.context.wall;
    turn.core.reply(|out| {
        out.array(2);
        out.bulk(wall.as_secs().to_string().as_bytes());
        out.bulk(wall.subsec_micros().to_string().as_bytes());
    })
}

fn role(turn: &mut Turn<'_>) -> Step {
    turn.core.reply(|out| {
        out.array(3);
        out.bulk(b"master");
        out.integer(0);
        out.array(0);
    })
}

fn cluster(turn: &mut Turn<'_>) -> Step {
    turn.core
        .error("ERR This instance has cluster support disabled")
}
