//! `backup`: what is saved, from where, under which name.

use crate::home::{Home, Ran};
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

fn names(home: &Home) -> Vec<String> {
    let nodes = home.run(&["--json", "ls", "latest"]).ok().objects();
    let prefix = home.text("src");
    nodes
        .iter()
        .filter_map(|n| n["path"].as_str()?.strip_prefix(&prefix).map(str::to_owned))
        .filter(|n| !n.is_empty())
        .collect()
}

#[test]
fn rules_leave_out_and_are_counted() {
    let home = Home::new();
    home.sources();
    home.write("src/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n");
    home.write("src/cache/rubbish", "x");
    home.write("src/big", vec![0; 5000]);
    home.write("src/marked/.nobackup", "");
    home.write("src/marked/x", "");
    home.write("rules", "# comment\n*.o\n!a.txt\n");
    home.write("irules", "LINK\n");
    let args = [
        "--json",
        "backup",
        "src",
        "--exclude-file",
        "rules",
        "--iexclude-file",
        "irules",
        "-e",
        "odd*",
        "--iexclude",
        "DEEP/B*",
        "--exclude-caches",
        "--exclude-larger-than",
        "4K",
        "--exclude-if-present",
        ".nobackup",
    ];
    let summary = home.run(&args).ok().the("summary");
    assert_eq!(names(&home), ["/a.txt", "/cache", "/deep", "/marked", "/cache/CACHEDIR.TAG", "/marked/.nobackup"]);
    assert!(summary["entries_excluded"].as_u64() >= Some(5), "{summary}");
    home.run(&["backup", "src", "-e", "[", "-e", "{a"]).expect(2);
    home.run(&["backup", "src", "--exclude-file", "missing"]).expect(1);
}

/// Whichever options they are given by, rules count in the order of the command line.
#[test]
fn the_last_rule_of_the_command_line_counts() {
    let home = Home::new();
    for name in ["keep.o", "other.o"] {
        home.write(&format!("src/{name}"), "x");
    }
    home.write("back", "!keep.o\n");
    home.write("out", "*.o\n");
    let kept = ["/keep.o"];
    for (rules, left) in [
        (["-e", "*.o", "--exclude-file", "back"], &kept[..]),
        (["--exclude-file", "back", "-e", "*.o"], &[]),
        (["--iexclude", "*.O", "-e", "!keep.o"], &kept),
        (["-e", "!keep.o", "--iexclude", "*.O"], &[]),
        (["--exclude-file", "out", "--iexclude-file", "back"], &kept),
        (["--iexclude-file", "back", "--exclude-file", "out"], &[]),
    ] {
        home.run(&[&["backup", "src"], &rules[..]].concat()).ok();
        assert_eq!(names(&home), left, "{rules:?}");
    }
}

#[test]
fn paths_from_files() {
    let home = Home::new();
    home.sources();
    home.write("list", format!("# all\n{}/*.txt\n", home.text("src")));
    home.run(&["backup", "--files-from", "list"]).ok();
    assert_eq!(names(&home), ["/a.txt"]);
    home.write("list", "src/deep/b.txt\nsrc/link\n");
    home.run(&["backup", "--files-from-verbatim", "list"]).ok();
    assert_eq!(names(&home), ["/deep", "/link", "/deep/b.txt"]);
    home.feed(&["backup", "--files-from-raw", "-"], b"src/odd\xff\n\0src/a.txt\0").ok();
    assert_eq!(names(&home), ["/a.txt", "/odd\u{fffd}\n"]);
    home.write("list", "src/*.txt\nnothing*\n");
    let ran = home.run(&["backup", "--files-from", "list"]).expect(3);
    assert!(ran.stderr.contains("nothing matches 'nothing*'"), "{}", ran.stderr);
    assert_eq!(names(&home), ["/a.txt"]);
    home.write("list", "nothing*\n");
    for quiet in [&[][..], &["-q"], &["--json"]] {
        let ran = home.run(&[quiet, &["backup", "--files-from", "list"]].concat()).expect(2);
        assert!(ran.stderr.contains("nothing matches 'nothing*'"), "{}", ran.stderr);
    }
}

