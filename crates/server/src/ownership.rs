//! Whether a server may start on the device that it finds.
//!
//! The region map says which device has a server's data. So a disk that is not mounted, or a file that somebody
//! removed, is not taken for a server that has no data yet:
//!
//! | the map names | found | by itself | with `--new-device` |
//! |---|---|---|---|
//! | none | nothing, or empty | refused | one is made, and recorded |
//! | none | a device of this server | it is recorded | it is recorded |
//! | a device | nothing, or empty | refused | one is made, and recorded |
//! | a device | that one | opened | refused: it is not new |
//! | a device | another one of this server | refused | it is recorded |
//!
//! Nor is a device opened that has gone back in time: one that was copied before a start, and put back behind it. Log
//! windows tell, which name the incarnation that made them. Each incarnation is durable on the device before it makes
//! any, so where windows are of a later one than the device knows, the device is not what it was ([`check_age`]). Its
//! copies would count as whole, since their windows have survived.
//!
//! A device is made before it is recorded. A crash between the two leaves a device that the map does not name, and
//! the same command works again. `--new-device` is refused where the device is the one that the map names: a
//! server that is always started with it would make a new device when its disk is not mounted.

use argosy_base::{Incarnation, ServerId};
use argosy_coordinator::DeviceId;

/// What is at the place of a server's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FoundDevice {
    /// No file.
    Nothing,
    /// A file or block device that holds no store.
    Empty,
    /// A device of this server.
    Device(DeviceId),
}

/// What a server does first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// It opens the device.
    Open,
    /// It makes a device, and puts its id into the region map.
    Make,
    /// It puts the id of the device that is there into the region map, and opens it.
    Record(DeviceId),
}

/// Why a server does not start on what it found. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The device that the map names is not there.
    #[error(
        "the device of {server} is missing: the region map names device {known}, and here is {}; \
         if its disk is not mounted, mount it and start again; if the device is lost, start this server \
         with --new-device, and it fetches from other members what they have of its regions",
        match is_empty {
            true => "an empty one",
            false => "none",
        }
    )]
    Missing {
        /// The server.
        server: ServerId,
        /// The device that the map names.
        known: DeviceId,
        /// There is a file or block device, but nothing in it.
        is_empty: bool,
    },
    /// The device is another one of the same server.
    #[error(
        "this is device {found} of {server}, but the region map names device {known}; point \
         server.data-dir at that one; if it is lost, and this one takes its place, start this server \
         with --new-device"
    )]
    Other {
        /// The server.
        server: ServerId,
        /// The device that the map names.
        known: DeviceId,
        /// The device that is there.
        found: DeviceId,
    },
    /// The server never had a device.
    #[error(
        "{server} has no device yet, and makes none by itself; start it with --new-device if it never \
         had any"
    )]
    NeverMade {
        /// The server.
        server: ServerId,
    },
    /// The device is what it was some time ago.
    #[error(
        "this is device {known} of {server} as it was when it had been opened {opened} times, but there are log \
         windows of opening {windows}: it lacks what was written since; put the device of today in its place; if \
         that is lost, remove this one, and start the server with --new-device; if all servers go back to that time, \
         move their windows away, which lie in fabric.shm-dir"
    )]
    Earlier {
        /// The server.
        server: ServerId,
        /// The device that the map names, and that is there.
        known: DeviceId,
        /// How often it was opened.
        opened: u64,
        /// The opening that made the latest windows.
        windows: u64,
    },
    /// `--new-device` was given where nothing is new.
    #[error(
        "--new-device: this is device {known} of {server} already, as the region map says; start the \
         server without that option"
    )]
    NotNew {
        /// The server.
        server: ServerId,
        /// The device that the map names, and that is there.
        known: DeviceId,
    },
}

