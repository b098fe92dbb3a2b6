//! Commands on when keys expire: `EXPIRE`, `TTL`, `PERSIST`, `SETEX`, `GETEX` and their relatives.
//!
//! Spans are counted, and moments compared, by the primary of the key's region, with the region's time.

use argosy_base::Moment;
use argosy_engine::change::{Change, Only, integer};
use argosy_engine::{Expiry, WriteOptions};
use argosy_wire::api::Plan;

use super::command::{Command, Step, Turn, shown, syntax_error};
use super::reply::Gather;
use super::strings::refuse;

/// The family's table.
pub(super) const COMMANDS: &[Command] = &[
    expiry(
        "ttl",
        2,
        "Returns how many seconds a key has left.",
        "key",
        |turn| tell(turn, Shown::SECONDS_LEFT),
    ),
    expiry(
        "pttl",
        2,
        "Returns how many milliseconds a key has left.",
        "key",
        |turn| tell(turn, Shown::MILLIS_LEFT),
    ),
    expiry(
        "expiretime",
        2,
        "Returns when a key expires, in seconds since 1970.",
        "key",
        |turn| tell(turn, Shown::SECONDS),
    ),
    expiry(
        "pexpiretime",
        2,
        "Returns when a key expires, in milliseconds since 1970.",
        "key",
        |turn| tell(turn, Shown::MILLIS),
    ),
    expiry(
        "expire",
        -3,
        "Has a key expire after so many seconds.",
        EXPIRE,
        |turn| expire(turn, Unit::Ex, "expire"),
    ),
    expiry(
        "pexpire",
        -3,
        "Has a key expire after so many milliseconds.",
        EXPIRE,
        |turn| expire(turn, Unit::Px, "pexpire"),
    ),
    expiry(
        "expireat",
        -3,
        "Has a key expire at a second since 1970.",
        EXPIRE,
        |turn| expire(turn, Unit::ExAt, "expireat"),
    ),
    expiry(
        "pexpireat",
        -3,
        "Has a key expire at a millisecond since 1970.",
        EXPIRE,
        |turn| expire(turn, Unit::PxAt, "pexpireat"),
    ),
    expiry("persist", 2, "Has a key not expire.", "key", |turn| {
        change(turn, Expiry::Never, Only::Any, Tells::Number)
    }),
    expiry(
        "setex",
        4,
        "Sets a value that expires after so many seconds.",
        "key seconds value",
        |turn| set(turn, Unit::Ex, "setex"),
    ),
    expiry(
        "psetex",
        4,
        "Sets a value that expires after so many milliseconds.",
        "key milliseconds value",
        |turn| set(turn, Unit::Px, "psetex"),
    ),
    expiry(
        "getex",
        -2,
        "Returns a value, and changes when it expires.",
        GETEX,
        getex,
    ),
];

const EXPIRE: &str = "key number [NX | XX | GT | LT]";
const GETEX: &str =
    "key [EX seconds | PX milliseconds | EXAT seconds | PXAT milliseconds | PERSIST]";

/// The longest span. A moment has to fit in 63 bits, as in Redis, and who reads the number does not know the time
/// that the region's primary counts from: it is taken for no later than the year 2248.
const SPAN_MILLIS_MAX: i64 = i64::MAX - (1 << 43);

/// A command of this family, with its name and arity.
const fn expiry(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    usage: &'static str,
    run: fn(&mut Turn<'_>) -> Step,
) -> Command {
    // Those that only tell have a short summary of what they return.
    let flags = match name.as_bytes() {
        b"ttl" | b"pttl" | b"expiretime" | b"pexpiretime" => "readonly fast",
        _ => "write fast",
    };
    Command {
        name,
        arity,
        flags,
        keys: (1, 1, 1),
        group: "generic",
        summary,
        usage,
        run,
    }
}

/// How a moment is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shown {
    left: bool,
    seconds: bool,
}

impl Shown {
    const SECONDS_LEFT: Self = Self::new(true, true);
    const MILLIS_LEFT: Self = Self::new(true, false);
    const SECONDS: Self = Self::new(false, true);
    const MILLIS: Self = Self::new(false, false);

    const fn new(left: bool, seconds: bool) -> Self {
        Self { left, seconds }
    }

    /// The number for a pair that expires at `at`: -1 for never, -2 where there is none.
    pub(super) fn of(self, bound: bool, at: Option<Moment>, now: Moment) -> i64 {
        let Some(at) = at.filter(|_| bound) else {
            return if bound { -1 } else { -2 };
        };
        let millis = if self.left { at.since(now) } else { at.0 };
        let number = match self.seconds {
            // The nearest second, as in Redis.
            true => millis.saturating_add(500) / 1000,
            false => millis,
        };
        i64::try_from(number).unwrap_or(i64::MAX)
    }
}

fn tell(turn: &mut Turn<'_>, shown: Shown) -> Step {
    turn.scratch.set_key(turn.args.at(1));
    Step::Call(Plan::Expiry, Gather::Expiry(shown))
}

/// How a number means a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// In so many seconds.
    Ex,
    /// In so many milliseconds.
    Px,
    /// At this second since 1970.
    ExAt,
    /// At this millisecond.
    PxAt,
}

