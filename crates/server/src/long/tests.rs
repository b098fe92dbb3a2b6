//! Values in parts against the service in memory: read and written, among others and against each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use argosy_base::Outcome;
use argosy_engine::long::{Head, Part, Torn, Versions, is_reserved};
use argosy_engine::{Changed, Condition, Expiry, Reach, WriteOptions};
use argosy_wire::api::{Plan, Scratch};

use super::*;
use crate::resp::fake::Fake;
use crate::service::{Failure, ReplySink, ReplyTo, Response, Service, too_slow};

const MIB: usize = 1 << 20;

/// Of two parts and some of a third.
const LEN: usize = MIB + 100;

const KEY: &[u8] = b"k";

/// Nothing is answered late.
struct Nowhere;

impl ReplySink for Nowhere {
    fn deliver(&self, token: u64, response: Response) {
        panic!("{response:?} for {token}");
    }
}

fn call(fake: &Fake, scratch: &Scratch, plan: Plan) -> Response {
    let sink: Arc<dyn ReplySink> = Arc::new(Nowhere);
    let begun = fake.call(scratch.request(plan), Reach::Device, ReplyTo::new(&sink, 0));
    begun.answered().expect("it answers at once")
}

fn value(seed: u8, len: usize) -> Vec<u8> {
    let noise = (0..10_007_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3] ^ seed);
    noise.cycle().take(len).collect()
}

/// Versions of which there are parts.
fn versions(fake: &Fake) -> BTreeSet<u128> {
    let pairs = fake.pairs();
    let parts = pairs.keys().filter_map(|key| Part::parse(key));
    parts.map(|part| part.version).collect()
}

/// Removes all parts.
fn sweep(fake: &Fake) {
    fake.change(|pairs| pairs.retain(|key, _| !is_reserved(key)));
}

fn no_room(outcome: Outcome) -> Failure {
    Failure::Unavailable {
        what: "no room in time".to_owned(),
        outcome,
    }
}

const fn options(condition: Condition) -> WriteOptions {
    WriteOptions {
        condition,
        return_previous: false,
    }
}

/// Writes the parts of `value`.
fn parts_of(fake: &Fake, base: u128, value: &[u8]) -> Writing {
    let mut scratch = Scratch::default();
    let mut writing = Writing::begin(KEY, value.len() as u64, &Versions::new(base)).unwrap();
    let mut rest = value;
    while let Some(bytes) = writing.next_bytes() {
        let (part, behind) = rest.split_at(bytes);
        rest = behind;
        let plan = writing.part(part, &mut scratch.batch);
        assert!(writing.waits());
        call(fake, &scratch, plan);
        writing.wrote();
    }
    assert!(rest.is_empty() && !writing.waits());
    writing
}

/// Makes the value visible.
fn end(fake: &Fake, writing: &Writing, condition: Condition) -> Response {
    let mut scratch = Scratch::default();
    let plan = writing.head(Expiry::Never, options(condition), &mut scratch.batch);
    call(fake, &scratch, plan)
}

/// Binds the key to `value`, in parts.
fn put(fake: &Fake, base: u128, value: &[u8]) {
    let written = end(fake, &parts_of(fake, base, value), Condition::Always);
    assert!(matches!(written, Response::Written { applied: true, .. }));
}

fn head(fake: &Fake) -> Head {
    Head::parse(&fake.pairs()[KEY]).expect("it is in parts")
}

/// Reads on until all has come, or something else than a part.
fn read(fake: &Fake, reading: &mut Reading) -> (Vec<u8>, Option<Came>) {
    let mut scratch = Scratch::default();
    let mut out = Vec::new();
    while !reading.is_done() {
        let plan = reading.plan(&mut scratch.keys);
        let Response::Values(mut told) = call(fake, &scratch, plan) else {
            panic!("values are told");
        };
        match reading.take(told.pop().flatten(), !out.is_empty()) {
            Came::Part(part) => out.extend_from_slice(&part),
            Came::Nothing => {}
            other => return (out, Some(other)),
        }
    }
    (out, None)
}

