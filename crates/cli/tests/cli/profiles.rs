//! Profiles and hooks.

use crate::home::Home;

fn home(profile: &str) -> Home {
    let home = Home::new();
    home.sources();
    home.run(&["-r", "repo", "-k", "repo.key", "init"]).ok();
    let (repo, key, src) = (home.text("repo"), home.text("repo.key"), home.text("src"));
    let text = format!("[profile.home]\nrepository = '{repo}'\nkey-file = '{key}'\nsources = ['{src}']\n{profile}");
    home.write("config/drumlin/profiles.toml", text);
    home
}

#[test]
fn a_profile_says_what_and_where() {
    let home = home("exclude = ['*.o']\ntags = ['p']\nhost = 'h'\nkeep = { daily = 7 }\n");
    home.run(&["backup", "--profile", "home", "--tag", "q", "-e", "link"]).ok();
    let snapshot = home.run(&["--profile", "home", "--json", "snapshots"]).ok().the("snapshot");
    assert_eq!((&snapshot["tags"], &snapshot["host"]), (&serde_json::json!(["p", "q"]), &"h".into()));
    let names = home.run(&["ls", "latest", "--profile", "home"]).ok().stdout;
    assert!(names.contains("b.txt") && !names.contains("c.o") && !names.contains("link"), "{names}");
    // Paths that are named are saved instead of the profile's.
    home.run(&["backup", "--profile", "home", "src/deep"]).ok();
    let deep = ["ls", "latest", "--profile", "home", "--path", "src/deep"];
    assert!(!home.run(&deep).ok().stdout.contains("a.txt"));
    let why = home.run(&["why", "--profile", "home", "src/deep/c.o"]).ok().stdout;
    assert!(why.contains("profiles.toml:5"), "{why}");
    home.run(&["backup", "--profile", "none"]).expect(1);
    let ran = home.run(&["backup", "--profile", "home", "--config", "missing.toml"]).expect(1);
    assert!(ran.stderr.contains("missing.toml"), "{}", ran.stderr);
}

/// In a repository that others use as well, the latest of all is seldom the profile's.
#[test]
fn the_latest_is_that_of_the_profile() {
    let home = home("host = 'here'\ntags = ['daily']\n");
    let both = ["-r", "repo", "-k", "repo.key"];
    let save = |more: &[&str]| home.run(&[&both[..], &["backup"], more].concat()).ok();
    home.run(&["backup", "--profile", "home"]).ok();
    let of_profile = |args: &[&str]| home.run(&[&["--profile", "home"], args].concat());
    let is_own = || of_profile(&["ls", "latest"]).ok().stdout.contains("a.txt");
    // Another host, other sources, no such tag, more than that.
    save(&["-H", "there", "--tag", "daily", "src/deep"]);
    save(&["-H", "here", "--tag", "daily", "src/deep"]);
    save(&["-H", "here", "src", "-e", "a.txt"]);
    save(&["-H", "here", "--tag", "daily", "src", "repo.key", "-e", "a.txt"]);
    assert!(is_own());
    of_profile(&["restore", "latest", "-t", "out"]).ok();
    assert!(home.path("out").join(home.path("src/a.txt").strip_prefix("/").unwrap()).exists());
    assert!(!home.run(&[&both[..], &["ls", "latest"]].concat()).ok().stdout.contains("a.txt"));
    // Others are had by asking for them, and by their ids.
    assert!(of_profile(&["ls", "latest", "--path", "src/deep"]).ok().stdout.contains("b.txt"));
    let theirs = of_profile(&["--json", "snapshots", "-H", "there"]).ok().the("snapshot");
    of_profile(&["ls", theirs["id"].as_str().unwrap()]).ok();
    let ran = of_profile(&["ls", "latest", "-H", "nobody"]).expect(1);
    assert!(ran.stderr.contains("--path and --tag select others"), "{}", ran.stderr);
}

