//! Whether the answers about one key are possible whose values are made of those before them.
//!
//! The key is followed while it is asked about, as [registers](super::register) are afterwards: with the set of all
//! *configurations* that are possible so far. A configuration is what the key is bound to, and which requests under
//! way have taken effect on it, each with the answer that it has to give. So:
//!
//! 1. A request takes effect between asking and answering, once; what it writes and what it tells follow from what
//!    is there. What is answered otherwise in all configurations is wrong.
//! 2. A request of unknown outcome stays under way for ever; one that was refused has taken effect nowhere.
//! 3. A pair may be over from the moment on that any clock has reached its expiry; see `load/expiring.rs`.
//! 4. Whoever writes only if nobody has written since is refused where somebody has. It may be refused where nobody
//!    has, too. A pair that is over counts as written.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use argosy_base::Moment;
use argosy_engine::Only;

/// Who may ask at a time.
pub(crate) const CLIENTS: usize = 3;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// The value.
    Get,
    /// The value and its version, which the client keeps.
    Version,
    /// The length of the value and when it expires.
    Expiry,
    /// Bind the key to this, until then.
    Put(Vec<u8>, Option<Moment>),
    /// Remove it.
    Delete,
    /// Put this behind the value.
    Append(Vec<u8>),
    /// Overwrite the value from this byte on.
    Overwrite(u32, Vec<u8>),
    /// Add so many halves to the number that the value is.
    AddHalves(i32),
    /// Have the pair expire then, and only if.
    Expire(Option<Moment>, Only),
}

impl What {
    /// Whether it changes nothing.
    #[must_use]
    pub(crate) const fn is_read(&self) -> bool {
        matches!(self, Self::Get | Self::Version | Self::Expiry)
    }
}

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// What is asked.
    pub what: What,
    /// Whose it is, below [`CLIENTS`].
    pub client: usize,
    /// Only if nobody has written since the client was told a version.
    pub unwritten: bool,
}

/// What a change tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sum {
    /// A length, or whether an expiry was changed.
    Number(i64),
    /// The new value.
    Text(Vec<u8>),
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// The value.
    Value(Option<Vec<u8>>),
    /// Bytes of the value, and when it expires.
    Expires(Option<(u64, Option<Moment>)>),
    /// Whether something was written, and what a change tells.
    Written(bool, Option<Sum>),
    /// It is told to nobody.
    Nothing,
}

/// What the key is bound to.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct State {
    value: Option<Vec<u8>>,
    expiry: Option<Moment>,
    /// By which request, and whether that is over.
    by: (u64, bool),
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Configuration {
    state: State,
    /// Who had written what each client was told a version of.
    seen: [(u64, bool); CLIENTS],
    /// What has taken effect of what is under way, and what it tells.
    done: BTreeMap<u64, Told>,
}

/// Configurations that are looked at for one answer, at most.
const WIDTH_MAX: usize = 20_000;

/// Why an answer was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It cannot be, for this reason.
    Impossible(String),
    /// Too much was under way at one time to find out.
    TooWide,
}

/// See the module documentation.
#[derive(Clone, Debug)]
pub(crate) struct Computed {
    possible: BTreeSet<Configuration>,
    under_way: BTreeMap<u64, Request>,
    /// The highest moment that any clock has shown.
    reached: Moment,
    /// Whatever expires has done so.
    all_expired: bool,
}

impl Default for Computed {
    fn default() -> Self {
        Self {
            possible: BTreeSet::from([Configuration::default()]),
            under_way: BTreeMap::new(),
            reached: Moment(0),
            all_expired: false,
        }
    }
}

impl Computed {
    /// A clock has shown this.
    pub(crate) fn time_reached(&mut self, moment: Moment) {
        self.reached = self.reached.max(moment);
    }

    /// From now on nothing is there any more that expires.
    pub(crate) fn all_expired(&mut self) {
        self.all_expired = true;
        self.map(|_| true);
    }

    /// `request` is asked, under a number that rises.
    pub(crate) fn ask(&mut self, number: u64, request: Request) {
        self.under_way.insert(number, request);
    }

