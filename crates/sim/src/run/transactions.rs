//! What has clients carry out transactions; see [`transact`].

use argosy_server::service::Request;

use super::Run;
use crate::load::Wrong;
use crate::transact;

/// See the module documentation.
pub(super) struct Transactions<'r> {
    run: &'r mut Run,
}

impl<'r> Transactions<'r> {
    pub(super) const fn of(run: &'r mut Run) -> Self {
        Self { run }
    }

    /// Has clients go on with transactions, and begin others if `starts`. Returns whether anything was asked.
    pub(super) fn go_on(&mut self, starts: bool) -> Result<bool, Wrong> {
        let mut asked = false;
        let starts = starts && self.run.harm.uncounted.is_empty();
        let servers = self.run.cluster.indices().len();
        for client in 0..transact::CLIENTS {
            if let Some(server) = self.run.clients.transacting.whom(client, starts, servers)
                && let Some(line) = self.run.line(server)
            {
                self.run.clients.transacting.begin(client, line.session);
            }
            let Some(process) = self.run.clients.transacting.process_of(client) else {
                continue;
            };
            let mut lines = self
                .run
                .cluster
                .indices()
                .filter_map(|server| self.run.line(server));
            let line = lines.find(|line| line.session == process);
            if let Some(line) = line {
                let call = |request: Request<'_>, token| line.call(request, token);
                asked |= self
                    .run
                    .clients
                    .transacting
                    .go_on(client, &*line.node, call);
                self.run.clocks_reached();
            }
            let coverage = &mut self.run.cluster.coverage;
            self.run.clients.transacting.end(client, coverage)?;
        }
        self.run.flush_if(asked)
    }
}