#[test]
fn each_rule_of_a_profile_counts() {
    let home = home(
        "exclude = ['~/no', '*.tmp', '!kept.tmp']\niexclude = ['README']\nexclude-file = ['~/rules']\n\
         iexclude-file = ['~/irules']\nexclude-if-present = ['.nobackup']\nexclude-caches = true\n\
         exclude-larger-than = '4K'\ncompression = 'off'\nmemory = '64M'\nworkers = 1\n",
    );
    home.write("home/rules", "*.bak\n");
    home.write("home/irules", "*.OLD\n");
    for name in ["no", "yes", "x.tmp", "kept.tmp", "ReadMe", "x.bak", "x.old", "marked/.nobackup", "marked/x"] {
        home.write(&format!("home/{name}"), "x");
    }
    home.write("home/large", [0; 4097]);
    home.write("home/cache/CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55");
    home.write("home/cache/x", "x");
    let text = home.write("home/text", "the same ".repeat(400));
    let summary = home.run(&["--json", "backup", "--profile", "home", "home"]).ok().the("summary");
    let nodes = home.run(&["--json", "--profile", "home", "ls", "latest", "--path", "home"]).ok().objects();
    let mut names: Vec<_> =
        nodes.iter().filter_map(|n| n["path"].as_str()?.strip_prefix(&home.text("home/"))).collect();
    names.sort_unstable();
    let expected =
        ["cache", "cache/CACHEDIR.TAG", "irules", "kept.tmp", "marked", "marked/.nobackup", "rules", "text", "yes"];
    assert_eq!(names, expected);
    assert!(summary["data_added_packed"].as_u64() >= text.metadata().ok().map(|m| m.len()), "{summary}");
    // The command line counts more.
    let args = ["--json", "backup", "--profile", "home", "home", "-n", "-e", "!*.tmp", "--exclude-larger-than", "1M"];
    assert_eq!(home.run(&args).ok().the("summary")["entries_new"], 2);
}

#[test]
fn what_unlocks_may_stand_in_a_profile() {
    let home = home("");
    home.write("home/pw", "secret\n");
    home.run(&["-r", "home/other", "-p", "home/pw", "init"]).ok();
    let profiles = home.path("config/drumlin/profiles.toml");
    for way in ["password-file = '~/pw'", "password-command = 'cat home/pw'"] {
        std::fs::write(&profiles, format!("[profile.p]\nrepository = '~/other'\n{way}\n")).unwrap();
        home.run(&["--profile", "p", "snapshots"]).ok();
        // What the command line says counts more; what the environment says counts less.
        home.run(&["--profile", "p", "-r", "repo", "snapshots"]).expect(12);
        home.run(&["--profile", "p", "-k", "repo.key", "snapshots"]).expect(12);
        let mut command = home.command(&["--profile", "p", "snapshots"]);
        command.env("DRUMLIN_REPOSITORY", "repo").env("DRUMLIN_KEY_FILE", "repo.key");
        assert!(command.output().unwrap().status.success(), "{way}");
    }
}

#[test]
fn slips_in_a_profile_are_told_before_anything_is_done() {
    for (slip, part) in [
        ("exlude = []\n", "exlude"),
        ("keep = {}\n", "no snapshot"),
        ("sources = 5\n", ""),
        ("workers = 0\n", "worker"),
        ("[profile.home.hooks]\nafterwards = 'x'\n", "afterwards"),
    ] {
        let home = home(slip);
        let ran = home.run(&["backup", "--profile", "home"]).expect(1);
        assert!(ran.stderr.contains(part), "{slip}: {}", ran.stderr);
        assert_eq!(home.run(&["-r", "repo", "-k", "repo.key", "--json", "snapshots"]).ok().stdout, "");
    }
}

#[test]
fn a_profile_means_the_same_wherever_it_is_used() {
    let home = Home::new();
    home.sources();
    for (place, is_right) in [("repo", false), ("./repo", false), ("file:repo", false), ("~/repo", true)] {
        home.write("config/drumlin/profiles.toml", format!("[profile.p]\nrepository = '{place}'\nsources = ['~/x']\n"));
        let ran = home.run(&["--profile", "p", "snapshots"]);
        assert_eq!(
            ran.stderr.contains("begin with '/' or '~/'") || ran.stderr.contains("file:"),
            !is_right,
            "{}",
            ran.stderr
        );
        assert_ne!(ran.code, Some(0));
    }
}

