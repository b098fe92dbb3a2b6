//! What commands on sorted sets do.
//!
//! A member has two elements: one by its name, which has its score, and one by its score. Both are put and removed
//! together. So a member's score is looked up, and ranges of scores are read in order, whatever the size of the set;
//! but how many members lie before one is found by going past them, of which nothing is kept.

use argosy_base::{Direction, KeyRange};
use argosy_engine::composite::{CompositeType, Name};

use super::opened::Opened;
use super::scan::{self, Page};
use super::score::{Members, Scores, of_element, of_value, text_of, to_value};
use super::told::Told;
use crate::resp::front::FrontEnd;
use crate::resp::overlay::{Halt, Overlay};

/// What a command does.
#[derive(Debug)]
pub(super) enum SortedSetCommand {
    Add(Add),
    Remove(Vec<Vec<u8>>),
    Score(Vec<u8>),
    Scores(Vec<Vec<u8>>),
    Count,
    CountOf(Selects),
    /// Between two places, from the end where below zero.
    Places {
        first: i64,
        last: i64,
        direction: Direction,
        with_scores: bool,
    },
    Range(Range),
    Rank {
        member: Vec<u8>,
        direction: Direction,
        with_score: bool,
    },
    /// So many, or the first one.
    Pop {
        direction: Direction,
        count: Option<usize>,
    },
    RemoveAll(Removes),
    Random,
    RandomSome(i64, bool),
    Scan(Page),
}

/// What `ZADD` was asked for.
#[derive(Debug, Default)]
pub(super) struct Add {
    pub(super) members: Vec<(f64, Vec<u8>)>,
    pub(super) only: Only,
    /// Those that have changed count, too.
    pub(super) tells_changed: bool,
    /// Scores are added to what there is, and the sum is told.
    pub(super) increases: bool,
}

/// Which members get a score.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Only {
    #[default]
    Any,
    New,
    Present,
    /// New ones, and those for which it is a higher one.
    Above,
    Below,
    PresentAbove,
    PresentBelow,
}

impl Only {
    /// Whether a member gets the score `new` that has the score `old`, or is not there.
    fn holds(self, old: Option<f64>, new: f64) -> bool {
        match (self, old) {
            (Self::Any, _) | (Self::Present, Some(_)) => true,
            (Self::New, old) => old.is_none(),
            (Self::Present | Self::PresentAbove | Self::PresentBelow, None) => false,
            (Self::Above | Self::Below, None) => true,
            (Self::Above | Self::PresentAbove, Some(old)) => new > old,
            (Self::Below | Self::PresentBelow, Some(old)) => new < old,
        }
    }
}

/// Members that lie together in an order.
#[derive(Debug)]
pub(super) enum Selects {
    Scores(Scores),
    Members(Members),
}

/// What a range was asked for.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) selects: Selects,
    pub(super) direction: Direction,
    /// How many are left out first; `None`: all are.
    pub(super) offset: Option<usize>,
    pub(super) most: usize,
    pub(super) with_scores: bool,
}

/// Which members are removed.
#[derive(Debug)]
pub(super) enum Removes {
    Places(i64, i64),
    Selected(Selects),
}

/// Members and their scores.
type Scored = Vec<(Vec<u8>, f64)>;

impl Selects {
    fn keys(&self, set: &Opened<'_, '_>) -> KeyRange {
        match self {
            Self::Scores(scores) => scores.keys(set.head()),
            Self::Members(members) => members.keys(set.head()),
        }
    }
}

impl SortedSetCommand {
    pub(super) fn is_of_one_moment(&self) -> bool {
        match self {
            Self::Score(_) | Self::Scores(_) | Self::CountOf(_) | Self::Scan(_) => true,
            Self::Range(range) => range.offset == Some(0),
            _ => false,
        }
    }

