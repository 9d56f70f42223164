//! `why`.

use crate::home::Home;

#[test]
fn the_rule_is_named() {
    let home = Home::new();
    home.sources();
    home.write("rules", "\n*.o\n");
    let why = |args: &[&str]| home.run(&[&["--json", "why"], args].concat()).ok().objects().remove(0);
    let o = why(&["src/deep/c.o", "--exclude-file", "rules"]);
    assert_eq!((&o["included"], &o["reason"], &o["rule"]["text"]), (&false.into(), &"excluded".into(), &"*.o".into()));
    assert_eq!(o["rule"]["origin"], "rules:2");
    assert_eq!(why(&["src/a.txt", "-e", "*.o"])["reason"], "no_rule");
    assert_eq!(why(&["src/deep/c.o", "-e", "deep"])["at"]["path"], home.text("src/deep"));
    assert_eq!(why(&["src/a.txt", "--source", "src/deep"])["reason"], "not_covered");
    assert_eq!(why(&["src/a.txt", "-e", "*.txt", "-e", "!a.txt"])["reason"], "taken_back");
    assert_eq!(why(&["src/deep", "--source", "src/deep"])["reason"], "source");
    assert_eq!(home.run(&["why", "src/a.txt", "src/link"]).ok().stdout.lines().count(), 2);
    // What it says is what a backup does.
    home.run(&["backup", "src", "--exclude-file", "rules"]).ok();
    assert!(!home.run(&["ls", "latest"]).ok().stdout.contains("c.o"));
}
