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
    assert!(!home.run(&["ls", "latest", "--profile", "home"]).ok().stdout.contains("a.txt"));
    let why = home.run(&["why", "--profile", "home", "src/deep/c.o"]).ok().stdout;
    assert!(why.contains("profiles.toml:5"), "{why}");
    home.run(&["backup", "--profile", "none"]).expect(1);
    let ran = home.run(&["backup", "--profile", "home", "--config", "missing.toml"]).expect(1);
    assert!(ran.stderr.contains("missing.toml"), "{}", ran.stderr);
}

#[test]
fn slips_in_a_profile_are_told_before_anything_is_done() {
    for (slip, part) in [
        ("exlude = []\n", "exlude"),
        ("keep = {}\n", "no snapshot"),
        ("sources = 5\n", ""),
        ("workers = 0\n", "worker"),
    ] {
        let home = home(slip);
        let ran = home.run(&["backup", "--profile", "home"]).expect(1);
        assert!(ran.stderr.contains(part), "{slip}: {}", ran.stderr);
        assert_eq!(home.run(&["-r", "repo", "-k", "repo.key", "--json", "snapshots"]).ok().stdout, "");
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
    home.run(&["backup", "--profile", "home", "missing"]).expect(1);
    assert!(log().lines().last().unwrap().contains("is not there"), "{}", log());
}
