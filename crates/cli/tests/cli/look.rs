//! `ls`, `find`, `diff`, `du`, `dump`, `stats`, `estimate`.

use crate::home::Home;

fn saved() -> Home {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home
}

#[test]
fn ls_lists_as_deep_as_asked() {
    let home = saved();
    let src = home.text("src");
    let lines = |args: &[&str]| home.run(&[&["ls"], args].concat()).ok().stdout.lines().count();
    assert_eq!(lines(&["latest", &src]), 4);
    assert_eq!(lines(&["latest", &src, "-R"]), 6);
    assert_eq!(lines(&[&format!("latest:{src}")]), 4);
    assert_eq!(lines(&[&format!("latest:{src}"), "deep", "a.txt"]), 3);
    assert!(lines(&["latest"]) > 6);
    home.run(&["ls", "latest", "/none"]).expect(1);
    let long = home.run(&["ls", "-l", "latest", &src]).ok().stdout;
    assert!(long.contains("link -> a.txt") && long.contains("-rw-"), "{long}");
    let nodes = home.run(&["--json", "ls", "latest", &src]).ok().objects();
    let link = nodes.iter().find(|n| n["type"] == "symlink").unwrap();
    assert_eq!(link["target"]["path"], "a.txt");
    let odd = nodes.iter().find(|n| n.get("path_b64").is_some()).unwrap();
    assert_eq!(odd["size"], 3);
}

#[test]
fn find_finds() {
    let home = saved();
    home.run(&["backup", "src", "--tag", "second"]).ok();
    let count = |args: &[&str]| home.run(&[&["--json", "find"], args].concat()).ok().objects().len();
    assert_eq!(count(&["*.txt"]), 4);
    assert_eq!(count(&["*.txt", "-s", "latest"]), 2);
    assert_eq!(count(&["*.TXT", "-i", "--tag", "second"]), 2);
    assert_eq!(count(&["*", "--type", "symlink", "-s", "latest"]), 1);
    assert_eq!(count(&["*.txt", "*.o", "--larger", "1K", "-s", "latest"]), 1);
    assert_eq!(count(&["*.txt", "--newer", "2100-01-01"]), 0);
    assert_eq!(count(&["*.txt", "--older", "2100-01-01"]), 4);
    assert_eq!(count(&["**/deep/*", "-s", "latest"]), 2);
    assert_eq!(count(&["*.txt", "-s", &format!("latest:{}", home.text("src/deep"))]), 1);
    assert!(home.run(&["find", "a.txt"]).ok().stdout.starts_with("in snapshot "));
    // With the names of owners, as `ls` has them.
    let listed = home.run(&["ls", "-l", &format!("latest:{}", home.text("src"))]).ok();
    let found = home.run(&["find", "-l", "a.txt", "-s", "latest"]).ok();
    let line = found.stdout.lines().nth(1).unwrap();
    assert!(listed.stdout.lines().any(|of_it| of_it == line) && line.contains(&*owner()), "{line}\n{}", listed.stdout);
}

/// The name of who runs the tests.
fn owner() -> String {
    let ran = std::process::Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(ran.stdout).unwrap().trim().to_owned()
}

#[test]
fn diff_tells_what_differs() {
    let home = saved();
    home.write("src/a.txt", "longer than before\n");
    home.write("src/new", "new");
    std::fs::remove_file(home.path("src/deep/c.o")).unwrap();
    home.run(&["backup", "src"]).ok();
    let ran = home.run(&["diff", "latest~1", "latest"]).ok();
    let (src, mut lines): (_, Vec<_>) = (home.text("src"), ran.stdout.lines().take(3).collect());
    lines.sort_unstable();
    assert_eq!(lines, [format!("+    {src}/new"), format!("-    {src}/deep/c.o"), format!("M    {src}/a.txt")]);
    let statistics = home.run(&["--json", "diff", "latest~1", "latest"]).ok().the("statistics");
    assert_eq!((&statistics["added"]["files"], &statistics["removed"]["files"]), (&1.into(), &1.into()));
    assert_eq!(home.run(&["--json", "diff", "latest", "latest"]).ok().objects().len(), 1);
    home.run(&["diff", "latest:/a", "latest:/b"]).expect(2);
    let below = |spec: &str| format!("{spec}:{src}/deep");
    assert_eq!(home.run(&["--json", "diff", &below("latest~1"), &below("latest")]).ok().of_type("change").len(), 1);
}

