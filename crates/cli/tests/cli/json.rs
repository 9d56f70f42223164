//! `--json`: every line an object, whatever happens.

use crate::home::Home;

#[test]
fn every_command_speaks_it() {
    let home = Home::new();
    home.sources();
    home.run(&["--json", "backup", "src", "-vv"]).ok().objects();
    home.write("src/a.txt", "changed");
    home.run(&["--json", "backup", "src"]).ok().objects();
    for (command, message_type) in [
        ("snapshots", "snapshot"),
        ("ls latest", "node"),
        ("find *.txt", "match"),
        ("diff latest~1 latest", "change"),
        ("du latest", "du"),
        ("stats", "stats"),
        ("stats latest", "stats"),
        ("estimate src", "estimate"),
        ("check", "check"),
        ("check --read-data", "check"),
        ("key list", "key"),
        ("why src/a.txt", "why"),
        ("cache", "cache"),
        ("version", "version"),
        ("restore latest -t out", "summary"),
        ("prune --dry-run", "prune_plan"),
        ("prune", "prune"),
        ("-r to -k to.key init", "initialized"),
        ("copy --to to --to-key-file to.key", "copied"),
        ("parity -n", "parity"),
        ("parity", "parity"),
        ("repair --read-data", "repair"),
    ] {
        let args: Vec<_> = ["--json"].into_iter().chain(command.split(' ')).collect();
        let ran = home.run(&args).ok();
        assert!(ran.objects().iter().any(|o| o["message_type"] == message_type), "{command}: {}", ran.stdout);
    }
}

#[test]
fn verbose_names_what_became_of_each() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("src/a.txt", "changed");
    home.write("src/new", "x");
    std::fs::remove_file(home.path("src/link")).unwrap();
    let ran = home.run(&["--json", "-v", "backup", "src"]).ok();
    let mut became: Vec<_> = ran
        .of_type("verbose_status")
        .iter()
        .map(|o| {
            let path = o["path"].as_str().unwrap();
            format!("{} {}", o["action"].as_str().unwrap(), path.strip_prefix(&home.text("src")).unwrap())
        })
        .collect();
    became.sort();
    for expected in ["changed /a.txt", "new /new", "removed /link"] {
        assert!(became.iter().any(|b| b == expected), "{expected}: {became:?}");
    }
    assert!(!became.iter().any(|b| b.starts_with("unmodified")), "{became:?}");
    let ran = home.run(&["--json", "-vv", "backup", "src"]).ok();
    assert!(ran.of_type("verbose_status").iter().any(|o| o["action"] == "unmodified"), "{}", ran.stdout);
    let ran = home.run(&["-v", "backup", "src", "--force"]).ok();
    assert!(ran.stdout.contains(&home.text("src/new")), "{}", ran.stdout);
}

#[test]
fn quiet_says_errors_alone() {
    let home = Home::new();
    home.sources();
    home.run(&["init"]).ok();
    let ran = home.run(&["-q", "backup", "src"]).ok();
    assert_eq!(ran.stdout, "");
    let ran = home.run(&["-q", "backup", "src", "missing"]).expect(3);
    assert_eq!(ran.stdout, "");
    // The error, and what it means for the snapshot.
    assert_eq!(ran.stderr.lines().count(), 2, "{}", ran.stderr);
    // What the snapshot lacks is no error, and has to be known all the same.
    let ran = home.run(&["-q", "restore", "latest", "-t", "out"]).expect(0);
    assert_eq!(ran.stdout, "");
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(!home.run(&["-q", "snapshots"]).ok().stdout.is_empty(), "what is asked for is told");
}

#[test]
fn documented_types_are_those_that_there_are() {
    let docs = include_str!("../../../../docs/json.md");
    for message_type in [
        "status",
        "error",
        "verbose_status",
        "summary",
        "exit_error",
        "snapshot",
        "node",
        "match",
        "change",
        "statistics",
        "du",
        "stats",
        "estimate",
        "prune_plan",
        "prune",
        "repair",
        "damage",
        "check",
        "key",
        "key_added",
        "recovery",
        "why",
        "forget",
        "forget_summary",
        "undeleted",
        "copied",
        "copy_summary",
        "cache",
        "version",
        "initialized",
    ] {
        assert!(docs.contains(&format!("`{message_type}`")), "{message_type}");
    }
}

#[test]
fn documented_fields_are_those_that_there_are() {
    let docs = include_str!("../../../../docs/json.md");
    let home = Home::new();
    home.sources();
    let mut seen = vec![home.run(&["--json", "init"]).ok().objects()];
    seen.push(home.run(&["--json", "-v", "backup", "src"]).ok().objects());
    home.write("src/a.txt", "changed");
    seen.push(home.run(&["--json", "backup", "src"]).ok().objects());
    for command in [
        "snapshots",
        "ls latest",
        "find *.txt",
        "diff latest~1 latest",
        "du latest",
        "stats",
        "stats latest",
        "estimate src",
        "check --read-data=1/2",
        "key list",
        "why src/a.txt -e a.txt",
        "cache",
        "version",
        "restore latest -t out",
        "parity",
        "check --read-data",
        "prune --dry-run",
        "prune",
        "repair",
        "key add --role writer --new-key-file w.key",
        "-r to -k to.key init",
        "copy --to to --to-key-file to.key",
        "-r to -k to.key snapshots",
        "forget --keep-last 1",
        "snapshots --forgotten",
        "undelete latest",
    ] {
        let args: Vec<_> = ["--json"].into_iter().chain(command.split(' ')).collect();
        seen.push(home.run(&args).ok().objects());
    }
    home.damage();
    seen.push(home.run(&["--json", "check", "--read-data"]).expect(1).objects());
    assert!(seen.concat().iter().any(|o| o["message_type"] == "damage"));
    for object in seen.concat() {
        let message_type = object["message_type"].as_str().unwrap().to_owned();
        let section = docs.split("\n## ").find(|s| s.starts_with(&format!("`{message_type}`")));
        let section = section.unwrap_or_else(|| panic!("'{message_type}' has no section"));
        for field in object.as_object().unwrap().keys().filter(|f| *f != "message_type") {
            assert!(section.contains(&format!("`{field}`")), "{message_type}: {field}");
        }
    }
}
