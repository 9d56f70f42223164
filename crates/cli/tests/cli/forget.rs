//! `forget`, `undelete`, `snapshots --forgotten`.

use crate::home::{Home, Ran, same};
use serde_json::Value;

/// A backup at noon of each of these days of January 2020.
fn home(days: &[u32]) -> Home {
    let home = Home::new();
    home.sources();
    for day in days {
        home.run(&["backup", "src", "--time", &format!("2020-01-{day:02} 12:00")]).ok();
    }
    home
}

/// The days of the snapshots that there are.
fn days(home: &Home) -> Vec<u32> {
    let snapshots = home.run(&["--json", "snapshots"]).ok().objects();
    snapshots.iter().map(|s| s["time"].as_str().unwrap()[8..10].parse().unwrap()).collect()
}

fn forget(home: &Home, args: &[&str]) -> Ran {
    home.run(&[&["forget"], args].concat())
}

fn summary(ran: &Ran) -> [u64; 3] {
    let summary = ran.the("forget_summary");
    ["kept", "forgotten", "left_alone"].map(|field| summary[field].as_u64().unwrap())
}

/// Each key has a last one of its own: that is told where it is so.
#[test]
fn of_several_keys_in_one_group_it_is_told() {
    let home = home(&[1, 2]);
    assert!(!forget(&home, &["--keep-last", "1", "-n"]).ok().stderr.contains("keys"));
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "writer.key"]).ok();
    home.run(&["-k", "writer.key", "backup", "src", "--time", "2020-01-03 12:00"]).ok();
    let ran = forget(&home, &["--keep-last", "1"]).ok();
    let told = format!("{}{}", ran.stdout, ran.stderr);
    assert!(told.contains("these are of 2 keys, and the rules count those of each key by themselves\n"), "{told}");
    assert_eq!(days(&home), [2, 3]);
}

#[test]
fn each_rule_keeps_what_it_says() {
    // Wednesday the 1st; the 5th and the 12th are Sundays.
    let home = home(&[1, 2, 5, 6, 11, 12, 13]);
    home.run(&["backup", "src", "--time", "2020-01-13 18:00", "--tag", "a,b"]).ok();
    let kept = |rules: &str| {
        let args: Vec<_> = rules.split(' ').chain(["--dry-run"]).collect();
        let all = home.run(&[&["--json", "forget"], &args[..]].concat()).ok().of_type("forget");
        assert_eq!(all.len(), 8, "{rules}");
        let kept = all.iter().filter(|o| o["action"] == "keep");
        kept.map(|o| o["time"].as_str().unwrap()[8..13].replace('T', " ")).collect::<Vec<_>>()
    };
    assert_eq!(kept("--keep-last 2"), ["13 12", "13 18"]);
    assert_eq!(kept("--keep-hourly 3"), ["12 12", "13 12", "13 18"]);
    assert_eq!(kept("--keep-daily 2"), ["12 12", "13 18"]);
    assert_eq!(kept("--keep-weekly 2"), ["12 12", "13 18"]);
    assert_eq!(kept("--keep-weekly=3"), ["05 12", "12 12", "13 18"]);
    assert_eq!(kept("--keep-monthly 1"), ["13 18"]);
    assert_eq!(kept("--keep-yearly 5"), ["01 12", "13 18"], "the oldest, too, while there is room");
    assert_eq!(kept("--keep-within 7d"), ["11 12", "12 12", "13 12", "13 18"]);
    assert_eq!(kept("--keep-within-hourly 1d"), ["13 12", "13 18"]);
    assert_eq!(kept("--keep-within-daily 2d"), ["12 12", "13 18"]);
    assert_eq!(kept("--keep-within-weekly 10d"), ["05 12", "12 12", "13 18"]);
    assert_eq!(kept("--keep-within-monthly 1y"), ["01 12", "13 18"]);
    assert_eq!(kept("--keep-within-yearly 1d"), ["13 18"]);
    assert_eq!(kept("--keep-tag b,a"), ["13 18"]);
    assert_eq!(kept("--keep-tag b,c --keep-tag a"), ["13 18"]);
    for all in ["--keep-last unlimited", "--keep-hourly -1", "--keep-daily unlimited --keep-last=-1"] {
        assert_eq!(kept(all).len(), 8, "{all}");
    }
    assert_eq!(days(&home).len(), 8, "a dry run changes nothing");
}

