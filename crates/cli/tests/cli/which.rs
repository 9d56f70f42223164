//! Which snapshot is meant: `latest`, narrowed down; the beginning of an id; a folder in it.

use crate::home::Home;

/// Three snapshots of a file whose contents say which it is in: each of another host, tag and source.
fn three() -> Home {
    let home = Home::new();
    for (n, (host, tags)) in [("mars", "old,weekly"), ("venus", "weekly"), ("venus", "new")].into_iter().enumerate() {
        home.write("src/file", n.to_string());
        let source = if n == 2 { "src/file" } else { "src" };
        home.run(&["backup", source, "-H", host, "--tag", tags, "--time", &format!("2020-01-0{}", n + 1)]).ok();
    }
    home
}

#[test]
fn latest_is_narrowed_down_for_every_command() {
    let home = three();
    let file = home.text("src/file");
    for (args, n) in [
        (&[][..], "2"),
        (&["-H", "mars"], "0"),
        (&["--host", "venus", "--tag", "weekly"], "1"),
        (&["--tag", "old"], "0"),
        (&["--tag", "weekly"], "1"),
        (&["--path", "src"], "1"),
        (&["--path", "src", "--host", "mars"], "0"),
        (&["--path", "src/../src/"], "1"),
        (&["--path", "src/file"], "2"),
    ] {
        let ran = home.run(&[&["dump", "latest", &file], args].concat()).ok();
        assert_eq!(ran.stdout, n, "{args:?}");
        let restored = home.run(&[&["restore", "latest", "-t", "out", "--delete"], args].concat()).expect(0);
        // Of several machines' the latest is another machine's, perhaps, than the one that is meant.
        let cautions = restored.stderr.contains("--host names the one");
        let is_named = args.iter().any(|arg| matches!(*arg, "-H" | "--host"));
        assert!(if is_named { !cautions } else { cautions || !args.is_empty() }, "{args:?}: {}", restored.stderr);
        assert_eq!(std::fs::read_to_string(home.path(&format!("out{file}"))).unwrap(), n, "{args:?}");
        let snapshot = home.run(&[&["--json", "snapshots", "latest"], args].concat()).ok().the("snapshot");
        assert_eq!(snapshot["time"], format!("2020-01-0{}T00:00:00Z", n.parse::<u32>().unwrap() + 1), "{args:?}");
    }
    assert_eq!(home.run(&["dump", "latest~2", &file]).ok().stdout, "0");
    assert_eq!(home.run(&["dump", "latest~1", &file, "--tag", "weekly"]).ok().stdout, "0");
    for args in [&["--host", "pluto"][..], &["--tag", "old,new"], &["--path", "elsewhere"]] {
        for command in
            [&["ls", "latest"][..], &["restore", "latest", "-t", "none"], &["du", "latest"], &["stats", "latest"]]
        {
            let ran = home.run(&[command, args].concat()).expect(1);
            assert!(ran.stderr.contains("no snapshot that fits") && ran.stderr.contains("hint:"), "{}", ran.stderr);
        }
    }
    assert!(!home.path("none").exists());
}

#[test]
fn an_id_may_be_shortened_while_it_fits_one() {
    let home = three();
    let file = home.text("src/file");
    for (n, id) in ids(&home).iter().enumerate() {
        for given in [&id[..], &id[..12], &id[..8]] {
            // Whatever narrows down `latest`, an id is an id.
            assert_eq!(home.run(&["dump", given, &file, "--host", "pluto"]).ok().stdout, n.to_string());
        }
    }
    // Of seventeen two begin alike.
    (3..17).for_each(|_| drop(home.feed(&["backup", "--stdin", "x"], b"x").ok()));
    let ids = ids(&home);
    let twice = |c: &char| ids.iter().filter(|id| id.starts_with(*c)).count() > 1;
    let digit = ids.iter().filter_map(|id| id.chars().next()).find(twice).unwrap().to_string();
    let ran = home.run(&["restore", &digit, "-t", "out"]).expect(1);
    for id in ids.iter().filter(|id| id.starts_with(&digit)) {
        assert!(ran.stderr.contains(&id[..12]), "each that fits is named: {}", ran.stderr);
    }
    assert!(!home.path("out").exists());
    for wrong in ["", "xyz", "LATEST", "latest~", "latest~99", "latest~x", "-", "ffffffffffffffffffffffffffffffff00"] {
        let ran = home.run(&["ls", "--", wrong]).expect(1);
        assert!(ran.stderr.contains("drumlin snapshots") && !ran.stderr.contains("bug"), "{wrong}: {}", ran.stderr);
    }
}

