//! `argosy ctl`: what it shows of a cluster that loses servers, what the master has done meanwhile, and orders.

use std::path::Path;

use serde_json::Value;

use crate::playground_commands::done;
use crate::support::{Playground, argosy, call, connect, empty_dir, ok, text, until};

/// How a command ended.
struct Ended {
    code: Option<i32>,
    out: String,
    said: String,
}

/// `argosy ctl` with `words`, for the cluster in `dir`.
fn run(dir: &Path, words: &[&str]) -> Ended {
    let mut command = argosy();
    let output = command.arg("ctl").args(words).arg("--data-dir").arg(dir);
    let output = output.output().unwrap();
    Ended {
        code: output.status.code(),
        out: text(&output.stdout),
        said: text(&output.stderr),
    }
}

/// What `words` with `-o json` print, which calls itself `schema`.
fn json(dir: &Path, words: &[&str], schema: &str) -> Value {
    let ended = run(dir, &[words, &["-o", "json"]].concat());
    assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.said);
    let found: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(found["schema"], schema);
    found
}

/// Kind and state of each job.
fn jobs(dir: &Path) -> Vec<(String, String)> {
    let found = json(dir, &["job", "list"], "argosy.ctl-jobs.v1");
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let jobs = found["jobs"].as_array().unwrap().iter();
    jobs.map(|job| (word(&job["kind"]), word(&job["state"])))
        .collect()
}

fn until_healthy(dir: &Path) {
    until("the cluster is healthy", || {
        run(dir, &["status", "--check"]).code == Some(0)
    });
}

#[test]
fn what_the_master_does_can_be_seen() {
    let playground = Playground::start(&[]);
    let dir = playground.data_dir.clone();
    until_healthy(&dir);
    assert!(jobs(&dir).is_empty(), "nothing was to be done");
    let nodes = json(&dir, &["node", "list"], "argosy.ctl-nodes.v1");
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 3);
    assert_eq!(
        nodes["nodes"][1]["resp"],
        playground.servers[1].resp.to_string()
    );

    done(&dir, &["kill", "1"]);
    until("others lead what it led", || {
        let found = json(&dir, &["region", "list"], "argosy.ctl-regions.v1");
        let regions = found["regions"].as_array().unwrap();
        regions.iter().all(|region| {
            let members = region["members"].as_array().unwrap();
            region["state"] == "serving" && !members.contains(&1.into())
        })
    });
    let ended = run(&dir, &["status", "--check"]);
    assert_eq!(ended.code, Some(6), "{}", ended.said);
    let status = json(&dir, &["status"], "argosy.ctl-status.v1");
    assert_eq!(status["healthy"], false);
    assert_eq!(status["durability"], "last-write");
    let done_first = jobs(&dir);
    let is_done = |kind: &str| (kind.to_owned(), "done".to_owned());
    assert!(done_first.contains(&is_done("promote")), "{done_first:?}");
    assert!(done_first.contains(&is_done("remove")), "{done_first:?}");
    let job = json(&dir, &["job", "show", "1"], "argosy.ctl-job.v1");
    assert_eq!(job["job"]["server"], 1);
    assert_eq!(job["regions"][0]["stage"], "done");

    done(&dir, &["restart", "1"]);
    until_healthy(&dir);
    until("all jobs have ended", || {
        jobs(&dir).iter().all(|(_, state)| state == "done")
    });
    assert!(jobs(&dir).contains(&is_done("fill")));
    let region = json(&dir, &["region", "show", "1"], "argosy.ctl-region.v1");
    assert_eq!(region["region"]["members"].as_array().unwrap().len(), 3);

    // What has ended is neither cancelled nor tried again, what is served needs no recovery, and tables have a head.
    for words in [
        &["job", "cancel", "1"][..],
        &["job", "retry", "1"],
        &["job", "show", "999"],
        &["region", "show", "99"],
        &["node", "show", "9"],
        &["region", "recover", "1", "--dry-run"],
        &["region", "recover", "1", "--yes"],
    ] {
        let ended = run(&dir, words);
        assert_eq!(
            ended.code,
            Some(3),
            "{words:?}: {}{}",
            ended.out,
            ended.said
        );
    }
    let listed = run(&dir, &["job", "list"]).out;
    assert!(listed.starts_with("job  kind"), "{listed}");
    assert!(playground.interrupt().success());
}

#[test]
fn where_no_cluster_is_ctl_says_so_and_makes_none() {
    let dir = empty_dir("ctl-nowhere");
    let ended = run(&dir, &["status"]);
    assert_eq!(ended.code, Some(3), "{}", ended.said);
    assert!(
        ended.said.contains("no coordinator is there"),
        "{}",
        ended.said
    );
    assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
}

/// All servers are killed, the windows of one are lost as in a loss of power, and it alone returns.
#[test]
fn a_region_opens_with_what_is_left_by_order() {
    let dir = empty_dir("ctl-recover");
    let data = dir.to_str().unwrap();
    let playground = Playground::start(&["--regions", "1", "--data-dir", data]);
    let servers = playground.servers.clone();
    assert_eq!(
        call(&mut connect(servers[0].resp), &[b"SET", b"k", b"v"]),
        ok()
    );
    done(&dir, &["kill", "0", "1", "2"]);
    let config = std::fs::read_to_string(&servers[2].config).unwrap();
    let shared = config
        .lines()
        .find_map(|line| line.strip_prefix("shm-dir = \""));
    let shared = Path::new(shared.unwrap().trim_end_matches('"')).join("server-2");
    for name in ["windows", "memory"] {
        std::fs::remove_dir_all(shared.join(name)).unwrap();
    }
    done(&dir, &["restart", "2"]);
    let recover = ["region", "recover", "1"];
    let dry = [&recover[..], &["--dry-run"]].concat();
    until("what is left is reported", || {
        let ended = run(&dir, &[&dry[..], &["-o", "json"]].concat());
        ended.code == Some(0) && ended.out.contains("\"what\":\"from\"")
    });
    let shown = json(&dir, &dry, "argosy.ctl-recover.v1");
    assert_eq!(shown["opens"]["server"], 2);
    assert_eq!(shown["opens"]["status"], "cut");
    assert_eq!(shown["silent"], serde_json::json!([0, 1]));
    assert_eq!(shown["lost"]["lsn"], shown["opens"]["lsn"]);
    // It is not done by accident.
    let ended = run(&dir, &recover);
    assert_eq!(ended.code, Some(2), "{}", ended.said);
    assert!(ended.said.contains("--yes"), "{}", ended.said);
    let ordered = json(
        &dir,
        &[&recover[..], &["--yes"]].concat(),
        "argosy.ctl-recover.v1",
    );
    let job = ordered["job"].as_u64().unwrap().to_string();
    until("the order is carried out", || {
        json(&dir, &["job", "show", &job], "argosy.ctl-job.v1")["job"]["state"] == "done"
    });
    until("the region takes writes", || {
        call(&mut connect(servers[2].resp), &[b"SET", b"k", b"w"]) == ok()
    });
    // The others return, give up what they had, and follow.
    done(&dir, &["restart", "0"]);
    done(&dir, &["restart", "1"]);
    until_healthy(&dir);
    assert!(playground.interrupt().success());
}
