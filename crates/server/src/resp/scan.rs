//! Commands that go through keys in order: `SCAN`, `KEYS`, `KV.RANGE`, `KV.PREFIX`; and `KV.DELRANGE`, `KV.BATCH`,
//! `KV.INGEST`.
//!
//! `SCAN` reads one page a call and hands out a cursor for the next (see [`super::cursors`]). The
//! others read page after page until the limit or the end, up to the longest reply; a reply is never
//! cut short silently. Where a pattern begins with plain bytes, only keys that begin so are read.

use argosy_base::limits::KEY_BYTES_MAX;
use argosy_base::{Direction, KeyRange};
use argosy_engine::{Expiry, WriteOptions};
use argosy_wire::api::Plan;

use super::command::{Command, NO_KEYS, Step, Turn, number, shown, syntax_error};
use super::expiry::Unit;
use super::glob::{self, PATTERN_BYTES_MAX};
use super::reply::{Gather, RangeGather};
use super::snapshots::name_of;
use super::strings::{put_all, refuse};
use crate::service::Paging;

/// Most keys that one `SCAN` reads, whatever its `COUNT`.
const SCAN_KEYS_MAX: u64 = 10_000;
/// Keys that one `SCAN` reads without a `COUNT`, as in Redis.
const SCAN_KEYS: u64 = 10;
/// Bytes of keys that one `SCAN` reads at most. Bounds the time of matching, too.
const SCAN_BYTES: usize = 256 << 10;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "scan",
        arity: -2,
        flags: "readonly",
        keys: NO_KEYS,
        group: "generic",
        summary: "Goes through the keys, in key order, a page a call.",
        usage: "cursor [MATCH pattern] [COUNT count] [TYPE type]",
        run: scan,
    },
    Command {
        name: "keys",
        arity: 2,
        flags: "readonly",
        keys: NO_KEYS,
        group: "generic",
        summary: "Returns all keys that match a pattern, if they fit one reply.",
        usage: "pattern",
        run: keys,
    },
    Command {
        name: "kv.range",
        arity: -3,
        flags: "readonly",
        keys: NO_KEYS,
        group: "kv",
        summary: "Returns keys and values in key order, or with REV from the highest key down. An \
                  empty bound, - or + is no bound.",
        usage: "from to [LIMIT count] [REV] [KEYSONLY] [SNAPSHOT snapshot]",
        run: range,
    },
    Command {
        name: "kv.prefix",
        arity: -2,
        flags: "readonly",
        keys: NO_KEYS,
        group: "kv",
        summary: "Returns the keys that begin so, and their values, in key order, or with REV from the \
                  highest key down.",
        usage: "prefix [LIMIT count] [REV] [KEYSONLY] [SNAPSHOT snapshot]",
        run: prefix,
    },
    Command {
        name: "kv.delrange",
        arity: 3,
        flags: "write",
        keys: NO_KEYS,
        group: "kv",
        summary: "Removes all keys of a range, atomically within each region, without looking at them. \
                  From - on, or up to + there is no bound.",
        usage: "from to",
        run: delete_range,
    },
    Command {
        name: "flushall",
        arity: -1,
        flags: "write",
        keys: NO_KEYS,
        group: "server",
        summary: "Removes all keys, unless that is forbidden.",
        usage: "[ASYNC | SYNC]",
        run: flush_all,
    },
    Command {
        name: "flushdb",
        arity: -1,
        flags: "write",
        keys: NO_KEYS,
        group: "server",
        summary: "The same: there is one database.",
        usage: "[ASYNC | SYNC]",
        run: flush_all,
    },
    Command {
        name: "kv.batch",
        arity: -3,
        flags: "write denyoom",
        keys: NO_KEYS,
        group: "kv",
        summary: "Writes and removes keys and ranges of one region, all of them or none.",
        usage: "SET key value [PX milliseconds] | DEL key | DELRANGE from to ...",
        run: batch,
    },
    Command {
        name: "kv.ingest",
        arity: -3,
        flags: "write denyoom",
        keys: (1, -1, 2),
        group: "kv",
        summary: "Takes pairs, by rising keys, straight into the levels, where nothing is bound between the \
                  first and the last of them.",
        usage: "key value [key value ...]",
        run: ingest,
    },
];

/// Pairs by rising keys, which become segments without a log.
fn ingest(turn: &mut Turn<'_>) -> Step {
    turn.scratch.batch.clear();
    match put_all(turn, "kv.ingest") {
        Ok(()) => Step::Call(Plan::Ingest, Gather::Stored),
        Err(step) => step,
    }
}

