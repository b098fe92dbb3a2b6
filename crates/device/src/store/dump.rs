//! What a store says of itself, for people.

use std::fmt;

use crate::catalog::RegionEntry;
use crate::superblock::Superblock;

/// What a store says of itself; displays as text for people.
#[derive(Clone, Debug)]
pub struct Dump {
    /// The device.
    pub superblock: Superblock,
    /// How often the catalog has changed.
    pub generation: u64,
    /// Its regions.
    pub regions: Vec<RegionEntry>,
    /// Segments in use; `None` where the store is not open.
    pub used: Option<u32>,
    /// Damage that was found, a line each; opening repairs it.
    pub findings: Vec<String>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = &self.superblock;
        writeln!(f, "device {:032x} of {}", s.device_id, s.server)?;
        writeln!(f, "cluster {:032x}", s.cluster_id)?;
        writeln!(f, "made by {}", s.created_by)?;
        writeln!(f, "opened {} times", s.incarnation.0)?;
        match self.used {
            Some(used) => writeln!(f, "segments {used} used of {}", s.segments)?,
            None => writeln!(f, "segments {}", s.segments)?,
        }
        writeln!(f, "catalog generation {}", self.generation)?;
        for entry in &self.regions {
            let manifest: Vec<_> = entry.manifest.iter().map(|m| m.0.to_string()).collect();
            let [a, b] = entry.words;
            writeln!(
                f,
                "  {}: manifest {}, words {a} {b}",
                entry.region,
                manifest.join(" ")
            )?;
        }
        for finding in &self.findings {
            writeln!(f, "note: {finding}")?;
        }
        Ok(())
    }
}
