//! Commands that go through a composite a page a call (`HSCAN` and the like), and those that take any of its elements.
//!
//! A cursor stands for the name at which the scan goes on, on the server that gave it out, as that of `SCAN` does
//! ([`cursors`](crate::resp::cursors)).

use std::collections::BTreeSet;

use argosy_engine::change::integer;

use super::opened::Opened;
use super::sorted::shown_value;
use super::told::Told;
use crate::resp::command::{Turn, number};
use crate::resp::front::FrontEnd;
use crate::resp::glob::{self, PATTERN_BYTES_MAX};
use crate::resp::overlay::{Elements, Halt};

/// Elements that a call reads without a `COUNT`, and the most.
const PAGE: u64 = 10;
const PAGE_MAX: u64 = 10_000;

/// Most elements that are taken at random where some come again.
const RANDOM_MAX: i64 = 1 << 20;

/// What a composite is gone through for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// Names alone.
    Names,
    /// Names, and their values.
    Values,
    /// Names, and the scores that their values are.
    Scores,
}

/// What a call asks for.
#[derive(Debug)]
pub(super) struct Page {
    /// The name at which it goes on; `None`: at the first.
    from: Option<Vec<u8>>,
    pattern: Option<Vec<u8>>,
    count: usize,
    of: Of,
}

impl Page {
    /// Whether values are not shown.
    pub(super) const fn asks_for_names(&self) -> bool {
        matches!(self.of, Of::Names)
    }
}

/// Reads the arguments of a call.
///
/// # Errors
/// In words for the client.
pub(super) fn page_of(turn: &mut Turn<'_>, of: Of) -> Result<Page, String> {
    let cursor = number(turn.args.at(2)).ok_or("ERR invalid cursor")?;
    let mut page = Page {
        from: None,
        pattern: None,
        count: usize::try_from(PAGE).unwrap_or(usize::MAX),
        of,
    };
    let mut args = turn.args.from(3);
    while let Some(name) = args.next() {
        let is = |option: &[u8]| name.eq_ignore_ascii_case(option);
        if is(b"novalues") && of == Of::Values {
            page.of = Of::Names;
        } else if is(b"match")
            && let Some(pattern) = args.next()
        {
            if pattern.len() > PATTERN_BYTES_MAX {
                let len = pattern.len();
                return Err(format!(
                    "ERR a pattern of {len} bytes is over the limit of {PATTERN_BYTES_MAX} bytes (max_pattern_bytes)"
                ));
            }
            page.pattern = Some(pattern.to_vec());
        } else if is(b"count")
            && let Some(count) = args.next()
        {
            let count = number(count).ok_or("ERR value is not an integer or out of range")?;
            if count == 0 {
                return Err("ERR syntax error".to_owned());
            }
            page.count = usize::try_from(count.min(PAGE_MAX)).unwrap_or(usize::MAX);
        } else {
            return Err("ERR syntax error".to_owned());
        }
    }
    if cursor != 0 {
        let known = turn.context.front.cursors().resolve(cursor);
        page.from = Some(known.ok_or_else(|| {
            format!(
                "ERR cursor {cursor} is not known here: it is too old, or of another server or an earlier start; \
                 begin the scan again with cursor 0"
            )
        })?);
    }
    Ok(page)
}

/// A page of a composite.
///
/// # Errors
/// [`Halt::NotRead`].
pub(super) fn page(
    opened: &mut Opened<'_, '_>,
    page: &Page,
    front: &FrontEnd,
) -> Result<Told, Halt> {
    let mut found = opened.fields_from(page.from.as_deref(), page.count + 1)?;
    let next = (found.len() > page.count).then(|| found.pop()).flatten();
    let cursor = next.map_or(0, |(name, _)| front.cursors().issue(name));
    let mut told = Vec::new();
    for (name, value) in found {
        let pattern = page.pattern.as_deref();
        if pattern.is_none_or(|pattern| glob::matches(pattern, &name)) {
            told.push(name);
            match page.of {
                Of::Names => {}
                Of::Values => told.push(value),
                Of::Scores => told.push(shown_value(&value)),
            }
        }
    }
    Ok(Told::Page(cursor, told))
}

/// How many elements are taken at random.
///
/// # Errors
/// In words for the client.
pub(super) fn random_count(text: &[u8]) -> Result<i64, String> {
    let count = integer(text).ok_or("ERR value is not an integer or out of range")?;
    match count < -RANDOM_MAX {
        true => Err(format!(
            "ERR value is out of range: at most {RANDOM_MAX} elements are taken at a time, where some come again"
        )),
        false => Ok(count),
    }
}

/// Some fields or members, and what they are bound to: as many different ones as `count` says, or where that is below
/// zero so many, each of which may come again. All of them are read for that.
///
/// # Errors
/// [`Halt::NotRead`].
pub(super) fn random(opened: &mut Opened<'_, '_>, count: i64) -> Result<Elements, Halt> {
    if count == 0 || !opened.exists() {
        return Ok(Vec::new());
    }
    let all = opened.fields_from(None, usize::MAX)?;
    let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
    if all.is_empty() || count > 0 && wanted >= all.len() {
        return Ok(all);
    }
    let bound = all.len() as u64;
    let mut any = || usize::try_from(opened.below(bound)).unwrap_or(0);
    if count < 0 {
        return Ok((0..wanted).map(|_| all[any()].clone()).collect());
    }
    let mut chosen = BTreeSet::new();
    while chosen.len() < wanted {
        chosen.insert(any());
    }
    Ok(chosen.into_iter().map(|at| all[at].clone()).collect())
}