    pub(super) fn run(
        &self,
        key: &[u8],
        overlay: &mut Overlay<'_>,
        front: &FrontEnd,
    ) -> Result<Told, Halt> {
        let mut set = Opened::of(overlay, key, CompositeType::SortedSet)?;
        Ok(match self {
            Self::Add(add) => add.run(set)?,
            Self::Remove(members) => {
                set.know(members.iter().map(Vec::as_slice))?;
                let mut removed = 0;
                for member in members {
                    removed += i64::from(remove(&mut set, member)?);
                }
                set.close()?;
                Told::Number(removed)
            }
            Self::Score(member) => Told::score(score_of(&mut set, member)?),
            Self::Scores(members) => {
                set.know(members.iter().map(Vec::as_slice))?;
                let scores = members.iter().map(|member| score_of(&mut set, member));
                Told::Scores(scores.collect::<Result<_, _>>()?)
            }
            Self::Count => Told::count(set.number()),
            Self::CountOf(selects) => {
                let keys = selects.keys(&set);
                Told::count(set.pass(&keys, Direction::Up, usize::MAX)?.0)
            }
            Self::Places {
                first,
                last,
                direction,
                with_scores,
            } => {
                let found = at_places(&mut set, *first, *last, *direction)?;
                shown(found, *with_scores)
            }
            Self::Range(range) => range.run(&mut set)?,
            Self::Rank {
                member,
                direction,
                with_score,
            } => rank(&mut set, member, *direction, *with_score)?,
            Self::Pop { direction, count } => pop(set, *direction, *count)?,
            Self::RemoveAll(removes) => removes.run(set)?,
            Self::Random => {
                let one = scan::random(&mut set, 1)?.into_iter().next();
                Told::value(one.map(|(member, _)| member))
            }
            Self::RandomSome(count, with_scores) => {
                let some = scan::random(&mut set, *count)?.into_iter();
                let some = some.map(|(member, score)| (member, of_value(&score)));
                shown(some.collect(), *with_scores)
            }
            Self::Scan(page) => scan::page(&mut set, page, front)?,
        })
    }
}

impl Add {
    fn run(&self, mut set: Opened<'_, '_>) -> Result<Told, Halt> {
        set.know(self.members.iter().map(|(_, member)| member.as_slice()))?;
        let (mut new, mut changed, mut sum) = (0, 0, None);
        for (score, member) in &self.members {
            let old = score_of(&mut set, member)?;
            let score = match (self.increases, old) {
                (true, Some(old)) => old + score,
                _ => *score,
            };
            if score.is_nan() {
                let text = "ERR resulting score is not a number (NaN)";
                return Err(Halt::Refused(text.to_owned()));
            }
            if !self.only.holds(old, score) {
                continue;
            }
            sum = Some(score);
            match old {
                None => new += 1,
                Some(old) if old.total_cmp(&score).is_ne() => changed += 1,
                Some(_) => continue,
            }
            if let Some(old) = old {
                set.remove(Name::Score(old, member))?;
            }
            set.put_field(member, &to_value(score))?;
            set.put(Name::Score(score, member), b"")?;
        }
        set.close()?;
        Ok(match (self.increases, self.tells_changed) {
            (true, _) => Told::score(sum),
            (false, true) => Told::Number(new + changed),
            (false, false) => Told::Number(new),
        })
    }
}

impl Range {
    fn run(&self, set: &mut Opened<'_, '_>) -> Result<Told, Halt> {
        let mut keys = self.selects.keys(set);
        let found = match self.offset {
            None => Vec::new(),
            Some(offset) => {
                if offset > 0 {
                    (_, keys) = set.pass(&keys, self.direction, offset)?;
                }
                scored(set, &keys, self.direction, self.most)?
            }
        };
        Ok(shown(found, self.with_scores))
    }
}

impl Removes {
    fn run(&self, mut set: Opened<'_, '_>) -> Result<Told, Halt> {
        let found = match self {
            Self::Places(first, last) => at_places(&mut set, *first, *last, Direction::Up)?,
            Self::Selected(selects) => {
                let keys = selects.keys(&set);
                scored(&mut set, &keys, Direction::Up, usize::MAX)?
            }
        };
        remove_all(set, &found)?;
        Ok(Told::count(found.len()))
    }
}

