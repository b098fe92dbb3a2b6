//! What becomes of jobs, without a master: see [`super`].

use super::*;
use crate::job::REMARK_BYTES_MAX;
use crate::map::{ClusterId, Replication, Server};
use crate::region::RegionState;
use crate::split::split_text;

fn map(regions: usize) -> ClusterMap {
    let server = |id| Server {
        id: ServerId(id),
        resp: String::new(),
        admin: String::new(),
    };
    let members = [0, 1].map(ServerId).to_vec();
    let regions = (1..).zip(split_text(regions));
    let regions =
        regions.map(|(id, range)| Region::first(RegionId(id), range, ServerId(0), members.clone()));
    ClusterMap::new(
        ClusterId(1),
        Replication::SendIndex,
        (0..4).map(server).collect(),
        regions.collect(),
    )
    .unwrap()
}

/// The map with another entry in the place of the one of that name.
fn with(map: &ClusterMap, change: impl Fn(&mut Region)) -> ClusterMap {
    let mut regions = map.regions().to_vec();
    for region in &mut regions {
        change(region);
        region.epoch = region.epoch.next();
    }
    map.with_regions(regions).unwrap()
}

fn deed(kind: JobKind, server: u32) -> Deed {
    Deed {
        kind,
        server: ServerId(server),
        region: RegionId(1),
    }
}

const ME: SessionId = SessionId(7);

fn planned(kind: JobKind, server: u32) -> (JobLog, JobId) {
    let mut log = JobLog::default();
    let id = log.cover(deed(kind, server), Epoch(1), ME).unwrap();
    (log, id)
}

fn state(log: &JobLog, id: JobId) -> JobState {
    log.job(id).unwrap().state
}

#[test]
fn what_is_in_the_map_already_is_done() {
    let before = map(1);
    let raised = with(&before, |region| region.state = RegionState::Recovering);
    let left = with(&before, |region| region.members = vec![ServerId(0)]);
    let filled = with(&before, |region| region.filling = vec![ServerId(3)]);
    let came = with(&filled, |region| {
        region.filling.clear();
        region.members.push(ServerId(3));
    });
    let state_in = |kind, server, map: &ClusterMap| {
        let (mut log, id) = planned(kind, server);
        log.settle(map);
        state(&log, id)
    };
    use JobKind::{Fill, Promote, Recover, Remove};
    assert_eq!(state_in(Promote, 0, &before), JobState::Planned);
    assert_eq!(state_in(Promote, 0, &raised), JobState::Planned);
    assert_eq!(state_in(Promote, 0, &left), JobState::Cancelled);
    assert_eq!(state_in(Recover, 0, &left), JobState::Planned);
    assert_eq!(state_in(Remove, 1, &before), JobState::Planned);
    assert_eq!(state_in(Remove, 1, &left), JobState::Done);
    assert_eq!(state_in(Remove, 1, &filled), JobState::Cancelled);
    assert_eq!(state_in(Fill, 3, &filled), JobState::Planned);
    assert_eq!(state_in(Fill, 3, &came), JobState::Done);
    assert_eq!(state_in(Fill, 3, &left), JobState::Cancelled);
}

#[test]
fn one_job_is_about_one_server() {
    let mut log = JobLog::default();
    let of = |server, region| Deed {
        region: RegionId(region),
        ..deed(JobKind::Remove, server)
    };
    let first = log.cover(of(1, 1), Epoch(1), ME).unwrap();
    assert_eq!(log.cover(of(1, 2), Epoch(1), ME), Ok(first));
    let second = log.cover(of(2, 2), Epoch(1), ME).unwrap();
    assert!(first < second);
    assert!(log.covers(of(1, 2), &map(2)));
    assert!(!log.covers(of(2, 1), &map(2)));
    // It was decided under an epoch that is over.
    assert!(!log.covers(of(1, 2), &with(&map(2), |_| {})));
}

#[test]
fn another_master_takes_up_what_was_left() {
    let (mut log, id) = planned(JobKind::Remove, 1);
    assert_eq!(log.take_over(ME), 0);
    assert_eq!(log.take_over(SessionId(8)), 1);
    let job = log.job(id).unwrap();
    assert_eq!((job.actor, job.attempts), (Some(SessionId(8)), 2));
}

