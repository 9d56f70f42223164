//! Help, man pages, completions, versions: all from the one definition.

use crate::home::Home;

const STATUSES: [&str; 9] = ["0", "1", "2", "3", "4", "10", "11", "12", "130"];

#[test]
fn statuses_are_in_help_and_man_page() {
    let home = Home::new();
    for args in [&["--help"][..], &["backup", "--help"], &["-h"], &["key", "--help"]] {
        let help = home.run(args).ok().stdout;
        let tail = help.split("Exit status:").nth(1).unwrap_or_else(|| panic!("{help}"));
        let listed: Vec<_> = tail.lines().filter_map(|l| l.split_whitespace().next()).collect();
        assert_eq!(listed, STATUSES, "{args:?}");
    }
    for args in [&["man"][..], &["man", "backup"], &["man", "key", "add"]] {
        let page = home.run(args).ok().stdout;
        let section = page.split(".SH \"EXIT STATUS\"").nth(1).unwrap_or_else(|| panic!("{page}"));
        let section = section.split(".SH").next().unwrap();
        let listed: Vec<_> = section.lines().filter_map(|l| l.strip_prefix("\\fB")?.strip_suffix("\\fR")).collect();
        assert_eq!(listed, STATUSES, "{args:?}");
    }
}

#[test]
fn every_command_is_in_the_pages() {
    let home = Home::new();
    let (help, page) = (home.run(&["--help"]).ok().stdout, home.run(&["man"]).ok().stdout);
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let commands: Vec<&str> = listed
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help")
        .collect();
    assert!(commands.len() >= 24, "{commands:?}");
    for command in commands {
        assert!(page.contains(&format!("drumlin\\-{command}(1)")), "{command}");
        assert!(home.run(&[command, "--help"]).ok().stdout.contains(&format!("Usage: drumlin {command}")));
    }
}

#[test]
fn completions_for_each_shell() {
    let home = Home::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = home.run(&["completions", shell]).ok().stdout;
        assert!(script.contains("exclude-larger-than"), "{shell}");
    }
    home.run(&["completions", "nosh"]).expect(2);
}

#[test]
fn versions() {
    let home = Home::new();
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(home.run(&["--version"]).ok().stdout, format!("drumlin {version}\n"));
    assert!(home.run(&["version"]).ok().stdout.starts_with(&format!("drumlin {version} (repository format 1")));
    assert_eq!(home.run(&["--json", "version"]).ok().the("version")["version"], version);
}

#[test]
fn no_colour_where_nobody_sees_it() {
    let home = Home::new();
    let output = home.command(&["snapshots"]).env("TERM", "xterm").output().unwrap();
    assert!(!output.stderr.contains(&0x1b));
}