/// A batch that is read from arguments: `SET key value [PX milliseconds]`, `DEL key` and `DELRANGE from to`, in
/// any number.
fn batch(turn: &mut Turn<'_>) -> Step {
    let batch = &mut turn.scratch.batch;
    batch.clear();
    batch.keep_together();
    let mut args = turn.args.from(1).peekable();
    while let Some(word) = args.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let added = match (args.next(), is("set"), is("del")) {
            (Some(from), _, _) if is("delrange") => {
                let Some(to) = args.next() else {
                    return syntax_error(turn);
                };
                match doomed(from, to) {
                    Ok(range) => batch.delete_range(&range),
                    Err(text) => return turn.core.error(text),
                }
            }
            (Some(key), true, _) => {
                let Some(value) = args.next() else {
                    return syntax_error(turn);
                };
                let mut expiry = Expiry::Never;
                if args
                    .next_if(|word| word.eq_ignore_ascii_case(b"px"))
                    .is_some()
                {
                    expiry = match args
                        .next()
                        .map(|number| Unit::Px.future(number, "kv.batch"))
                    {
                        Some(Ok(expiry)) => expiry,
                        Some(Err(text)) => return turn.core.error(&text),
                        None => return syntax_error(turn),
                    };
                }
                batch.put_until(key, value, expiry)
            }
            (Some(key), _, true) => batch.delete(key),
            _ => {
                return turn.core.error(
                    "ERR syntax error: a batch is made of SET key value [PX milliseconds], DEL key and \
                     DELRANGE from to",
                );
            }
        };
        if let Err(error) = added {
            return refuse(turn, error);
        }
    }
    Step::Call(Plan::Write(WriteOptions::default()), Gather::Stored)
}

/// What `SCAN` was asked for.
struct ScanOptions {
    pattern: Option<Vec<u8>>,
    count: u64,
    /// Keys of this type alone.
    kind: Option<String>,
}

fn scan(turn: &mut Turn<'_>) -> Step {
    let Some(cursor) = number(turn.args.at(1)) else {
        return turn.core.error("ERR invalid cursor");
    };
    let options = match scan_options(turn) {
        Ok(options) => options,
        Err(step) => return step,
    };
    let from = match cursor {
        0 => Vec::new(),
        cursor => match turn.context.front.cursors().resolve(cursor) {
            Some(key) => key,
            None => return unknown_cursor(turn, cursor),
        },
    };
    let range = restrict(from, options.pattern.as_deref());
    if range.is_empty() {
        return turn.core.reply(|out| {
            out.array(2);
            out.bulk(b"0");
            out.array(0);
        });
    }
    turn.scratch.range = range;
    let plan = Plan::Scan(Paging {
        direction: Direction::Up,
        pairs_max: usize::try_from(options.count.min(SCAN_KEYS_MAX)).unwrap_or(usize::MAX),
        bytes_max: SCAN_BYTES,
        // A head tells the type.
        keys_only: options.kind.is_none(),
        at: None,
    });
    let ScanOptions { pattern, kind, .. } = options;
    Step::Call(plan, Gather::Page(pattern, kind))
}

fn scan_options(turn: &mut Turn<'_>) -> Result<ScanOptions, Step> {
    let mut options = ScanOptions {
        pattern: None,
        count: SCAN_KEYS,
        kind: None,
    };
    let mut args = turn.args.from(2);
    while let Some(name) = args.next() {
        let Some(value) = args.next() else {
            return Err(syntax_error(turn));
        };
        if name.eq_ignore_ascii_case(b"match") {
            options.pattern = Some(pattern(turn, value)?);
        } else if name.eq_ignore_ascii_case(b"count") {
            match number(value) {
                None => {
                    let text = "ERR value is not an integer or out of range";
                    return Err(turn.core.error(text));
                }
                Some(0) => return Err(syntax_error(turn)),
                Some(count) => options.count = count,
            }
        } else if name.eq_ignore_ascii_case(b"type") {
            let kind = String::from_utf8_lossy(value);
            options.kind = Some(kind.to_ascii_lowercase());
        } else {
            return Err(syntax_error(turn));
        }
    }
    Ok(options)
}

fn unknown_cursor(turn: &mut Turn<'_>, cursor: u64) -> Step {
    turn.core.error(&format!(
        "ERR cursor {cursor} is not known here: it is too old, or of another server or an earlier \
         start; begin the SCAN again with cursor 0"
    ))
}

/// Checks that matching `pattern` is cheap.
fn pattern(turn: &mut Turn<'_>, pattern: &[u8]) -> Result<Vec<u8>, Step> {
    if pattern.len() > PATTERN_BYTES_MAX {
        let len = pattern.len();
        return Err(turn.core.error(&format!(
            "ERR a pattern of {len} bytes is over the limit of {PATTERN_BYTES_MAX} bytes \
             (max_pattern_bytes)"
        )));
    }
    Ok(pattern.to_vec())
}

/// The keys from `from` on that may match `pattern`, by how it begins.
fn restrict(from: Vec<u8>, pattern: Option<&[u8]>) -> KeyRange {
    let prefix = pattern.map(glob::literal_prefix).unwrap_or_default();
    let to = KeyRange::prefix(&prefix).to;
    KeyRange {
        from: from.max(prefix),
        to,
    }
}

fn keys(turn: &mut Turn<'_>) -> Step {
    let pattern = match pattern(turn, turn.args.at(1)) {
        Ok(pattern) => pattern,
        Err(step) => return step,
    };
    let range = restrict(Vec::new(), Some(&pattern));
    gather(
        turn,
        RangeGather {
            keys_matching: Some(pattern),
            keys_only: true,
            ..RangeGather::of(range, Direction::Up, usize::MAX)
        },
    )
}