#[test]
fn hooks_run_before_and_after() {
    let home = home(
        "[profile.home.hooks]\nbefore = ['echo out; echo before $DRUMLIN_PROFILE >> log', 'echo two >> log']\n\
         after = 'echo after $DRUMLIN_EXIT_STATUS $DRUMLIN_SNAPSHOT_ID >> log'\nfailure = 'echo failure >> log'\n",
    );
    let ran = home.run(&["--json", "backup", "--profile", "home"]).expect(0);
    ran.objects();
    assert_eq!(ran.stderr, "out\n");
    let log = || std::fs::read_to_string(home.path("log")).unwrap();
    let id = ran.the("summary")["snapshot_id"].as_str().unwrap().to_owned();
    assert_eq!(log(), format!("before home\ntwo\nafter 0 {id}\n"));
    home.run(&["backup", "--profile", "home", "-n"]).ok();
    assert_eq!(log().lines().count(), 3, "a dry run runs no hooks");
    home.run(&["backup", "--profile", "home", "src", "missing"]).expect(3);
    assert!(log().lines().last().unwrap().starts_with("after 3 "), "{}", log());
}

#[test]
fn failures_have_a_hook_of_their_own() {
    let home = home(
        "[profile.home.hooks]\nbefore = 'test -e ready'\nafter = 'echo after >> log; exit 3'\n\
         failure = 'echo failure $DRUMLIN_EXIT_STATUS \"$DRUMLIN_ERROR\" >> log'\n",
    );
    let log = || std::fs::read_to_string(home.path("log")).unwrap_or_default();
    let ran = home.run(&["backup", "--profile", "home"]).expect(1);
    assert!(ran.stderr.contains("the hook 'before'") && ran.stderr.contains("no backup was made"), "{}", ran.stderr);
    assert!(log().starts_with("failure 1 ") && log().contains("test -e ready"), "{}", log());
    let snapshots = || home.run(&["--profile", "home", "--json", "snapshots"]).ok().objects().len();
    assert_eq!(snapshots(), 0);
    home.write("ready", "");
    let ran = home.run(&["backup", "--profile", "home"]).expect(1);
    assert!(ran.stderr.contains("the hook 'after'"), "{}", ran.stderr);
    assert_eq!((snapshots(), log().lines().last()), (1, Some("after")));
    // What the backup itself came to says more than that.
    let ran = home.run(&["backup", "--profile", "home", "src", "missing"]).expect(3);
    assert!(ran.stderr.contains("the hook 'after'") && !ran.stderr.contains("is complete"), "{}", ran.stderr);
    home.run(&["backup", "--profile", "home", "missing"]).expect(1);
    assert!(log().lines().last().unwrap().contains("is not there"), "{}", log());
    // A disk that isn't mounted, and a list of all that is on it: more than a program can be given.
    home.write("list", (0..5000).map(|n| format!("missing/{n:040}\n")).collect::<String>());
    let ran = home.run(&["backup", "--profile", "home", "--files-from-verbatim", "list"]).expect(1);
    assert!(log().lines().last().unwrap().contains("; and 4,990 others"), "{} {}", log(), ran.stderr);
}

