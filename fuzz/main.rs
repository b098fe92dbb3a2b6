//! Gives the target that `FUZZ_TARGET` names what libFuzzer makes up: see `scripts/fuzz.sh`. Writes what it begins from
//! to the folder `FUZZ_SEEDS`, if there is one.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

mod targets;

static RUN: OnceLock<fn(&[u8]) -> bool> = OnceLock::new();

fuzz_target!(
    init: {
        argosy_base::checksum::leave_out();
        let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
        let target = targets::ALL.iter().find(|target| target.name == name);
        let target = target.expect("FUZZ_TARGET names one of the targets");
        if let Some(folder) = std::env::var_os("FUZZ_SEEDS") {
            for (number, seed) in (target.seeds)().iter().enumerate() {
                let file = Path::new(&folder).join(format!("seed-{number}"));
                std::fs::write(file, seed).expect("the folder can be written");
            }
        }
        RUN.set(target.run).expect("it is set once");
    },
    |data: &[u8]| {
        let run = RUN.get().expect("it was set");
        run(data);
    }
);
