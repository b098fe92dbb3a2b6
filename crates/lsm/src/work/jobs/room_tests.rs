//! When merges and packing find room on a full device.

use argosy_base::{Lsn, RegionId};
use argosy_device::Purpose;

use super::*;
use crate::compaction::policy::Place;
use crate::settings::Settings;
use crate::version::tests::store;
use crate::work::space::PartEnd;

const RESERVE: u32 = 32;
const SEGMENT_BYTES: usize = 32 << 10;

/// The jobs of a new region, on a device that has `free` segments left.
fn jobs(free: u32) -> Jobs {
    let store = store();
    let storage = Storage::create(&store, RegionId(1), &Settings::small()).unwrap();
    let mut jobs = Jobs::new(&storage, Lsn(0));
    note(&mut jobs, free);
    jobs
}

fn note(jobs: &mut Jobs, free: u32) {
    let reserve = RESERVE;
    let room = Room { free, reserve };
    jobs.note_room(Instant::default(), room, room.is_full());
}

fn end(level: u8, key: Option<&[u8; 1]>) -> PartEnd {
    let key = key.map(|key| key.to_vec());
    PartEnd { level, key }
}

#[test]
fn packing_has_room_where_merges_have_none() {
    let jobs = jobs(RESERVE / 8);
    assert_eq!(jobs.space.room_for(Purpose::Merge), 0);
    assert_eq!(jobs.space.room_for(Purpose::Pack), 2);
    assert_eq!(jobs.space.pack_segments(), 3);
}

#[test]
fn packing_begins_anew_with_each_flush() {
    let mut jobs = jobs(RESERVE / 4);
    let packs = |jobs: &Jobs| jobs.space.pack_bytes(SEGMENT_BYTES) > 0;
    let (level, key) = (5, b"k".to_vec());
    let upto = Place { level, key };
    jobs.space.won_nothing(end(5, Some(b"k")));
    jobs.compaction_committed();
    assert_eq!(jobs.space.behind(), Some(upto));
    jobs.flush_committed();
    assert_eq!(jobs.space.behind(), None);
    jobs.space.won_nothing(end(5, None));
    assert!(!packs(&jobs));
    jobs.flush_committed();
    assert!(packs(&jobs));
}

#[test]
fn nothing_is_packed_where_there_is_room() {
    let mut jobs = jobs(RESERVE + 1);
    assert_eq!(jobs.space.pack_bytes(SEGMENT_BYTES), 0);
    note(&mut jobs, RESERVE);
    assert!(jobs.space.pack_bytes(SEGMENT_BYTES) > 0);
}

/// Two parts of a level found no room, and there are no others.
fn round(jobs: &mut Jobs) {
    for key in [b"k", b"t", b"k"] {
        jobs.space.found_none(end(6, Some(key)), false, 1);
    }
}

#[test]
fn packing_goes_first_after_a_round_of_parts_that_found_no_room() {
    let mut jobs = jobs(RESERVE / 8 + 1);
    jobs.space.found_none(end(6, Some(b"k")), false, 1);
    assert_eq!(jobs.space.packs_first(), None);
    round(&mut jobs);
    let behind = jobs.space.behind();
    assert_eq!(jobs.space.packs_first(), Some(&Place::LOWEST));
    jobs.compaction_committed();
    assert_eq!(jobs.space.packs_first(), Some(&Place::LOWEST), "it wins");

    // It goes through all levels, and the parts go on where they were.
    let at = |level, key: &[u8]| {
        let key = key.to_vec();
        Some(Place { level, key })
    };
    jobs.space.won_nothing(end(5, Some(b"t")));
    assert_eq!(jobs.space.packs_first().cloned(), at(5, b"t"));
    jobs.space.found_none(end(5, Some(b"u")), true, 0);
    assert_eq!(jobs.space.packs_first().cloned(), at(5, b"u"));
    jobs.space.found_none(end(5, None), true, 0);
    assert_eq!(jobs.space.packs_first().cloned(), at(4, b""));
    jobs.space.won_nothing(end(1, None));
    assert_eq!(jobs.space.packs_first().cloned(), at(0, b""));
    jobs.space.won_nothing(end(0, None));
    assert_eq!(jobs.space.packs_first(), None);
    assert_eq!(jobs.space.behind(), behind);

    // A flush brings short segments.
    round(&mut jobs);
    jobs.space.won_nothing(end(5, None));
    jobs.flush_committed();
    assert_eq!(jobs.space.packs_first(), Some(&Place::LOWEST));
}

/// Others would take what packing needs, until all parts have been tried.
#[test]
fn packing_goes_first_at_once_where_there_is_no_room_for_merges() {
    let mut jobs = jobs(RESERVE / 8);
    jobs.space.found_none(end(6, Some(b"k")), false, 0);
    assert_eq!(jobs.space.packs_first(), Some(&Place::LOWEST));
}

#[test]
fn packing_takes_the_last_segment_where_nothing_else_found_room() {
    let mut jobs = jobs(1);
    assert_eq!(jobs.space.merge_purpose(true, 0), Purpose::Pack);
    round(&mut jobs);
    assert_eq!(jobs.space.merge_purpose(true, 0), Purpose::Metadata);
    // It takes one of those that are kept for manifests, and no second.
    assert_eq!(jobs.space.merge_purpose(true, 1), Purpose::Pack);
    assert_eq!(jobs.space.merge_purpose(false, 0), Purpose::Merge);
    note(&mut jobs, RESERVE / 8);
    assert_eq!(jobs.space.merge_purpose(true, 0), Purpose::Pack);
}
