//! Version edits, and what they mean: an edit that can be read is written as it was, and no edit makes a
//! version panic.
#![no_main]

use std::collections::BTreeMap;

use argosy_base::{AddressMode, RegionId};
use argosy_lsm::{Edit, Version};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    let Ok(edit) = Edit::decode(bytes) else {
        return;
    };
    let again = Edit::decode(&edit.encode());
    assert_eq!(again.as_ref().ok(), Some(&edit), "{again:?}");
    let addresses = AddressMode::ALL[usize::from(which % 2)];
    let empty = Version::empty(RegionId(1), addresses);
    if let Ok(version) = empty.apply(&edit, &BTreeMap::new()) {
        let _ = version.check();
        let _ = version.checkpoint();
    }
});