    /// It was not carried out.
    ///
    /// # Errors
    /// Where what was answered since shows that it was.
    pub(crate) fn refused(&mut self, number: u64) -> Result<(), Violation> {
        let request = self.under_way.remove(&number);
        if request.is_none_or(|request| request.what.is_read()) {
            self.map(|one| {
                one.done.remove(&number);
                true
            });
            return Ok(());
        }
        let seen = |one: &Configuration| one.done.contains_key(&number);
        if self.possible.iter().all(seen) {
            return Err(Violation::Impossible(format!(
                "request {number} was not carried out, yet it was seen: there was {}",
                self.in_words()
            )));
        }
        self.map(|one| !seen(one));
        Ok(())
    }

    /// Nobody will know whether it was carried out.
    pub(crate) fn lost(&mut self, number: u64) {
        let request = self.under_way.get(&number);
        if request.is_none_or(|request| request.what.is_read()) {
            // It changes nothing, so it cannot be missed.
            self.under_way.remove(&number);
            self.map(|one| {
                one.done.remove(&number);
                true
            });
            return;
        }
        self.map(|one| {
            let told = one.done.get_mut(&number);
            told.into_iter().for_each(|told| *told = Told::Nothing);
            true
        });
    }

    /// It was answered.
    ///
    /// # Errors
    /// Where that cannot be.
    pub(crate) fn answered(&mut self, number: u64, told: &Told) -> Result<(), Violation> {
        let led = self.lead(number, told).ok_or(Violation::TooWide)?;
        let request = self.under_way.remove(&number);
        if led.is_empty() {
            let what = format!("{:?}", request.map(|request| request.what));
            let told = format!("{told:?}");
            return Err(Violation::Impossible(format!(
                "request {number}, {what:.200}, tells {told:.200}, where there was {}",
                self.in_words()
            )));
        }
        self.possible = led;
        Ok(())
    }

    /// Keeps those configurations that `keep` lets pass, changed as it likes.
    fn map(&mut self, mut keep: impl FnMut(&mut Configuration) -> bool) {
        for mut one in std::mem::take(&mut self.possible) {
            if keep(&mut one) {
                self.expire(&mut one.state);
                self.possible.insert(one);
            }
        }
    }

    /// All configurations in which request `number` has taken effect and tells that.
    fn lead(&self, number: u64, told: &Told) -> Option<BTreeSet<Configuration>> {
        let (mut reached, mut seen) = (BTreeSet::new(), BTreeSet::new());
        let mut work: VecDeque<Configuration> = self.possible.iter().cloned().collect();
        while let Some(mut one) = work.pop_front() {
            match one.done.get(&number) {
                Some(tells) if tells == told => {
                    one.done.remove(&number);
                    reached.insert(one);
                }
                Some(_) => {}
                None => {
                    if !seen.insert(one.clone()) {
                        continue;
                    }
                    if seen.len() > WIDTH_MAX {
                        return None;
                    }
                    work.extend(self.next(&one));
                }
            }
        }
        Some(reached)
    }

    /// What a configuration may be led on to in one step.
    fn next(&self, one: &Configuration) -> Vec<Configuration> {
        let mut led = Vec::new();
        if one.state.expiry.is_some_and(|at| at <= self.reached) {
            let state = one.state.over();
            led.push(Configuration {
                state,
                ..one.clone()
            });
        }
        let waiting = |number: &u64| !one.done.contains_key(number);
        for (number, request) in self.under_way.iter().filter(|(number, _)| waiting(number)) {
            let mut next = one.clone();
            let mut wrote = true;
            if request.unwritten {
                let same = one.seen[request.client] == one.state.by;
                let mut refused = one.clone();
                refused.done.insert(*number, Told::Written(false, None));
                led.push(refused);
                wrote = same;
            }
            if !wrote {
                continue;
            }
            if request.what == What::Version {
                next.seen[request.client] = one.state.by;
            }
            let told = next.state.take(&request.what, *number);
            next.done.insert(*number, told);
            self.expire(&mut next.state);
            led.push(next);
        }
        led
    }

    fn expire(&self, state: &mut State) {
        if self.all_expired && state.expiry.is_some() {
            *state = state.over();
        }
    }

    fn in_words(&self) -> String {
        let states: BTreeSet<_> = self.possible.iter().map(|one| &one.state).collect();
        let words: Vec<String> = states.iter().take(8).map(ToString::to_string).collect();
        words.join(" or ")
    }

