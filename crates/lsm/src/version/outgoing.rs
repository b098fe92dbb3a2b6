//! How bytes of a region's segments go to other members: with segment numbers in place of this member's places, the
//! form in which all members' bytes are equal ([`addresses`](crate::addresses)).

use std::ops::Range;

use argosy_base::{KeyRange, Pointer, SegmentNumber};

use super::{LevelEntry, Version};
use crate::addresses::{Addressing, DEAD, level_error};
use crate::level::form_and_refs;
use crate::level::pointers::{for_each_pointer_mut, forget_uncounted};
use crate::names::{Form, LevelError};

/// [Translates](translate_out) `bytes`, which go to another member, and checks them where they are all of a finished
/// segment whose bytes are equal on all members: who finds out here that they are damaged can have them repaired.
///
/// # Errors
/// As [`translate_out`]'s.
pub(crate) fn send_out(
    version: &Version,
    number: SegmentNumber,
    bytes: &mut [u8],
) -> Result<(), LevelError> {
    translate_out(version, number, bytes)?;
    let Some(entry) = version.finished_segment(number) else {
        return Ok(());
    };
    let segment = &entry.segment;
    let equal = !version.addresses().rewrites(segment);
    let name = version.name_of(segment);
    if !equal || bytes.len() != segment.len as usize || name.checksum(bytes) == segment.checksum {
        return Ok(());
    }
    Err(name.corrupt(
        0,
        "the segment does not have the checksum that the manifest states",
    ))
}

/// Puts segment numbers in place of this member's places in `bytes`, which are all bytes of segment
/// `number` of `version` as they lie on the device: the form in which they go to other members, and
/// in which members' bytes are equal. Nothing is done where pointers hold numbers already, or where
/// `number` is no level segment.
///
/// # Errors
/// The bytes are damaged, or a pointer leads to a place where `version` has nothing.
pub(crate) fn translate_out(
    version: &Version,
    number: SegmentNumber,
    bytes: &mut [u8],
) -> Result<(), LevelError> {
    if rewritten(version, number).is_none() {
        return Ok(());
    }
    let counted: Vec<_> = version
        .counted_ranges(number)
        .into_iter()
        .cloned()
        .collect();
    translate_counted(version, number, &counted, bytes)
}

/// The same, where of the segment's pointers only those of keys in `counted` go out.
pub(crate) fn translate_counted(
    version: &Version,
    number: SegmentNumber,
    counted: &[KeyRange],
    bytes: &mut [u8],
) -> Result<(), LevelError> {
    let Some(entry) = rewritten(version, number) else {
        return Ok(());
    };
    let name = version.name_of(&entry.segment);
    let (form, refs) = form_and_refs(name, bytes)?;
    if !form.is_index() {
        forget_uncounted(name, bytes, counted, DEAD).map_err(|error| level_error(name, error))?;
    }
    let visited = match form {
        Form::Index(_) => {
            let mut homes = Homes::new(refs);
            let visited = for_each_pointer_mut(name, bytes, |_, at| homes.resolve(at));
            if !homes.is_complete() {
                let what = "an index segment leads to other segments than its footer says";
                return Err(name.corrupt(0, what));
            }
            visited
        }
        _ => for_each_pointer_mut(name, bytes, |_, at| match at.segment() {
            DEAD => Some(at),
            _ => version.resolve(at),
        }),
    };
    visited.map(drop).map_err(|error| level_error(name, error))
}

/// The numbers of the segments that the nodes of an index segment lead to, found by their order. The
/// places in its pointers cannot tell: a segment of a tree may have left the version, and another one
/// lie where it lay.
struct Homes {
    /// As the footer lists them, the next one last.
    left: Vec<(SegmentNumber, u64)>,
    /// The segment that the last pointer led to: its high bits, its number, and how many more
    /// pointers lead there.
    now: Option<(SegmentNumber, SegmentNumber, u64)>,
}

impl Homes {
    fn new(mut refs: Vec<(SegmentNumber, u64)>) -> Self {
        refs.reverse();
        Self {
            left: refs,
            now: None,
        }
    }

    /// The next pointer, `at`, with its segment's number.
    fn resolve(&mut self, at: Pointer) -> Option<Pointer> {
        let (high, number, more) = match self.now {
            Some((high, number, more)) if more > 0 => (high, number, more),
            _ => {
                let (number, count) = self.left.pop()?;
                (at.segment(), number, count)
            }
        };
        self.now = Some((high, number, more.checked_sub(1)?));
        (high == at.segment()).then(|| Pointer::new(number, at.offset()))
    }

    /// Whether every pointer has been shown that the footer counts.
    fn is_complete(&self) -> bool {
        self.left.is_empty() && self.now.is_none_or(|(_, _, more)| more == 0)
    }
}

/// Whether other members can have `bytes` of segment `number` of `version`: a level segment
/// whose pointers are translated goes out as a whole.
pub(crate) fn goes_out(version: &Version, number: SegmentNumber, bytes: &Range<u32>) -> bool {
    rewritten(version, number).is_none_or(|entry| *bytes == (0..entry.segment.len))
}

/// Segment `number`, if it is a level segment of `version` whose bytes differ from member to member.
fn rewritten(version: &Version, number: SegmentNumber) -> Option<&LevelEntry> {
    if !version.addresses().hold_places() {
        return None;
    }
    let entry = version.level_segment(number);
    entry.filter(|entry| version.addresses().rewrites(&entry.segment))
}