/// A disk that is mounted for as long as anybody needs it.
#[test]
fn what_a_hook_opens_is_closed_by_the_last_that_uses_it() {
    let home = home(
        "[profile.home.hooks]\nopen = 'test -d repo || mv away repo; echo open >> log'\nclose = 'mv repo away; echo close $DRUMLIN_EXIT_STATUS >> log'\n\
         before = 'test -d repo; echo before >> log'\nafter = 'test -d repo; echo after >> log'\nfailure = 'echo failure >> log'\n",
    );
    std::fs::rename(home.path("repo"), home.path("away")).unwrap();
    let log = || std::fs::read_to_string(home.path("log")).unwrap_or_default();
    let did = |args: &[&str], code, what: &str| {
        let before = log().len();
        home.run(&[&["--profile", "home"], args].concat()).expect(code);
        assert_eq!(log()[before..].replace('\n', " "), what, "{args:?}");
        assert!(home.path("away").exists() && !home.path("repo").exists(), "{args:?}");
    };
    did(&["backup"], 0, "open before after close 0 ");
    did(&["backup", "-n"], 0, "open close 0 ");
    did(&["backup", "missing"], 1, "open before failure close 1 ");
    for args in [
        &["forget", "--keep-last", "3", "--prune"][..],
        &["prune"],
        &["check"],
        &["snapshots"],
        &["restore", "latest", "-t", "out"],
    ] {
        did(args, 0, "open close 0 ");
    }
    did(&["ls", "nonsense"], 1, "open close 1 ");
    did(&["why", "src"], 0, "");
    // While one is at work another one finds it open, and leaves it so.
    let at_work = "echo > began; while test ! -e go; do sleep 0.02; done; echo x";
    let first = home.start(&["--profile", "home", "backup", "--command", "slow", "--", "sh", "-c", at_work]);
    until(|| home.path("began").exists());
    let before = log().len();
    home.run(&["--profile", "home", "snapshots"]).ok();
    assert_eq!(&log()[before..], "open\n");
    assert!(home.path("repo").exists());
    // However the profiles' file is named.
    std::os::unix::fs::symlink("config/drumlin/profiles.toml", home.path("link.toml")).unwrap();
    for file in ["config/drumlin/profiles.toml", "link.toml"] {
        let before = log().len();
        home.run(&["--config", file, "--profile", "home", "snapshots"]).ok();
        assert_eq!(&log()[before..], "open\n", "{file}");
    }
    // Nor does a second backup run any hook at all; it says who is at work.
    let before = log().len();
    let ran = home.run(&["--profile", "home", "backup"]).expect(11);
    let by = format!("a backup of profile 'home' is at work (process {})", first.id());
    assert!(ran.stderr.contains(&by), "{}", ran.stderr);
    home.write("go", "");
    crate::home::Ran::from(first.wait_with_output().unwrap()).expect(0);
    assert_eq!(&log()[before..], "after\nclose 0\n");
    // Who is ended by a signal closes it, too.
    home.write("src/large", drumlin_testkit::Rng::new(1).bytes(8 << 20));
    did(&["backup"], 0, "open before after close 0 ");
    let before = log().len();
    let child = home.start(&["--profile", "home", "dump", "latest", &home.text("src/large")]);
    until(|| log().len() > before);
    std::thread::sleep(std::time::Duration::from_millis(200));
    crate::home::signal(&child, rustix::process::Signal::TERM);
    let status = child.wait_with_output().unwrap().status;
    assert!(!status.success() && log()[before..].starts_with("open\nclose"), "{status}: {}", &log()[before..]);
    assert!(home.path("away").exists());
}

/// The hook goes on though the program is asked to end, and what it opens would stay open.
#[test]
fn what_a_hook_is_opening_when_a_signal_comes_is_closed() {
    let home = home(
        "[profile.home.hooks]\nopen = 'echo opening >> log; sleep 1; echo open >> log'\nclose = 'echo close >> log'\n",
    );
    let log = || std::fs::read_to_string(home.path("log")).unwrap_or_default();
    for args in [&["snapshots"][..], &["backup"]] {
        let child = home.start(&[&["--profile", "home"], args].concat());
        until(|| log() == "opening\n");
        crate::home::signal(&child, rustix::process::Signal::TERM);
        let status = child.wait_with_output().unwrap().status;
        assert_eq!((status.code(), &log()[..]), (Some(130), "opening\nopen\nclose\n"), "{args:?}: {status}");
        std::fs::remove_file(home.path("log")).unwrap();
    }
    // Who waits for another one's turn waits no longer, and opens nothing.
    let mut first = home.start(&["--profile", "home", "snapshots"]);
    until(|| log() == "opening\n");
    let second = home.start(&["--profile", "home", "snapshots"]);
    std::thread::sleep(std::time::Duration::from_millis(300));
    crate::home::signal(&second, rustix::process::Signal::TERM);
    let status = second.wait_with_output().unwrap().status;
    assert!(!status.success() && log() == "opening\n", "{status}: {}", log());
    assert!(first.wait().unwrap().success());
    assert_eq!(log(), "opening\nopen\nclose\n");
    std::fs::remove_file(home.path("log")).unwrap();
    // What could not be opened is not closed.
    let profiles = std::fs::read_to_string(home.path("config/drumlin/profiles.toml")).unwrap();
    home.write("config/drumlin/profiles.toml", profiles.replace("echo open >>", "false >>"));
    let child = home.start(&["--profile", "home", "snapshots"]);
    until(|| log() == "opening\n");
    crate::home::signal(&child, rustix::process::Signal::TERM);
    assert!(!child.wait_with_output().unwrap().status.success());
    assert_eq!(log(), "opening\n");
}

