//! `check`.

use crate::home::{Home, signal};
use drumlin_testkit::Rng;
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

/// The objects below a folder of the default repository.
fn stored(home: &Home, folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![home.repository().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// An object's name in the repository.
fn name(home: &Home, path: &std::path::Path) -> String {
    path.strip_prefix(home.repository()).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_sound_repository_is_called_so() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let before = stored(&home, "");
    for args in [
        &["check"][..],
        &["check", "--read-data"],
        &["check", "--read-data=10%"],
        &["check", "--read-data", "10%"],
        &["check", "--read-data=1/1"],
    ] {
        let ran = home.run(args).ok();
        assert!(ran.stdout.starts_with("checked:   1 snapshot with "), "{}", ran.stdout);
        assert!(ran.stdout.ends_with("no damage was found\n"), "{}", ran.stdout);
        assert_eq!(ran.stdout.contains("read:      no contents of files: --read-data reads them"), args.len() == 1);
    }
    assert_eq!(home.run(&["-q", "check"]).ok().stdout, "");
    let told = home.run(&["--json", "check", "--read-data"]).ok().the("check");
    assert_eq!((&told["sound"], &told["exit_code"], &told["partial"]), (&true.into(), &0.into(), &false.into()));
    assert_eq!(told["read"]["bytes"], told["read"]["bytes_total"]);
    assert_eq!(stored(&home, ""), before, "it only looks");
    home.run(&["--no-cache", "check", "--read-data"]).ok();
    home.run(&["--no-cache", "check", "--read-data=2/3"]).ok();
}

#[test]
fn damage_is_1_and_named_with_what_it_touches() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.damage();
    // Contents are read where that is asked for.
    home.run(&["check"]).ok();
    let ran = home.run(&["check", "--read-data"]).expect(1);
    let pack = name(&home, &stored(&home, "data")[0]);
    assert!(ran.stdout.starts_with(&format!("damaged: data pack '{pack}'\n  block 0: ")), "{}", ran.stdout);
    for path in ["src/a.txt", "src/deep/b.txt"] {
        assert!(ran.stdout.contains(&format!("\n    {}\n", home.text(path))), "{}", ran.stdout);
    }
    // A name can't steer the terminal.
    assert!(ran.stdout.contains("/odd\\xff\\n\n"), "{}", ran.stdout);
    assert_eq!(ran.stderr, "error: the repository is damaged: 1 object is not as it should be\n");
    let quiet = home.run(&["-q", "check", "--read-data"]).expect(1);
    assert!(quiet.stdout.contains(&pack) && !quiet.stdout.contains("checked:"), "{}", quiet.stdout);

    let ran = home.run(&["--json", "check", "--read-data"]).expect(1);
    let (damage, told) = (ran.the("damage"), ran.the("check"));
    assert_eq!((&damage["object"], &damage["kind"]), (&pack.into(), &"data_pack".into()));
    assert_eq!((&damage["chunks"], &damage["chunks_elsewhere"]), (&4.into(), &0.into()));
    assert_eq!(damage["snapshots"][0]["entries"], 4);
    let odd = damage["touched"].as_array().unwrap().iter().any(|t| t["path_b64"].is_string());
    assert!(odd && damage["touches_more"] == false, "{damage}");
    assert_eq!((&told["sound"], &told["damaged_objects"], &told["exit_code"]), (&false.into(), &1.into(), &1.into()));
    assert_eq!(ran.the("exit_error")["code"], 1);
}

#[test]
fn an_object_that_is_gone_or_bent_is_named() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("src/more", "more");
    home.run(&["backup", "src"]).ok();
    for folder in ["data", "tree", "index", "snapshots"] {
        let path = stored(&home, folder).remove(0);
        let bytes = std::fs::read(&path).unwrap();
        home.tamper(&path, |b| b.truncate(b.len() - 1));
        let ran = home.run(&["--json", "check"]).expect(1);
        assert_eq!(ran.the("damage")["object"], name(&home, &path));
        std::fs::write(&path, bytes).unwrap();
    }
    let pack = stored(&home, "tree").remove(0);
    std::fs::remove_file(&pack).unwrap();
    let ran = home.run(&["check"]).expect(1);
    assert!(ran.stdout.contains(&format!("tree pack '{}'\n  it isn't there", name(&home, &pack))), "{}", ran.stdout);
    assert!(ran.stdout.contains("and all that follows: "), "{}", ran.stdout);
    // Without what opens it nothing can be checked.
    let damage = |name: &str| home.tamper(&home.repository().join(name), |b| b[50] ^= 1);
    damage("config");
    let told = home.run(&["check"]).expect(1).stdout;
    assert!(told.contains("config 'config'\n") && told.contains("; its other copy is sound"), "{told}");
    damage("config.copy");
    assert!(home.run(&["check"]).expect(1).stderr.contains("'config' in the repository is damaged"));
}

#[test]
fn packs_of_nobody_are_told() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("data/drumlin/repository/data/07/07070707070707070707070707070707", "half of a pack");
    let ran = home.run(&["check"]).ok();
    assert!(
        ran.stdout.contains("left over: 1 pack of 14 B is in no index object that can be read: left by"),
        "{}",
        ran.stdout
    );
    let told = home.run(&["--json", "check"]).ok().the("check");
    assert_eq!((&told["leftover_packs"], &told["leftover_bytes"]), (&1.into(), &14.into()));
}

#[test]
fn a_key_that_cannot_read_says_what_it_left_out() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    for (role, unchecked) in [("keeper", 1), ("writer", 3)] {
        let file = format!("{role}.key");
        home.run(&["key", "add", "--role", role, "--new-key-file", &file]).ok();
        let repository = home.repository();
        let repository = repository.to_str().unwrap();
        let ran = home.run(&["-r", repository, "-k", &file, "check", "--read-data"]).ok();
        assert_eq!(ran.stdout.matches("unchecked: ").count(), unchecked, "{}", ran.stdout);
        let told = home.run(&["--json", "-r", repository, "-k", &file, "check", "--read-data"]).ok().the("check");
        assert_eq!(told["not_checked"].as_array().unwrap().len(), unchecked);
    }
}

#[test]
fn stopped_it_ends_with_130_and_goes_on_from_there() {
    let home = Home::new();
    // Some packs of contents that can't be compressed.
    home.write("src/large", Rng::new(1).bytes(100 << 20));
    home.run(&["backup", "src"]).ok();
    // How long it takes is the machine's affair: stopped sooner and later, it is caught in its midst.
    for delay in (0..200).map(|n| Duration::from_millis(40 + n % 40 * 40)) {
        let child = home.start(&["--json", "check", "--read-data"]);
        std::thread::sleep(delay);
        signal(&child, Signal::INT);
        let ran: crate::home::Ran = child.wait_with_output().unwrap().into();
        let Some(told) = ran.of_type("check").pop() else { continue };
        if ran.code == Some(0) {
            continue;
        }
        assert_eq!((ran.code, &told["partial"], &told["exit_code"]), (Some(130), &true.into(), &130.into()));
        if told["read"]["packs"].as_u64() > Some(0) {
            let before = told["read"]["packs"].as_u64().unwrap() + told["read"]["packs_before"].as_u64().unwrap();
            let next = home.run(&["--json", "check", "--read-data"]).ok().the("check");
            assert_eq!(next["read"]["packs_before"].as_u64(), Some(before));
            assert_eq!(next["read"]["packs"].as_u64().map(|n| n + before), next["read"]["packs_total"].as_u64());
            return;
        }
    }
    panic!("it was never caught after the first of its packs and before the last");
}
