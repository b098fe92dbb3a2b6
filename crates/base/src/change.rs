//! Changes: writes whose outcome depends on what the key is bound to.
//!
//! A change is evaluated where the region's writes are put in order, so no other write comes between
//! looking and writing. What it comes to is written like any other pair: logs, copies and levels know
//! nothing of changes.

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use crate::composite::{is_any_head, is_composite};
use crate::limits::VALUE_BYTES_MAX;
use crate::long::is_head;
use crate::{Expiry, Moment};

/// What to make of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Add this to a decimal number; a key that is not bound counts as 0.
    Add(i64),
    /// Add the number with these bits ([`f64::to_bits`]) to a decimal fraction; a key that is not bound
    /// counts as 0.
    AddFloat(u64),
    /// Put the operand behind the value.
    Append,
    /// Overwrite the value with the operand from this byte on; what lacks in front of it is zero.
    Overwrite(u32),
    /// Have the pair, if there is one, expire then, and only if. Tells 1 or 0.
    Expire(Expiry, Only),
}

/// When a change of an expiry is to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Only {
    /// In any case.
    #[default]
    Any,
    /// If the pair does not expire.
    Lasting,
    /// If it does.
    Expiring,
    /// If it expires earlier than it will.
    Later,
    /// If it expires later than it will, or never.
    Earlier,
    /// If it expires, but later than it will.
    Sooner,
}

impl Only {
    const ALL: [Self; 6] = [
        Self::Any,
        Self::Lasting,
        Self::Expiring,
        Self::Later,
        Self::Earlier,
        Self::Sooner,
    ];

    /// Whether an expiry at `old` becomes one at `new`; `None` is never.
    fn holds(self, old: Option<Moment>, new: Option<Moment>) -> bool {
        const NEVER: Moment = Moment(u64::MAX);
        let (from, to) = (old.unwrap_or(NEVER), new.unwrap_or(NEVER));
        match self {
            Self::Any => true,
            Self::Lasting => old.is_none(),
            Self::Expiring => old.is_some(),
            // As in Redis: what never expires is not made to expire later.
            Self::Later => old.is_some() && to > from,
            Self::Earlier => to < from,
            Self::Sooner => old.is_some() && to < from,
        }
    }
}

/// What a change is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Was<'a> {
    /// The value; `None` where the key is not bound.
    pub value: Option<&'a [u8]>,
    /// When the pair expires.
    pub expiry: Option<Moment>,
    /// The region's time.
    pub now: Moment,
}

/// Why a change cannot be made of this value. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The value is no number that can be added to.
    #[error("value is not an integer or out of range")]
    NotAnInteger,
    /// The sum is out of range.
    #[error("increment or decrement would overflow")]
    Overflow,
    /// The value is no fraction that can be added to.
    #[error("value is not a valid float")]
    NotAFloat,
    /// The sum is no number.
    #[error("increment would produce NaN or Infinity")]
    NotFinite,
    /// The value would become too long.
    #[error("the value would have over {VALUE_BYTES_MAX} bytes (max_value_bytes)")]
    TooLong,
    /// The value is kept in parts.
    #[error("values of over {VALUE_BYTES_MAX} bytes are read and written as a whole only")]
    Long,
    /// The value is a composite.
    #[error("Operation against a key holding the wrong kind of value")]
    WrongType,
}

impl Refusal {
    /// All of them, each at the place that stands for it on the wire. DO NOT CHANGE THE ORDER.
    pub const ALL: [Self; 7] = [
        Self::NotAnInteger,
        Self::Overflow,
        Self::NotAFloat,
        Self::NotFinite,
        Self::TooLong,
        Self::Long,
        Self::WrongType,
    ];
}

/// What a change tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Changed {
    /// The sum, or the length of the value.
    Number(i64),
    /// The new value.
    Value(Vec<u8>),
    /// It was not made.
    Refused(Refusal),
}

/// What a change comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The value to write; `None`: nothing is written.
    pub value: Option<Vec<u8>>,
    /// When it expires. In the past: the key is removed.
    pub expiry: Option<Moment>,
    /// What is told.
    pub told: Changed,
}

impl Effect {
    const fn refused(why: Refusal) -> Self {
        Self {
            value: None,
            expiry: None,
            told: Changed::Refused(why),
        }
    }

    fn long(value: Vec<u8>) -> Self {
        let told = Changed::Number(i64::try_from(value.len()).unwrap_or(i64::MAX));
        Self::of(Some(value), told)
    }