/// What is mounted can't be unmounted while this process has anything of it open.
#[test]
fn who_is_ended_by_a_signal_lets_go_of_what_is_closed() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = home("");
    home.run(&["backup", "--profile", "home"]).ok();
    std::fs::rename(home.path("repo"), home.path("disk")).unwrap();
    std::fs::create_dir(home.path("repo")).unwrap();
    let (disk, repo) = (home.text("disk"), home.text("repo"));
    let hooks = format!("hooks = {{ open = 'mount --bind {disk} {repo}', close = ['true', 'umount {repo}'] }}\n");
    let text = home.path("config/drumlin/profiles.toml");
    let with_key = format!("key-file = '{}'", home.text("repo.key"));
    let asks = format!("password-command = 'touch {}; sleep 6; echo x'", home.text("asked"));
    std::fs::write(&text, std::fs::read_to_string(&text).unwrap().replace(&with_key, &asks) + &hooks).unwrap();
    let is_mounted = || std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&repo);
    let child = home.start(&["--profile", "home", "snapshots"]);
    until(|| home.path("asked").exists());
    crate::home::signal(&child, rustix::process::Signal::TERM);
    let ran = crate::home::Ran::from(child.wait_with_output().unwrap());
    let was_mounted = is_mounted();
    if was_mounted {
        std::process::Command::new("umount").arg(&repo).status().unwrap();
    }
    assert!(!was_mounted, "{}", ran.stderr);
    ran.expect(130);
}

/// Others wait until all that closes has ended, and what that leaves in the background keeps nobody waiting.
#[test]
fn what_closes_after_a_signal_lets_others_open_when_it_has_ended() {
    let close = "echo closing >> log; sleep 1; echo closed >> log; sleep 60 > /dev/null 2>&1 & echo $! >> sleepers";
    let home = home("");
    let text = home.path("config/drumlin/profiles.toml");
    let with_key = format!("key-file = '{}'", home.text("repo.key"));
    let asks = format!("password-command = 'touch {}; sleep 20; echo x'", home.text("asked"));
    let hooks = format!("hooks = {{ open = 'echo open >> log', close = '{close}' }}\n");
    std::fs::write(&text, std::fs::read_to_string(&text).unwrap().replace(&with_key, &asks) + &hooks).unwrap();
    let log = || std::fs::read_to_string(home.path("log")).unwrap_or_default();
    let child = home.start(&["--profile", "home", "snapshots"]);
    until(|| home.path("asked").exists());
    crate::home::signal(&child, rustix::process::Signal::TERM);
    until(|| log() == "open\nclosing\n");
    let began = std::time::Instant::now();
    home.run(&["--profile", "home", "-k", "repo.key", "snapshots"]).ok();
    let took = began.elapsed();
    let sleepers = std::fs::read_to_string(home.path("sleepers")).unwrap();
    let woken = std::process::Command::new("kill").args(sleepers.lines()).status().unwrap();
    assert!(woken.success() && sleepers.lines().count() == 2, "they slept on: {sleepers}");
    crate::home::Ran::from(child.wait_with_output().unwrap()).expect(130);
    assert_eq!(log(), "open\nclosing\nclosed\nopen\nclosing\nclosed\n");
    assert!(took < std::time::Duration::from_secs(40), "{took:?}");
}