#[test]
fn the_oldest_are_forgotten_and_numbers_are_not_used_again() {
    let map = map(1);
    let gone = with(&map, |region| region.members = vec![ServerId(0)]);
    let mut log = JobLog::default();
    let mut last = JobId(0);
    for _ in 0..2 * ENDED_KEPT {
        let id = log.cover(deed(JobKind::Remove, 1), Epoch(1), ME).unwrap();
        assert!(last < id);
        last = id;
        log.settle(&gone);
    }
    assert_eq!(log.jobs().len(), ENDED_KEPT);
    assert_eq!(log.jobs().next_back().unwrap().id, last);
    assert_eq!(log.job(JobId(1)), Err(JobError::Unknown(JobId(1))));
    assert_eq!(log.next(), last.0 + 1);
}

#[test]
fn there_are_no_more_open_jobs_and_regions_than_the_bounds() {
    let map = map(1);
    let mut log = JobLog::default();
    for _ in 0..OPEN_MAX {
        log.order_recovery(&map.regions()[0]).unwrap();
    }
    let full = log.order_recovery(&map.regions()[0]).unwrap_err();
    assert!(matches!(full, JobError::Full { .. }));
    let entry = JobRegion {
        epoch: Epoch(1),
        stage: RegionStage::Open,
    };
    let mut log = JobLog::default();
    let id = log.cover(deed(JobKind::Remove, 1), Epoch(1), ME).unwrap();
    let last = u32::try_from(REGIONS_MAX).unwrap();
    log.jobs.get_mut(&id).unwrap().regions = (1..=last).map(|id| (RegionId(id), entry)).collect();
    assert!(log.encode().len() <= crate::jobs_format::LOG_BYTES_MAX);
    assert!(log.cover(deed(JobKind::Fill, 1), Epoch(1), ME).is_err());
    log.jobs.get_mut(&id).unwrap().turn(JobState::Done, "");
    log.cover(deed(JobKind::Fill, 1), Epoch(1), ME).unwrap();
    assert_eq!(log.jobs().len(), 1, "the oldest that has ended made room");
}

#[test]
fn what_was_cancelled_is_held_until_the_group_changes_or_it_is_tried_again() {
    let map = map(1);
    let (mut log, id) = planned(JobKind::Fill, 3);
    log.cancel(id, &map).unwrap();
    assert_eq!(state(&log, id), JobState::Cancelled);
    let held =
        |log: &JobLog, map: &ClusterMap| log.is_held(JobKind::Fill, ServerId(3), &map.regions()[0]);
    let later = with(&map, |_| {});
    assert!(held(&log, &map) && !held(&log, &later));
    assert!(log.cancel(id, &map).is_err(), "it has ended");
    log.retry(id, &later).unwrap();
    assert!(!held(&log, &map));
    assert!(log.covers(deed(JobKind::Fill, 3), &later));
    assert!(log.retry(id, &later).is_err(), "it is open");
    // What was begun is finished.
    let filled = with(&later, |region| region.filling = vec![ServerId(3)]);
    assert!(log.cancel(id, &filled).is_err());
    assert_eq!(
        log.cancel(JobId(99), &map),
        Err(JobError::Unknown(JobId(99)))
    );
}

#[test]
fn a_cause_that_is_gone_ends_a_job_that_has_done_nothing() {
    let (mut log, id) = planned(JobKind::Promote, 0);
    log.drop_deed(deed(JobKind::Promote, 0), JobState::Cancelled, "it is back");
    assert_eq!(state(&log, id), JobState::Cancelled);
    assert_eq!(log.job(id).unwrap().remark, "it is back");
    let held = log.is_held(JobKind::Promote, ServerId(0), &map(1).regions()[0]);
    assert!(!held, "only what a person has cancelled is held");
    let mut job = log.job(id).unwrap().clone();
    job.turn(JobState::Failed, &"ü".repeat(REMARK_BYTES_MAX));
    assert_eq!(job.remark.len(), REMARK_BYTES_MAX);
}