    const fn of(value: Option<Vec<u8>>, told: Changed) -> Self {
        Self {
            value,
            expiry: None,
            told,
        }
    }
}

impl Change {
    /// What this change, with `operand`, makes of what there was. Unless it is about that, the pair
    /// expires when it would have.
    #[must_use]
    pub fn of(self, operand: &[u8], was: Was<'_>) -> Effect {
        match self {
            Self::Expire(expiry, only) => expire(expiry, only, was),
            _ if was.value.is_some_and(is_composite) => Effect::refused(Refusal::WrongType),
            _ if was.value.is_some_and(is_head) => Effect::refused(Refusal::Long),
            other => {
                let effect = other.of_value(operand, was.value);
                match effect.value.as_deref().is_some_and(is_any_head) {
                    true => Effect::refused(Refusal::Long),
                    false => Effect {
                        expiry: was.expiry,
                        ..effect
                    },
                }
            }
        }
    }

    fn of_value(self, operand: &[u8], bound: Option<&[u8]>) -> Effect {
        match self {
            Self::Expire(..) => unreachable!("it is about the expiry"),
            Self::Add(number) => add(number, bound),
            Self::AddFloat(bits) => add_float(f64::from_bits(bits), bound),
            Self::Append => {
                let value = bound.unwrap_or_default();
                if value.len() + operand.len() > VALUE_BYTES_MAX {
                    return Effect::refused(Refusal::TooLong);
                }
                Effect::long([value, operand].concat())
            }
            Self::Overwrite(from) => overwrite(from, operand, bound),
        }
    }

    /// The change as two numbers, for the wire. DO NOT CHANGE THE VALUES.
    #[must_use]
    pub const fn to_parts(self) -> (u8, u64) {
        match self {
            Self::Add(number) => (1, number.cast_unsigned()),
            Self::AddFloat(bits) => (2, bits),
            Self::Append => (3, 0),
            Self::Overwrite(from) => (4, from as u64),
            Self::Expire(expiry, only) => {
                let (kind, number) = expiry.to_parts();
                (EXPIRE + 4 * only as u8 + kind, number)
            }
        }
    }

    /// The change of these [parts](Self::to_parts), if there is one.
    #[must_use]
    pub fn from_parts(kind: u8, number: u64) -> Option<Self> {
        match (kind, number) {
            (1, number) => Some(Self::Add(number.cast_signed())),
            (2, bits) => Some(Self::AddFloat(bits)),
            (3, 0) => Some(Self::Append),
            (4, from) => u32::try_from(from).ok().map(Self::Overwrite),
            (kind, number) => {
                let kind = kind.checked_sub(EXPIRE)?;
                let only = *Only::ALL.get(usize::from(kind / 4))?;
                Some(Self::Expire(Expiry::from_parts(kind % 4, number)?, only))
            }
        }
    }
}

/// The first kind of a change of an expiry, on the wire.
const EXPIRE: u8 = 16;

fn expire(expiry: Expiry, only: Only, was: Was<'_>) -> Effect {
    let new = expiry.resolve(was.now, was.expiry);
    let value = was
        .value
        .filter(|_| only.holds(was.expiry, new) && new != was.expiry);
    let told = was.value.is_some() && only.holds(was.expiry, new);
    // That a pair which never expires goes on so is no change.
    let told = told && !(expiry == Expiry::Never && was.expiry.is_none());
    Effect {
        expiry: new,
        ..Effect::of(value.map(<[u8]>::to_vec), Changed::Number(told.into()))
    }
}

/// A whole number as it is stored: decimal, without leading zeros or a plus sign.
#[must_use]
pub fn integer(bytes: &[u8]) -> Option<i64> {
    let digits = bytes.strip_prefix(b"-").unwrap_or(bytes);
    let plain = digits.iter().all(u8::is_ascii_digit) && !digits.is_empty();
    let canonical = digits[..].first() != Some(&b'0') || bytes == b"0";
    if !plain || !canonical {
        return None;
    }
    core::str::from_utf8(bytes).ok()?.parse().ok()
}

/// A number with a fraction, as it is stored. Neither infinite nor none.
#[must_use]
pub fn float(bytes: &[u8]) -> Option<f64> {
    let text = core::str::from_utf8(bytes).ok()?;
    // What Rust takes beyond a number are names.
    let number = text.bytes().all(|byte| b"0123456789+-.eE".contains(&byte));
    let parsed: f64 = text.parse().ok().filter(|_| number)?;
    parsed.is_finite().then_some(parsed)
}

