//! What has clients send writes again; see [`repeat`].

use super::Run;
use crate::load::Wrong;
use crate::repeat;

/// See the module documentation.
pub(super) struct Repeats<'r> {
    run: &'r mut Run,
}

impl<'r> Repeats<'r> {
    pub(super) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// Has clients go on with what is in doubt, and begin others if `starts`. Returns whether anything was asked.
    pub(super) fn go_on(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let run = &mut *self.run;
        let servers = run.cluster.indices().len();
        for client in 0..repeat::CLIENTS {
            let Some(server) = run.clients.repeating.whom(client, starts, servers) else {
                continue;
            };
            let Some(line) = run.line(server) else {
                continue;
            };
            let (token, call) = run.clients.repeating.next(client, line.session);
            asked = true;
            if let Some(response) = call.request(|request| line.call(request, token)) {
                run.clocks_reached();
                let coverage = &mut run.cluster.coverage;
                run.clients.repeating.answer(token, response, coverage)?;
            }
        }
        run.flush_if(asked)
    }
}