#[test]
fn what_is_written_is_read() {
    let fake = Fake::new();
    let long = value(1, LEN);
    put(&fake, 7, &long);
    assert_eq!(versions(&fake), BTreeSet::from([7]));
    assert_eq!(len_of(&fake.pairs()[KEY]), LEN as u64);
    let mut reading = Reading::new(head(&fake), None, false);
    assert_eq!(reading.len(), LEN as u64);
    let (out, ended) = read(&fake, &mut reading);
    assert!(out == long && ended.is_none(), "{ended:?}");
    for (from, to) in [(0, 0), (524_287, 524_288), (-9, -1), (0, -1), (-9, 9)] {
        let wanted = part(&long, from, to);
        let reading = Reading::of_stretch(head(&fake), from, to);
        assert_eq!(reading.is_none(), wanted.is_empty());
        if let Some(mut reading) = reading {
            assert_eq!(reading.len(), wanted.len() as u64);
            let (out, ended) = read(&fake, &mut reading);
            assert!(out == wanted && ended.is_none(), "{from} {to} {ended:?}");
        }
    }
}

#[test]
fn a_value_that_was_overwritten_is_looked_up_again() {
    let fake = Fake::new();
    put(&fake, 7, &value(1, LEN));
    let old = head(&fake);
    sweep(&fake);
    let new = value(2, 2 * MIB);
    put(&fake, 8, &new);
    let (out, ended) = read(&fake, &mut Reading::new(old.clone(), None, false));
    assert!(out == new && ended.is_none(), "{ended:?}");
    let mut stretch = Reading::of_stretch(old.clone(), LEN as i64 - 9, LEN as i64).unwrap();
    let (out, ended) = read(&fake, &mut stretch);
    assert!(out == new[LEN - 9..=LEN] && ended.is_none(), "{ended:?}");
    assert_eq!(stretch.places(), Some((LEN as i64 - 9, LEN as i64)));
    // What a write found cannot be found again.
    let (_, ended) = read(&fake, &mut Reading::new(old.clone(), None, true));
    assert!(matches!(ended, Some(Came::Torn(Torn::Missing))));
    for bound in [None, Some(b"short".to_vec())] {
        fake.change(|pairs| {
            pairs.clear();
            pairs.extend(bound.clone().map(|value| (KEY.to_vec(), value)));
        });
        let (out, ended) = read(&fake, &mut Reading::new(old.clone(), None, false));
        assert!(out.is_empty() && matches!(ended, Some(Came::Instead(it)) if it == bound));
    }
    // A value that has no such stretch any more is none to read.
    put(&fake, 9, &new[..LEN - 50]);
    let mut stretch = Reading::of_stretch(old, LEN as i64 - 9, LEN as i64).unwrap();
    let (_, ended) = read(&fake, &mut stretch);
    assert!(matches!(ended, Some(Came::Instead(Some(it))) if it.is_empty()));
}

#[test]
fn a_value_whose_parts_are_gone_is_given_up() {
    let fake = Fake::new();
    put(&fake, 7, &value(1, LEN));
    let last = head(&fake).part(2).to_key();
    fake.change(|pairs| drop(pairs.remove(&last)));
    let (out, ended) = read(&fake, &mut Reading::new(head(&fake), None, false));
    assert_eq!(out.len(), MIB, "there is no way back");
    assert!(matches!(ended, Some(Came::Torn(Torn::Missing))));
    sweep(&fake);
    let before = fake.counts().0;
    let (_, ended) = read(&fake, &mut Reading::new(head(&fake), None, false));
    assert!(matches!(ended, Some(Came::Torn(Torn::Missing))));
    assert_eq!(fake.counts().0 - before, 2 * 16 + 1);
}

