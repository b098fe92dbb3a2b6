//! Of which copy a mark is believed.

use argosy_base::limits::SEGMENT_SIZE;
use argosy_device::{FormatOptions, MemoryDevice, RegionEntry, StoreSettings};

use super::*;

const REGION: RegionId = RegionId(7);

fn store(generation: u64) -> Arc<Store> {
    let device = MemoryDevice::eager(8 * SEGMENT_SIZE as u64, 1);
    Store::format(&device, &FormatOptions::default()).unwrap();
    let store = Store::open(Arc::new(device), &StoreSettings::default()).unwrap();
    store.finish_recovery();
    let entry = RegionEntry {
        region: REGION,
        manifest: Vec::new(),
        words: [generation, 0],
    };
    store.set_region(entry).wait().unwrap();
    store
}

#[test]
fn a_mark_is_believed_of_its_own_copy_and_later_states_of_it() {
    let memory = Arc::new(SharedMemory::anonymous(MARK_BYTES));
    assert!(!says_whole(&memory, REGION, &store(5)), "nothing is marked");
    let mut mark = WholeMark {
        region: REGION,
        memory: Arc::clone(&memory),
        is_set: false,
    };
    mark.set(&store(5));
    assert!(mark.is_set());
    for generation in [5, 6, 100] {
        assert!(says_whole(&memory, REGION, &store(generation)));
    }
    assert!(!says_whole(&memory, REGION, &store(4)), "an earlier copy");
    assert!(
        !says_whole(&memory, RegionId(8), &store(5)),
        "another region"
    );
}

#[test]
fn a_damaged_mark_is_none() {
    for bit in 0..96 {
        let memory = Arc::new(SharedMemory::anonymous(MARK_BYTES));
        let mut mark = WholeMark {
            region: REGION,
            memory: Arc::clone(&memory),
            is_set: false,
        };
        mark.set(&store(5));
        let mut byte = memory.read_vec(bit / 8, 1);
        byte[0] ^= 1 << (bit % 8);
        memory.write(bit / 8, &byte);
        assert!(!says_whole(&memory, REGION, &store(u64::MAX)), "bit {bit}");
    }
}
