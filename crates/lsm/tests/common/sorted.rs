//! Sorted pairs, handed in until they are in the engine.

use std::collections::BTreeMap;

use argosy_lsm::Lsm;
use argosy_lsm::db::bulk_load::Taken;

/// Hands in `pairs`, and steps until they are in the levels.
pub(crate) fn bulk_load(engine: &Lsm, pairs: &BTreeMap<Vec<u8>, Vec<u8>>, mut step: impl FnMut()) {
    let mut loader = engine.bulk_loader().unwrap();
    for (key, value) in pairs {
        loader.add(key.clone(), value.clone()).unwrap();
    }
    let ticket = loader.finish().unwrap();
    let taken = loop {
        match engine.taken(ticket) {
            Some(taken) => break taken,
            None => step(),
        }
    };
    assert!(matches!(taken, Taken::Done), "{taken:?}");
}
