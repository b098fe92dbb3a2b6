//! Commands on sorted sets: what they are called, and how their arguments are read. What they do is in
//! [`sorted`](super::sorted).

use super::scan;
use super::score::{Members, NO_SCORE, Scores, parse};
use super::sorted::{Add, Only, Range, Removes, Selects, SortedSetCommand};
use super::{arg, names};
use crate::resp::command::{Command, Step, Turn};
use argosy_base::Direction;
use argosy_engine::change::integer;

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
        group: "sorted-set",
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
        "zadd",
        -4,
        "Sets the scores of members of a sorted set. Returns how many are new.",
        "key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
        |turn| begin(turn, add),
    )),
    of(
        "zrangebyscore",
        -4,
        "Returns members with scores between two ends, from the lowest up.",
        "key min max [WITHSCORES] [LIMIT offset count]",
        |turn| begin(turn, |turn| range(turn, By::Score, Direction::Up)),
    ),
    writing(of(
        "zrem",
        -3,
        "Removes members of a sorted set. Returns how many there were.",
        "key member [member ...]",
        |turn| begin(turn, |turn| Ok(SortedSetCommand::Remove(names(turn)))),
    )),
    of(
        "zscore",
        3,
        "Returns the score of a member.",
        "key member",
        |turn| begin(turn, |turn| Ok(SortedSetCommand::Score(arg(turn, 2)))),
    ),
    of(
        "zmscore",
        -3,
        "Returns the scores of several members.",
        "key member [member ...]",
        |turn| begin(turn, |turn| Ok(SortedSetCommand::Scores(names(turn)))),
    ),
    writing(of(
        "zincrby",
        4,
        "Adds to the score of a member.",
        "key increment member",
        |turn| begin(turn, increase),
    )),
    of(
        "zcard",
        2,
        "Returns how many members a sorted set has.",
        "key",
        |turn| begin(turn, |_| Ok(SortedSetCommand::Count)),
    ),
    of(
        "zcount",
        4,
        "Counts the members with scores between two ends. Goes through all of them.",
        "key min max",
        |turn| {
            begin(turn, |turn| {
                let scores = Scores::between(turn.args.at(2), turn.args.at(3))?;
                Ok(SortedSetCommand::CountOf(Selects::Scores(scores)))
            })
        },
    ),
    of(
        "zlexcount",
        4,
        "Counts the members between two ends, where all scores are the same. Goes through all of them.",
        "key min max",
        |turn| {
            begin(turn, |turn| {
                let members = Members::between(turn.args.at(2), turn.args.at(3))?;
                Ok(SortedSetCommand::CountOf(Selects::Members(members)))
            })
        },
    ),
    of(
        "zrange",
        -4,
        "Returns members by their places, their scores or their names, from either end.",
        "key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES]",
        |turn| begin(turn, |turn| range(turn, By::Any, Direction::Up)),
    ),
    of(
        "zrevrange",
        -4,
        "Returns members by their places, from the highest score down.",
        "key start stop [WITHSCORES]",
        |turn| begin(turn, |turn| range(turn, By::Rank, Direction::Down)),
    ),
    of(
        "zrevrangebyscore",
        -4,
        "Returns members with scores between two ends, from the highest down.",
        "key max min [WITHSCORES] [LIMIT offset count]",
        |turn| begin(turn, |turn| range(turn, By::Score, Direction::Down)),
    ),
    of(
        "zrangebylex",
        -4,
        "Returns members between two ends, where all scores are the same.",
        "key min max [LIMIT offset count]",
        |turn| begin(turn, |turn| range(turn, By::Lex, Direction::Up)),
    ),
    of(
        "zrevrangebylex",
        -4,
        "The same, from the last member down.",
        "key max min [LIMIT offset count]",
        |turn| begin(turn, |turn| range(turn, By::Lex, Direction::Down)),
    ),
    of(
        "zrank",
        -3,
        "Returns the place of a member from the lowest score up. Goes through those before it.",
        "key member [WITHSCORE]",
        |turn| begin(turn, |turn| rank(turn, Direction::Up)),
    ),
    of(
        "zrevrank",
        -3,
        "Returns the place of a member from the highest score down. Goes through those before it.",
        "key member [WITHSCORE]",
        |turn| begin(turn, |turn| rank(turn, Direction::Down)),
    ),
    writing(of(
        "zpopmin",
        -2,
        "Removes the members with the lowest scores, and returns them.",
        "key [count]",
        |turn| begin(turn, |turn| pop(turn, Direction::Up)),
    )),
    writing(of(
        "zpopmax",
        -2,
        "Removes the members with the highest scores, and returns them.",
        "key [count]",
        |turn| begin(turn, |turn| pop(turn, Direction::Down)),
    )),
    writing(of(
        "zremrangebyrank",
        4,
        "Removes members by their places.",
        "key start stop",
        |turn| {
            begin(turn, |turn| {
                let places = places(turn)?;
                Ok(SortedSetCommand::RemoveAll(Removes::Places(
                    places.0, places.1,
                )))
            })
        },
    )),
    writing(of(
        "zremrangebyscore",
        4,
        "Removes the members with scores between two ends.",
        "key min max",
        |turn| {
            begin(turn, |turn| {
                let scores = Scores::between(turn.args.at(2), turn.args.at(3))?;
                Ok(SortedSetCommand::RemoveAll(Removes::Selected(
                    Selects::Scores(scores),
                )))
            })
        },
    )),
    writing(of(
        "zremrangebylex",
        4,
        "Removes the members between two ends, where all scores are the same.",
        "key min max",
        |turn| {
            begin(turn, |turn| {
                let members = Members::between(turn.args.at(2), turn.args.at(3))?;
                Ok(SortedSetCommand::RemoveAll(Removes::Selected(
                    Selects::Members(members),
                )))
            })
        },
    )),
    of(
        "zrandmember",
        -2,
        "Returns members at random: different ones, or where the count is below zero any.",
        "key [count [WITHSCORES]]",
        |turn| begin(turn, random),
    ),
    of(
        "zscan",
        -3,
        "Goes through the members of a sorted set, in the order of their names, a page a call.",
        "key cursor [MATCH pattern] [COUNT count]",
        |turn| {
            begin(turn, |turn| {
                scan::page_of(turn, scan::Of::Scores).map(SortedSetCommand::Scan)
            })
        },
    ),
];