#[test]
fn du_sums() {
    let home = saved();
    let sums = home.run(&["--json", "du", "latest", &home.text("src")]).ok().objects();
    assert_eq!(sums.len(), 2);
    let all = sums.last().unwrap();
    assert_eq!((&all["files"], &all["bytes"]), (&4.into(), &(6 + 5000 + 6 + 3).into()));
    assert!(home.run(&["du", "-b", "-d", "0", "latest", &home.text("src/deep")]).ok().stdout.contains("5006 "));
}

#[test]
fn dump_writes_files_and_archives() {
    let home = saved();
    let src = home.text("src");
    assert_eq!(home.run(&["dump", "latest", &format!("{src}/a.txt")]).ok().bytes, b"alpha\n");
    assert_eq!(
        home.run(&["dump", &format!("latest:{src}"), "deep/b.txt"]).ok().bytes,
        "beta\n".repeat(1000).as_bytes()
    );
    home.run(&["dump", "latest", "/none"]).expect(1);
    home.run(&["dump", "latest", &format!("{src}/link")]).expect(1);
    home.run(&["dump", "latest", &src, "-t", "out.tar"]).ok();
    home.run(&["dump", "latest", &src, "-t", "out.tar"]).expect(1);
    std::fs::create_dir(home.path("out")).unwrap();
    let tar =
        std::process::Command::new("tar").args(["xf", "out.tar", "-C", "out"]).current_dir(home.path("")).status();
    assert!(tar.unwrap().success());
    assert!(crate::home::same(&home.path("src"), &home.path("out/src")));
    let zip = home.run(&["dump", "-a", "zip", "latest", &format!("{src}/deep")]).ok().bytes;
    assert_eq!(&zip[..4], b"PK\x03\x04");
}

#[test]
fn stats_and_estimate_count() {
    let home = saved();
    home.run(&["backup", "src"]).ok();
    let stats = home.run(&["--json", "stats"]).ok().the("stats");
    assert_eq!((&stats["snapshots"], &stats["total"]["files"]), (&2.into(), &8.into()));
    assert!(stats["deduplication_ratio"].as_f64() > Some(1.9), "{stats}");
    assert_eq!(home.run(&["--json", "stats", "latest"]).ok().the("stats")["snapshots"], 1);
    assert!(home.run(&["stats"]).ok().stdout.contains("deduplicated:"));

    home.write("src/new", "12345");
    let estimate = home.run(&["--json", "estimate", "src", "-e", "*.o"]).ok().the("estimate");
    assert_eq!((&estimate["new"]["files"], &estimate["new"]["bytes"]), (&1.into(), &5.into()));
    assert_eq!((&estimate["total"]["files"], &estimate["excluded_files"]), (&4.into(), &1.into()));
    assert!(estimate["parent_id"].is_string());
    home.run(&["estimate", "src", "missing"]).expect(3);
    // Where there is no repository yet, everything would be saved.
    let bare = Home::new();
    bare.sources();
    let estimate = bare.run(&["--json", "estimate", "src"]).ok().the("estimate");
    assert_eq!(estimate["total"]["files"], 4);
    assert!(!bare.path("data").exists());
    // A snapshot counts once, whatever it is called.
    let [once, twice] = [&["latest"][..], &["latest", "latest"]]
        .map(|named| home.run(&[&["--json", "stats"], named].concat()).ok().the("stats"));
    assert_eq!(once, twice);
    assert_eq!(home.run(&["--json", "snapshots", "latest", "latest"]).ok().of_type("snapshot").len(), 1);
}
