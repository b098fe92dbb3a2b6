//! Histories that a register can have, and histories that it cannot.

use std::collections::BTreeSet;

use super::{
    Access, AccessKind, Before, Bound, CLOCK, RegisterViolation, Saw, When, check, ends_of, follow,
};

fn access(op: u32, kind: AccessKind, began: u64, ended: impl Into<Option<u64>>) -> Access {
    Access {
        op,
        kind,
        began,
        ended: ended.into(),
    }
}

fn read(saw: Bound, began: u64, ended: u64) -> Access {
    access(0, AccessKind::Read(saw), began, ended)
}

fn put(op: u32, began: u64, ended: u64) -> Access {
    let saw = Some(Saw {
        applied: true,
        before: Before::Untold,
    });
    let kind = AccessKind::Write {
        to: Bound::To(op),
        condition: When::Always,
        saw,
    };
    access(op, kind, began, ended)
}

fn unknown(op: u32, began: u64) -> Access {
    let kind = AccessKind::Write {
        to: Bound::To(op),
        condition: When::Always,
        saw: None,
    };
    access(op, kind, began, None)
}

fn delete(op: u32, existed: bool, began: u64, ended: u64) -> Access {
    let saw = Some(Saw {
        applied: true,
        before: Before::Existed(existed),
    });
    let kind = AccessKind::Write {
        to: Bound::Absent,
        condition: When::Always,
        saw,
    };
    access(op, kind, began, ended)
}

fn set_absent(op: u32, applied: bool, was: Bound, began: u64, ended: u64) -> Access {
    let saw = Some(Saw {
        applied,
        before: Before::Was(was),
    });
    let kind = AccessKind::Write {
        to: Bound::To(op),
        condition: When::Absent,
        saw,
    };
    access(op, kind, began, ended)
}

/// The index of the access that cannot be explained.
fn refused(history: &[Access]) -> usize {
    match check(Bound::Absent, history) {
        Err(RegisterViolation::Impossible { access, .. }) => access,
        other => panic!("no register has this history, but: {other:?}"),
    }
}

fn accepted(history: &[Access]) -> Vec<Bound> {
    follow(Bound::Absent, history, ends_of)
        .expect("a register has this history")
        .into_iter()
        .collect()
}

#[test]
fn one_after_the_other() {
    let history = [
        put(1, 1, 2),
        read(Bound::To(1), 3, 4),
        put(2, 5, 6),
        read(Bound::To(2), 7, 8),
    ];
    assert_eq!(accepted(&history), [Bound::To(2)]);
}

#[test]
fn a_lost_write_is_refused() {
    assert_eq!(refused(&[put(1, 1, 2), read(Bound::Absent, 3, 4)]), 1);
}

#[test]
fn a_value_that_comes_back_is_refused() {
    let history = [put(1, 1, 2), put(2, 3, 4), read(Bound::To(1), 5, 6)];
    assert_eq!(refused(&history), 2);
}

#[test]
fn a_value_that_nobody_wrote_is_refused() {
    assert_eq!(refused(&[read(Bound::To(9), 1, 2)]), 0);
}

#[test]
fn a_value_from_the_future_is_refused() {
    assert_eq!(refused(&[read(Bound::To(1), 1, 2), put(1, 3, 4)]), 0);
}

#[test]
fn concurrent_writes_may_take_either_order_but_only_one() {
    let both = |first: u32, second: u32| {
        [
            put(1, 1, 4),
            put(2, 2, 3),
            read(Bound::To(first), 5, 6),
            read(Bound::To(second), 7, 8),
        ]
    };
    accepted(&both(1, 1));
    accepted(&both(2, 2));
    assert_eq!(refused(&both(1, 2)), 3);
    assert_eq!(refused(&both(2, 1)), 3);
}

#[test]
fn a_read_that_overlaps_a_write_sees_either() {
    for saw in [Bound::Absent, Bound::To(1)] {
        accepted(&[put(1, 1, 4), read(saw, 2, 3)]);
    }
}

#[test]
fn reads_do_not_go_back() {
    let history = [
        put(1, 1, 9),
        read(Bound::To(1), 2, 3),
        read(Bound::Absent, 4, 5),
    ];
    assert_eq!(refused(&history), 2);
}

/// A slow read may have seen what was there before a write that began and ended meanwhile.
#[test]
fn a_slow_read_may_see_the_past() {
    let history = [
        put(1, 1, 2),
        read(Bound::To(1), 3, 8),
        put(2, 4, 5),
        put(3, 6, 7),
    ];
    accepted(&history);
    let before = [
        put(1, 1, 2),
        put(2, 3, 4),
        read(Bound::To(1), 5, 8),
        put(3, 6, 7),
    ];
    assert_eq!(refused(&before), 2);
}

#[test]
fn an_unknown_write_may_happen_late_or_never() {
    assert_eq!(
        accepted(&[unknown(1, 1), read(Bound::Absent, 2, 3)]),
        [Bound::Absent, Bound::To(1)]
    );
    let late = [
        unknown(1, 1),
        put(2, 2, 3),
        read(Bound::To(2), 4, 5),
        read(Bound::To(1), 6, 7),
    ];
    assert_eq!(accepted(&late), [Bound::To(1)]);
}