#[test]
fn parts_are_seen_with_the_head_and_go_without_it() {
    let fake = Fake::new();
    put(&fake, 7, &value(1, LEN));
    let writing = parts_of(&fake, 8, &value(2, LEN));
    assert_eq!(head(&fake).version, 7);
    let refused = end(&fake, &writing, Condition::Absent);
    assert!(matches!(refused, Response::Written { applied: false, .. }));
    assert_eq!(head(&fake).version, 7);
    let mut scratch = Scratch::default();
    let plan = writing.take_back(&mut scratch.batch);
    call(&fake, &scratch, plan);
    assert_eq!(versions(&fake), BTreeSet::from([7]));
    // Whoever took so long that its parts were swept has not written.
    let writing = parts_of(&fake, 9, &value(2, LEN));
    sweep(&fake);
    let failed = end(&fake, &writing, Condition::Present);
    assert_eq!(failed, Response::Failed(too_slow()));
}

/// A change, one step at a time: a call, then what its answer is taken for.
struct Changing {
    growing: Growing,
    versions: Versions,
    scratch: Scratch,
    /// The call to be made.
    plan: Option<Plan>,
    answer: Option<Response>,
    calls: usize,
}

impl Changing {
    fn begin(base: u128, place: Option<u64>, bytes: &[u8]) -> Self {
        let mut scratch = Scratch::default();
        let begun = Growing::begin(KEY, place, bytes, &mut scratch.batch);
        let (growing, plan) = begun.unwrap();
        Self {
            growing,
            versions: Versions::new(base),
            scratch,
            plan: Some(plan),
            answer: None,
            calls: 0,
        }
    }

    /// Makes a call, or takes its answer. Returns how it ended.
    fn step(&mut self, fake: &Fake) -> Option<Grew> {
        if let Some(answer) = self.answer.take() {
            return match self.growing.take(answer) {
                Grew::Call => None,
                end => Some(end),
            };
        }
        let plan = self.plan.take();
        let plan = plan.unwrap_or_else(|| self.growing.plan(&self.versions, &mut self.scratch));
        self.answer = Some(call(fake, &self.scratch, plan));
        self.calls += 1;
        None
    }

    /// Goes on to the end; `before` is called before each call.
    fn finish(mut self, fake: &Fake, mut before: impl FnMut(usize)) -> (Grew, usize) {
        loop {
            if self.answer.is_none() {
                before(self.calls);
            }
            if let Some(end) = self.step(fake) {
                return (end, self.calls);
            }
        }
    }
}

/// The length that a change told.
fn told(end: &Grew) -> i64 {
    match end {
        Grew::Done(Response::Written {
            changed: Some(Changed::Number(len)),
            ..
        }) => *len,
        end => panic!("{end:?}"),
    }
}

/// What the key is bound to, if that is in parts.
fn whole(fake: &Fake) -> Vec<u8> {
    let (out, ended) = read(fake, &mut Reading::new(head(fake), None, false));
    assert!(ended.is_none(), "{ended:?}");
    out
}

#[test]
fn a_value_in_parts_grows_by_a_copy_of_it() {
    let fake = Fake::new();
    let mut long = value(1, LEN);
    put(&fake, 7, &long);
    let (end, calls) = Changing::begin(8, None, b"xyz").finish(&fake, |_| {});
    long.extend_from_slice(b"xyz");
    assert_eq!(told(&end), long.len() as i64);
    // The change, the key, three parts read and written, and the head.
    assert_eq!(calls, 9);
    assert!(whole(&fake) == long);
    let place = LEN + MIB;
    let (end, _) = Changing::begin(9, Some(place as u64), b"z").finish(&fake, |_| {});
    long.resize(place, 0);
    long.push(b'z');
    assert_eq!(told(&end), long.len() as i64);
    assert!(whole(&fake) == long);
    assert_eq!(head(&fake).version, 9);
}

