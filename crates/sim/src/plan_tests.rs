//! Tests of plans.

use super::*;

#[test]
fn settings_of_many_seeds_work() {
    for seed in 0..500 {
        let plan = Plan::new(seed);
        assert_eq!(plan.engine.validate(), Ok(()), "seed {seed}");
        let calm: usize = plan.episodes.iter().map(|episode| episode.calm_ops).sum();
        assert!(plan.devices.small.is_some() || calm + plan.load.last_ops >= OPS_MIN);
    }
}

#[test]
fn every_kind_of_world_and_event_comes_up() {
    let plans: Vec<Plan> = (0..200).map(Plan::new).collect();
    for kind in [
        WorldKind::Replicated,
        WorldKind::Killed,
        WorldKind::Powerless,
    ] {
        assert!(plans.iter().filter(|plan| plan.kind == kind).count() > 10);
    }
    let events = || {
        plans
            .iter()
            .flat_map(|plan| &plan.episodes)
            .flat_map(|e| &e.events)
    };
    let name = |event: &Event| format!("{event:?}").split('(').next().map(str::to_owned);
    let names: std::collections::BTreeSet<_> = events().map(|(_, e)| name(e)).collect();
    assert_eq!(names.len(), 22, "{names:?}");
}