#[test]
fn an_unknown_write_happens_once() {
    let history = [
        unknown(1, 1),
        read(Bound::To(1), 2, 3),
        put(2, 4, 5),
        read(Bound::To(2), 6, 7),
        read(Bound::To(1), 8, 9),
    ];
    assert_eq!(refused(&history), 4);
}

#[test]
fn an_unknown_write_does_not_happen_before_it_was_asked_for() {
    assert_eq!(refused(&[read(Bound::To(1), 1, 2), unknown(1, 3)]), 0);
}

#[test]
fn many_unknown_writes_are_no_burden() {
    let mut history: Vec<Access> = (1..=200).map(|op| unknown(op, u64::from(op))).collect();
    history.push(put(300, 300, 301));
    history.push(read(Bound::To(7), 302, 303));
    history.push(read(Bound::To(150), 304, 305));
    accepted(&history);
    history.push(read(Bound::To(7), 306, 307));
    assert_eq!(refused(&history), 203);
}

#[test]
fn conditions_see_one_order() {
    let one_wins = [
        set_absent(1, true, Bound::Absent, 1, 4),
        set_absent(2, false, Bound::To(1), 2, 3),
        read(Bound::To(1), 5, 6),
    ];
    accepted(&one_wins);
    let both_win = [
        set_absent(1, true, Bound::Absent, 1, 4),
        set_absent(2, true, Bound::Absent, 2, 3),
    ];
    assert_eq!(refused(&both_win), 0);
    let none_wins = [set_absent(1, false, Bound::Absent, 1, 2)];
    assert_eq!(refused(&none_wins), 0);
}

#[test]
fn a_delete_tells_whether_there_was_something() {
    accepted(&[
        put(1, 1, 2),
        delete(2, true, 3, 4),
        read(Bound::Absent, 5, 6),
    ]);
    assert_eq!(refused(&[put(1, 1, 2), delete(2, false, 3, 4)]), 1);
    assert_eq!(refused(&[delete(1, true, 1, 2)]), 0);
}

/// An unknown delete may be what explains that a conditional write found nothing.
#[test]
fn an_unknown_delete_makes_room() {
    let kind = AccessKind::Write {
        to: Bound::Absent,
        condition: When::Always,
        saw: None,
    };
    let gone = access(2, kind, 3, None);
    let history = [put(1, 1, 2), gone, set_absent(3, true, Bound::Absent, 4, 5)];
    assert_eq!(
        accepted(&history),
        [Bound::Absent, Bound::To(3)].map(|b| b)[1..]
    );
}

#[test]
fn empty_values_are_shared() {
    let empty = |op: u32, began: u64, ended: u64| {
        let saw = Some(Saw {
            applied: true,
            before: Before::Untold,
        });
        let kind = AccessKind::Write {
            to: Bound::Empty,
            condition: When::Always,
            saw,
        };
        access(op, kind, began, ended)
    };
    let history = [
        empty(1, 1, 2),
        put(2, 3, 4),
        empty(3, 5, 8),
        read(Bound::Empty, 6, 7),
    ];
    accepted(&history);
    let stale = [
        empty(1, 1, 2),
        put(2, 3, 4),
        read(Bound::Empty, 5, 6),
        empty(3, 7, 8),
    ];
    assert_eq!(refused(&stale), 2);
}

/// Against a checker that tries every order: small histories of all shapes.
#[test]
fn agrees_with_trying_every_order() {
    let mut random = Random::new(1, 0);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..3000 {
        let mut history = random_history(&mut random);
        may_expire(&mut history, &mut random);
        let expected = any_order(&history);
        let found = check(Bound::Absent, &history).is_ok();
        assert_eq!(found, expected, "{history:#?}");
        good += usize::from(found);
        bad += usize::from(!found);
    }
    assert!(good > 300 && bad > 300, "{good} possible, {bad} impossible");
}

fn random_history(random: &mut Random) -> Vec<Access> {
    let count = random.between(2, 6);
    let mut moments: Vec<u64> = (1..=2 * count as u64).map(|at| 2 * at).collect();
    random.shuffle(&mut moments);
    let mut history = Vec::new();
    for (op, pair) in (1..).zip(moments.chunks(2)) {
        let (began, ended) = (pair[0].min(pair[1]), pair[0].max(pair[1]));
        let mut bound = || random.pick(&[Bound::Absent, Bound::To(1), Bound::To(2), Bound::To(3)]);
        let (saw, was) = (bound(), bound());
        let before = random.pick(&[
            Before::Untold,
            Before::Was(was),
            Before::Existed(was == saw),
        ]);
        let saw_write = Some(Saw {
            applied: random.chance(70),
            before,
        });
        let condition = random.pick(&[
            When::Always,
            When::Always,
            When::Absent,
            When::Present,
            When::Is(was),
        ]);
        let to = if random.chance(25) {
            Bound::Absent
        } else {
            Bound::To(op)
        };
        history.push(match random.below(4) {
            0 | 1 => access(op, AccessKind::Read(saw), began, ended),
            2 => access(
                op,
                AccessKind::Write {
                    to,
                    condition,
                    saw: saw_write,
                },
                began,
                ended,
            ),
            _ => access(
                op,
                AccessKind::Write {
                    to,
                    condition,
                    saw: None,
                },
                began,
                None,
            ),
        });
    }
    history
}

