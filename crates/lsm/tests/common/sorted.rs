//! Sorted pairs, handed in until they are in the engine.

use std::collections::BTreeMap;

use argosy_engine::Store;
use argosy_lsm::Lsm;

/// Hands in `pairs`, and has memtables flushed that have keys of their range, by `step`.
pub(crate) fn ingest(engine: &Lsm, pairs: &BTreeMap<Vec<u8>, Vec<u8>>, mut step: impl FnMut()) {
    loop {
        let mut ingest = engine.ingest().unwrap();
        for (key, value) in pairs {
            ingest.add(key.clone(), value.clone()).unwrap();
        }
        if ingest.finish().unwrap().is_some() {
            return;
        }
        drop(ingest);
        while engine.version_with(engine.last_lsn()).is_none() {
            step();
        }
    }
}
