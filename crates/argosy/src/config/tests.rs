//! What a configuration file may say.

use super::*;

const LEAST: &str = "[server]\nid = 2\ndata-dir = \".\"\n\
                     [coordinator]\ndir = \"../coordinator\"\n\
                     [fabric]\nshm-dir = \"/dev/shm/x\"\n";

#[test]
fn the_least_file_is_filled_up_with_defaults() {
    let config = ServerConfig::parse(LEAST).unwrap();
    assert_eq!(config.resp.addr.port(), 7379);
    assert_eq!(config.storage, StorageSection::default());
    let based = config.based(Path::new("/data/server-2"));
    assert_eq!(based.server.data_dir, Path::new("/data/server-2/."));
    assert_eq!(
        based.coordinator.dir,
        Path::new("/data/server-2/../coordinator")
    );
    assert_eq!(based.fabric.shm_dir, Path::new("/dev/shm/x"));
}

/// The table of keys and the types agree: what is written has every key, and is read again.
#[test]
fn what_is_written_is_read_again() {
    let mut config = ServerConfig::parse(LEAST).unwrap();
    config.memory.limit = Size::mib(77);
    config.storage.placement = Placement::Separated;
    config.storage.flush_interval = Span(Duration::from_millis(250));
    let text = config.to_toml();
    assert_eq!(ServerConfig::parse(&text).unwrap(), config);
    let table: toml::Table = text.parse().unwrap();
    let written: usize = table
        .values()
        .map(|section| section.as_table().map_or(0, toml::Table::len))
        .sum();
    let typed: usize = toml::Table::try_from(&config)
        .unwrap()
        .values()
        .map(|section| section.as_table().map_or(0, toml::Table::len))
        .sum();
    assert_eq!((written, typed), (KEYS.len(), KEYS.len()));
}

#[test]
fn unknown_keys_are_refused_with_what_was_meant() {
    for (extra, expected) in [
        ("[storage]\nl0-byte = 1", "did you mean l0-bytes?"),
        ("[storge]\nl0-bytes = 1", "did you mean storage?"),
        ("[storage]\nshards = 1", "there are device-bytes, l0-bytes"),
        ("[memory]\nlimit = \"64M\"", "'M' is no unit"),
        ("[memory]\nlimit = -1", "not negative"),
        ("[storage]\nplacement = \"inline\"", "in-place"),
    ] {
        let error = ServerConfig::parse(&format!("{LEAST}{extra}\n")).unwrap_err();
        assert!(error.contains(expected), "{extra}: {error}");
    }
    let error = ServerConfig::parse("server = 1").unwrap_err();
    assert!(error.contains("write [server]"), "{error}");
    assert!(
        ServerConfig::parse("[server]\nid = 1\n").is_err(),
        "data-dir is missing"
    );
}