#[test]
fn names_that_are_not_utf8() {
    let home = Home::new();
    let src = home.sources();
    let odd = src.join(std::ffi::OsStr::from_bytes(b"odd\xff\n"));
    let args: [OsString; 3] = ["--json".into(), "backup".into(), odd.clone().into()];
    home.run(&args).ok();
    let snapshot = home.run(&["--json", "snapshots"]).ok().the("snapshot");
    assert!(snapshot["paths"][0].as_str().unwrap().ends_with("odd\u{fffd}\n"));
    assert!(snapshot["paths_b64"][0].is_string());
    let missing = OsString::from_vec([home.text("src").as_bytes(), b"/gone\xfe"].concat());
    let ran = home.run(&["--json".into(), "backup".into(), odd.clone().into_os_string(), missing]).expect(3);
    let error = ran.the("error");
    assert!(error["path"].as_str().unwrap().ends_with("/gone\u{fffd}"));
    assert!(error["path_b64"].is_string());
    let shown = home.run(&["ls", "latest"]).ok().stdout;
    assert!(shown.ends_with("/src/odd\\xff\\n\n"), "{shown:?}");
    let args: [OsString; 3] = ["dump".into(), "latest".into(), odd.into()];
    assert_eq!(home.run(&args).ok().bytes, b"odd");
}

#[test]
fn streams() {
    let home = Home::new();
    let text = b"some dump\n".repeat(100_000);
    home.feed(&["backup", "--stdin", "db.sql"], &text).ok();
    assert_eq!(home.run(&["dump", "latest", "/db.sql"]).ok().bytes, text);
    home.feed(&["backup", "--stdin-filename", "other"], b"x").ok();
    home.feed(&["backup", "--stdin", "--stdin-filename", "third"], b"x").ok();
    assert_eq!(home.run(&["ls", "latest"]).ok().stdout, "/third\n");
    home.run(&["backup", "--stdin", "x", "src"]).expect(2);

    home.run(&["backup", "--command", "out", "--", "echo", "-n", "made"]).ok();
    assert_eq!(home.run(&["dump", "latest", "out"]).ok().bytes, b"made");
    let before = home.run(&["--json", "snapshots"]).ok().objects().len();
    let ran = home.run(&["backup", "--command", "out", "--", "sh", "-c", "echo half; exit 7"]).expect(1);
    assert!(ran.stderr.contains("exit status 7") && ran.stderr.contains("no snapshot"), "{}", ran.stderr);
    home.run(&["backup", "--command", "out", "--", "/no/such/program"]).expect(1);
    let ran = home.run(&["backup", "--command", "out", "--", "sh", "-c", "kill -9 $$"]).expect(1);
    assert!(ran.stderr.contains("signal 9"), "{}", ran.stderr);
    let ran = home.run(&["backup", "--command", "out", "--", "false"]).expect(1);
    assert!(!ran.stderr.contains("nothing came"), "it is known why: {}", ran.stderr);
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), before);
}

/// A dump that has failed where nobody saw it: it is told, and pushes out none that has something.
#[test]
fn a_stream_without_a_byte_is_no_backup_of_it() {
    let home = Home::new();
    home.feed(&["backup", "--stdin", "db.sql"], b"something").ok();
    for _ in 0..3 {
        let ran = home.feed(&["backup", "--stdin", "db.sql"], b"").expect(3);
        assert!(
            ran.stderr.contains("nothing came in this stream") && ran.stderr.contains("pipefail"),
            "{}",
            ran.stderr
        );
        home.run(&["backup", "--command", "db.sql", "--", "true"]).expect(3);
        home.run(&["forget", "--keep-last", "1"]).ok();
    }
    let kept: Vec<_> = home.run(&["--json", "snapshots"]).ok().objects();
    let missing: Vec<u64> = kept.iter().map(|s| s["summary"]["sources_missing"].as_u64().unwrap()).collect();
    assert_eq!(missing, [0, 1], "the one that has something, and the last one that has nothing");
    let first = kept[0]["id"].as_str().unwrap();
    assert_eq!(home.run(&["dump", first, "db.sql"]).ok().bytes, b"something");
    // It belongs to whoever has sent it.
    let me = rustix::process::geteuid().as_raw();
    let entry = home.run(&["--json", "ls", first, "-R"]).ok().objects().pop().unwrap();
    assert_eq!(
        (entry["uid"].as_u64(), entry["mode"].as_u64().map(|mode| mode & 0o7777)),
        (Some(me.into()), Some(0o600)),
        "{entry}"
    );
}