const NO_INTEGER: &str = "ERR value is not an integer or out of range";
const SYNTAX: &str = "ERR syntax error";

fn begin(
    turn: &mut Turn<'_>,
    does: impl FnOnce(&mut Turn<'_>) -> Result<SortedSetCommand, String>,
) -> Step {
    let does = does(turn).map(super::Does::Sorted);
    super::begin(turn, does)
}

/// Reads what `ZADD` was asked for.
fn add(turn: &mut Turn<'_>) -> Result<SortedSetCommand, String> {
    let mut add = Add::default();
    let [mut nx, mut xx, mut gt, mut lt] = [false; 4];
    let mut first = 2;
    while let Some(option) = turn.args.get(first) {
        match option.to_ascii_lowercase().as_slice() {
            b"nx" => nx = true,
            b"xx" => xx = true,
            b"gt" => gt = true,
            b"lt" => lt = true,
            b"ch" => add.tells_changed = true,
            b"incr" => add.increases = true,
            _ => break,
        }
        first += 1;
    }
    let pairs = turn.args.len().saturating_sub(first);
    if pairs == 0 || !pairs.is_multiple_of(2) {
        return Err(SYNTAX.to_owned());
    }
    add.only = match (nx, xx, gt, lt) {
        (true, true, ..) => {
            let text = "ERR XX and NX options at the same time are not compatible";
            return Err(text.to_owned());
        }
        (true, _, true, _) | (true, _, _, true) | (_, _, true, true) => {
            let text = "ERR GT, LT, and/or NX options at the same time are not compatible";
            return Err(text.to_owned());
        }
        (true, ..) => Only::New,
        (_, true, true, _) => Only::PresentAbove,
        (_, true, _, true) => Only::PresentBelow,
        (_, true, ..) => Only::Present,
        (_, _, true, _) => Only::Above,
        (_, _, _, true) => Only::Below,
        _ => Only::Any,
    };
    if add.increases && pairs > 2 {
        let text = "ERR INCR option supports a single increment-element pair";
        return Err(text.to_owned());
    }
    let mut args = turn.args.from(first);
    while let (Some(score), Some(member)) = (args.next(), args.next()) {
        let score = parse(score).ok_or(NO_SCORE)?;
        add.members.push((score, member.to_vec()));
    }
    Ok(SortedSetCommand::Add(add))
}

fn increase(turn: &mut Turn<'_>) -> Result<SortedSetCommand, String> {
    let score = parse(turn.args.at(2)).ok_or(NO_SCORE)?;
    Ok(SortedSetCommand::Add(Add {
        members: vec![(score, arg(turn, 3))],
        increases: true,
        ..Add::default()
    }))
}

fn rank(turn: &mut Turn<'_>, direction: Direction) -> Result<SortedSetCommand, String> {
    let with_score = match turn.args.get(3) {
        None => false,
        Some(option) if turn.args.len() == 4 && option.eq_ignore_ascii_case(b"withscore") => true,
        Some(_) => return Err(SYNTAX.to_owned()),
    };
    let member = arg(turn, 2);
    Ok(SortedSetCommand::Rank {
        member,
        direction,
        with_score,
    })
}

fn pop(turn: &mut Turn<'_>, direction: Direction) -> Result<SortedSetCommand, String> {
    let count = match (turn.args.get(2), turn.args.len()) {
        (None, _) => None,
        (Some(count), 3) => {
            let count = integer(count).and_then(|count| usize::try_from(count).ok());
            Some(count.ok_or("ERR value is out of range, must be positive")?)
        }
        (Some(_), _) => return Err(SYNTAX.to_owned()),
    };
    Ok(SortedSetCommand::Pop { direction, count })
}

fn random(turn: &mut Turn<'_>) -> Result<SortedSetCommand, String> {
    let Some(count) = turn.args.get(2) else {
        return Ok(SortedSetCommand::Random);
    };
    let count = scan::random_count(count)?;
    match turn.args.get(3) {
        None => Ok(SortedSetCommand::RandomSome(count, false)),
        Some(option) if turn.args.len() == 4 && option.eq_ignore_ascii_case(b"withscores") => {
            Ok(SortedSetCommand::RandomSome(count, true))
        }
        Some(_) => Err(SYNTAX.to_owned()),
    }
}

/// The two places that are the second and third arguments.
fn places(turn: &Turn<'_>) -> Result<(i64, i64), String> {
    let place = |at| integer(turn.args.at(at)).ok_or(NO_INTEGER);
    Ok((place(2)?, place(3)?))
}

/// What a range is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// As its options say, and which way.
    Any,
    Rank,
    Score,
    Lex,
}

