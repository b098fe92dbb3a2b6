//! Requests about several keys: grouped by region, looked up together in each, put together again.
//!
//! An answer tells of the first of the keys, as far as the bounds go; whoever asked asks again for the rest.
//! So nothing is ever held but one bounded answer, of one region or of several: regions that are asked at
//! the same time share the bound.

use std::collections::BTreeMap;
use std::sync::Arc;

use argosy_engine::batch::check_key;
use argosy_engine::long::check_users;
use argosy_engine::{EngineError, Found, Reach, WaitFor, Wanted};
use parking_lot::Mutex;

use super::look::{reveals, value_of};
use super::open::OpenRegion;
use super::refuse::failed;
use super::router::Router;
use super::serve::PAGE_BYTES_MAX;
use super::serving::Serving;
use super::waiting::{Queued, Shown};
use crate::service::{Begun, Failure, KeyList, ReplySink, ReplyTo, Request, Response, SnapshotId};

/// What is asked of several keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct ManyKeys<'a> {
    pub(super) keys: &'a KeyList,
    pub(super) wanted: Wanted,
    /// As of which snapshot; `None`: now.
    pub(super) at: Option<SnapshotId>,
    pub(super) reach: Reach,
}

impl ManyKeys<'_> {
    /// Asks every region for those of the first of the keys that lie in it.
    pub(super) fn ask_all(self, router: &Router<'_>, reply: ReplyTo) -> Begun {
        let Self {
            keys, wanted, at, ..
        } = self;
        if let Err(invalid) = check(keys) {
            return Begun::Answered(invalid);
        }
        if keys.is_empty() {
            return Begun::Answered(Response::Values(Vec::new()));
        }
        if let Some(place) = self.route_of_all(router) {
            let request = Request::GetMany { keys, wanted, at };
            return router.call_region(place, request, self.reach, reply);
        }
        let mut parts: BTreeMap<usize, (KeyList, Vec<usize>)> = BTreeMap::new();
        let page = keys.page(0);
        for (at, key) in keys.iter().enumerate().take(page) {
            let (part, places) = parts.entry(router.route(key)).or_default();
            part.push(key);
            places.push(at);
        }
        let wanted = match wanted {
            Wanted::Values(bytes) => Wanted::Values(bytes.min(PAGE_BYTES_MAX) / parts.len()),
            Wanted::Presence => wanted,
        };
        let places = parts.values().map(|(_, places)| places.clone()).collect();
        let whole: Arc<dyn ReplySink> = ValueParts::new(reply, places, page);
        let parts: Vec<_> = parts
            .iter()
            .map(|(region, (keys, _))| (*region, Request::GetMany { keys, wanted, at }))
            .collect();
        router.call_parts(&parts, self.reach, &whole)
    }

    /// The place of the region that all of the keys lie in, if there is one, and they are no more than one
    /// request may have.
    fn route_of_all(self, router: &Router<'_>) -> Option<usize> {
        let keys = self.keys;
        let place = router.route(keys.at(0));
        let together = router.regions() == 1 || keys.iter().all(|key| router.route(key) == place);
        (together && keys.page(0) == keys.len()).then_some(place)
    }

    /// Looks the keys up in `open`, in which they lie.
    pub(super) fn answer(self, open: &OpenRegion<'_>, reply: ReplyTo) -> Begun {
        if let Some(at) = self.at {
            return match self.reach {
                Reach::Memory => Begun::NeedsDevice,
                Reach::Device => Begun::Answered(self.values_at(at, open)),
            };
        }
        // A reader of parts asks for one after the other: they stay for the next ones.
        if let Some(key) = self.keys.iter().next() {
            open.region.uses().reads(key, open.context.now());
        }
        let queued = || Queued::GetMany {
            keys: self.keys.clone(),
            wanted: self.wanted,
        };
        if let Some(waits) = open.wait_behind_writes(self.keys.iter(), queued, &reply) {
            return waits.into();
        }
        match look_up(open.engine, self.keys, self.wanted, self.reach) {
            Ok(found) => open.show(values_of(found, self.reach), reply).into(),
            Err(EngineError::NotInMemory) => Begun::NeedsDevice,
            Err(error) => Begun::Answered(failed(&error)),
        }
    }

    /// What is wanted of the keys in a snapshot.
    fn values_at(self, at: SnapshotId, open: &OpenRegion<'_>) -> Response {
        let snapshot = match open.region.snapshots().view(at, open) {
            Ok(snapshot) => snapshot,
            Err(refused) => return refused,
        };
        let page: Vec<&[u8]> = self.keys.iter().take(self.keys.page(0)).collect();
        match snapshot.get_some(&page, bounded(self.wanted)) {
            Ok(values) => Response::Values(values),
            Err(error) => failed(&error),
        }
    }
}