fn ids(home: &Home) -> Vec<String> {
    let all = home.run(&["--json", "snapshots"]).ok().objects();
    all.iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_folder_is_one_and_only_where_it_makes_sense() {
    let home = three();
    let (src, file) = (home.text("src"), home.text("src/file"));
    let spec = |folder: &str| format!("latest:{folder}");
    for command in ["ls", "du", "diff", "find", "restore", "dump"] {
        let none = spec("/none");
        let args = match command {
            "diff" => vec![command, &none, &none],
            "find" => vec![command, "*", "-s", &none],
            "restore" => vec![command, &none, "-t", "out"],
            "dump" => vec![command, &none, "/"],
            _ => vec![command, &none],
        };
        let ran = home.run(&args).expect(1);
        assert!(ran.stderr.contains("there is no '/none'") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    }
    // A file is no folder to restore, and nobody shall believe that it was.
    let ran = home.run(&["restore", &spec(&file), "-t", "out"]).expect(1);
    assert!(ran.stderr.contains("not a folder") && ran.stderr.contains("hint:"), "{}", ran.stderr);
    assert!(!home.path("out").exists());
    // Nor one that isn't there; the folder that nothing came into goes again, and no other one.
    for (target, stays) in [("out", false), ("there", true)] {
        if stays {
            std::fs::create_dir(home.path(target)).unwrap();
        }
        let ran = home.run(&["restore", &spec(&src), "none", "-t", target]).expect(1);
        let told = format!("there is no '{src}/none' in the snapshot");
        assert!(ran.stderr.contains(&told) && ran.stderr.contains("below that folder"), "{}", ran.stderr);
        assert_eq!(home.path(target).exists(), stays);
    }
    home.run(&["restore", "latest", &file, "-t", "out", "-H", "venus"]).ok();
    assert!(home.path(&format!("out{file}")).exists());
    // Where the whole is meant a part of it isn't quietly taken for that.
    let src = spec(&src);
    for args in [&["stats", &src][..], &["snapshots", &src], &["backup", "src", "--parent", &src]] {
        let ran = home.run(args).expect(2);
        assert!(ran.stderr.contains("leave out"), "{}", ran.stderr);
    }
}

/// As it was on a day, without looking for an id.
#[test]
fn latest_at_a_time() {
    let home = Home::new();
    for (month, text) in [("01", "first"), ("02", "second"), ("03", "third")] {
        home.write("src/file", text);
        home.run(&["backup", "src", "--time", &format!("2026-{month}-15 12:00")]).ok();
    }
    let restored = |args: &[&str]| {
        let _ = std::fs::remove_dir_all(home.path("out"));
        home.run(&[&["restore", &home.saved_folder(), "-t", "out"], args].concat()).ok();
        std::fs::read_to_string(home.path("out/file")).unwrap()
    };
    assert_eq!(restored(&[]), "third");
    assert_eq!(restored(&["--before", "2026-03-15"]), "second");
    assert_eq!(restored(&["--before", "2026-03-15 12:00:01"]), "third");
    let count = |args: &[&str]| home.run(&[&["--json", "snapshots"], args].concat()).ok().objects().len();
    assert_eq!(count(&["--after", "2026-02-01"]), 2);
    assert_eq!(count(&["--after", "2026-02-01", "--before", "2026-03-01"]), 1);
    home.run(&["restore", "latest", "-t", "out2", "--before", "2026-01-01"]).expect(1);
    // Rules see those alone that are asked for.
    home.run(&["forget", "--keep-last", "1", "--before", "2026-03-01"]).ok();
    assert_eq!(count(&[]), 2);
}