    /// Bytes of the longest value that may be there.
    #[must_use]
    pub(crate) fn len_max(&self) -> usize {
        let values = self.possible.iter().map(|one| one.state.value.as_ref());
        values
            .map(|value| value.map_or(0, Vec::len))
            .max()
            .unwrap_or(0)
    }
}

impl State {
    fn over(&self) -> Self {
        Self {
            value: None,
            expiry: None,
            by: (self.by.0, true),
        }
    }

    /// `what` takes effect, as request `number`. Tells what it tells.
    fn take(&mut self, what: &What, number: u64) -> Told {
        let len = |value: &[u8]| Some(Sum::Number(i64::try_from(value.len()).unwrap_or(i64::MAX)));
        let was = self.value.clone();
        let (value, told) = match what {
            What::Get | What::Version => return Told::Value(was),
            What::Expiry => {
                return Told::Expires(was.map(|value| (value.len() as u64, self.expiry)));
            }
            What::Expire(to, only) => return self.expire(*to, *only, number),
            What::Put(value, expiry) => {
                self.expiry = *expiry;
                (Some(value.clone()), None)
            }
            What::Delete => {
                self.expiry = None;
                (None, None)
            }
            What::Append(more) => {
                let value = [was.unwrap_or_default(), more.clone()].concat();
                let told = len(&value);
                (Some(value), told)
            }
            What::Overwrite(from, with) => {
                let mut value = was.unwrap_or_default();
                let (from, end) = (*from as usize, *from as usize + with.len());
                let gap = end.saturating_sub(value.len());
                value.extend(std::iter::repeat_n(0, gap));
                value.splice(from..end, with.iter().copied());
                let told = len(&value);
                (Some(value), told)
            }
            What::AddHalves(halves) => {
                let text = was.and_then(|value| String::from_utf8(value).ok());
                let number = text.map_or(0.0, |text| text.parse().unwrap_or(f64::NAN));
                let sum = number + f64::from(*halves) / 2.0;
                let value = format!("{}", if sum == 0.0 { 0.0 } else { sum }).into_bytes();
                (Some(value.clone()), Some(Sum::Text(value)))
            }
        };
        self.value = value;
        self.by = (number, false);
        Told::Written(true, told)
    }