impl Router<'_> {
    /// Answers each of `keys` by itself. Those of one region are looked up together, where that goes.
    pub(super) fn get_together(&self, keys: &KeyList, replies: &[ReplyTo]) {
        let first = self.route(keys.at(0));
        if keys.iter().all(|key| self.route(key) == first) {
            return self.get_of(first, keys, replies);
        }
        let mut parts: BTreeMap<usize, (KeyList, Vec<ReplyTo>)> = BTreeMap::new();
        for (key, reply) in keys.iter().zip(replies) {
            let (part, whose) = parts.entry(self.route(key)).or_default();
            part.push(key);
            whose.push(reply.clone());
        }
        for (place, (keys, replies)) in &parts {
            self.get_of(*place, keys, replies);
        }
    }

    /// The same of keys of the region in that `place` of the map.
    fn get_of(&self, place: usize, keys: &KeyList, replies: &[ReplyTo]) {
        let told = self.get_first(place, keys, replies);
        for (key, reply) in keys.iter().zip(replies).skip(told) {
            let begun = self.call(Request::Get { key }, Reach::Device, reply.clone());
            if let Begun::Answered(response) = begun {
                reply.clone().send(response);
            }
        }
    }

    /// Looks up the first of `keys` together, where their region is one of this server's and no write waits for
    /// room there. Returns how many; what fails is not among them.
    fn get_first(&self, place: usize, keys: &KeyList, replies: &[ReplyTo]) -> usize {
        let is_valid = |key| check_key(key).and_then(|()| check_users(key)).is_ok();
        let Some(region) = self
            .served_here(place)
            .filter(|_| keys.iter().all(is_valid) && !self.context.requests.is_queueing(place))
        else {
            return 0;
        };
        let context = &self.context;
        context.world.ledger.at(region.place());
        let guard = region.engine();
        let Some(engine) = guard.as_ref().filter(|_| !region.waiting().is_queueing()) else {
            return 0;
        };
        let open = OpenRegion {
            context,
            region,
            engine,
        };
        let all: Vec<&[u8]> = keys.iter().collect();
        let mut told = 0;
        while told < all.len() {
            let wanted = bounded(Wanted::Values(usize::MAX));
            let found = engine.get_some(&all[told..], wanted, Reach::Device);
            let Some(found) = found.ok().filter(|found| !found.is_empty()) else {
                break;
            };
            for (found, reply) in found.into_iter().zip(&replies[told..]) {
                let shown = value_of(found, Reach::Device);
                if let Some(response) = open.show(shown, reply.clone()) {
                    reply.clone().send(response);
                }
                told += 1;
            }
        }
        told
    }
}

/// Refuses keys that are none.
pub(super) fn check(keys: &KeyList) -> Result<(), Response> {
    let checked = keys.iter().try_for_each(check_key);
    checked.map_err(|error| Response::Failed(Failure::Invalid(error.to_string())))
}

/// The values of several keys, once what all of them wait for is over.
pub(super) fn values_of(found: Vec<Found>, reach: Reach) -> Shown {
    let waits = found.iter().map(|found| found.wait);
    let wait = waits.fold(WaitFor::Nothing, WaitFor::and);
    let values = found.into_iter().map(|found| found.value).collect();
    Shown {
        reveals: reveals(reach),
        wait,
        response: Response::Values(values),
    }
}

