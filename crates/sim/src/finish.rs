//! The end of a run: nothing is wrong any more, so everything has to be right.
//!
//! 1. Every region is whole, every request succeeds, every object is read.
//! 2. When nothing moves any more, all members of a region hold the same, and devices what manifests name (`compare`).
//! 3. All servers are stopped cleanly and started again; then the same holds once more.

use std::time::Duration;

use crate::asks::{Ask, Target};
use crate::budget;
use crate::check::{Bound, When};
use crate::compare::Comparison;
use crate::coverage::EXPIRIES_READ;
use crate::full::{self, Recovery};
use crate::load::{Expect, Wrong};
use crate::objects::ObjectKey;
use crate::run::{Bringing, Pace, Run};

/// How long, in simulated time, everything may take to come to rest.
const REST_WITHIN: Duration = Duration::from_secs(10);

/// How long a link waits for the rest of a message, and a little more.
const GIVEN_UP_AFTER: Duration = Duration::from_millis(2_500);

/// See the module documentation.
pub(crate) struct Ending<'r> {
    run: &'r mut Run,
}

impl<'r> Ending<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// See the module documentation.
    pub(crate) fn finish(&mut self) -> Result<(), Wrong> {
        self.run.mend()?;
        self.wait_for_damaged_messages()?;
        self.run.finish_episode()?;
        Bringing::of(self.run).bring_all()?;
        Recovery::of(self.run).fill_and_recover()?;
        // A request that waits for a primary may have others wait behind it for as long as a probe is waited for.
        self.run.drain()?;
        self.run.expect = Expect::Slowness;
        let until = self.run.load.next_op() as usize + self.run.plan.load.last_ops;
        while (self.run.load.next_op() as usize) < until {
            self.run.tick(Pace::Full)?;
        }
        self.run.drain()?;
        Recovery::of(self.run).make_room()?;
        // Of many objects only some.
        let more = 1 + self.run.objects.len() / 250;
        for object in (0..self.run.objects.len()).step_by(9 * more) {
            self.write_at_last(object)?;
        }
        self.run.expect = Expect::Success;
        let links_lost = self.links_lost();
        for object in (0..self.run.objects.len()).step_by(more) {
            for index in 0..self.run.objects.get(object).keys.len() {
                let key = ObjectKey { object, index };
                self.run.ask_alone(Ask::Get { key })?;
            }
            self.run.tick(Pace::None)?;
        }
        self.run.sweep()?;
        self.run.read_longs(REST_WITHIN)?;
        self.run.drain()?;
        self.compare_at_rest()?;
        if self.links_lost() > links_lost {
            return Err("a link went down although nothing was wrong".to_owned());
        }
        self.run.judge()?;
        self.let_all_expire()?;
        self.restart_all()?;
        self.run.sweep()?;
        self.run.drain()?;
        self.tell_times()?;
        self.run.sweep()?;
        Bringing::of(self.run).look()?;
        self.run.read_longs(REST_WITHIN)?;
        self.run.drain()?;
        self.compare_at_rest()?;
        self.run.judge()
    }

    /// A message whose length is damaged is given up after a while, and the link with it.
    fn wait_for_damaged_messages(&mut self) -> Result<(), Wrong> {
        if self.run.cluster.wire.flipped() > 0 {
            let until = self.run.cluster.now() + GIVEN_UP_AFTER;
            while self.run.cluster.now() < until {
                self.run.tick(Pace::None)?;
            }
        }
        Ok(())
    }

    /// Links that went down, of all servers' processes.
    fn links_lost(&self) -> u64 {
        let up = self
            .run
            .cluster
            .indices()
            .filter_map(|server| self.run.cluster.up(server));
        up.map(|up| up.node.inspect().counts().links_lost).sum()
    }

    /// Has all clocks go past everything that expires.
    fn let_all_expire(&mut self) -> Result<(), Wrong> {
        let until = self
            .run
            .load
            .expiries
            .last()
            .max(self.run.clients.changes.last_expiry());
        for server in self.run.cluster.indices() {
            let wall = self.run.cluster.wall(server);
            let more = until.since(wall) + 1;
            let began = self.run.cluster.wall_began(server).after(more);
            self.run.cluster.set_wall(server, began);
        }
        self.run.asks.depend.leave_clocks();
        self.run.tick(Pace::None)
    }

    /// Has every primary tell the time: now nothing is there any more that expires.
    fn tell_times(&mut self) -> Result<(), Wrong> {
        // Where a log takes no writes yet, time stands still.
        self.run.expect = Expect::Slowness;
        for region in 0..self.run.plan.regions {
            let mut objects = 0..self.run.objects.len();
            let of_it = objects.find(|object| self.run.objects.get(*object).region == region);
            self.write_at_last(of_it.expect("a region has objects"))?;
        }
        self.run.expect = Expect::Success;
        // Or while its windows wait to be flushed: others than clients fill them, too.
        let begin = self.run.cluster.now();
        loop {
            let rest = self.run.cluster.now() + 3 * self.run.plan.engine.logs.flush_interval;
            while self.run.cluster.now() < rest {
                self.run.tick(Pace::None)?;
            }
            // What they show does not expire in them.
            self.run.forget_snapshots();
            let seen = self.expiring_seen();
            self.run.sweep()?;
            self.run.read_expiries(REST_WITHIN)?;
            self.run.drain()?;
            if self.expiring_seen() == seen {
                break;
            }
            if self.run.cluster.now().since(begin) >= REST_WITHIN {
                return Err(format!("time stands still for {REST_WITHIN:?}"));
            }
        }
        self.run.forget_snapshots();
        self.run.load.expiries.end();
        self.run.clients.changes.all_expired();
        Ok(())
    }

    /// How often clients have seen something so far that expires.
    fn expiring_seen(&self) -> u64 {
        self.run.load.expiries.seen() + self.run.cluster.coverage.get(EXPIRIES_READ)
    }

    /// Writes an object; however slow the servers are, they take it in the end.
    fn write_at_last(&mut self, object: usize) -> Result<(), Wrong> {
        let begin = self.run.cluster.now();
        while self.run.cluster.now().since(begin) < REST_WITHIN {
            let op = self.run.load.next_op();
            let (to, condition) = (Bound::To(op), When::Always);
            let targets = vec![Target {
                object,
                to,
                len: 50,
            }];
            self.run.ask_alone(Ask::Write {
                targets,
                condition,
                previous: true,
            })?;
            self.run.drain()?;
            if self.run.load.last_applied() == Some(op) {
                return Ok(());
            }
        }
        Err(format!(
            "object {object} cannot be written within {REST_WITHIN:?}"
        ))
    }

    fn restart_all(&mut self) -> Result<(), Wrong> {
        self.run.expect = Expect::Anything;
        for server in self.run.cluster.indices() {
            self.run.cluster.close(server);
        }
        self.run
            .say(format_args!("all servers are stopped cleanly"));
        self.run.forget_snapshots();
        self.run.start_all()?;
        self.run.wait_whole(Pace::None)?;
        self.run.expect = Expect::Success;
        Ok(())
    }

    /// Ticks until nothing changes any more and the copies agree, then looks at everything.
    fn compare_at_rest(&mut self) -> Result<(), Wrong> {
        let begin = self.run.cluster.now();
        let settle = 3 * self.run.plan.engine.logs.flush_interval + Duration::from_millis(30);
        self.run.forget_snapshots();
        loop {
            let rest = self.run.cluster.now();
            while self.run.cluster.now() < rest + settle {
                self.run.tick(Pace::None)?;
            }
            let found = self.compare();
            match found {
                Ok(()) => return Ok(()),
                Err(wrong) if self.run.cluster.now().since(begin) > REST_WITHIN => {
                    let bytes = self.run.plan.engine.layout.segment_bytes;
                    let words = full::space_in_words(&self.run.cluster, bytes);
                    return Err(format!("{wrong}\n{words}"));
                }
                Err(_) => {}
            }
        }
    }

    fn compare(&mut self) -> Result<(), Wrong> {
        Comparison::of(self.run).compare()?;
        budget::judge(&mut self.run.cluster, true)
    }
}
