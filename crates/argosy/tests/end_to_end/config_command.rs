//! `argosy config`: the defaults are right, what is wrong is told in full, and where values come from.

use std::process::Output;

use serde_json::Value;

use crate::support::{Playground, argosy, empty_dir, text};

fn config(args: &[&str]) -> Output {
    let mut command = argosy();
    command.arg("config").args(args);
    command.env("ARGOSY_STORAGE__GROWTH_FACTOR", "5");
    command.output().unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}", text(&output.stderr));
    })
}

#[test]
fn a_configuration_is_checked_and_shown_with_its_origins() {
    let dir = empty_dir("config");
    let file = dir.join("argosy.toml");
    let path = file.to_str().unwrap();
    let defaults = config(&["default"]);
    assert_eq!(defaults.status.code(), Some(0));
    std::fs::write(&file, &defaults.stdout).unwrap();
    let checked = config(&["check", path]);
    assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stdout));

    let shown = config(&["effective", path, "--set", "log.level=debug", "-o", "json"]);
    let shown = json(&shown);
    assert_eq!(shown["schema"], "argosy.config-effective.v1");
    let keys = shown["keys"].as_array().unwrap();
    let of = |name: &str| keys.iter().find(|key| key["key"] == name).unwrap();
    assert_eq!(
        (&of("log.level")["origin"], &of("log.level")["value"]),
        (&"flag".into(), &"debug".into())
    );
    assert_eq!(of("storage.growth-factor")["origin"], "environment");
    assert_eq!(of("storage.growth-factor")["value"], 5);
    assert_eq!(of("server.id")["origin"], "file");

    std::fs::write(
        &file,
        "[server]\nid = 1\n[storag]\n[log]\nlevl = \"info\"\n",
    )
    .unwrap();
    let wrong = config(&["check", path]);
    assert_eq!(wrong.status.code(), Some(7));
    let said = text(&wrong.stdout);
    for words in [
        ":3: ",
        "did you mean storage?",
        ":5: ",
        "did you mean level?",
        "data-dir is missing",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let wrong = json(&config(&["check", path, "-o", "json"]));
    assert_eq!(wrong["problems"][0]["line"], 3);
    assert_eq!(config(&["check", "/nowhere"]).status.code(), Some(3));
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn a_log_is_objects_where_that_is_asked_for() {
    let playground = Playground::start_with("ARGOSY_LOG__FORMAT", "json", &["--servers", "1"]);
    let log = playground.servers[0].config.with_file_name("log");
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().count() > 0);
    for line in log.lines() {
        let said: Value =
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            said["level"].is_string() && said["message"].is_string(),
            "{line}"
        );
    }
}

#[test]
fn a_variable_that_means_nothing_is_refused() {
    let dir = empty_dir("variable");
    let file = dir.join("argosy.toml");
    std::fs::write(&file, &config(&["default"]).stdout).unwrap();
    let checked = argosy()
        .args(["config", "check", file.to_str().unwrap()])
        .env("ARGOSY_MEMORY_LIMIT", "1GiB")
        .output()
        .unwrap();
    assert_eq!(checked.status.code(), Some(7), "{}", text(&checked.stdout));
    let said = text(&checked.stdout) + &text(&checked.stderr);
    assert!(
        said.contains("did you mean ARGOSY_MEMORY__LIMIT?"),
        "{said}"
    );
}