/// Reads what `KV.RANGE` was asked for behind its bounds into `gather`.
fn range_options(
    turn: &mut Turn<'_>,
    command: &str,
    first: usize,
    gather: &mut RangeGather,
) -> Result<(), Step> {
    let mut args = turn.args.from(first);
    while let Some(option) = args.next() {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        if is("rev") {
            gather.direction = Direction::Down;
        } else if is("keysonly") {
            gather.keys_only = true;
        } else if is("snapshot")
            && let Some(named) = args.next()
        {
            gather.at = Some(name_of(turn, named)?);
        } else if is("limit") {
            let Some(limit) = args.next().and_then(number) else {
                let text = "ERR LIMIT is not an integer or out of range";
                return Err(turn.core.error(text));
            };
            gather.left = usize::try_from(limit).unwrap_or(usize::MAX);
        } else {
            let option = shown(option);
            return Err(turn.core.error(&format!(
                "ERR syntax error: '{option}' is no option of {command}; LIMIT count, REV, KEYSONLY \
                 and SNAPSHOT snapshot are"
            )));
        }
    }
    Ok(())
}

fn range(turn: &mut Turn<'_>) -> Step {
    let (from, to) = (turn.args.at(1), turn.args.at(2));
    let longest = from.len().max(to.len());
    if longest > KEY_BYTES_MAX + 1 {
        return turn.core.error(&format!(
            "ERR a bound has {longest} bytes; keys have at most {KEY_BYTES_MAX} bytes \
             (max_key_bytes)"
        ));
    }
    let range = range_of(from, to);
    gather_with_options(turn, "KV.RANGE", 3, range)
}

/// The range between two bounds as they are written.
fn range_of(from: &[u8], to: &[u8]) -> KeyRange {
    KeyRange {
        from: if is_open(from) {
            Vec::new()
        } else {
            from.to_vec()
        },
        to: (!is_open(to)).then(|| to.to_vec()),
    }
}

/// The range between two bounds that is to be removed: what a slip may have written, an empty bound or one that
/// stands for the other end, removes nothing.
fn doomed(from: &[u8], to: &[u8]) -> Result<KeyRange, &'static str> {
    match (from, to) {
        (b"" | b"+", _) | (_, b"" | b"-") => Err(
            "ERR a range is removed from a key, or from - on, up to a key, or up to +: nothing was removed",
        ),
        _ => Ok(range_of(from, to)),
    }
}

fn delete_range(turn: &mut Turn<'_>) -> Step {
    match doomed(turn.args.at(1), turn.args.at(2)) {
        Ok(range) => remove(turn, &range),
        Err(text) => turn.core.error(text),
    }
}

fn flush_all(turn: &mut Turn<'_>) -> Step {
    if !turn.context.front.settings.policy.flush_all {
        let text = "ERR all keys are removed only where resp.flush-all is true (not applied)";
        return turn.core.error(text);
    }
    let is_known = |option: &[u8]| {
        [b"async".as_slice(), b"sync"].contains(&option.to_ascii_lowercase().as_slice())
    };
    match turn.args.get(1) {
        Some(option) if turn.args.len() > 2 || !is_known(option) => syntax_error(turn),
        _ => remove(turn, &range_of(b"-", b"+")),
    }
}

fn remove(turn: &mut Turn<'_>, range: &KeyRange) -> Step {
    let batch = &mut turn.scratch.batch;
    batch.clear();
    match batch.delete_range(range) {
        Ok(()) => Step::Call(Plan::Write(WriteOptions::default()), Gather::Stored),
        Err(error) => refuse(turn, error),
    }
}

fn prefix(turn: &mut Turn<'_>) -> Step {
    let prefix = turn.args.at(1);
    if prefix.len() > KEY_BYTES_MAX {
        return turn.core.error(&format!(
            "ERR a prefix has {} bytes; keys have at most {KEY_BYTES_MAX} bytes (max_key_bytes)",
            prefix.len()
        ));
    }
    let range = KeyRange::prefix(prefix);
    gather_with_options(turn, "KV.PREFIX", 2, range)
}

/// The pairs of `range`, as the options of `command` say, which are its arguments from the one of number `first` on.
fn gather_with_options(turn: &mut Turn<'_>, command: &str, first: usize, range: KeyRange) -> Step {
    let mut all = RangeGather::of(range, Direction::Up, usize::MAX);
    match range_options(turn, command, first, &mut all) {
        Ok(()) => gather(turn, all),
        Err(step) => step,
    }
}

/// Whether a bound of `KV.RANGE` stands for none.
fn is_open(bound: &[u8]) -> bool {
    matches!(bound, b"" | b"-" | b"+")
}

fn gather(turn: &mut Turn<'_>, gather: RangeGather) -> Step {
    if gather.left == 0 || gather.range.is_empty() {
        return turn.core.reply(|out| out.array(0));
    }
    turn.scratch.range.clone_from(&gather.range);
    Step::Call(gather.plan(), Gather::Range(Box::new(gather)))
}