/// A [`float`], or infinity (`inf`, `-Infinity`).
#[must_use]
pub fn float_or_infinity(bytes: &[u8]) -> Option<f64> {
    let (sign, rest) = match bytes.split_first() {
        Some((b'-', rest)) => (-1.0, rest),
        Some((b'+', rest)) => (1.0, rest),
        _ => (1.0, bytes),
    };
    let is = |name: &[u8]| rest.eq_ignore_ascii_case(name);
    match is(b"inf") || is(b"infinity") {
        true => Some(sign * f64::INFINITY),
        false => float(bytes),
    }
}

fn add(number: i64, bound: Option<&[u8]>) -> Effect {
    let Some(value) = bound.map_or(Some(0), integer) else {
        return Effect::refused(Refusal::NotAnInteger);
    };
    match value.checked_add(number) {
        Some(sum) => Effect::of(Some(sum.to_string().into_bytes()), Changed::Number(sum)),
        None => Effect::refused(Refusal::Overflow),
    }
}

fn add_float(number: f64, bound: Option<&[u8]>) -> Effect {
    let Some(value) = bound.map_or(Some(0.0), float_or_infinity) else {
        return Effect::refused(Refusal::NotAFloat);
    };
    let sum = value + number;
    if !sum.is_finite() {
        return Effect::refused(Refusal::NotFinite);
    }
    let text = float_text(sum).into_bytes();
    Effect::of(Some(text.clone()), Changed::Value(text))
}

/// `number` in decimal, without an exponent. It is rounded to 15 digits where that changes it by no more
/// than adding it up did, so that 0.1 and 0.2 make 0.3.
fn float_text(number: f64) -> String {
    let rounded: f64 = format!("{number:.14e}").parse().unwrap_or(number);
    let near = (rounded - number).abs() <= number.abs() * 2.0 * f64::EPSILON;
    let shown = if near { rounded } else { number };
    // There is no negative zero for who reads it.
    if shown == 0.0 {
        "0".to_owned()
    } else {
        shown.to_string()
    }
}

