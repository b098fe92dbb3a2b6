//! Commands that are computed from values, and that one request to the engine does not express: `COPY`, `RENAME`,
//! `OBJECT`, `LCS` and those on bits.
//!
//! Each is carried out as a transaction of one command ([`exec`](super::exec)): the values are read, the command is
//! evaluated here, and what it leaves is written where nothing of that has changed. Its keys have to lie in one region,
//! and values that are kept in parts are refused, since they are not read whole.

mod bits;
mod lcs;

use argosy_base::limits::VALUE_BYTES_MAX;
use argosy_engine::Expiry;
use argosy_engine::change::integer;
use argosy_engine::composite::{Composite, is_composite};
use argosy_engine::long::is_head;
use argosy_wire::resp::Encoder;

use super::command::{Command, Step, Turn, syntax_error, unknown_subcommand, wrong_arity};
use super::composite::{self, WRONG_TYPE};
use super::exec::Procedure;
use super::overlay::{Halt, Overlay};
use crate::meter::MeteredOutcome;
use bits::{BitRange, Unit};
use lcs::Lcs;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    Command {
        name: "copy",
        arity: -3,
        flags: "write denyoom",
        keys: (1, 2, 1),
        group: "generic",
        summary: "Binds another key of the region to the value of a key, and has it expire with that.",
        usage: "source destination [DB 0] [REPLACE]",
        run: copy,
    },
    Command {
        name: "rename",
        arity: 3,
        flags: "write",
        keys: (1, 2, 1),
        group: "generic",
        summary: "Gives a value another key of the region. What that was bound to is gone.",
        usage: "key newkey",
        run: |turn| rename(turn, false),
    },
    Command {
        name: "renamenx",
        arity: 3,
        flags: "write fast",
        keys: (1, 2, 1),
        group: "generic",
        summary: "The same, if the other key has no value.",
        usage: "key newkey",
        run: |turn| rename(turn, true),
    },
    Command {
        name: "object",
        arity: -2,
        flags: "readonly",
        keys: (2, 2, 1),
        group: "generic",
        summary: "ENCODING and REFCOUNT, as Redis would tell them of such a value.",
        usage: "ENCODING key | REFCOUNT key | HELP",
        run: object,
    },
    Command {
        name: "lcs",
        arity: -3,
        flags: "readonly",
        keys: (1, 2, 1),
        group: "string",
        summary: "Returns the longest text that two values have in common, with gaps.",
        usage: "key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]",
        run: lcs,
    },
    Command {
        name: "getbit",
        arity: 3,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns a bit of a value.",
        usage: "key offset",
        run: getbit,
    },
    Command {
        name: "setbit",
        arity: 4,
        flags: "write denyoom",
        keys: (1, 1, 1),
        group: "string",
        summary: "Sets a bit of a value. Returns what it was.",
        usage: "key offset bit",
        run: setbit,
    },
    Command {
        name: "bitcount",
        arity: -2,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "string",
        summary: "Counts the bits of a value that are set.",
        usage: "key [start end [BYTE | BIT]]",
        run: bitcount,
    },
    Command {
        name: "bitpos",
        arity: -3,
        flags: "readonly",
        keys: (1, 1, 1),
        group: "string",
        summary: "Returns where the first bit of a value is that is 0, or 1.",
        usage: "key bit [start [end [BYTE | BIT]]]",
        run: bitpos,
    },
];

const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const NO_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NO_SUCH_KEY: &str = "ERR no such key";

/// What a command does with its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// Binds the second key to what the first is bound to, which stays.
    Copy { replaces: bool },
    /// The same, and the first is gone.
    Rename { if_absent: bool },
    /// Tells how Redis would keep the value.
    Encoding,
    /// Tells how many refer to the value: one.
    References,
    /// Compares the values of both keys.
    Compare(Lcs),
    /// Tells a bit.
    Bit(u64),
    /// Sets it, and tells what it was.
    SetBit { at: u64, bit: bool },
    /// Counts bits that are set.
    CountBits(Option<BitRange>),
    /// Tells where the first such bit is.
    FindBit { bit: bool, within: BitRange },
}

