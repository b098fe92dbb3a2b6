//! How a request finds its region, here or elsewhere.

use std::sync::{Arc, Weak};

use arc_swap::Guard;
use argosy_base::KeyRange;
use argosy_coordinator::ClusterMap;
use argosy_engine::Reach;
use argosy_engine::batch::check_key;
use argosy_engine::composite::ElementsOf;
use argosy_engine::long::{self, check_users};
use argosy_wire::api::Target;

use super::Node;
use super::context::Context;
use super::examine::Examination;
use super::gather::{CountParts, ScanParts};
use super::local::LocalRegion;
use super::many::ManyKeys;
use super::region::Region;
use super::serve::PAGE_BYTES_MAX;
use super::snapshots::Leasing;
use super::write::Write;
use crate::activity::Place;
use crate::service::{Begun, Failure, Paging, ReplySink, ReplyTo, Request, Response};

/// What passes requests on to their regions.
pub(crate) struct Router<'a> {
    pub(super) context: Context<'a>,
    /// For answers that come later, and go on with their request.
    pub(super) me: &'a Weak<Node>,
    /// The region map, as it was when the request came.
    pub(super) map: Guard<Arc<ClusterMap>>,
}

impl Router<'_> {
    /// Begins a request of a client.
    pub(super) fn call(&self, request: Request<'_>, reach: Reach, reply: ReplyTo) -> Begun {
        match request.target() {
            Target::Key(key) => {
                if let Err(error) = check_key(key).and_then(|()| check_users(key)) {
                    let error = Failure::Invalid(error.to_string());
                    return Begun::Answered(Response::Failed(error));
                }
                let index = self.map.index_of(key);
                self.call_region(index, request, reach, reply)
            }
            Target::Keys { keys, wanted, at } => {
                let asked = ManyKeys {
                    keys,
                    wanted,
                    at,
                    reach,
                };
                asked.ask_all(self, reply)
            }
            Target::Together { keys, wanted } => {
                let asked = Examination {
                    keys,
                    wanted,
                    reach,
                };
                asked.ask(self, reply)
            }
            Target::Leases { id, lease } => {
                let id = id.unwrap_or_else(|| self.context.new_snapshot());
                Leasing { id, lease }.ask_all(self, reply)
            }
            Target::Batch { batch, options } => match options {
                Some(options) => self.write_all(Write { batch, options }, reach, reply),
                None => self.bulk_load_all(batch, reach, reply),
            },
            Target::Regions => {
                let told: fn(u64) -> Response = match request {
                    Request::Count => Response::Count,
                    _ => |_| Response::Done,
                };
                let parts = CountParts::new(reply, self.regions(), told);
                self.call_every(request, &(parts as Arc<dyn ReplySink>));
                Begun::Waits
            }
            Target::Range { range, mut paging } => {
                if let Some(of) = ElementsOf::containing(range) {
                    let index = self.map.index_of(of.key);
                    return self.call_region(index, request, reach, reply);
                }
                let range = long::users(range.clone());
                if range.is_empty() || paging.pairs_max == 0 {
                    return Begun::Answered(Response::Page {
                        pairs: Vec::new(),
                        next: None,
                    });
                }
                if reach == Reach::Memory {
                    return Begun::NeedsDevice;
                }
                paging.bytes_max = paging.bytes_max.min(PAGE_BYTES_MAX);
                ScanParts::new(Weak::clone(self.me), reply, range, paging).go_on();
                Begun::Waits
            }
        }
    }

    /// How many regions there are.
    pub(super) fn regions(&self) -> usize {
        self.map.regions().len()
    }

    /// Asks every region for its part of a request, and has `parts` put the answers together.
    pub(super) fn call_every(&self, request: Request<'_>, parts: &Arc<dyn ReplySink>) {
        for index in 0..self.regions() {
            self.call_part(index, request, ReplyTo::new(parts, 0));
        }
    }

    /// Asks the first region of `range` for a page of it.
    pub(crate) fn call_first_region(
        &self,
        range: &KeyRange,
        paging: Paging,
        reply: ReplyTo,
    ) -> Begun {
        let index = self.map.first_of(range, paging.direction);
        let request = Request::Scan { range, paging };
        self.call_region(index, request, Reach::Device, reply)
    }

    /// Asks the region in place `index` of the map for its part of a request, and sends what it answers at once.
    pub(super) fn call_part(&self, index: usize, request: Request<'_>, reply: ReplyTo) {
        let begun = self.call_region(index, request, Reach::Device, reply.clone());
        if let Begun::Answered(response) = begun {
            reply.send(response);
        }
    }

    /// Asks the regions in these places of the map for their parts of a request, and has `whole` put the answers
    /// together, under the places of the parts as tokens. Within [`Reach::Memory`] the first of this server's regions
    /// says whether the device is needed.
    pub(super) fn call_parts(
        &self,
        parts: &[(usize, Request<'_>)],
        reach: Reach,
        whole: &Arc<dyn ReplySink>,
    ) -> Begun {
        let parts = (0..).zip(parts);
        let here = parts
            .clone()
            .find(|(_, (index, _))| self.served_here(*index).is_some());
        if let Some((token, (index, request))) = here {
            match self.call_region(*index, *request, reach, ReplyTo::new(whole, token)) {
                Begun::NeedsDevice => return Begun::NeedsDevice,
                Begun::Answered(response) => whole.deliver(token, response),
                Begun::Waits | Begun::Sent => {}
            }
        }
        let first = here.map(|(token, _)| token);
        for (token, (index, request)) in parts.filter(|(token, _)| Some(*token) != first) {
            self.call_part(*index, *request, ReplyTo::new(whole, token));
        }
        Begun::Sent
    }

    /// Carries a request for the region in place `index` of the map out here, or sends it to its primary, or has it
    /// wait for one.
    pub(super) fn call_region(
        &self,
        index: usize,
        request: Request<'_>,
        reach: Reach,
        reply: ReplyTo,
    ) -> Begun {
        let (context, requests) = (&self.context, self.context.requests);
        let here = self.served_here(index);
        let mut reply = reply;
        if let Some(region) = here
            && !requests.is_queueing(index)
        {
            let local = LocalRegion::new(context, region);
            match local.call_if_open(request, reach, reply) {
                Ok(begun) => return begun,
                Err(closed) => reply = closed,
            }
        }
        if here.is_none() {
            context.world.ledger.at(Place::NONE);
        }
        let refused = requests.pass_on(index, &request, reply, context);
        refused.map_or(Begun::Sent, Begun::Answered)
    }

    /// The region in place `index` of the map, if this server is its primary.
    pub(super) fn served_here(&self, index: usize) -> Option<&Arc<Region>> {
        let region = self.context.region(self.map.regions()[index].id);
        region.filter(|region| region.is_led_here())
    }
}
