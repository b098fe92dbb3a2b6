//! Mistakes that are planted in the servers of a run, to see whether the checkers find them.

use argosy_engine::conformance::toy;

use crate::engine;

/// A planted mistake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    /// Of the engine.
    pub engine: engine::Mutants,
    /// Of the toy engine, under its profile.
    pub toy: toy::Mutants,
    /// Of the replication.
    pub replication: argosy_replication::Mutants,
    /// Of leases between servers.
    pub leases: argosy_replication::lease::Mutants,
    /// Of a master. Their names begin with that.
    pub master: argosy_master::Mutants,
    /// Of a node.
    pub node: argosy_server::node::Mutants,
    /// Of how a machine is set up.
    pub world: World,
}

argosy_base::mutants! {
    /// Mistakes in how a machine is set up.
    pub struct World {
        /// Windows in files are believed whatever boot they are of. (What lies in them is checked, so no server
        /// has more than was written; but an embedded store takes what is missing for damage, and does not open.)
        believe_every_boot,
    }
}

/// What stands in front of the names of a master's mistakes: some have the names of others.
const MASTER: &str = "master_";

impl Mutants {
    /// The names of all mistakes, as a command line has them.
    pub fn names() -> impl Iterator<Item = String> {
        let replication = argosy_replication::Mutants::NAMES;
        let leases = argosy_replication::lease::Mutants::NAMES;
        let node = argosy_server::node::Mutants::NAMES;
        let master = argosy_master::Mutants::NAMES.iter();
        let master = master.map(|name| format!("{MASTER}{name}"));
        let all = engine::Mutants::NAMES
            .iter()
            .chain(toy::Mutants::NAMES)
            .chain(replication)
            .chain(leases)
            .chain(node)
            .chain(World::NAMES);
        let all = all.map(|name| (*name).to_owned()).chain(master);
        all.map(|name| name.replace('_', "-"))
    }

    /// The mistake of this name alone, if there is one.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let (mut mutants, name) = (Self::default(), name.replace('-', "_"));
        let of_master = name.strip_prefix(MASTER);
        let planted = of_master.is_some_and(|name| mutants.master.plant(name))
            || mutants.engine.plant(&name)
            || mutants.toy.plant(&name)
            || mutants.replication.plant(&name)
            || mutants.leases.plant(&name)
            || mutants.node.plant(&name)
            || mutants.world.plant(&name);
        planted.then_some(mutants)
    }
}
