//! What brings a region very many segments, and counts them at the end; see [`many`].

use argosy_server::service::Request;

use super::{Pace, Run};
use crate::load::Wrong;
use crate::many::{self, Call, SLOTS};

/// Ticks between two counts.
const TICKS: usize = 400;

/// See the module documentation.
pub(crate) struct Bringing<'r> {
    run: &'r mut Run,
}

impl<'r> Bringing<'r> {
    pub(crate) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// Has the client of [`many`] ask for what comes next, and begin with other things if `starts`. Returns whether
    /// anything was asked.
    pub(super) fn ask(&mut self, starts: bool) -> Result<bool, Wrong> {
        if self.run.plan.devices.many.is_none() {
            return Ok(false);
        }
        let mut asked = false;
        let home = self.run.cluster.primary_of(0);
        if self.run.pacing.ticks.is_multiple_of(TICKS as u64) && self.run.cluster.up(home).is_some()
        {
            let (levels, logs) = self.run.cluster.segments_of(home);
            self.run.clients.many.counted(levels + logs);
        }
        let servers = self.run.cluster.indices().len();
        for slot in 0..SLOTS {
            let Some(server) = self.run.clients.many.whom(slot, starts, home, servers) else {
                continue;
            };
            let Some(line) = self.run.line(server) else {
                continue;
            };
            let Some((token, call)) = self.run.clients.many.next(slot, line.session) else {
                continue;
            };
            asked = true;
            let options = argosy_engine::WriteOptions::default();
            let request = match &call {
                Call::BulkLoad(batch) => Request::Ingest { batch },
                Call::Write(batch) => Request::Write { batch, options },
                Call::Page(range, paging) => {
                    let paging = *paging;
                    Request::Scan { range, paging }
                }
            };
            if let Some(response) = line.call(request, token) {
                let coverage = &mut self.run.cluster.coverage;
                self.run.clients.many.answer(token, response, coverage)?;
            }
        }
        self.run.flush_if(asked)
    }

    /// Ticks until the first region's primary has so many segments; at once in runs that are about something else.
    pub(super) fn bring(&mut self, segments: usize) -> Result<(), Wrong> {
        if self.run.plan.devices.many.is_none() {
            return Ok(());
        }
        self.run.clients.many.counted(0);
        let (begin, home) = (self.run.cluster.now(), self.run.cluster.primary_of(0));
        loop {
            let (levels, logs) = self.run.cluster.segments_of(home);
            self.run.say(format_args!(
                "server {home} has {levels} level segments and {logs} log segments"
            ));
            if levels + logs >= segments {
                return Ok(());
            }
            if self.run.cluster.now().since(begin) > many::BROUGHT_WITHIN {
                let within = many::BROUGHT_WITHIN;
                return Err(format!(
                    "{levels} level segments and {logs} log segments after {within:?}"
                ));
            }
            for _ in 0..TICKS {
                self.run.tick(Pace::Slow)?;
            }
        }
    }

    /// Brings what is still missing when nothing is wrong any more.
    pub(crate) fn bring_all(&mut self) -> Result<(), Wrong> {
        self.bring(many::SEGMENTS_ENOUGH)?;
        self.run.clients.many.end();
        Ok(())
    }

    /// Reads some of what was brought.
    pub(crate) fn look(&mut self) -> Result<(), Wrong> {
        if self.run.plan.devices.many.is_none() {
            return Ok(());
        }
        self.run.clients.many.wanted = many::LOOKS;
        let begin = self.run.cluster.now();
        while self.run.clients.many.wanted > 0 {
            if self.run.cluster.now().since(begin) > many::WHOLE_WITHIN {
                return Err("what was brought cannot be read".to_owned());
            }
            self.run.tick(Pace::None)?;
        }
        Ok(())
    }

    /// Fails where no member has as many segments as the seed promises: then the run has shown nothing.
    pub(super) fn count(&mut self) -> Result<(), Wrong> {
        if self.run.plan.devices.many.is_none() {
            return Ok(());
        }
        let counts = self
            .run
            .cluster
            .indices()
            .map(|server| self.run.cluster.segments_of(server));
        let (levels, logs) = counts
            .max_by_key(|(levels, logs)| levels + logs)
            .unwrap_or_default();
        self.run.say(format_args!(
            "a member has {levels} level segments and {logs} log segments at the end"
        ));
        let coverage = &mut self.run.cluster.coverage;
        coverage.add(many::LEVEL_SEGMENTS, levels as u64);
        coverage.add(many::LOG_SEGMENTS, logs as u64);
        match levels + logs >= many::SEGMENTS_MIN {
            true => Ok(()),
            false => Err(format!(
                "no member has {} segments: {levels} of levels and {logs} of logs are the most",
                many::SEGMENTS_MIN
            )),
        }
    }
}
