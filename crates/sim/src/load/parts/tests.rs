//! What later writes prove of parts of writes, and of writes that have none.

use argosy_base::{Instant, Outcome};
use argosy_server::service::{Failure, Response};

use crate::asks::Ask;
use crate::check::{Bound, When};
use crate::coverage::Coverage;
use crate::judge::ProcessEnd;
use crate::load::{Answer, Asking, Load};
use crate::objects::{ObjectKey, Objects, VALUE_BYTES_MIN};
use crate::random::Random;

use super::Target;

const SESSION: u32 = 1;

struct World {
    objects: Objects,
    load: Load,
    coverage: Coverage,
}

/// How a write of unknown outcome ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Answered,
    ProcessLost,
}

impl World {
    fn new() -> Self {
        let objects = Objects::new(60, 3, &mut Random::new(3, 0));
        let load = Load::new(objects.len(), 3, false);
        let coverage = Coverage::default();
        Self {
            objects,
            load,
            coverage,
        }
    }

    /// The first object of the second region.
    fn second(&self) -> usize {
        let mut all = 0..self.objects.len();
        all.find(|object| self.objects.get(*object).region == 1)
            .expect("each region has some")
    }

    fn ask(&mut self, objects: &[usize], deleted: bool) -> u32 {
        let op = self.load.next_op();
        let target = |object: &usize| Target {
            object: *object,
            to: if deleted {
                Bound::Absent
            } else {
                Bound::To(op)
            },
            len: if deleted { 0 } else { VALUE_BYTES_MIN },
        };
        let ask = Ask::Write {
            targets: objects.iter().map(target).collect(),
            condition: When::Always,
            previous: false,
        };
        self.load.ask(&self.objects, ask, Asking::anything(SESSION));
        op
    }

    fn answer(&mut self, op: u32, response: Response) {
        let at = Instant::default();
        let answer = Answer { op, at, response };
        let Self {
            objects,
            load,
            coverage,
        } = self;
        load.answer(objects, answer, coverage)
            .expect("nothing is wrong with the answer by itself");
    }

    fn write(&mut self, object: usize) -> u32 {
        let op = self.ask(&[object], false);
        let applied = Response::Written {
            applied: true,
            existed: Vec::new(),
            previous: Vec::new(),
            changed: None,
        };
        self.answer(op, applied);
        op
    }

    fn read(&mut self, object: usize, op: u32) {
        let key = ObjectKey::first(object);
        let ask = Ask::Get { key };
        let get = self.load.next_op();
        self.load.ask(&self.objects, ask, Asking::anything(SESSION));
        let value = self.objects.value(op, key, VALUE_BYTES_MIN);
        self.answer(get, Response::Value(Some(value)));
    }

    /// Writes `object`, deletes it and `others`, or removes its range if there are none, with an outcome that
    /// stays unknown, writes another object of its region, and reads the first value of `object` again. Returns
    /// whether that is possible.
    fn is_possible(&mut self, object: usize, others: &[usize], end: End) -> bool {
        let first = self.write(object);
        let mut all = vec![object];
        all.extend(others);
        let op = self.load.next_op();
        if others.is_empty() {
            self.load.erasures.insert(op);
        }
        self.ask(&all, true);
        self.write(object - 1);
        self.end(op, end);
        self.read(object, first);
        self.load.judge(&self.objects).is_ok()
    }

    /// The outcome of operation `op` stays unknown.
    fn end(&mut self, op: u32, end: End) {
        match end {
            End::Answered => {
                let what = "part of it took effect".into();
                let outcome = Outcome::Unknown;
                let failed = Failure::Unavailable { what, outcome };
                self.answer(op, Response::Failed(failed));
            }
            End::ProcessLost => self.load.lost(SESSION, &mut self.coverage),
        }
    }

    /// Writes `object`, it and `others` again, with an outcome that stays unknown, and another object of its region,
    /// which is counted after its process ended. Whether it may hold all but the second write.
    fn may_lack(&mut self, object: usize, others: &[usize], end: End) -> bool {
        let first = self.write(object);
        let all: Vec<usize> = [object].iter().chain(others).copied().collect();
        let op = self.ask(&all, false);
        let last = self.write(object - 1);
        self.end(op, end);
        let process_end = ProcessEnd {
            at_least: 0,
            moment: self.load.last_moment(),
        };
        let held = [(object - 1, last), (object, first)];
        let pairs = held.iter().flat_map(|(object, op)| {
            let keys = self.objects.get(*object).keys.iter().enumerate();
            keys.map(|(index, key)| {
                let object = *object;
                let at = ObjectKey { object, index };
                (key.clone(), self.objects.value(*op, at, VALUE_BYTES_MIN))
            })
        });
        let pairs = pairs.collect();
        let region = self.objects.get(object).region;
        let recounted = self.load.recount(&self.objects, region, pairs, process_end);
        recounted.is_ok()
    }
}

#[test]
fn a_later_write_proves_nothing_of_a_part() {
    for end in [End::Answered, End::ProcessLost] {
        let mut world = World::new();
        let second = world.second();
        assert!(!world.objects.reaches_next_region(second - 2));
        assert!(
            !world.is_possible(second - 2, &[], end),
            "{end:?}: a write of one region took effect before the later one"
        );
        let mut world = World::new();
        assert!(
            world.is_possible(second - 2, &[second], end),
            "{end:?}: its region may have refused its part"
        );
    }
}

#[test]
fn a_region_that_is_counted_may_lack_its_part_and_no_whole_write() {
    for end in [End::Answered, End::ProcessLost] {
        let mut world = World::new();
        let second = world.second();
        assert!(!world.may_lack(second - 2, &[], end), "{end:?}");
        let mut world = World::new();
        assert!(world.may_lack(second - 2, &[second], end), "{end:?}");
    }
}

#[test]
fn a_range_may_have_a_part_in_a_region_of_which_it_has_no_object() {
    let reaching = |world: &World| {
        let mut all = 2..world.objects.len();
        let of = |object: usize| world.objects.get(object).region;
        all.find(|object| {
            world.objects.reaches_next_region(*object) && of(*object) == of(*object - 2)
        })
    };
    let (mut world, object) = (0..100)
        .find_map(|seed| {
            let mut world = World::new();
            world.objects = Objects::new(60, 3, &mut Random::new(seed, 0));
            let object = reaching(&world)?;
            Some((world, object))
        })
        .expect("some region begins with a group");
    assert!(world.is_possible(object, &[], End::Answered));
    let mut world = World {
        objects: world.objects,
        ..World::new()
    };
    assert!(
        !world.is_possible(object - 1, &[], End::Answered),
        "a range that ends before has no such part"
    );
}
