//! Version edits, and what they mean: an edit that can be read is written as it was, and no edit makes a
//! version panic.

use std::collections::BTreeMap;

use argosy_base::{AddressMode, RegionId};
use argosy_lsm::{Compaction, Edit, Version};

use super::sample::Sample;
use super::{Target, input};

pub(crate) const TARGET: Target = Target {
    name: "edits",
    run,
    seeds,
};

fn run(data: &[u8]) -> bool {
    let Some((which, bytes)) = data.split_first() else {
        return false;
    };
    let Ok(edit) = Edit::decode(bytes) else {
        return false;
    };
    let again = Edit::decode(&edit.encode());
    assert_eq!(again.as_ref().ok(), Some(&edit), "{again:?}");
    let addresses = AddressMode::ALL[usize::from(which % 2)];
    let empty = Version::empty(RegionId(1), addresses);
    if let Ok(version) = empty.apply(&edit, &BTreeMap::new()) {
        let _ = version.check();
        let _ = version.checkpoint();
    }
    true
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for compaction in [Compaction::Partial, Compaction::WholeLevel] {
        let region = Sample::new(compaction).region();
        let last = region.edits.len().saturating_sub(20);
        let edits = region.edits[last..].iter().map(|record| &record.edit);
        seeds.extend(edits.map(|edit| input(0, &edit.encode())));
        let version = region.version.expect("it was closed");
        seeds.push(input(1, &version.checkpoint().encode()));
    }
    seeds
}