/// Hooks of several runs may then get in each other's way, and whoever reads the output is to know it.
#[test]
fn runs_that_can_not_be_kept_apart_are_told() {
    let home = home("hooks = { open = 'true', close = 'true', before = 'true' }\n");
    let mut command = home.command(&["-q", "--profile", "home", "backup"]);
    let ran = crate::home::Ran::from(command.env("XDG_STATE_HOME", "/proc/nowhere").output().unwrap());
    let told = "warning: runs of profile 'home' are not kept apart, so the hooks of one may undo what another needs: cannot make '/proc/nowhere/drumlin'";
    assert_eq!(ran.stderr.matches(told).count(), 1, "{}", ran.stderr);
}

/// It would wait for its own end.
#[test]
fn what_a_hook_runs_opens_nothing_itself() {
    let program = env!("CARGO_BIN_EXE_drumlin");
    let run = format!("timeout 20 {program} -q --profile home snapshots >> log");
    let home = home(&format!("hooks = {{ open = '{run}', close = '{run}', after = '{run}' }}\n"));
    home.run(&["backup", "--profile", "home"]).ok();
}

fn until(holds: impl Fn() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("it took a minute");
}

/// What is asked for on the command line takes the place of its own part of the profile alone.
#[test]
fn nothing_of_others_is_forgotten_by_a_profile() {
    let home = home("");
    let both = ["-r", "repo", "-k", "repo.key"];
    home.run(&["backup", "--profile", "home", "--tag", "x"]).ok();
    home.run(&[&both[..], &["backup", "-H", "other", "--tag", "x", "src"]].concat()).ok();
    home.run(&["--profile", "home", "forget", "--tag", "x", "--unsafe-allow-remove-all"]).ok();
    let left = home.run(&[&both[..], &["--json", "snapshots"]].concat()).ok().the("snapshot");
    assert_eq!(left["host"], "other");
}

#[test]
fn limits_and_locations_of_a_profile_are_those_of_the_command_line() {
    for (more, part) in [("limit-upload = 0\n", "must not be 0"), ("workers = 2000\n", "1024")] {
        let ran = home(more).run(&["--profile", "home", "snapshots"]).expect(1);
        assert!(ran.stderr.contains(part), "{}", ran.stderr);
    }
    let home = home("");
    let text = home.path("config/drumlin/profiles.toml");
    let url = std::fs::read_to_string(&text).unwrap().replace("repository = '", "repository = 'file://");
    std::fs::write(&text, url).unwrap();
    home.run(&["--profile", "home", "snapshots"]).ok();
}

/// A signal that comes before anything is saved: in a hook, or while the passphrase is still asked for.
#[test]
fn a_signal_before_the_backup_runs_the_hook_for_failures() {
    for slow in ["hooks.before = ['touch mounted', 'sleep 3']", "hooks.before = 'touch mounted'"] {
        let home = home("");
        let text = home.path("config/drumlin/profiles.toml");
        let (mounted, key) = (home.text("mounted"), home.text("repo.key"));
        let mut profile = std::fs::read_to_string(&text).unwrap();
        profile += &format!("{}\nhooks.failure = 'rm {mounted}'\n", slow.replace("mounted", &mounted));
        if !slow.contains("sleep") {
            let (with, by) = (format!("key-file = '{key}'"), "password-command = 'sleep 3; echo x'");
            profile = profile.replace(&with, by);
        }
        std::fs::write(&text, profile).unwrap();
        let child = home.start(&["--profile", "home", "backup"]);
        while !home.path("mounted").exists() {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        crate::home::signal(&child, rustix::process::Signal::TERM);
        let ran = crate::home::Ran::from(child.wait_with_output().unwrap());
        // With the wrong passphrase it would have failed anyhow.
        assert!(!home.path("mounted").exists(), "{}", ran.stderr);
        if slow.contains("sleep") {
            ran.expect(130);
        }
    }
}
