//! Which regions a write concerns, or what is bulk-loaded, and how it is split among them.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use argosy_base::Direction;
use argosy_engine::{Condition, Op, Reach, WriteBatch, long};

use super::gather::WriteParts;
use super::router::Router;
use super::write::Write;
use crate::service::{Begun, Failure, ReplySink, ReplyTo, Request, Response};

impl Router<'_> {
    /// The place of the region in which `key` lies: a part of a value, in that of the value.
    pub(super) fn route(&self, key: &[u8]) -> usize {
        self.map.index_of(long::routing_key(key))
    }

    /// The places of the regions in which `op` has keys.
    pub(super) fn routes_of(&self, op: &Op<'_>) -> RangeInclusive<usize> {
        let first = self.route(op.key());
        let last = match op.range() {
            Some(range) => self.map.first_of(&range, Direction::Down),
            None => first,
        };
        first..=last
    }

    /// The place of the region in which all keys of `batch` are, if it is one.
    pub(super) fn route_of(&self, batch: &WriteBatch) -> Option<usize> {
        let mut ops = batch.ops();
        let mut seen = batch.seen();
        let place = match (ops.next(), seen.clone().next()) {
            (Some(op), _) => self.routes_of(&op),
            (None, seen) => {
                let place = self.route(seen?.key);
                place..=place
            }
        };
        let alone = self.regions() == 1;
        let here = |op: Op<'_>| self.routes_of(&op) == place;
        let together = place.start() == place.end()
            && ops.all(here)
            && seen.all(|seen| self.route(seen.key) == *place.start());
        (alone || together).then_some(*place.start())
    }

    /// Writes a batch in every region that its keys lie in.
    pub(super) fn write_all(
        &self,
        Write { batch, options }: Write<'_>,
        reach: Reach,
        reply: ReplyTo,
    ) -> Begun {
        if batch.is_void() {
            let (existed, previous) = (Vec::new(), Vec::new());
            return Begun::Answered(Response::Written {
                applied: true,
                existed,
                previous,
                changed: None,
            });
        }
        if let Some(place) = self.route_of(batch) {
            let request = Request::Write { batch, options };
            return self.call_region(place, request, reach, reply);
        }
        if batch.is_together() || batch.seen().len() > 0 {
            let what = "the keys lie in several regions; a batch is atomic within one";
            let error = Failure::Invalid(what.to_owned());
            return Begun::Answered(Response::Failed(error));
        }
        let map = &self.map;
        let mut parts: BTreeMap<usize, (WriteBatch, Vec<usize>)> = BTreeMap::new();
        for (at, op) in batch.ops().enumerate() {
            for place in self.routes_of(&op) {
                let (part, ops) = parts.entry(place).or_default();
                if let Some(request) = batch.request() {
                    part.name(request);
                }
                if options.condition == Condition::Equals && part.is_empty() {
                    part.expect(batch.expected())
                        .expect("it is a value of the whole");
                }
                match op {
                    Op::Put { key, value, expiry } => part.put_any(key, value, expiry),
                    Op::Delete { key } => part.delete_any(key),
                    Op::DeleteRange { .. } => {
                        let range = op.range().unwrap_or_default();
                        part.delete_range_any(&range.intersection(&map.regions()[place].range))
                    }
                }
                .expect("part of a batch that is within the limits");
                ops.push(at);
            }
        }
        let ops = parts.values().map(|(_, ops)| ops.clone()).collect();
        let whole: Arc<dyn ReplySink> = WriteParts::new(reply, ops, batch.len());
        let parts: Vec<_> = parts
            .iter()
            .map(|(region, (batch, _))| (*region, Request::Write { batch, options }))
            .collect();
        self.call_parts(&parts, reach, &whole)
    }

    /// Has each region bulk-load what lies in it.
    pub(super) fn bulk_load_all(&self, batch: &WriteBatch, reach: Reach, reply: ReplyTo) -> Begun {
        if batch.puts().count() != batch.len() || batch.expires() || batch.is_empty() {
            let odd = "what is bulk-loaded is pairs that do not expire".to_owned();
            return Begun::Answered(Response::Failed(Failure::Invalid(odd)));
        }
        let mut parts: BTreeMap<usize, (WriteBatch, Vec<usize>)> = BTreeMap::new();
        let map = &self.map;
        for (at, (key, value)) in batch.puts().enumerate() {
            let (part, ops) = parts.entry(map.index_of(key)).or_default();
            let put = part.put(key, value);
            put.expect("part of a batch that is within the limits");
            ops.push(at);
        }
        if parts.len() == 1 {
            let place = parts.keys().next().copied().unwrap_or_default();
            return self.call_region(place, Request::Ingest { batch }, reach, reply);
        }
        let ops = parts.values().map(|(_, ops)| ops.clone()).collect();
        let whole: Arc<dyn ReplySink> = WriteParts::new(reply, ops, batch.len());
        let parts: Vec<_> = parts
            .iter()
            .map(|(region, (batch, _))| (*region, Request::Ingest { batch }))
            .collect();
        self.call_parts(&parts, reach, &whole)
    }
}