#[test]
fn tags_host_time_and_parent() {
    let home = Home::new();
    home.sources();
    let args = ["backup", "src", "--tag", "a,b", "--tag", "c,a", "-H", "mars", "--time", "2020-02-03 04:05:06"];
    home.run(&args).ok();
    let first = home.run(&["--json", "snapshots"]).ok().the("snapshot");
    assert_eq!(first["tags"], serde_json::json!(["a", "b", "c"]));
    assert_eq!((first["host"].as_str(), first["time"].as_str()), (Some("mars"), Some("2020-02-03T04:05:06Z")));
    let id = first["id"].as_str().unwrap();
    // Another host's snapshot is no parent unless it is named.
    assert_eq!(home.run(&["--json", "backup", "src", "--tag", "x"]).ok().the("summary").get("parent_id"), None);
    let summary = home.run(&["--json", "backup", "src", "-H", "venus", "--parent", &id[..8]]).ok().the("summary");
    assert_eq!((summary["parent_id"].as_str(), summary["entries_new"].as_u64()), (Some(id), Some(0)));
    home.run(&["backup", "src", "--parent", "ffffffff"]).expect(1);
    let summary = home.run(&["--json", "backup", "src", "-H", "venus", "--force"]).ok().the("summary");
    assert!(summary["bytes_read"].as_u64() > Some(5000), "{summary}");

    let list = |args: &[&str]| home.run(&[&["--json", "snapshots"], args].concat()).ok().objects().len();
    assert_eq!(list(&[]), 4);
    assert_eq!([list(&["-H", "mars"]), list(&["-H", "mars", "-H", "venus"])], [1, 3]);
    assert_eq!([list(&["--tag", "a,b"]), list(&["--tag", "a,x"]), list(&["--tag", "a", "--tag", "x"])], [1, 0, 2]);
    assert_eq!([list(&["--path", "src"]), list(&["--path", "other"])], [4, 0]);
    assert_eq!([list(&["--latest", "1"]), list(&["latest"]), list(&[&id[..6]])], [3, 1, 1]);
    let env = home.command(&["backup", "src"]).env("DRUMLIN_HOST", "pluto").output().unwrap();
    assert!(env.status.success());
    assert_eq!(list(&["-H", "pluto"]), 1);
    let long = home.run(&["backup", "src", "-H", &"x".repeat(256)]).expect(2);
    assert!(long.stderr.contains("the host name has 256 bytes; 255 are the most"), "{}", long.stderr);
    home.run(&["backup", "src", "-H", &"x".repeat(255)]).ok();
}

#[test]
fn what_can_not_be_the_name_of_a_stream_is_told() {
    let home = Home::new();
    let long = "n".repeat(256);
    for (name, why) in [
        ("a/b", "give a file name without folders"),
        ("..", "that is a folder's"),
        ("", "it is empty"),
        (&long, "no file's name is longer than 255 bytes"),
    ] {
        let ran = home.feed(&["backup", "--stdin", name], b"x").expect(2);
        assert!(ran.stderr.contains(&format!("can't be the name of a stream: {why}")), "{name}: {}", ran.stderr);
    }
    home.feed(&["backup", "--stdin", &long[1..]], b"x").ok();
}

/// It can't ask the repository what it has saved before.
#[test]
fn a_writer_whose_cache_can_not_be_kept_is_told() {
    let home = Home::new();
    home.sources();
    home.run(&["init"]).ok();
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "writer.key"]).ok();
    let backup = ["-k", "writer.key", "backup", "src"];
    home.run(&backup).ok();
    let mut command = home.command(&backup);
    let ran = Ran::from(command.env("XDG_CACHE_HOME", "/proc/nowhere").output().unwrap()).expect(0);
    assert!(ran.stderr.contains("no cache is kept here"), "{}", ran.stderr);
    let mut command = home.command(&["backup", "src"]);
    let owner = Ran::from(command.env("XDG_CACHE_HOME", "/proc/nowhere").output().unwrap()).expect(0);
    assert!(!owner.stderr.contains("no cache"), "{}", owner.stderr);
}