/// Two append to one value: whatever comes between, neither is lost, and of what one wrote in vain nothing stays.
#[test]
fn two_appends_at_a_time_are_both_there() {
    let mut conflicts = 0;
    let long = value(1, LEN);
    for seed in 1..60_u64 {
        let mut random = seed;
        let fake = Fake::new();
        put(&fake, 7, &long);
        let mut two = [
            Some(Changing::begin(1 << 64, None, b"one")),
            Some(Changing::begin(2 << 64, None, b"other")),
        ];
        let mut ends = [0, 0];
        while two.iter().any(Option::is_some) {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let at = (random >> 63) as usize;
            if let Some(end) = two[at].as_mut().and_then(|it| it.step(&fake)) {
                conflicts += usize::from(two[at].take().is_some_and(|it| it.calls > 9));
                ends[at] = told(&end) - LEN as i64;
            }
        }
        let behind = match ends {
            [3, 8] => &b"oneother"[..],
            [8, 5] => b"otherone",
            ends => panic!("{ends:?}"),
        };
        assert!(whole(&fake) == [&long, behind].concat(), "seed {seed}");
        assert_eq!(versions(&fake).len(), 3, "what was visible, and no other");
    }
    assert!(conflicts > 20, "{conflicts}");
}

#[test]
fn a_value_that_others_write_all_the_time_is_given_up() {
    let fake = Fake::new();
    let mut last = Vec::new();
    let changing = Changing::begin(7, Some(1_500_000), b"x");
    let (end, calls) = changing.finish(&fake, |calls| {
        last = format!("v{calls}").into_bytes();
        fake.change(|pairs| drop(pairs.insert(KEY.to_vec(), last.clone())));
    });
    let Grew::Failed(Failure::Busy { what, outcome }) = end else {
        panic!("{end:?}");
    };
    assert_eq!(outcome, Outcome::NotApplied);
    assert!(what.starts_with("others have written the value 16 times"));
    assert_eq!(fake.pairs()[KEY], last);
    // Each time: the key, three parts, the head, and the removal; once the change itself.
    assert_eq!(calls, 1 + 16 * (1 + 3 + 1 + 1));
    assert_eq!(versions(&fake), BTreeSet::new());
}

#[test]
fn what_fails_before_the_head_is_not_applied() {
    let long = value(1, LEN);
    for unknown in [Outcome::Unknown, Outcome::NotApplied] {
        // The change, the key, three parts read and written, and the head.
        for fails in 0..9 {
            let fake = Fake::new();
            put(&fake, 7, &long);
            let (end, calls) = Changing::begin(8, None, b"xyz").finish(&fake, |calls| {
                if calls == fails {
                    fake.fail_next(no_room(unknown));
                }
            });
            let outcome = match fails {
                0 | 8 => unknown,
                _ => Outcome::NotApplied,
            };
            assert!(
                matches!(&end, Grew::Failed(error) if *error == no_room(outcome)),
                "{fails}: {end:?}"
            );
            assert_eq!(calls, fails + 1, "nothing is called behind it");
            assert!(whole(&fake) == long);
        }
    }
}

#[test]
fn what_was_there_is_looked_up_again_where_a_part_is_gone() {
    let fake = Fake::new();
    put(&fake, 7, &value(1, 2 * MIB));
    let mut bytes = value(3, MIB);
    let changing = Changing::begin(8, None, b"x");
    let (end, _) = changing.finish(&fake, |calls| {
        // Behind the refusal and the head: it has been overwritten, and swept.
        if calls == 2 {
            fake.change(|pairs| {
                pairs.clear();
                pairs.insert(KEY.to_vec(), bytes.clone());
            });
        }
    });
    bytes.push(b'x');
    assert_eq!(told(&end), bytes.len() as i64);
    assert!(whole(&fake) == bytes);
    assert_eq!(versions(&fake).len(), 1);
}

#[test]
fn of_parts_with_other_bytes_nothing_is_made() {
    let fake = Fake::new();
    put(&fake, 7, &value(1, 2 * MIB));
    let first = head(&fake).part(0).to_key();
    fake.change(|pairs| pairs.get_mut(&first).unwrap()[7] ^= 1);
    let (end, _) = Changing::begin(8, None, b"x").finish(&fake, |_| {});
    assert!(matches!(end, Grew::Torn(Torn::Damaged)), "{end:?}");
    assert_eq!(head(&fake).version, 7);
}
