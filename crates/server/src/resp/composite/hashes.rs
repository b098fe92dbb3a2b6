//! Commands on hashes: `HSET`, `HGET`, `HGETALL` and their relatives.

use argosy_engine::change::{Changed, Was, float_or_infinity, integer};
use argosy_engine::composite::CompositeType;
use argosy_engine::{Change, Refusal};

use super::opened::Opened;
use super::scan::{self, Page};
use super::told::Told;
use super::{arg, names};
use crate::resp::command::{Command, Step, Turn, wrong_arity};
use crate::resp::front::FrontEnd;
use crate::resp::overlay::{Halt, Overlay};

/// A command of the family.
const fn of(
    name: &'static str,
    arity: i64,
    summary: &'static str,
    usage: &'static str,
    run: fn(&mut Turn<'_>) -> Step,
) -> Command {
    Command {
        name,
        arity,
        flags: "readonly fast",
        keys: (1, 1, 1),
        group: "hash",
        summary,
        usage,
        run,
    }
}

/// One that writes.
const fn writing(command: Command) -> Command {
    Command {
        flags: "write denyoom fast",
        ..command
    }
}

/// The family's table.
pub(in crate::resp) const COMMANDS: &[Command] = &[
    of(
        "hget",
        3,
        "Returns the value of a field of a hash.",
        "key field",
        |turn| begin(turn, |turn| Ok(HashCommand::Get(arg(turn, 2)))),
    ),
    writing(of(
        "hset",
        -4,
        "Sets fields of a hash. Returns how many are new.",
        "key field value [field value ...]",
        |turn| set(turn, "hset", HashCommand::Set),
    )),
    of(
        "hmget",
        -3,
        "Returns the values of several fields of a hash.",
        "key field [field ...]",
        |turn| begin(turn, |turn| Ok(HashCommand::GetSome(names(turn)))),
    ),
    of(
        "hgetall",
        2,
        "Returns all fields of a hash, and their values, if they fit one reply.",
        "key",
        |turn| begin(turn, |_| Ok(HashCommand::All(Shows::Both))),
    ),
    writing(of(
        "hmset",
        -4,
        "Sets fields of a hash.",
        "key field value [field value ...]",
        |turn| set(turn, "hmset", HashCommand::SetAll),
    )),
    writing(of(
        "hsetnx",
        4,
        "Sets a field of a hash that it does not have.",
        "key field value",
        |turn| {
            begin(turn, |turn| {
                Ok(HashCommand::SetNew(arg(turn, 2), arg(turn, 3)))
            })
        },
    )),
    writing(of(
        "hdel",
        -3,
        "Removes fields of a hash. Returns how many there were.",
        "key field [field ...]",
        |turn| begin(turn, |turn| Ok(HashCommand::Remove(names(turn)))),
    )),
    of(
        "hlen",
        2,
        "Returns how many fields a hash has.",
        "key",
        |turn| begin(turn, |_| Ok(HashCommand::Count)),
    ),
    of(
        "hexists",
        3,
        "Tells whether a hash has a field.",
        "key field",
        |turn| begin(turn, |turn| Ok(HashCommand::Has(arg(turn, 2)))),
    ),
    of(
        "hkeys",
        2,
        "Returns the names of all fields of a hash, if they fit one reply.",
        "key",
        |turn| begin(turn, |_| Ok(HashCommand::All(Shows::Fields))),
    ),
    of(
        "hvals",
        2,
        "Returns the values of all fields of a hash, if they fit one reply.",
        "key",
        |turn| begin(turn, |_| Ok(HashCommand::All(Shows::Values))),
    ),
    of(
        "hstrlen",
        3,
        "Returns the length of the value of a field in bytes.",
        "key field",
        |turn| begin(turn, |turn| Ok(HashCommand::Length(arg(turn, 2)))),
    ),
    writing(of(
        "hincrby",
        4,
        "Adds to the number that a field of a hash is.",
        "key field increment",
        |turn| begin(turn, add),
    )),
    writing(of(
        "hincrbyfloat",
        4,
        "Adds to the fraction that a field of a hash is.",
        "key field increment",
        |turn| begin(turn, add_float),
    )),
    of(
        "hrandfield",
        -2,
        "Returns fields of a hash at random: different ones, or where the count is below zero any.",
        "key [count [WITHVALUES]]",
        |turn| begin(turn, random),
    ),
    of(
        "hscan",
        -3,
        "Goes through the fields of a hash, in their order, a page a call.",
        "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        |turn| {
            begin(turn, |turn| {
                scan::page_of(turn, scan::Of::Values).map(HashCommand::Scan)
            })
        },
    ),
];

