//! What there is still too much of. Each number here may fall and never rise: a test fails where there is more, and
//! where there is less than the number says, until that is lowered.

use std::collections::{BTreeMap, BTreeSet};

use super::signatures::{public_types, tuple_parameters};
use super::{Source, demand, sources};

/// Parameters whose type is a tuple, by crate; none in a crate that is not listed.
const TUPLE_PARAMETERS: [(&str, usize); 0] = [];

/// Names that more than one public type has.
const SHARED_NAMES: usize = 17;

/// The crate that the file at `path` is of.
fn crate_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

#[test]
fn parameters_are_no_tuples() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources().iter().filter(|source| source.is_rust()) {
        let Some(name) = crate_of(&source.path) else {
            continue;
        };
        let parameters = found.entry(name.to_owned()).or_default();
        for parameter in tuple_parameters(&source.text) {
            parameters.push(format!("{}: {parameter}", source.path));
        }
    }
    assert!(found.len() > 12, "all crates are looked at");
    let allowed: BTreeMap<_, _> = TUPLE_PARAMETERS.into_iter().collect();
    let mut offences = Vec::new();
    for (name, parameters) in found {
        let allowed = allowed.get(&*name).copied().unwrap_or(0);
        let count = parameters.len();
        if count > allowed {
            offences.push(format!("{name} has {count}, and may have {allowed}"));
            offences.extend(parameters);
        } else if count < allowed {
            offences.push(format!("{name} has {count}: lower {allowed} to that"));
        }
    }
    demand(
        "a struct says what values are together, or each is a parameter of its own",
        &offences,
    );
}

#[test]
fn public_types_have_names_of_their_own() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for source in sources() {
        let is_source = source.path.contains("/src/") && !source.is_test();
        if !source.is_rust() || !is_source {
            continue;
        }
        for name in public_types(&source.text) {
            let places = places.entry(name.to_owned()).or_default();
            places.insert(source.path.clone());
        }
    }
    assert!(places.len() > 200, "all crates are looked at");
    places.retain(|_, places| places.len() > 1);
    let shared = places.iter().map(|(name, places)| {
        let places: Vec<_> = places.iter().map(String::as_str).collect();
        format!("{name}: {}", places.join(", "))
    });
    let mut offences: Vec<_> = shared.collect();
    if offences.len() == SHARED_NAMES {
        return;
    }
    let count = offences.len();
    offences.insert(
        0,
        format!("there are {count}, and SHARED_NAMES is {SHARED_NAMES}"),
    );
    demand(
        "a name means one thing: rename one of two types, make it `pub(crate)`, or use one of them for both",
        &offences,
    );
}

/// How many files outside tests name the crate of the first engine. The server and its simulator should use the
/// contract of engines instead.
const NAME_LSM: [(&str, usize); 2] = [("server", 0), ("sim", 1)];

#[test]
fn few_files_name_the_first_engine() {
    let mut offences = Vec::new();
    for (name, allowed) in NAME_LSM {
        let folder = format!("crates/{name}/src/");
        let names = |source: &&Source| {
            let is_of = source.is_rust() && source.path.starts_with(&folder);
            is_of && !source.is_test() && source.text.contains("argosy_lsm")
        };
        let all = sources();
        let found: Vec<_> = all.iter().filter(names).collect();
        if found.len() != allowed {
            let count = found.len();
            offences.push(format!("{name} has {count} such files, and not {allowed}"));
            offences.extend(found.iter().map(|source| source.path.clone()));
        }
    }
    demand("a file asks the contract in crate `engine`", &offences);
}

#[test]
fn front_ends_know_only_the_service() {
    const FRONT_ENDS: [&str; 3] = [
        "crates/server/src/resp/",
        "crates/server/src/native/",
        "crates/server/src/long/",
    ];
    const OTHERS: [&str; 5] = [
        "crate::node",
        "argosy_fabric",
        "argosy_lsm",
        "argosy_replication",
        "argosy_wire::message",
    ];
    let mut offences = Vec::new();
    let mut seen = 0;
    for source in sources().iter().filter(|source| source.is_rust()) {
        if source.is_test() || !FRONT_ENDS.iter().any(|at| source.path.starts_with(at)) {
            continue;
        }
        seen += 1;
        let others = OTHERS.iter().filter(|other| source.text.contains(*other));
        offences.extend(others.map(|other| format!("{} names {other}", source.path)));
    }
    assert!(seen > 20, "the front ends are looked at");
    demand("a front end asks `service::Service`", &offences);
}

/// Where the server asks how far an engine is committed, and up to when it may show that.
const GATE: [&str; 2] = [
    "crates/server/src/node/gate.rs",
    "crates/server/src/node/serving.rs",
];

#[test]
fn answers_pass_the_gate() {
    let all = sources();
    let asks = |source: &&Source| {
        let is_of = source.is_rust() && source.path.starts_with("crates/server/src/");
        let asked = ["committed_lsn()", ".right()"];
        is_of && !source.is_test() && asked.iter().any(|asked| source.text.contains(asked))
    };
    let asking: BTreeSet<_> = all.iter().filter(asks).map(|s| s.path.as_str()).collect();
    let others = asking.iter().filter(|path| !GATE.contains(path));
    let offences: Vec<String> = others.map(|path| (*path).to_owned()).collect();
    assert!(asking.contains(GATE[0]), "the gate asks");
    demand(
        "whether an answer may be shown is decided by `Gate::show`",
        &offences,
    );
}