fn overwrite(from: u32, operand: &[u8], bound: Option<&[u8]>) -> Effect {
    let mut value = bound.unwrap_or_default().to_vec();
    if operand.is_empty() {
        return Effect {
            value: None,
            ..Effect::long(value)
        };
    }
    let from = from as usize;
    let end = from.saturating_add(operand.len());
    if end > VALUE_BYTES_MAX {
        return Effect::refused(Refusal::TooLong);
    }
    if value.len() < end {
        value.resize(end, 0);
    }
    value[from..end].copy_from_slice(operand);
    Effect::long(value)
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn told(change: Change, operand: &[u8], bound: Option<&[u8]>) -> Changed {
        of(change, operand, bound).told
    }

    fn of(change: Change, operand: &[u8], value: Option<&[u8]>) -> Effect {
        let was = Was {
            value,
            ..Was::default()
        };
        change.of(operand, was)
    }

    #[test]
    fn expiries_are_changed_on_their_conditions() {
        let at = |moment| Some(Moment(moment));
        let expire = |expiry, only, old| {
            let was = Was {
                value: Some(b"v"),
                expiry: old,
                now: Moment(100),
            };
            let effect = Change::Expire(expiry, only).of(b"", was);
            (
                effect.told == Changed::Number(1),
                effect.value.is_some(),
                effect.expiry,
            )
        };
        let ten = Expiry::After(10);
        assert_eq!(expire(ten, Only::Any, None), (true, true, at(110)));
        assert!(!expire(ten, Only::Lasting, at(200)).0);
        assert!(!expire(ten, Only::Expiring, None).0);
        assert!(!expire(ten, Only::Later, None).0);
        assert_eq!(expire(ten, Only::Later, at(105)), (true, true, at(110)));
        assert!(!expire(ten, Only::Later, at(110)).0);
        assert_eq!(expire(ten, Only::Earlier, None), (true, true, at(110)));
        assert!(!expire(ten, Only::Earlier, at(105)).0);
        let never = Expiry::Never;
        assert_eq!(expire(never, Only::Any, at(105)), (true, true, None));
        assert_eq!(expire(never, Only::Any, None), (false, false, None));
        let nothing = Change::Expire(ten, Only::Any).of(b"", Was::default());
        assert_eq!((nothing.value, nothing.told), (None, Changed::Number(0)));
    }

    #[test]
    fn other_changes_keep_the_expiry() {
        let was = Was {
            value: Some(b"1"),
            expiry: Some(Moment(7)),
            now: Moment(5),
        };
        assert_eq!(Change::Add(1).of(b"", was).expiry, Some(Moment(7)));
    }

    #[test]
    fn whole_numbers_are_added() {
        let add = |number, bound: &[u8]| told(Change::Add(number), b"", Some(bound));
        assert_eq!(
            told(Change::Add(-3), b"", None),
            Changed::Number(-3),
            "nothing counts as 0"
        );
        assert_eq!(add(5, b"-7"), Changed::Number(-2));
        assert_eq!(add(1, b"9223372036854775806"), Changed::Number(i64::MAX));
        let refused = Changed::Refused;
        assert_eq!(add(1, b"9223372036854775807"), refused(Refusal::Overflow));
        for none in [
            "",
            "-",
            "01",
            "+1",
            " 1",
            "1.0",
            "9223372036854775808",
            "-0",
        ] {
            let why = refused(Refusal::NotAnInteger);
            assert_eq!(add(1, none.as_bytes()), why, "{none:?}");
        }
    }

    #[test]
    fn fractions_are_added() {
        let add = |number: f64, bound: &[u8]| {
            let change = Change::AddFloat(number.to_bits());
            match told(change, b"", Some(bound)) {
                Changed::Value(text) => String::from_utf8(text).unwrap(),
                other => format!("{other:?}"),
            }
        };
        assert_eq!(add(0.1, b"10.50"), "10.6");
        assert_eq!(add(0.2, b"0.1"), "0.3");
        assert_eq!(add(200.0, b"5.0e3"), "5200");
        assert_eq!(add(-0.5, b"0.5"), "0");
        assert_eq!(add(1.0, b"3"), "4");
        assert_eq!(add(1.7e308, b"1.7e308"), "Refused(NotFinite)");
        for infinite in ["inf", "-Infinity"] {
            assert_eq!(add(1.0, infinite.as_bytes()), "Refused(NotFinite)");
        }
        assert_eq!(add(1.0, b"abc"), "Refused(NotAFloat)");
        assert_eq!(add(1e-20, b"0"), "0.00000000000000000001");
    }

    #[test]
    fn values_grow_up_to_the_limit() {
        let append = of(Change::Append, b"cd", Some(b"ab"));
        assert_eq!(append.value.as_deref(), Some(&b"abcd"[..]));
        assert_eq!(append.told, Changed::Number(4));
        let full = vec![0; VALUE_BYTES_MAX];
        let refused = Changed::Refused(Refusal::TooLong);
        assert_eq!(told(Change::Append, b"x", Some(&full)), refused);
        let over = of(Change::Overwrite(6), b"Redis", Some(b"Hello World"));
        assert_eq!(over.value.as_deref(), Some(&b"Hello Redis"[..]));
        let padded = of(Change::Overwrite(3), b"x", None);
        assert_eq!(padded.value.as_deref(), Some(&b"\0\0\0x"[..]));
        let nothing = of(Change::Overwrite(3), b"", Some(b"ab"));
        assert_eq!((nothing.value, nothing.told), (None, Changed::Number(2)));
        assert_eq!(told(Change::Overwrite(u32::MAX), b"x", None), refused);
    }

    #[test]
    fn changes_are_the_same_on_the_other_side() {
        let changes = [
            Change::Add(i64::MIN),
            Change::Add(-1),
            Change::AddFloat(1.5f64.to_bits()),
            Change::Append,
            Change::Overwrite(u32::MAX),
            Change::Expire(Expiry::Never, Only::Any),
            Change::Expire(Expiry::At(Moment(u64::MAX)), Only::Earlier),
            Change::Expire(Expiry::After(1), Only::Lasting),
            Change::Expire(Expiry::Keep, Only::Later),
        ];
        for change in changes {
            let (kind, number) = change.to_parts();
            assert_eq!(Change::from_parts(kind, number), Some(change));
        }
        for (kind, number) in [(0, 0), (3, 1), (4, 1 << 32), (5, 0), (16, 1), (40, 0)] {
            assert_eq!(Change::from_parts(kind, number), None);
        }
    }
}
