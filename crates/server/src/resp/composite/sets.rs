//! Commands on sets: `SADD`, `SISMEMBER`, `SMEMBERS` and their relatives. A member is an element without a value.

use argosy_engine::change::integer;
use argosy_engine::composite::CompositeType;

use super::names;
use super::opened::Opened;
use super::scan::{self, Page};
use super::told::Told;
use crate::resp::command::{Command, Step, Turn};
use crate::resp::front::FrontEnd;
use crate::resp::overlay::{Elements, Halt, Overlay};

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
        flags: "readonly",
        keys: (1, 1, 1),
        group: "set",
        summary,
        usage,
        run,
    }
}

/// One that writes.
const fn writing(command: Command) -> Command {
    Command {
        flags: "write denyoom",
        ..command
    }
}

/// The family's table.
pub(in crate::resp) const COMMANDS: &[Command] = &[
    writing(of(
        "sadd",
        -3,
        "Adds members to a set. Returns how many are new.",
        "key member [member ...]",
        |turn| begin(turn, |turn| Ok(SetCommand::Add(names(turn)))),
    )),
    writing(of(
        "srem",
        -3,
        "Removes members of a set. Returns how many there were.",
        "key member [member ...]",
        |turn| begin(turn, |turn| Ok(SetCommand::Remove(names(turn)))),
    )),
    of(
        "sismember",
        3,
        "Tells whether a set has a member.",
        "key member",
        |turn| begin(turn, |turn| Ok(SetCommand::Has(turn.args.at(2).to_vec()))),
    ),
    of(
        "smismember",
        -3,
        "Tells which of several members a set has.",
        "key member [member ...]",
        |turn| begin(turn, |turn| Ok(SetCommand::HasSome(names(turn)))),
    ),
    of(
        "smembers",
        2,
        "Returns all members of a set, if they fit one reply.",
        "key",
        |turn| begin(turn, |_| Ok(SetCommand::All)),
    ),
    of(
        "scard",
        2,
        "Returns how many members a set has.",
        "key",
        |turn| begin(turn, |_| Ok(SetCommand::Count)),
    ),
    writing(of(
        "spop",
        -2,
        "Removes members at random, and returns them.",
        "key [count]",
        |turn| begin(turn, pop),
    )),
    of(
        "srandmember",
        -2,
        "Returns members at random: different ones, or where the count is below zero any.",
        "key [count]",
        |turn| begin(turn, random),
    ),
    of(
        "sscan",
        -3,
        "Goes through the members of a set, in their order, a page a call.",
        "key cursor [MATCH pattern] [COUNT count]",
        |turn| {
            begin(turn, |turn| {
                scan::page_of(turn, scan::Of::Names).map(SetCommand::Scan)
            })
        },
    ),
];

/// What a command does.
#[derive(Debug)]
pub(super) enum SetCommand {
    Add(Vec<Vec<u8>>),
    Remove(Vec<Vec<u8>>),
    Has(Vec<u8>),
    HasSome(Vec<Vec<u8>>),
    All,
    Count,
    /// So many, or any one.
    Pop(Option<i64>),
    /// So many, or any one; below zero, so many and some of them again.
    Random(Option<i64>),
    Scan(Page),
}

fn begin(
    turn: &mut Turn<'_>,
    does: impl FnOnce(&mut Turn<'_>) -> Result<SetCommand, String>,
) -> Step {
    let does = does(turn).map(super::Does::Set);
    super::begin(turn, does)
}

fn pop(turn: &mut Turn<'_>) -> Result<SetCommand, String> {
    match (turn.args.get(2), turn.args.len()) {
        (None, _) => Ok(SetCommand::Pop(None)),
        (Some(count), 3) => {
            let count = integer(count).filter(|count| *count >= 0);
            let count = count.ok_or("ERR value is out of range, must be positive")?;
            Ok(SetCommand::Pop(Some(count)))
        }
        (Some(_), _) => Err("ERR syntax error".to_owned()),
    }
}

fn random(turn: &mut Turn<'_>) -> Result<SetCommand, String> {
    match (turn.args.get(2), turn.args.len()) {
        (None, _) => Ok(SetCommand::Random(None)),
        (Some(count), 3) => scan::random_count(count).map(|count| SetCommand::Random(Some(count))),
        (Some(_), _) => Err("ERR syntax error".to_owned()),
    }
}

impl SetCommand {
    pub(super) const fn is_of_one_moment(&self) -> bool {
        matches!(
            self,
            Self::Has(_) | Self::HasSome(_) | Self::All | Self::Scan(_)
        )
    }

    pub(super) fn run(
        &self,
        key: &[u8],
        overlay: &mut Overlay<'_>,
        front: &FrontEnd,
    ) -> Result<Told, Halt> {
        let mut set = Opened::of(overlay, key, CompositeType::Set)?;
        Ok(match self {
            Self::Add(members) => {
                set.know(members.iter().map(Vec::as_slice))?;
                let mut new = 0;
                for member in members {
                    if set.field(member)?.is_none() {
                        new += 1;
                        set.put_field(member, b"")?;
                    }
                }
                set.close()?;
                Told::Number(new)
            }
            Self::Remove(members) => {
                set.know(members.iter().map(Vec::as_slice))?;
                let mut removed = 0;
                for member in members {
                    removed += i64::from(set.remove_field(member)?.is_some());
                }
                set.close()?;
                Told::Number(removed)
            }
            Self::Has(member) => Told::Number(set.field(member)?.is_some().into()),
            Self::HasSome(members) => {
                set.know(members.iter().map(Vec::as_slice))?;
                let has = members
                    .iter()
                    .map(|member| Ok(i64::from(set.field(member)?.is_some())));
                Told::Numbers(has.collect::<Result<_, Halt>>()?)
            }
            Self::All => Told::Set(names_of(set.fields_from(None, usize::MAX)?)),
            Self::Count => Told::count(set.number()),
            Self::Pop(count) => {
                let popped = scan::random(&mut set, count.unwrap_or(1))?;
                for (member, _) in &popped {
                    set.forget_field(member)?;
                }
                set.close()?;
                some_of(popped, *count)
            }
            Self::Random(count) => {
                let some = scan::random(&mut set, count.unwrap_or(1))?;
                match count {
                    Some(..0) => Told::List(names_of(some)),
                    _ => some_of(some, *count),
                }
            }
            Self::Scan(page) => scan::page(&mut set, page, front)?,
        })
    }
}

fn names_of(elements: Elements) -> Vec<Vec<u8>> {
    elements.into_iter().map(|(name, _)| name).collect()
}

/// Members that were asked for by number, or one.
fn some_of(elements: Elements, count: Option<i64>) -> Told {
    let names = names_of(elements);
    match count {
        Some(_) => Told::Set(names),
        None => Told::value(names.into_iter().next()),
    }
}