/// Removes the first member from one of the ends, or so many, and tells of them.
fn pop(mut set: Opened<'_, '_>, direction: Direction, count: Option<usize>) -> Result<Told, Halt> {
    let keys = set.head().scores();
    let found = scored(&mut set, &keys, direction, count.unwrap_or(1))?;
    remove_all(set, &found)?;
    Ok(match count {
        Some(_) => Told::Scored(found),
        None => Told::Popped(found.into_iter().next()),
    })
}

fn score_of(set: &mut Opened<'_, '_>, member: &[u8]) -> Result<Option<f64>, Halt> {
    Ok(set.field(member)?.map(|value| of_value(&value)))
}

/// The first `most` members whose elements are in `keys`.
fn scored(
    set: &mut Opened<'_, '_>,
    keys: &KeyRange,
    direction: Direction,
    most: usize,
) -> Result<Scored, Halt> {
    let found = set.elements(keys, direction, most)?;
    let found = found.iter();
    Ok(found
        .filter_map(|(key, value)| of_element(key, value))
        .collect())
}

/// The members from one place to another, both included, counted from the end where below zero.
fn at_places(
    set: &mut Opened<'_, '_>,
    first: i64,
    last: i64,
    direction: Direction,
) -> Result<Scored, Halt> {
    let len = i64::try_from(set.number()).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (first, last) = (place(first).max(0), place(last).min(len - 1));
    if first > last {
        return Ok(Vec::new());
    }
    let size = |places: i64| usize::try_from(places).unwrap_or(0);
    // From the end that is nearer.
    let (before, behind) = (size(first), size(len - 1 - last));
    let turned = behind < before;
    let from = match (direction, turned) {
        (Direction::Up, false) | (Direction::Down, true) => Direction::Up,
        (Direction::Up, true) | (Direction::Down, false) => Direction::Down,
    };
    let mut keys = set.head().scores();
    let skipped = before.min(behind);
    if skipped > 0 {
        (_, keys) = set.pass(&keys, from, skipped)?;
    }
    let mut found = scored(set, &keys, from, size(last - first + 1))?;
    if turned {
        found.reverse();
    }
    Ok(found)
}

/// How many members lie before one, from one of the ends.
fn rank(
    set: &mut Opened<'_, '_>,
    member: &[u8],
    direction: Direction,
    with_score: bool,
) -> Result<Told, Halt> {
    let Some(score) = score_of(set, member)? else {
        return Ok(match with_score {
            true => Told::NullArray,
            false => Told::Null,
        });
    };
    let mut keys = set.head().scores();
    let own = set.head().element(Name::Score(score, member)).to_key();
    match direction {
        Direction::Up => keys.to = Some(own),
        Direction::Down => keys.from = argosy_base::range::successor(&own),
    }
    let (before, _) = set.pass(&keys, direction, usize::MAX)?;
    Ok(match with_score {
        true => Told::Place(before, score),
        false => Told::count(before),
    })
}

/// Removes a member. Returns whether there was one.
fn remove(set: &mut Opened<'_, '_>, member: &[u8]) -> Result<bool, Halt> {
    let Some(score) = set.remove_field(member)? else {
        return Ok(false);
    };
    set.remove(Name::Score(of_value(&score), member))?;
    Ok(true)
}

fn remove_all(mut set: Opened<'_, '_>, found: &Scored) -> Result<(), Halt> {
    for (member, score) in found {
        set.forget_field(member)?;
        set.remove(Name::Score(*score, member))?;
    }
    set.close()
}

fn shown(found: Scored, with_scores: bool) -> Told {
    match with_scores {
        true => Told::Scored(found),
        false => Told::List(found.into_iter().map(|(member, _)| member).collect()),
    }
}

/// A score as a value of a page.
pub(super) fn shown_value(value: &[u8]) -> Vec<u8> {
    text_of(of_value(value)).into_bytes()
}