impl Unit {
    /// The unit that an option names.
    pub(super) fn of(option: &[u8]) -> Option<Self> {
        let named = [
            ("ex", Self::Ex),
            ("px", Self::Px),
            ("exat", Self::ExAt),
            ("pxat", Self::PxAt),
        ];
        let mut named = named.into_iter();
        let found = named.find(|(name, _)| option.eq_ignore_ascii_case(name.as_bytes()));
        found.map(|(_, unit)| unit)
    }

    /// What `number` means, or an error for the client of `command`. A number below zero means the past.
    fn read(self, number: &[u8], command: &str) -> Result<Expiry, String> {
        let number = integer(number).ok_or("ERR value is not an integer or out of range")?;
        let invalid = || format!("ERR invalid expire time in '{command}' command");
        let millis = match self {
            Self::Ex | Self::ExAt => number.checked_mul(1000).ok_or_else(invalid)?,
            Self::Px | Self::PxAt => number,
        };
        if matches!(self, Self::Ex | Self::Px) && millis > SPAN_MILLIS_MAX {
            return Err(invalid());
        }
        let millis = u64::try_from(millis).unwrap_or(0);
        Ok(match self {
            Self::Ex | Self::Px => Expiry::After(millis),
            Self::ExAt | Self::PxAt => Expiry::At(Moment(millis)),
        })
    }

    /// The same, of a number that has to be above zero.
    pub(super) fn future(self, number: &[u8], command: &str) -> Result<Expiry, String> {
        let expiry = self.read(number, command)?;
        match expiry {
            Expiry::After(0) | Expiry::At(Moment(0)) => {
                Err(format!("ERR invalid expire time in '{command}' command"))
            }
            _ => Ok(expiry),
        }
    }
}

/// What the reply is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tells {
    /// What the change tells.
    Number,
    /// The value.
    Value,
}

/// Changes when the key that is the first argument expires.
fn change(turn: &mut Turn<'_>, expiry: Expiry, only: Only, tells: Tells) -> Step {
    let key = turn.args.at(1);
    let batch = &mut turn.scratch.batch;
    batch.clear();
    let options = WriteOptions {
        return_previous: tells == Tells::Value,
        ..WriteOptions::default()
    };
    let gather = match tells {
        Tells::Number => Gather::Changed,
        Tells::Value => Gather::Previous,
    };
    match batch.change(key, Change::Expire(expiry, only), b"") {
        Ok(()) => Step::Call(Plan::Write(options), gather),
        Err(error) => refuse(turn, error),
    }
}

fn expire(turn: &mut Turn<'_>, unit: Unit, command: &str) -> Step {
    let [mut nx, mut xx, mut gt, mut lt] = [false; 4];
    for option in turn.args.from(3) {
        let is = |name: &str| option.eq_ignore_ascii_case(name.as_bytes());
        match () {
            () if is("nx") => nx = true,
            () if is("xx") => xx = true,
            () if is("gt") => gt = true,
            () if is("lt") => lt = true,
            () => {
                let option = shown(option);
                return turn.core.error(&format!("ERR Unsupported option {option}"));
            }
        }
    }
    let only = match (nx, xx, gt, lt) {
        (true, false, false, false) => Only::Lasting,
        (true, ..) => {
            let text = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return turn.core.error(text);
        }
        (_, _, true, true) => {
            let text = "ERR GT and LT options at the same time are not compatible";
            return turn.core.error(text);
        }
        (_, _, true, _) => Only::Later,
        (_, true, _, true) => Only::Sooner,
        (_, _, _, true) => Only::Earlier,
        (_, true, ..) => Only::Expiring,
        _ => Only::Any,
    };
    match unit.read(turn.args.at(2), command) {
        Ok(expiry) => change(turn, expiry, only, Tells::Number),
        Err(text) => turn.core.error(&text),
    }
}

fn set(turn: &mut Turn<'_>, unit: Unit, command: &str) -> Step {
    let (key, value) = (turn.args.at(1), turn.args.at(3));
    let expiry = match unit.future(turn.args.at(2), command) {
        Ok(expiry) => expiry,
        Err(text) => return turn.core.error(&text),
    };
    let batch = &mut turn.scratch.batch;
    batch.clear();
    match batch.put_until(key, value, expiry) {
        Ok(()) => Step::Call(Plan::Write(WriteOptions::default()), Gather::Stored),
        Err(error) => refuse(turn, error),
    }
}

fn getex(turn: &mut Turn<'_>) -> Step {
    let Some(option) = turn.args.get(2) else {
        turn.scratch.set_key(turn.args.at(1));
        return Step::Call(Plan::Get, Gather::Value);
    };
    let expiry = match (Unit::of(option), turn.args.get(3), turn.args.len()) {
        (Some(unit), Some(number), 4) => match unit.future(number, "getex") {
            Ok(expiry) => expiry,
            Err(text) => return turn.core.error(&text),
        },
        (None, None, _) if option.eq_ignore_ascii_case(b"persist") => Expiry::Never,
        _ => return syntax_error(turn),
    };
    change(turn, expiry, Only::Any, Tells::Value)
}