/// What is `wanted` of the first of `keys`, within what one answer may hold.
pub(super) fn look_up(
    engine: &Serving,
    keys: &KeyList,
    wanted: Wanted,
    reach: Reach,
) -> Result<Vec<Found>, EngineError> {
    let page: Vec<&[u8]> = keys.iter().take(keys.page(0)).collect();
    engine.get_some(&page, bounded(wanted), reach)
}

pub(super) fn bounded(wanted: Wanted) -> Wanted {
    match wanted {
        Wanted::Values(bytes) => Wanted::Values(bytes.min(PAGE_BYTES_MAX)),
        Wanted::Presence => wanted,
    }
}

/// The parts of a look at keys of several regions.
struct ValueParts {
    reply: ReplyTo,
    state: Mutex<ValueState>,
}

struct ValueState {
    missing: usize,
    /// Per part, which of the keys it is about.
    places: Vec<Vec<usize>>,
    /// Per key, what it is bound to, where that was told.
    values: Vec<Option<Option<Vec<u8>>>>,
    failed: Option<Response>,
}

impl ValueParts {
    /// Expects an answer for the keys of each of `places`, under the part's index as token.
    fn new(reply: ReplyTo, places: Vec<Vec<usize>>, keys: usize) -> Arc<Self> {
        Arc::new(Self {
            reply,
            state: Mutex::new(ValueState {
                missing: places.len(),
                places,
                values: vec![None; keys],
                failed: None,
            }),
        })
    }
}

impl ValueState {
    /// What was told of the first of the keys.
    fn combine(&mut self) -> Response {
        let values = std::mem::take(&mut self.values);
        let told = values.into_iter().map_while(|value| value);
        self.failed
            .take()
            .unwrap_or_else(|| Response::Values(told.collect()))
    }
}

impl ReplySink for ValueParts {
    fn deliver(&self, token: u64, response: Response) {
        let mut state = self.state.lock();
        let state_now = &mut *state;
        let part = usize::try_from(token).expect("a part's index");
        match response {
            Response::Values(values) => {
                for (place, value) in state_now.places[part].iter().zip(values) {
                    state_now.values[*place] = Some(value);
                }
            }
            Response::Failed(error) => state_now.failed = Some(Response::Failed(error)),
            _ => {
                let odd = Failure::Invalid("a look at keys was answered oddly".into());
                state_now.failed = Some(Response::Failed(odd));
            }
        }
        state.missing -= 1;
        if state.missing == 0 {
            let response = state.combine();
            drop(state);
            self.reply.clone().send(response);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Sink(Mutex<Vec<Response>>);

    impl ReplySink for Sink {
        fn deliver(&self, _: u64, response: Response) {
            let mut told = self.0.lock();
            told.push(response);
        }
    }

    /// What keys 0 and 2 of one region, and 1 and 3 of another, come to.
    fn combined(parts: [Response; 2]) -> Response {
        let sink = Arc::new(Sink::default());
        let reply: Arc<dyn ReplySink> = Arc::clone(&sink) as _;
        let places = vec![vec![0, 2], vec![1, 3]];
        let whole = ValueParts::new(ReplyTo::new(&reply, 0), places, 4);
        for (token, part) in [0, 1].into_iter().zip(parts).rev() {
            whole.deliver(token, part);
        }
        let mut told = sink.0.lock();
        assert_eq!(told.len(), 1, "it is answered once");
        told.remove(0)
    }

    fn values(values: &[&str]) -> Response {
        let values = values.iter().map(|value| Some(value.as_bytes().to_vec()));
        Response::Values(values.collect())
    }

    #[test]
    fn an_answer_ends_at_the_first_key_that_was_not_told() {
        let whole = combined([values(&["0", "2"]), values(&["1", "3"])]);
        assert_eq!(whole, values(&["0", "1", "2", "3"]));
        let whole = combined([values(&["0", "2"]), values(&["1"])]);
        assert_eq!(whole, values(&["0", "1", "2"]));
        let whole = combined([values(&["0"]), values(&["1", "3"])]);
        assert_eq!(whole, values(&["0", "1"]));
    }

    #[test]
    fn one_region_that_fails_fails_the_whole() {
        let failed = Response::Failed(Failure::Invalid("no".into()));
        assert_eq!(combined([failed.clone(), values(&["1", "3"])]), failed);
    }
}
