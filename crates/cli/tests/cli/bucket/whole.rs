//! All that is done with a repository, done with one in a bucket.

use super::{Cloud, careless};
use crate::everything;
use crate::home::{Home, Ran, same};
use drumlin_testkit::Bucket;
use drumlin_testkit::s3::{BUCKET, Habits, KEYS};
use std::path::Path;

fn everything(home: &Home, run: &dyn Fn(&[&str]) -> Ran, say: &str) {
    everything::done(home, run, say);
}

fn holds(folder: &Path, secret: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().flatten().any(|entry| match entry.file_type().unwrap().is_dir() {
        true => holds(&entry.path(), secret),
        false => std::fs::read(entry.path()).is_ok_and(|bytes| bytes.windows(secret.len()).any(|at| at == secret)),
    })
}

#[test]
fn everything_in_a_bucket() {
    let cloud = Cloud::new();
    everything(&cloud.home, &|args| cloud.run(args), "");
    for folder in ["sessions", "decisions", "plans"] {
        assert_eq!(cloud.objects(folder), Vec::<String>::new(), "{folder}");
    }
    assert_eq!(cloud.objects("tmp"), ["repo/tmp/once"]);
    assert_eq!(cloud.server.unfinished(), 0);
    for folder in ["home", "data", "config", "cache", "state"] {
        let path = cloud.home.path(folder);
        assert!(!path.exists() || !holds(&path, KEYS.1.as_bytes()), "the secret is in {folder}");
    }
}

#[test]
fn everything_where_conditions_are_ignored() {
    let cloud = Cloud::with(careless());
    everything(&cloud.home, &|args| cloud.run(args), "ignores If-None-Match");
    for folder in ["sessions", "decisions", "plans"] {
        assert_eq!(cloud.objects(folder), Vec::<String>::new(), "{folder}");
    }
}

#[test]
fn everything_on_real_servers() {
    for bucket in Bucket::all() {
        let home = Home::new();
        let repo = format!("s3:{}/{}/some/folder", bucket.endpoint(), bucket.bucket());
        let run = |args: &[&str]| {
            let mut command = home.command(&[&["-r", &repo, "-k", "k"], args].concat());
            command.envs(bucket.variables()).output().unwrap().into()
        };
        everything(&home, &run, if bucket.creates_alone() { "" } else { "ignores If-None-Match" });
    }
}