/// What `server` does that finds `found` where the map names `known`, and which was told, or not, that the
/// device is a new one. A table; see the module documentation.
///
/// # Errors
/// Why it does not start.
pub const fn decide(
    server: ServerId,
    known: Option<DeviceId>,
    found: FoundDevice,
    new_device: bool,
) -> Result<Begin, Refusal> {
    match (known, found, new_device) {
        (_, FoundDevice::Nothing | FoundDevice::Empty, true) => Ok(Begin::Make),
        (None, FoundDevice::Nothing | FoundDevice::Empty, false) => {
            Err(Refusal::NeverMade { server })
        }
        (None, FoundDevice::Device(device), _) => Ok(Begin::Record(device)),
        (Some(known), FoundDevice::Nothing | FoundDevice::Empty, false) => Err(Refusal::Missing {
            server,
            known,
            is_empty: matches!(found, FoundDevice::Empty),
        }),
        (Some(known), FoundDevice::Device(found), new_device) => {
            match (known.0 == found.0, new_device) {
                (true, false) => Ok(Begin::Open),
                (true, true) => Err(Refusal::NotNew { server, known }),
                (false, true) => Ok(Begin::Record(found)),
                (false, false) => Err(Refusal::Other {
                    server,
                    known,
                    found,
                }),
            }
        }
    }
}

/// Whether `server` may open the device `known`, which was `opened` last as this incarnation, where `windows` is the
/// latest of which there are log windows.
///
/// # Errors
/// [`Refusal::Earlier`].
pub fn check_age(
    server: ServerId,
    known: DeviceId,
    opened: Incarnation,
    windows: Option<Incarnation>,
) -> Result<(), Refusal> {
    match windows {
        Some(windows) if windows > opened => Err(Refusal::Earlier {
            server,
            known,
            opened: opened.get(),
            windows: windows.get(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_not_opened_that_is_older_than_its_windows() {
        let check = |opened, windows: Option<u64>| {
            let windows = windows.map(Incarnation);
            check_age(ServerId(2), DeviceId(1), Incarnation(opened), windows)
        };
        for (opened, windows) in [(0, None), (7, None), (7, Some(6)), (7, Some(7))] {
            assert_eq!(check(opened, windows), Ok(()));
        }
        let text = check(6, Some(7)).unwrap_err().to_string();
        for what in ["server 2", "opened 6 times", "opening 7", "--new-device"] {
            assert!(text.contains(what), "{text}");
        }
    }

    #[test]
    fn only_the_known_device_is_opened_by_itself() {
        let (server, one, two) = (ServerId(2), DeviceId(1), DeviceId(2));
        let all = [
            FoundDevice::Nothing,
            FoundDevice::Empty,
            FoundDevice::Device(one),
            FoundDevice::Device(two),
        ];
        for known in [None, Some(one), Some(two)] {
            for found in all {
                let by_itself = decide(server, known, found, false);
                let told = decide(server, known, found, true);
                let is_there =
                    matches!((known, found), (Some(a), FoundDevice::Device(b)) if a == b);
                match (known, found) {
                    (_, FoundDevice::Nothing | FoundDevice::Empty) => {
                        assert!(by_itself.is_err(), "{known:?} {found:?}");
                        assert_eq!(told, Ok(Begin::Make));
                    }
                    (None, FoundDevice::Device(device)) => {
                        assert_eq!(by_itself, Ok(Begin::Record(device)));
                        assert_eq!(told, Ok(Begin::Record(device)));
                    }
                    (Some(_), FoundDevice::Device(_)) if is_there => {
                        assert_eq!(by_itself, Ok(Begin::Open));
                        assert!(told.is_err());
                    }
                    (Some(_), FoundDevice::Device(device)) => {
                        assert!(by_itself.is_err());
                        assert_eq!(told, Ok(Begin::Record(device)));
                    }
                }
            }
        }
        let missing = decide(server, Some(one), FoundDevice::Nothing, false).unwrap_err();
        let text = missing.to_string();
        for what in ["server 2", &one.to_string(), "mount", "--new-device"] {
            assert!(text.contains(what), "{text}");
        }
    }
}