#[test]
fn what_is_said_is_done() {
    let home = home(&[1, 2, 3, 4]);
    let rules = ["--keep-last", "1", "--keep-daily", "3"];
    let dry = forget(&home, &[&rules[..], &["-n"]].concat()).ok().stdout;
    let line = |day: &str| dry.lines().find(|l| l.contains(day)).unwrap_or_else(|| panic!("{dry}"));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    assert!(dry.starts_with(&format!("host {host}, paths {}:\n", home.text("src"))), "{dry}");
    assert!(line("2020-01-04").contains("last, daily 1 of 3"), "{dry}");
    assert!(line("2020-01-02").contains("  daily 3 of 3  "), "{dry}");
    assert!(line("2020-01-01").contains("  -  "), "{dry}");
    assert!(dry.contains("would forget 1 snapshot, keep 3") && dry.contains("nothing was changed"), "{dry}");
    let ran = forget(&home, &rules).ok().stdout;
    assert!(ran.contains("forgot 1 snapshot, kept 3\n") && ran.contains("drumlin undelete"), "{ran}");
    assert_eq!(days(&home), [2, 3, 4]);
    let ran = forget(&home, &rules).ok().stdout;
    assert!(ran.contains("forgot 0 snapshots, kept 3") && !ran.contains("undelete"), "{ran}");
    assert_eq!(forget(&home, &[&rules[..], &["-q"]].concat()).ok().stdout, "");
    // What is left restores.
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn groups_and_narrowing() {
    let home = home(&[1, 2]);
    for (host, tag) in [("b", "x"), ("b", "y"), ("c", "x"), ("c", "x")] {
        home.run(&["backup", "src", "-H", host, "--tag", tag, "--time", "2020-01-03"]).ok();
    }
    home.run(&["backup", "src/deep", "-H", "c", "--time", "2020-01-04"]).ok();
    let counts = |args: &[&str]| {
        let ran = home.run(&[&["--json", "forget", "--keep-last", "1", "-n"], args].concat()).ok();
        let [kept, gone, 0] = summary(&ran) else { panic!("{}", ran.stdout) };
        (kept, gone)
    };
    assert_eq!(counts(&[]), (4, 3));
    assert_eq!(counts(&["--group-by", "host"]), (3, 4));
    assert_eq!(counts(&["-g", "paths,tags"]), (4, 3));
    assert_eq!(counts(&["-g", ""]), (1, 6));
    assert_eq!(counts(&["-g", "host,paths,tags"]), (5, 2));
    assert_eq!(counts(&["--host", "b"]), (1, 1));
    assert_eq!(counts(&["--tag", "x"]), (2, 1));
    assert_eq!(counts(&["--path", "src/deep"]), (1, 0));
    forget(&home, &["--keep-last", "1", "-g", "planet"]).expect(2);
}

#[test]
fn named_ones() {
    let home = home(&[1, 2, 3]);
    home.run(&["backup", "src", "-H", "other", "--time", "2020-01-04"]).ok();
    let ids: Vec<_> = home.run(&["--json", "snapshots"]).ok().objects().iter().map(|s| s["id"].clone()).collect();
    let id = |n: usize| ids[n].as_str().unwrap();
    let ran = home.run(&["--json", "forget", &id(0)[..8], id(0), "-n"]).ok();
    assert_eq!(summary(&ran), [0, 1, 0]);
    assert_eq!(ran.the("forget")["reasons"], serde_json::json!(["named"]));
    // None of them goes if one of them isn't there.
    forget(&home, &[id(0), "ffffffff"]).expect(1);
    assert_eq!(days(&home), [1, 2, 3, 4]);
    forget(&home, &[id(0)]).ok();
    forget(&home, &[id(0)]).expect(1);
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    forget(&home, &["latest", "--host", &host]).ok();
    assert_eq!(days(&home), [2, 4]);
    // All that there are, if that is what is said.
    forget(&home, &["latest", "latest~1"]).ok();
    assert_eq!(days(&home), [0; 0]);
    assert_eq!(home.run(&["--json", "snapshots", "--forgotten"]).ok().objects().len(), 4);
}

#[test]
fn slips_are_usage() {
    let home = home(&[1]);
    for args in [
        &[][..],
        &["-n"],
        &["--keep-last", "0"],
        &["--keep-last", "x"],
        &["--keep-last", "-2"],
        &["--keep-within", "3"],
        &["--keep-within", "0d"],
        &["--keep-last", "1", "latest"],
        &["latest", "--keep-tag", "x"],
        &["latest", "--unsafe-allow-remove-all"],
        &["--unsafe-allow-remove-all"],
        &["latest:/home"],
        &["--host", "x"],
    ] {
        forget(&home, args).expect(2);
        let ran = home.run(&[&["--json", "forget"], args].concat()).expect(2);
        assert_eq!(ran.the("exit_error")["code"], 2, "{args:?}");
    }
    home.run(&["undelete"]).expect(2);
    home.run(&["undelete", "ab:/x"]).expect(2);
    assert!(home.run(&["undelete", "ffff"]).expect(1).stderr.contains("snapshots --forgotten"));
    assert_eq!(days(&home), [1]);
}

#[test]
fn a_dry_run_tells_what_the_prune_would_do() {
    let home = home(&[1, 2, 3, 4]);
    let rules = ["--keep-last", "1", "--prune"];
    let dry = forget(&home, &[&rules[..], &["-n"]].concat()).ok().stdout;
    assert!(
        dry.contains("would forget 3 snapshots") && dry.contains("needed:") && dry.contains("by 1 snapshot"),
        "{dry}"
    );
    let all = home.run(&[&["--json", "forget", "-n"], &rules[..]].concat()).ok();
    let plan = all.the("prune_plan");
    assert_eq!((days(&home).len(), &plan["snapshots"]), (4, &serde_json::json!(1)));
    let done = home.run(&[&["--json", "forget"], &rules[..]].concat()).ok();
    assert_eq!((days(&home).len(), done.the("prune_plan")), (1, plan), "as it was told");
}

#[test]
fn a_group_is_emptied_on_demand_only() {
    let home = home(&[1, 2]);
    home.run(&["backup", "src", "-H", "b", "--tag", "x", "--time", "2020-01-03"]).ok();
    let ran = forget(&home, &["--keep-tag", "x"]).expect(1);
    assert!(
        ran.stderr.contains("all 2 snapshots") && ran.stderr.contains("--unsafe-allow-remove-all"),
        "{}",
        ran.stderr
    );
    assert_eq!(days(&home), [1, 2, 3]);
    let ran = forget(&home, &["--keep-tag", "x", "-n"]).expect(1);
    assert!(ran.stdout.contains("would forget 2"), "a dry run shows it all the same: {}", ran.stdout);
    forget(&home, &["--keep-tag", "x", "--unsafe-allow-remove-all"]).ok();
    assert_eq!(days(&home), [3]);
    forget(&home, &["--host", "b", "--unsafe-allow-remove-all"]).ok();
    assert_eq!(days(&home), [0; 0]);
    assert_eq!(forget(&home, &["--keep-last", "1"]).ok().stdout, "no snapshots\n");
}

#[test]
fn had_back() {
    let home = home(&[1, 2]);
    let old = home.run(&["--json", "snapshots", "latest~1"]).ok().the("snapshot");
    let id = old["id"].as_str().unwrap();
    home.run(&["undelete", &id[..8]]).expect(1);
    forget(&home, &[id]).ok();
    let listed = home.run(&["--json", "snapshots", "--forgotten"]).ok().the("snapshot");
    assert_eq!(listed, Value::clone(&old));
    assert!(home.run(&["snapshots", "--forgotten"]).ok().stdout.contains("1 forgotten snapshot\n"));
    let undeleted = home.run(&["--json", "undelete", &id[..8]]).ok().the("undeleted");
    assert_eq!(undeleted["forgotten_id"], old["id"]);
    assert_eq!(home.run(&["snapshots", "--forgotten"]).ok().stdout, "no forgotten snapshots\n");
    let new = home.run(&["--json", "snapshots", "latest~1"]).ok().the("snapshot");
    assert!(new["id"] == undeleted["id"] && new["id"] != old["id"]);
    for field in ["time", "host", "paths", "tags", "bytes", "summary", "signed", "parent"] {
        assert_eq!(new[field], old[field], "{field}");
    }
    home.run(&["restore", &format!("latest~1:{}", home.text("src")), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    let said = forget(&home, &["latest"]).ok();
    assert!(said.stdout.contains("- (named)"), "{}", said.stdout);
    assert!(home.run(&["undelete", "latest"]).ok().stdout.contains(" is back as "));
}

#[test]
fn not_had_back_once_a_pack_is_gone() {
    let home = home(&[1]);
    forget(&home, &["latest"]).ok();
    std::fs::remove_dir_all(home.repository().join("data")).unwrap();
    std::fs::create_dir(home.repository().join("data")).unwrap();
    let ran = home.run(&["undelete", "latest"]).expect(1);
    assert!(ran.stderr.contains("prune") && ran.stderr.contains("a.txt"), "{}", ran.stderr);
    assert_eq!(home.run(&["snapshots"]).ok().stdout, "no snapshots\n");
    for folder in ["sessions", "decisions", "snapshots"] {
        let left = std::fs::read_dir(home.repository().join(folder)).map_or(0, Iterator::count);
        assert_eq!(left, 0, "{folder}");
    }
}

#[test]
fn roles_and_damage() {
    let home = home(&[1, 2]);
    for role in ["reader", "writer", "keeper"] {
        let file = format!("{role}.key");
        home.run(&["key", "add", "--role", role, "--label", "it", "--new-key-file", &file]).ok();
    }
    let by = |role: &str, args: &[&str]| home.run(&[&["-k", &format!("{role}.key")], args].concat());
    for role in ["reader", "writer"] {
        let ran = by(role, &["forget", "--keep-last", "1"]).expect(1);
        assert!(ran.stderr.contains(&format!("a {role} key can't forget")), "{}", ran.stderr);
        by(role, &["undelete", "latest"]).expect(1);
    }
    by("reader", &["forget", "--keep-last", "1", "-n"]).ok();
    assert_eq!(days(&home), [1, 2]);
    by("keeper", &["forget", "--keep-last", "1"]).ok();
    assert_eq!(days(&home), [2]);
    assert!(by("keeper", &["undelete", "latest"]).expect(1).stderr.contains("a keeper key can't undelete"));
    home.run(&["undelete", "latest"]).ok();

    // One that can't be read is told; the rules do their work on the others.
    let id = home.run(&["--json", "snapshots", "latest"]).ok().the("snapshot")["id"].as_str().unwrap().to_owned();
    home.tamper(&home.repository().join("snapshots").join(&id), |bytes| bytes.truncate(1300));
    let ran = forget(&home, &["--keep-last", "1"]).expect(3);
    assert!(ran.stderr.contains(&id), "{}", ran.stderr);
    forget(&home, &[&id[..8]]).expect(1);
    assert!(forget(&home, &[&id]).ok().stdout.contains(&id[..8]));
    assert_eq!(days(&home), [1]);
}

#[test]
fn times_to_come_are_left_alone() {
    let home = home(&[1, 2]);
    home.run(&["backup", "src", "--time", "2190-01-09"]).ok();
    for quiet in ["-q", "--json"] {
        let ran = home.run(&[quiet, "forget", "--keep-last", "1", "--dry-run"]).expect(0);
        assert!(ran.stderr.contains("1 snapshot is from the future"), "{}", ran.stderr);
    }
    let ran = forget(&home, &["--keep-last", "1"]).expect(0);
    assert!(ran.stderr.contains("warning: 1 snapshot is from the future"), "{}", ran.stderr);
    assert!(
        ran.stdout.contains("from the future: left alone") && ran.stdout.contains("left 1 alone"),
        "{}",
        ran.stdout
    );
    assert_eq!(days(&home), [2, 9]);
}

#[test]
fn a_profile_keeps_its_own() {
    let home = home(&[1, 2, 3]);
    let (repo, src) = (home.repository(), home.text("src"));
    home.run(&["backup", "src/deep", "--time", "2020-01-04"]).ok();
    home.run(&["backup", "src/deep", "--time", "2020-01-05"]).ok();
    home.run(&["backup", "src", "-H", "b", "--time", "2020-01-06"]).ok();
    home.run(&["backup", "src", "-H", "b", "--time", "2020-01-07"]).ok();
    let text = format!(
        "[profile.home]\nrepository = '{}'\nsources = ['{src}']\nkeep = {{ last = 1 }}\n[profile.bare]\nrepository = '{}'\n",
        repo.display(),
        repo.display()
    );
    home.write("config/drumlin/profiles.toml", text);
    forget(&home, &["--profile", "bare"]).expect(2);
    let ran = home.run(&["--json", "forget", "--profile", "home", "--host", "b", "-n"]).ok();
    assert_eq!(summary(&ran), [1, 1, 0]);
    // What the command line says counts instead, for the same snapshots.
    let ran = home.run(&["--json", "forget", "--profile", "home", "--keep-last", "2", "-n"]).ok();
    assert_eq!(summary(&ran), [2, 1, 0]);
    forget(&home, &["--profile", "home"]).ok();
    assert_eq!(days(&home), [3, 4, 5, 6, 7], "other hosts and other sources are not the profile's");

    // Of more sources, and of others with their own tags.
    home.write("other/file", "other");
    for day in 8..10 {
        home.run(&["backup", "src", "other", "--time", &format!("2020-01-{day:02}")]).ok();
    }
    forget(&home, &["--profile", "home"]).ok();
    assert_eq!(days(&home), [3, 4, 5, 6, 7, 8, 9], "those of more sources are not the profile's");
    for (day, tag) in [(10, "a"), (11, "a"), (12, "b"), (13, "b,a")] {
        home.run(&["backup", "src", "--tag", tag, "--time", &format!("2020-01-{day}")]).ok();
    }
    let of = |name: &str, more: &str| {
        format!("[profile.{name}]\nrepository = '{}'\nkeep = {{ last = 1 }}\n{more}\n", repo.display())
    };
    let text =
        [of("a", &format!("sources = ['{src}']\ntags = ['a']")), of("all", ""), of("b", "tags = ['b']")].concat();
    home.write("config/drumlin/profiles.toml", text);
    forget(&home, &["--profile", "a"]).ok();
    assert_eq!(days(&home), [3, 4, 5, 6, 7, 8, 9, 12, 13], "other tags are not the profile's");
    let ran = forget(&home, &["--profile", "all"]).expect(2);
    assert!(ran.stderr.contains("neither sources nor tags"), "{}", ran.stderr);
    forget(&home, &["--profile", "b"]).ok();
    assert_eq!(days(&home), [3, 4, 5, 6, 7, 8, 9, 13]);
    forget(&home, &["--profile", "all", "--path", &home.text("other")]).ok();
    assert_eq!(days(&home), [3, 4, 5, 6, 7, 9, 13]);
}