#[test]
fn sources_have_one_spelling() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    for same in [&["./src/"][..], &["src/deep/..", "src"], &[&home.text("src")]] {
        let summary = home.run(&[&["--json", "backup"], same].concat()).ok().the("summary");
        assert_eq!(summary["entries_new"], 0, "{same:?}");
        assert!(summary["parent_id"].is_string(), "{same:?}");
    }
}

#[test]
fn compression_is_as_asked() {
    let home = Home::new();
    home.write("src/text", "the same again and again ".repeat(20_000));
    let stored = |args: &[&str]| {
        let new = Home::new();
        std::fs::copy(home.path("src/text"), new.path("text")).unwrap();
        new.run(&[&["--json", "backup", "text"], args].concat()).ok().the("summary")["data_added_packed"]
            .as_u64()
            .unwrap()
    };
    let (auto, off, level) = (stored(&[]), stored(&["--compression", "off"]), stored(&["--compression", "-5"]));
    assert!(auto * 10 < off && level < off, "{auto} {level} {off}");
}

/// Whoever asks for few words still has to know that nobody has named a repository, and that one is there now.
#[test]
fn a_repository_that_nobody_asked_for_is_told_of() {
    let home = Home::new();
    home.sources();
    let ran = home.run(&["-q", "backup", "src"]).expect(0);
    let place = home.text("data/drumlin/repository");
    assert!(ran.stderr.contains(&place) && ran.stderr.contains("nobody can ever read it"), "{}", ran.stderr);
    assert_eq!(ran.stdout, "");
    assert_eq!(home.run(&["-q", "backup", "src"]).ok().stdout, "");
    // As rsync has it: no folder of that name is meant.
    let ran = home.run(&["-r", "nas:backup", "init"]).expect(2);
    assert!(ran.stderr.contains("sftp://"), "{}", ran.stderr);
    assert!(!home.path("nas:backup").exists());
}

#[test]
fn streams_are_chosen_by_their_names() {
    let home = Home::new();
    home.sources();
    home.feed(&["backup", "--stdin", "all.sql"], b"x").ok();
    home.run(&["backup", "src"]).ok();
    let of_stream = home.run(&["--json", "snapshots", "--path", "all.sql"]).ok().the("snapshot");
    assert_eq!(of_stream["paths"][0], "all.sql");
    assert!(home.run(&["ls", "latest", "--path", "all.sql"]).ok().stdout.contains("all.sql"));
    // A path is a path.
    assert!(home.run(&["--json", "snapshots", "--path", "/all.sql"]).ok().objects().is_empty());
    assert!(home.run(&["--json", "snapshots", "--path", "./all.sql"]).ok().objects().is_empty());
}

#[test]
fn a_snapshot_is_skipped_where_nothing_has_changed() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src", "--skip-if-unchanged"]).ok();
    std::thread::sleep(std::time::Duration::from_millis(60));
    // What was written just now is read once more.
    home.run(&["backup", "src"]).ok();
    let made = || home.run(&["--json", "snapshots"]).ok().of_type("snapshot").len();
    let before = made();
    let skipped = home.run(&["backup", "src", "--skip-if-unchanged"]).ok();
    assert!(skipped.stdout.contains("nothing has changed since snapshot"), "{}", skipped.stdout);
    let summary = home.run(&["--json", "backup", "src", "--skip-if-unchanged"]).ok().the("summary");
    assert!(summary["snapshot_id"].is_null() && summary["parent_id"].is_string(), "{summary}");
    assert_eq!(made(), before);
    home.write("src/a.txt", "another");
    let saved = home.run(&["backup", "src", "--skip-if-unchanged"]).ok();
    assert!(saved.stdout.contains("saved snapshot"), "{}", saved.stdout);
    assert_eq!(made(), before + 1);
    // A stream is another one each time.
    home.run(&["backup", "--stdin", "x", "--skip-if-unchanged"]).expect(2);
}
