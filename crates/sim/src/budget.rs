//! What servers hold, judged against what they may hold (I8, I9).
//!
//! A server tells what it holds of everything that could grow: messages, answers, calls, edits, slots, and what is in
//! its cache ([`Reports::holdings`](argosy_server::node::Reports::holdings)). It is asked
//!
//! - from time to time, while anything goes wrong: nothing is over the most that there may be of it;
//! - when nothing moves any more, and members are compared: nothing is left of what passes, and what is charged to the
//!   cache is what versions and memtables take. So what is not given back is found when it is little.

use crate::cluster::Cluster;
use crate::engine::{memtable_bytes, pairs_bytes, version_bytes};
use crate::load::Wrong;

/// Ticks between two looks.
const TICKS: u64 = 256;

/// What was looked at.
pub(crate) const LOOKS: &str = "memory judged";
/// Looks that found something that passes.
pub(crate) const USED: &str = "memory judged while in use";

/// From time to time looks whether anything is over its budget.
pub(crate) fn look(cluster: &mut Cluster, ticks: u64) -> Result<(), Wrong> {
    match ticks.is_multiple_of(TICKS) {
        true => judge(cluster, false),
        false => Ok(()),
    }
}

/// Looks at what all servers hold; `at_rest`: nothing is under way.
pub(crate) fn judge(cluster: &mut Cluster, at_rest: bool) -> Result<(), Wrong> {
    for server in cluster.indices() {
        let Some(up) = cluster.between_steps(server) else {
            continue;
        };
        let holdings = up.node.reports().holdings();
        let over = holdings.iter().find(|holding| {
            let most = if at_rest && holding.passes {
                0
            } else {
                holding.most
            };
            holding.held > most
        });
        if let Some(over) = over {
            let rest = if at_rest {
                ", and nothing is under way"
            } else {
                ""
            };
            return Err(format!(
                "server {server} is over its memory budget{rest}: {over:?}"
            ));
        }
        let used = holdings
            .iter()
            .any(|holding| holding.passes && holding.held > 0);
        let coverage = &mut cluster.coverage;
        coverage.add(LOOKS, 1);
        coverage.add(USED, u64::from(used));
    }
    match at_rest {
        true => judge_charges(cluster),
        false => Ok(()),
    }
}

/// What is charged to caches, and counted for all servers together, is what there is.
fn judge_charges(cluster: &Cluster) -> Result<(), Wrong> {
    let pairs = pairs_bytes();
    if pairs > 0 {
        return Err(format!(
            "{pairs} bytes of sorted pairs are held, and nothing is under way"
        ));
    }
    let mut all = 0;
    for server in cluster.indices() {
        let Some(up) = cluster.up(server) else {
            continue;
        };
        let versions = up.node.inspect().versions_bytes();
        all += versions;
        // With the ranges that they remove, which are no part of what is allocated for entries.
        let regions = cluster.map.regions().iter();
        let stats = regions.filter_map(|region| up.node.inspect().engine_stats(region.id));
        let own: usize = stats.map(|stats| stats.memtables.bytes).sum();
        let (charged, all) = (up.node.inspect().charged_bytes(), memtable_bytes());
        if charged > (versions + own + all) as u64 {
            return Err(format!(
                "server {server} has charged {charged} bytes to its cache: its versions have {versions}, its \
                 memtables {own}, and entries of all memtables {all}"
            ));
        }
    }
    let versions = version_bytes();
    if versions > all {
        return Err(format!(
            "versions of {versions} bytes are held, and {all} are in use"
        ));
    }
    Ok(())
}