    fn expire(&mut self, to: Option<Moment>, only: Only, number: u64) -> Told {
        let never = Moment(u64::MAX);
        let (old, new) = (self.expiry.unwrap_or(never), to.unwrap_or(never));
        let holds = match only {
            Only::Any => true,
            Only::Lasting => self.expiry.is_none(),
            Only::Expiring => self.expiry.is_some(),
            Only::Later => self.expiry.is_some() && new > old,
            Only::Earlier => new < old,
            Only::Sooner => self.expiry.is_some() && new < old,
        };
        let told = self.value.is_some() && holds && (self.expiry.is_some() || to.is_some());
        let writes = told && to != self.expiry;
        if writes {
            self.expiry = to;
            self.by = (number, false);
        }
        Told::Written(writes, Some(Sum::Number(told.into())))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (by, over) = self.by;
        match &self.value {
            None if over => write!(f, "nothing, since what request {by} wrote is over"),
            None => write!(f, "nothing, by request {by}"),
            Some(value) => {
                let text = argosy_base::range::Printable(&value[..value.len().min(40)]);
                let len = value.len();
                write!(
                    f,
                    "{len} bytes {text} until {:?}, by request {by}",
                    self.expiry
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(what: What) -> Request {
        let (client, unwritten) = (0, false);
        Request {
            what,
            client,
            unwritten,
        }
    }

    fn append(text: &str) -> Request {
        request(What::Append(text.into()))
    }

    fn len(len: i64) -> Told {
        Told::Written(true, Some(Sum::Number(len)))
    }

    fn value(text: &str) -> Told {
        Told::Value(Some(text.into()))
    }

    fn asked(requests: &[Request]) -> Computed {
        let mut key = Computed::default();
        (1..)
            .zip(requests)
            .for_each(|(number, request)| key.ask(number, request.clone()));
        key
    }

    #[test]
    fn appends_take_effect_once_and_in_one_order() {
        let mut key = asked(&[append("ab"), append("c"), request(What::Get)]);
        assert_eq!(key.answered(2, &len(1)), Ok(()));
        assert_eq!(key.answered(3, &value("cab")), Ok(()));
        let mut other = key.clone();
        assert_eq!(key.answered(1, &len(3)), Ok(()));
        assert!(
            other.answered(1, &len(2)).is_err(),
            "it was evaluated on nothing"
        );
        key.ask(4, append("d"));
        assert!(
            key.answered(4, &len(3)).is_err(),
            "on a value that was overwritten"
        );
    }

    #[test]
    fn what_nobody_was_told_may_have_happened_and_what_was_refused_has_not() {
        let mut key = asked(&[append("a"), append("b")]);
        key.lost(1);
        assert_eq!(key.answered(2, &len(1)), Ok(()));
        key.ask(3, request(What::Get));
        let mut refused = key.clone();
        assert_eq!(key.answered(3, &value("ba")), Ok(()));
        key.ask(4, request(What::Get));
        assert!(key.answered(4, &value("b")).is_err(), "it goes back");
        assert_eq!(refused.refused(1), Ok(()));
        assert!(refused.answered(3, &value("ba")).is_err());
    }

    #[test]
    fn a_write_on_a_version_takes_effect_on_that_alone() {
        let on_version = |what| Request {
            unwritten: true,
            ..request(what)
        };
        let mut key = asked(&[
            append("a"),
            request(What::Version),
            on_version(What::Delete),
        ]);
        assert_eq!(key.answered(1, &len(1)), Ok(()));
        assert_eq!(key.answered(2, &value("a")), Ok(()));
        let mut written = key.clone();
        assert_eq!(key.clone().answered(3, &Told::Written(false, None)), Ok(()));
        assert_eq!(key.answered(3, &Told::Written(true, None)), Ok(()));
        written.ask(4, request(What::Put(b"a".to_vec(), None)));
        assert_eq!(written.answered(4, &Told::Written(true, None)), Ok(()));
        assert_eq!(
            written.clone().answered(3, &Told::Written(true, None)),
            Ok(()),
            "before that"
        );
        written.ask(5, on_version(What::Delete));
        assert!(
            written.answered(5, &Told::Written(true, None)).is_err(),
            "it was written"
        );
    }

    #[test]
    fn a_pair_is_over_from_its_moment_on_and_for_ever() {
        let until = |at| request(What::Put(b"v".to_vec(), Some(Moment(at))));
        let mut key = asked(&[until(10)]);
        assert_eq!(key.answered(1, &Told::Written(true, None)), Ok(()));
        key.ask(2, request(What::Get));
        key.time_reached(Moment(9));
        let gone = Told::Value(None);
        assert!(key.clone().answered(2, &gone).is_err(), "too early");
        key.ask(3, request(What::Expire(Some(Moment(20)), Only::Later)));
        let changed = Told::Written(true, Some(Sum::Number(1)));
        assert_eq!(key.answered(3, &changed), Ok(()));
        key.time_reached(Moment(10));
        key.ask(4, request(What::Expiry));
        let expires = Told::Expires(Some((1, Some(Moment(20)))));
        assert_eq!(key.answered(4, &expires), Ok(()));
        assert!(key.clone().answered(2, &gone).is_err(), "its old moment");
        key.time_reached(Moment(20));
        assert_eq!(key.clone().answered(2, &gone), Ok(()));
        let mut late = key.clone();
        late.all_expired();
        late.ask(5, request(What::Get));
        assert!(late.answered(5, &value("v")).is_err());
        assert_eq!(key.answered(2, &value("v")), Ok(()));
    }

    #[test]
    fn numbers_and_places_are_computed_as_engines_do() {
        let mut state = State::default();
        let told = state.take(&What::AddHalves(3), 1);
        assert_eq!(told, Told::Written(true, Some(Sum::Text(b"1.5".to_vec()))));
        state.take(&What::AddHalves(-3), 2);
        assert_eq!(state.value.as_deref(), Some(&b"0"[..]));
        state.take(&What::Overwrite(2, b"xy".to_vec()), 3);
        assert_eq!(state.value.as_deref(), Some(&b"0\0xy"[..]));
        state.take(&What::Overwrite(1, b"z".to_vec()), 4);
        assert_eq!(state.value.as_deref(), Some(&b"0zxy"[..]));
    }
}