impl Does {
    /// Whether it takes what is no string.
    const fn is_of_any_type(self) -> bool {
        matches!(
            self,
            Self::Copy { .. } | Self::Rename { .. } | Self::Encoding | Self::References
        )
    }
}

/// A command and its keys.
#[derive(Debug)]
pub(super) struct Computed {
    does: Does,
    keys: Vec<Vec<u8>>,
}

/// What a command is answered.
enum Told {
    Ok,
    Null,
    Number(i64),
    Text(&'static str),
    Compared(lcs::Common),
    Error(String),
}

/// The command of `turn`, which does this with so many keys from the argument `first` on.
fn begin(turn: &Turn<'_>, does: Does, first: usize, keys: usize) -> Step {
    let keys = turn.args.from(first).take(keys).map(<[u8]>::to_vec);
    let keys = keys.collect();
    Step::Procedure(Procedure::Computed(Computed { does, keys }))
}

fn copy(turn: &mut Turn<'_>) -> Step {
    let mut replaces = false;
    let mut options = turn.args.from(3);
    while let Some(option) = options.next() {
        if option.eq_ignore_ascii_case(b"replace") {
            replaces = true;
        } else if option.eq_ignore_ascii_case(b"db")
            && let Some(database) = options.next()
        {
            match integer(database) {
                Some(0) => {}
                Some(_) => return turn.core.error("ERR DB index is out of range"),
                None => return turn.core.error(NO_INTEGER),
            }
        } else {
            return syntax_error(turn);
        }
    }
    if turn.args.at(1) == turn.args.at(2) {
        let text = "ERR source and destination objects are the same";
        return turn.core.error(text);
    }
    begin(turn, Does::Copy { replaces }, 1, 2)
}

fn rename(turn: &mut Turn<'_>, if_absent: bool) -> Step {
    begin(turn, Does::Rename { if_absent }, 1, 2)
}

fn object(turn: &mut Turn<'_>) -> Step {
    let what = turn.args.at(1).to_ascii_lowercase();
    match (what.as_slice(), turn.args.len()) {
        (b"encoding", 3) => begin(turn, Does::Encoding, 2, 1),
        (b"refcount", 3) => begin(turn, Does::References, 2, 1),
        (b"idletime" | b"freq", 3) => turn
            .core
            .error("ERR it is not recorded when or how often a key was used"),
        (b"help", 2) => turn.core.reply(|out| {
            let lines = ["OBJECT ENCODING key", "OBJECT REFCOUNT key", "OBJECT HELP"];
            out.array(lines.len());
            lines.iter().for_each(|line| out.simple(line));
        }),
        (b"encoding" | b"refcount" | b"idletime" | b"freq" | b"help", _) => {
            let name = String::from_utf8_lossy(&what).into_owned();
            wrong_arity(turn, &format!("object|{name}"))
        }
        _ => unknown_subcommand(turn, "OBJECT"),
    }
}

fn lcs(turn: &mut Turn<'_>) -> Step {
    match Lcs::of(turn.args.from(3)) {
        Ok(lcs) => begin(turn, Does::Compare(lcs), 1, 2),
        Err(text) => turn.core.error(text),
    }
}

/// The place of a bit that a value may have.
fn offset(text: &[u8]) -> Option<u64> {
    let at = u64::try_from(integer(text)?).ok()?;
    (at < 8 * VALUE_BYTES_MAX as u64).then_some(at)
}

fn bit(text: &[u8]) -> Option<bool> {
    match text {
        b"0" => Some(false),
        b"1" => Some(true),
        _ => None,
    }
}

fn getbit(turn: &mut Turn<'_>) -> Step {
    match offset(turn.args.at(2)) {
        Some(at) => begin(turn, Does::Bit(at), 1, 1),
        None => turn.core.error(NO_OFFSET),
    }
}

fn setbit(turn: &mut Turn<'_>) -> Step {
    match (offset(turn.args.at(2)), bit(turn.args.at(3))) {
        (Some(at), Some(bit)) => begin(turn, Does::SetBit { at, bit }, 1, 1),
        (None, _) => turn.core.error(NO_OFFSET),
        (_, None) => turn.core.error("ERR bit is not an integer or out of range"),
    }
}

fn bitcount(turn: &mut Turn<'_>) -> Step {
    let range = match turn.args.len() {
        2 => Ok(None),
        4 | 5 => range_from(turn, 2).map(Some),
        _ => return syntax_error(turn),
    };
    match range {
        Ok(range) => begin(turn, Does::CountBits(range), 1, 1),
        Err(text) => turn.core.error(text),
    }
}

fn bitpos(turn: &mut Turn<'_>) -> Step {
    let Some(bit) = bit(turn.args.at(2)) else {
        let text = match integer(turn.args.at(2)) {
            Some(_) => "ERR The bit argument must be 1 or 0.",
            None => NO_INTEGER,
        };
        return turn.core.error(text);
    };
    if turn.args.len() > 6 {
        return syntax_error(turn);
    }
    match range_from(turn, 3) {
        Ok(within) => begin(turn, Does::FindBit { bit, within }, 1, 1),
        Err(text) => turn.core.error(text),
    }
}

/// The range that the arguments from `first` on name: where it begins, where it ends, and what is counted.
fn range_from(turn: &Turn<'_>, first: usize) -> Result<BitRange, &'static str> {
    let number = |at| match turn.args.get(at) {
        Some(text) => integer(text).ok_or(NO_INTEGER).map(Some),
        None => Ok(None),
    };
    let (from, last) = (number(first)?.unwrap_or(0), number(first + 1)?);
    let unit = match turn.args.get(first + 2).map(<[u8]>::to_ascii_lowercase) {
        None => Unit::Byte,
        Some(unit) if unit == b"byte" => Unit::Byte,
        Some(unit) if unit == b"bit" => Unit::Bit,
        Some(_) => return Err("ERR syntax error"),
    };
    Ok(BitRange {
        first: from,
        last,
        unit,
    })
}

impl Computed {
    /// Its keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.keys.iter().map(Vec::as_slice)
    }

    /// Carries it out, and writes what it is answered.
    ///
    /// # Errors
    /// What is left is more than a batch takes; elements were not read.
    pub(super) fn run(
        &self,
        overlay: &mut Overlay<'_>,
        out: &mut Encoder<'_>,
    ) -> Result<MeteredOutcome, Halt> {
        let mut outcome = MeteredOutcome::Ok;
        let told = match self.carry_out(overlay) {
            Err(Halt::Refused(text)) => Told::Error(text),
            told => told?,
        };
        match told {
            Told::Ok => out.simple("OK"),
            Told::Null => out.null(),
            Told::Number(number) => out.integer(number),
            Told::Text(text) => out.bulk(text.as_bytes()),
            Told::Compared(common) => common.write(out),
            Told::Error(text) => {
                out.error(&text);
                outcome = MeteredOutcome::Invalid;
            }
        }
        Ok(outcome)
    }

    fn carry_out(&self, overlay: &mut Overlay<'_>) -> Result<Told, Halt> {
        let is_long = |key: &Vec<u8>| overlay.value(key).is_some_and(is_head);
        if self.keys.iter().any(is_long) {
            let text = "ERR this command takes values of at most 1 MiB (not applied)";
            return Ok(Told::Error(text.to_owned()));
        }
        let is_composite = |key: &Vec<u8>| overlay.value(key).is_some_and(is_composite);
        if self.keys.iter().any(is_composite) && !self.does.is_of_any_type() {
            let text = match self.does {
                Does::Compare(_) => "ERR The specified keys must contain string values",
                _ => WRONG_TYPE,
            };
            return Ok(Told::Error(text.to_owned()));
        }
        let key = self.keys[0].as_slice();
        let value = overlay.value(key);
        Ok(match self.does {
            Does::Copy { replaces } => {
                let other = self.keys[1].as_slice();
                let may = value.is_some() && (replaces || overlay.value(other).is_none());
                if may {
                    bind_as(overlay, key, other)?;
                }
                Told::Number(may.into())
            }
            Does::Rename { if_absent } => return self.rename(if_absent, overlay),
            Does::Encoding => value.map_or(Told::Null, |value| Told::Text(encoding(value))),
            Does::References => value.map_or(Told::Null, |value| Told::Number(references(value))),
            Does::Compare(lcs) => {
                let other = overlay.value(&self.keys[1]);
                match lcs.compare(value.unwrap_or_default(), other.unwrap_or_default()) {
                    Ok(common) => Told::Compared(common),
                    Err(text) => Told::Error(text),
                }
            }
            Does::Bit(at) => Told::Number(bits::get(value.unwrap_or_default(), at).into()),
            Does::SetBit { at, bit } => {
                let (mut value, expiry) =
                    (value.unwrap_or_default().to_vec(), expiry_of(overlay, key));
                let before = bits::set(&mut value, at, bit);
                overlay.put(key, &value, expiry)?;
                Told::Number(before.into())
            }
            Does::CountBits(range) => {
                let count = bits::count(value.unwrap_or_default(), range);
                Told::Number(i64::try_from(count).unwrap_or(i64::MAX))
            }
            Does::FindBit { bit, within } => {
                // A key without a value has nothing but zeros.
                let found = match value {
                    Some(value) => bits::find(value, bit, within),
                    None => (!bit).then_some(0),
                };
                let found = found.and_then(|at| i64::try_from(at).ok());
                Told::Number(found.unwrap_or(-1))
            }
        })
    }

    fn rename(&self, if_absent: bool, overlay: &mut Overlay<'_>) -> Result<Told, Halt> {
        let [key, other] = self.keys.as_slice() else {
            return Ok(Told::Null);
        };
        if overlay.value(key).is_none() {
            return Ok(Told::Error(NO_SUCH_KEY.to_owned()));
        }
        let may = !if_absent || overlay.value(other).is_none();
        if may && key != other {
            bind_as(overlay, key, other)?;
            overlay.delete(key)?;
        }
        Ok(match if_absent {
            true => Told::Number(may.into()),
            false => Told::Ok,
        })
    }
}

/// When the pair of `key` expires.
fn expiry_of(overlay: &Overlay<'_>, key: &[u8]) -> Expiry {
    overlay.expiry(key).0.map_or(Expiry::Never, Expiry::At)
}

/// Binds `other` as `key` is.
fn bind_as(overlay: &mut Overlay<'_>, key: &[u8], other: &[u8]) -> Result<(), Halt> {
    if composite::copy(overlay, key, other)? {
        return Ok(());
    }
    let value = overlay.value(key).map(<[u8]>::to_vec);
    let expiry = expiry_of(overlay, key);
    Ok(overlay.put(other, &value.unwrap_or_default(), expiry)?)
}

/// The longest value that Redis keeps beside its key.
const EMBEDDED_BYTES_MAX: usize = 44;

/// How many references Redis would have to a value.
fn references(value: &[u8]) -> i64 {
    /// Redis has one object for each of the first whole numbers, and says so by this.
    const SHARED: i64 = i32::MAX as i64;
    match integer(value) {
        Some(0..10_000) => SHARED,
        _ => 1,
    }
}

/// How Redis would keep a value.
fn encoding(value: &[u8]) -> &'static str {
    if let Some(head) = Composite::parse(value) {
        return composite::encoding(&head);
    }
    match value.len() {
        _ if integer(value).is_some() => "int",
        ..=EMBEDDED_BYTES_MAX => "embstr",
        _ => "raw",
    }
}