/// The value of one operation may be over at some time after that began.
fn may_expire(history: &mut Vec<Access>, random: &mut Random) {
    let written = random.below(history.len());
    let Access { op, began, .. } = history[written];
    // Between the moments of the others.
    let after = 1 + 2 * random.below(5) as u64;
    history.push(over(op, began + after));
}

/// The value of `op` may be over from `began` on.
fn over(op: u32, began: u64) -> Access {
    let kind = AccessKind::Write {
        to: Bound::Absent,
        condition: When::Is(Bound::To(op)),
        saw: None,
    };
    access(CLOCK, kind, began, None)
}

#[test]
fn what_is_over_stays_over() {
    let gone = Bound::Absent;
    let history = [put(1, 1, 2), over(1, 5), read(Bound::To(1), 6, 7)];
    assert_eq!(accepted(&history), [gone, Bound::To(1)]);
    let late = [put(1, 1, 2), over(1, 5), read(gone, 6, 7)];
    assert_eq!(accepted(&late), [gone]);
    let early = [put(1, 1, 2), read(gone, 3, 4), over(1, 5)];
    assert_eq!(refused(&early), 1);
    let back = [
        put(1, 1, 2),
        over(1, 5),
        read(gone, 6, 7),
        read(Bound::To(1), 8, 9),
    ];
    assert_eq!(refused(&back), 3);
    let another = [put(1, 1, 2), over(1, 5), put(2, 6, 7), read(gone, 8, 9)];
    assert_eq!(refused(&another), 3);
}

/// Many values that expire, written with unknown outcomes: each may be over, and no order matters.
#[test]
fn values_that_expire_make_no_history_wider() {
    let mut history = Vec::new();
    for op in 1..=200 {
        let began = u64::from(op) * 10;
        let kind = AccessKind::Write {
            to: Bound::To(op),
            condition: When::Always,
            saw: None,
        };
        history.push(access(op, kind, began, None));
        history.push(over(op, began + 3));
        history.push(access(
            0,
            AccessKind::Exists(op % 2 == 0),
            began + 5,
            began + 6,
        ));
    }
    accepted(&history);
}

/// Tries every order of every subset that has all that was answered.
fn any_order(history: &[Access]) -> bool {
    fn go_on(history: &[Access], done: &BTreeSet<usize>, bound: Bound) -> bool {
        let left = |i: &usize| !done.contains(i);
        let open: Vec<usize> = (0..history.len()).filter(left).collect();
        if open.iter().all(|i| history[*i].ended.is_none()) {
            return true;
        }
        let earliest = open
            .iter()
            .filter_map(|i| history[*i].ended)
            .min()
            .unwrap_or(u64::MAX);
        open.iter().any(|i| {
            let began_in_time = history[*i].began < earliest;
            let after = super::effect(&history[*i].kind, bound).filter(|_| began_in_time);
            after.is_some_and(|after| {
                let mut done = done.clone();
                done.insert(*i);
                go_on(history, &done, after)
            })
        })
    }
    go_on(history, &BTreeSet::new(), Bound::Absent)
}

#[test]
fn what_was_reported_as_not_applied_is_never_seen() {
    let void = access(1, AccessKind::Void, 1, None);
    accepted(&[void, read(Bound::Absent, 2, 3)]);
    assert_eq!(refused(&[void, read(Bound::To(1), 2, 3)]), 1);
}

#[test]
fn whether_there_is_something_has_to_be_right() {
    accepted(&[put(1, 1, 2), access(2, AccessKind::Exists(true), 3, 4)]);
    assert_eq!(
        refused(&[put(1, 1, 2), access(2, AccessKind::Exists(false), 3, 4)]),
        1
    );
}

#[test]
fn what_is_too_wide_is_not_judged() {
    let history: Vec<Access> = (1..=40)
        .map(|op| put(op, op.into(), 100 + u64::from(op)))
        .collect();
    assert_eq!(
        check(Bound::Absent, &history),
        Err(RegisterViolation::TooWide)
    );
}

/// Random numbers from a seed: SplitMix64, as the simulator has it.
struct Random(u64);

impl Random {
    fn new(seed: u64, part: u64) -> Self {
        let mut first = Self(seed);
        let mixed = first.next() ^ part.wrapping_mul(0xd6e8_feb8_6659_fd93);
        let mut second = Self(mixed);
        second.next();
        second
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let wide = u128::from(self.next()) * bound as u128;
        usize::try_from(wide >> 64).expect("it is below a usize")
    }

    fn between(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}