/// What is stored is locked; what comes and goes isn't; a prune begins the days anew when half of them are over.
#[test]
fn object_lock() {
    let cloud = Cloud::with(Habits { locks: true, ..Habits::default() });
    cloud.home.sources();
    let run = |args: &[&str]| cloud.run(&[&["--object-lock", "compliance:30"], args].concat());
    run(&["init"]).ok();
    for n in 0..3 {
        cloud.home.write("src/more", vec![n; 100_000]);
        run(&["backup", "src"]).ok();
    }
    let mode = |key: &String| cloud.server.lock_of(key).map(|(mode, _)| mode);
    let ends = || cloud.server.keys().iter().filter_map(|key| cloud.server.lock_of(key)).map(|(_, end)| end).min();
    for key in cloud.server.keys() {
        let lasts = !["sessions", "decisions", "plans", "tmp"].iter().any(|of| key.starts_with(&format!("repo/{of}/")));
        assert_eq!(mode(&key), lasts.then(|| "COMPLIANCE".to_owned()), "{key}");
    }
    run(&["forget", "--keep-last", "1"]).ok();
    let ran = run(&["prune", "--max-unused", "0"]).ok();
    assert!(!ran.stdout.contains("object lock"), "{}", ran.stdout);
    let before = ends();
    cloud.server.habits(|habits| habits.clock_ahead = 16 * 86_400);
    let ran = run(&["prune"]).expect(0);
    assert!(ran.stdout.contains("object lock: extended for"), "{}", ran.stdout);
    assert!(ends() > before);
    let ran = run(&["prune"]).expect(0);
    assert!(!ran.stdout.contains("object lock"), "{}", ran.stdout);
    run(&["check", "--read-data"]).expect(0);

    // New secrets come with a new config, which has its whole time: so have all others, of which it tells.
    cloud.server.habits(|habits| habits.clock_ahead = 20 * 86_400);
    let before = ends();
    run(&["key", "rekey"]).expect(0);
    assert!(ends() > before, "a rekey leaves locks behind that nobody begins anew");
    // A prune that may not even register itself doesn't let them run out, either.
    cloud.server.habits(|habits| {
        habits.clock_ahead = 36 * 86_400;
        habits.forbidden.insert("PutObject");
    });
    let before = ends();
    run(&["prune"]).expect(1);
    assert!(ends() > before);
    cloud.server.habits(|habits| habits.forbidden.clear());

    // A config that a repair puts has its whole time; so have all others, of which it tells.
    cloud.server.habits(|habits| habits.clock_ahead = 50 * 86_400);
    cloud.server.remove("repo/config");
    let before = ends();
    run(&["repair"]).expect(0);
    assert!(ends() > before, "a repair leaves locks behind that nobody begins anew");
    // One that is locked for longer than the user asks for, as he did before, tells nothing of the others.
    cloud.run(&["--object-lock", "compliance:300", "key", "rekey"]).expect(0);
    cloud.home.write("src/more", vec![9; 100_000]);
    run(&["backup", "src"]).expect(0);
    cloud.server.habits(|habits| habits.clock_ahead = 66 * 86_400);
    let before = ends();
    run(&["prune"]).expect(0);
    assert!(ends() > before, "nothing is begun anew for as long as the config is locked");

    // What is no bucket locks nothing.
    cloud.home.run(&["-r", "folder", "-k", "folder.key", "init"]).ok();
    for quiet in [&[][..], &["-q"], &["--json"]] {
        let words = ["-r", "folder", "-k", "folder.key", "--object-lock", "30", "snapshots"];
        let ran = cloud.home.run(&[quiet, &words].concat()).expect(0);
        assert!(ran.stderr.contains("--object-lock works only in buckets"), "{}", ran.stderr);
    }

    // Nobody finds out only years later that nothing was locked.
    let without = Cloud::new();
    let ran = without.run(&["--object-lock", "30", "init"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("made without object lock"), "{}", ran.stderr);
    let ran = without.run(&["--object-lock", "for ever", "init"]);
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
}

/// Profiles, the environment, and the files of ~/.aws.
#[test]
fn where_the_server_is_told() {
    let cloud = Cloud::new();
    cloud.home.sources();
    let endpoint = cloud.server.endpoint();
    let repo = format!("s3://{BUCKET}/repo");
    let keys = format!("[default]\naws_access_key_id = {}\naws_secret_access_key = {}\n", KEYS.0, KEYS.1);
    cloud.home.write("home/.aws/credentials", keys);
    cloud.home.write("home/.aws/config", format!("[default]\nendpoint_url = {endpoint}\n"));
    cloud.home.run(&["-r", &repo, "-k", "k", "init"]).ok();
    cloud.home.write("home/.aws/config", "");
    let from_environment = |name: &str| {
        let mut command = cloud.home.command(&["-r", &repo, "-k", "k", "snapshots"]);
        Ran::from(command.env(name, &endpoint).output().unwrap()).ok();
    };
    from_environment("AWS_ENDPOINT_URL");
    from_environment("AWS_ENDPOINT_URL_S3");
    let profile = format!(
        "[profile.b]\nrepository = \"{repo}\"\nkey-file = \"{}\"\nendpoint = \"{endpoint}\"\nstorage-class = \"COLD\"\nsources = [\"{}\"]\n",
        cloud.home.text("k"),
        cloud.home.text("src")
    );
    cloud.home.write("config/drumlin/profiles.toml", profile);
    cloud.home.run(&["--profile", "b", "backup"]).ok();
    // Contents are in their class, all else is not, and can be looked at while they are away.
    let packs = cloud.objects("data");
    assert!(!packs.is_empty() && packs.iter().all(|key| cloud.server.class(key).unwrap() == "COLD"));
    let others = cloud.server.keys().into_iter().filter(|key| !packs.contains(key));
    assert!(others.into_iter().all(|key| cloud.server.class(&key).unwrap() == "STANDARD"));
    cloud.server.habits(|habits: &mut Habits| habits.frozen = Some("COLD".into()));
    cloud.run(&["check"]).ok();
    cloud.run(&["ls", "latest"]).ok();
    cloud.run(&["backup", "src"]).ok();
    let folder = cloud.home.saved_folder();
    let ran = cloud.run(&["restore", "latest", "-t", "out", "--thaw", "no"]);
    assert!(ran.stderr.contains("cold storage") && ran.code == Some(1), "{}", ran.stderr);
    let ran = cloud.run(&["check", "--read-data"]);
    assert!(ran.stderr.contains("cold storage") && ran.code == Some(1), "{}", ran.stderr);
    let dump = ["dump", "latest", &cloud.home.text("src/a.txt")];
    let ran = cloud.run(&dump);
    assert!(ran.stderr.contains("cold storage") && ran.stderr.contains("--thaw"), "{}", ran.stderr);
    // A restore has them brought back, and waits.
    cloud.server.asked();
    let ran = cloud.run(&["restore", &folder, "-t", "back"]).ok();
    assert!(ran.stdout.contains("waiting: ") && ran.stdout.contains("cold storage"), "{}", ran.stdout);
    assert!(cloud.server.asked().iter().any(|(action, _)| *action == "RestoreObject"));
    cloud.run(&dump).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("back")));
}