/// What is shown of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Fields,
    Values,
    Both,
}

/// What a command does.
#[derive(Debug)]
pub(super) enum HashCommand {
    Get(Vec<u8>),
    GetSome(Vec<Vec<u8>>),
    /// Fields and values in turns. Tells how many are new.
    Set(Vec<Vec<u8>>),
    /// The same. Tells nothing.
    SetAll(Vec<Vec<u8>>),
    SetNew(Vec<u8>, Vec<u8>),
    Remove(Vec<Vec<u8>>),
    Count,
    Has(Vec<u8>),
    All(Shows),
    Length(Vec<u8>),
    Change(Vec<u8>, Change),
    /// Any field.
    Random,
    /// So many; below zero, so many and some of them again.
    RandomSome(i64, Shows),
    Scan(Page),
}

fn begin(
    turn: &mut Turn<'_>,
    does: impl FnOnce(&mut Turn<'_>) -> Result<HashCommand, String>,
) -> Step {
    let does = does(turn).map(super::Does::Hash);
    super::begin(turn, does)
}

fn set(turn: &mut Turn<'_>, name: &str, does: fn(Vec<Vec<u8>>) -> HashCommand) -> Step {
    match turn.args.len().is_multiple_of(2) {
        true => begin(turn, |turn| Ok(does(names(turn)))),
        false => wrong_arity(turn, name),
    }
}

fn add(turn: &mut Turn<'_>) -> Result<HashCommand, String> {
    let number = integer(turn.args.at(3)).ok_or("ERR value is not an integer or out of range")?;
    Ok(HashCommand::Change(arg(turn, 2), Change::Add(number)))
}

fn add_float(turn: &mut Turn<'_>) -> Result<HashCommand, String> {
    let number = float_or_infinity(turn.args.at(3)).ok_or("ERR value is not a valid float")?;
    // As in Redis, before anything is looked up.
    if number.is_infinite() {
        return Err("ERR value is NaN or Infinity".to_owned());
    }
    Ok(HashCommand::Change(
        arg(turn, 2),
        Change::AddFloat(number.to_bits()),
    ))
}

fn random(turn: &mut Turn<'_>) -> Result<HashCommand, String> {
    let Some(count) = turn.args.get(2) else {
        return Ok(HashCommand::Random);
    };
    let count = scan::random_count(count)?;
    match turn.args.get(3) {
        None => Ok(HashCommand::RandomSome(count, Shows::Fields)),
        Some(option) if turn.args.len() == 4 && option.eq_ignore_ascii_case(b"withvalues") => {
            Ok(HashCommand::RandomSome(count, Shows::Both))
        }
        Some(_) => Err("ERR syntax error".to_owned()),
    }
}

impl HashCommand {
    pub(super) const fn is_of_one_moment(&self) -> bool {
        matches!(
            self,
            Self::Get(_)
                | Self::GetSome(_)
                | Self::Has(_)
                | Self::All(_)
                | Self::Length(_)
                | Self::Scan(_)
        )
    }

    /// Whether it asks for no values of fields that it goes through.
    pub(super) const fn asks_for_names(&self) -> bool {
        match self {
            Self::All(shows) | Self::RandomSome(_, shows) => matches!(shows, Shows::Fields),
            Self::Random => true,
            Self::Scan(page) => page.asks_for_names(),
            _ => false,
        }
    }

    pub(super) fn run(
        &self,
        key: &[u8],
        overlay: &mut Overlay<'_>,
        front: &FrontEnd,
    ) -> Result<Told, Halt> {
        let mut hash = Opened::of(overlay, key, CompositeType::Hash)?;
        Ok(match self {
            Self::Get(field) => Told::value(hash.field(field)?),
            Self::GetSome(fields) => {
                hash.know(fields.iter().map(Vec::as_slice))?;
                let values = fields.iter().map(|field| hash.field(field));
                Told::Values(values.collect::<Result<_, _>>()?)
            }
            Self::Set(pairs) => Told::count(put_all(hash, pairs)?),
            Self::SetAll(pairs) => {
                put_all(hash, pairs)?;
                Told::Ok
            }
            Self::SetNew(field, value) => {
                let is_new = hash.field(field)?.is_none();
                if is_new {
                    hash.put_field(field, value)?;
                }
                hash.close()?;
                Told::Number(is_new.into())
            }
            Self::Remove(fields) => {
                hash.know(fields.iter().map(Vec::as_slice))?;
                let mut removed = 0;
                for field in fields {
                    removed += i64::from(hash.remove_field(field)?.is_some());
                }
                hash.close()?;
                Told::Number(removed)
            }
            Self::Count => Told::count(hash.number()),
            Self::Has(field) => Told::Number(hash.field(field)?.is_some().into()),
            Self::All(shows) => shown(hash.fields_from(None, usize::MAX)?, *shows),
            Self::Length(field) => {
                let value = hash.field(field)?;
                Told::count(value.map_or(0, |value| value.len()))
            }
            Self::Change(field, change) => change_of(hash, field, *change)?,
            Self::Random => {
                let one = scan::random(&mut hash, 1)?.into_iter().next();
                Told::value(one.map(|(field, _)| field))
            }
            Self::RandomSome(count, shows) => {
                let some = scan::random(&mut hash, *count)?;
                match shows {
                    Shows::Both => Told::Pairs(some),
                    _ => shown(some, *shows),
                }
            }
            Self::Scan(page) => scan::page(&mut hash, page, front)?,
        })
    }
}

fn put_all(mut hash: Opened<'_, '_>, pairs: &[Vec<u8>]) -> Result<i64, Halt> {
    hash.know(pairs.iter().step_by(2).map(Vec::as_slice))?;
    let mut new = 0;
    for pair in pairs.chunks_exact(2) {
        new += i64::from(hash.put_field(&pair[0], &pair[1])?);
    }
    hash.close()?;
    Ok(new)
}

fn shown(pairs: Vec<(Vec<u8>, Vec<u8>)>, shows: Shows) -> Told {
    match shows {
        Shows::Both => Told::Map(pairs),
        Shows::Fields => Told::List(pairs.into_iter().map(|(field, _)| field).collect()),
        Shows::Values => Told::List(pairs.into_iter().map(|(_, value)| value).collect()),
    }
}

/// Makes `change` of a field.
fn change_of(mut hash: Opened<'_, '_>, field: &[u8], change: Change) -> Result<Told, Halt> {
    let value = hash.field(field)?;
    let effect = change.of(
        b"",
        Was {
            value: value.as_deref(),
            ..Was::default()
        },
    );
    let told = match effect.told {
        Changed::Number(number) => Told::Number(number),
        Changed::Value(value) => Told::Bulk(value),
        Changed::Refused(why) => {
            return Err(Halt::Refused(match (why, change) {
                (Refusal::NotAFloat, _)
                | (Refusal::Long | Refusal::WrongType, Change::AddFloat(_)) => {
                    "ERR hash value is not a float".to_owned()
                }
                (Refusal::NotAnInteger | Refusal::Long | Refusal::WrongType, _) => {
                    "ERR hash value is not an integer".to_owned()
                }
                (why, _) => format!("ERR {why}"),
            }));
        }
    };
    if let Some(value) = effect.value {
        hash.put_field(field, &value)?;
    }
    hash.close()?;
    Ok(told)
}