/// Reads what a range was asked for.
fn range(turn: &mut Turn<'_>, by: By, direction: Direction) -> Result<SortedSetCommand, String> {
    let (mut chosen, mut direction) = (by, direction);
    let mut with_scores = false;
    let mut limit = None;
    let mut args = turn.args.from(4);
    while let Some(option) = args.next() {
        match option.to_ascii_lowercase().as_slice() {
            b"withscores" => with_scores = true,
            b"limit" if args.len() >= 2 => {
                let mut number = || args.next().and_then(integer).ok_or(NO_INTEGER);
                limit = Some((number()?, number()?));
            }
            b"rev" if by == By::Any => direction = Direction::Down,
            b"byscore" if by == By::Any && chosen != By::Lex => chosen = By::Score,
            b"bylex" if by == By::Any && chosen != By::Score => chosen = By::Lex,
            _ => return Err(SYNTAX.to_owned()),
        }
    }
    let by_rank = matches!(chosen, By::Any | By::Rank);
    if limit.is_some() && by_rank {
        let text =
            "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX";
        return Err(text.to_owned());
    }
    if with_scores && chosen == By::Lex {
        let text = "ERR syntax error, WITHSCORES not supported in combination with BYLEX";
        return Err(text.to_owned());
    }
    if by_rank {
        let (first, last) = places(turn)?;
        return Ok(SortedSetCommand::Places {
            first,
            last,
            direction,
            with_scores,
        });
    }
    let (from, to) = match direction {
        Direction::Up => (turn.args.at(2), turn.args.at(3)),
        Direction::Down => (turn.args.at(3), turn.args.at(2)),
    };
    let selects = match chosen {
        By::Lex => Selects::Members(Members::between(from, to)?),
        _ => Selects::Scores(Scores::between(from, to)?),
    };
    let (offset, count) = limit.unwrap_or((0, -1));
    Ok(SortedSetCommand::Range(Range {
        selects,
        direction,
        offset: usize::try_from(offset).ok(),
        most: usize::try_from(count).unwrap_or(usize::MAX),
        with_scores,
    }))
}
