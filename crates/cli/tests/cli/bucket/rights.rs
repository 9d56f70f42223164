//! Who has the rights that the guide advises can do what they are for, and nothing else. The policies are the guide's,
//! word by word, and heeded by a server of our own: of those that can be had for tests none knows all of their
//! conditions.

use super::Cloud;
use crate::home::{Ran, same};
use drumlin_testkit::Rng;
use drumlin_testkit::s3::{BUCKET, Context, Habits, Instead, KEYS, Policy};

/// The guide's policy behind some words of it, for this bucket and repository.
fn policy(behind: &str) -> Policy {
    let guide = include_str!("../../../../../docs/guides/s3.md");
    let (_, rest) = guide.split_once(behind).unwrap_or_else(|| panic!("the guide doesn't say '{behind}'"));
    let is_code = |line: &&str| line.starts_with("    ");
    let lines: Vec<&str> = rest.lines().skip_while(|line| !is_code(line)).take_while(is_code).collect();
    Policy::read(&lines.join("\n").replace("BUCKET", BUCKET).replace("laptop", "repo"))
}

fn machine() -> Policy {
    policy("*A machine that is backed up*")
}

fn keeper() -> Policy {
    policy("*Whoever forgets and prunes*")
}

fn restorer() -> Policy {
    policy("*Whoever restores*")
}

/// A policy that only allows, of an action with each of the repository's objects.
fn objects(action: &str) -> Policy {
    Policy::read(&format!(
        r#"{{ "Effect": "Allow", "Action": "{action}", "Resource": "arn:aws:s3:::{BUCKET}/repo/*" }}"#
    ))
}

/// Whether a policy allows an action with an object, or with the bucket if that is empty, to a request that says this.
fn allows(policy: &Policy, right: &str, key: &str, says: &[(&'static str, &str)]) -> bool {
    let bucket = format!("arn:aws:s3:::{BUCKET}");
    let resource = if key.is_empty() { bucket } else { format!("{bucket}/{key}") };
    let context: Context = says.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
    policy.allows(&format!("s3:{right}"), &resource, &context)
}

/// A repository that its owner has made, with a keeper's rights and keys for both roles.
fn begun(habits: Habits) -> Cloud {
    let cloud = Cloud::with(habits);
    cloud.home.sources();
    by(&cloud, &keeper(), "k", &["init"]).ok();
    for role in ["writer", "keeper"] {
        by(&cloud, &keeper(), "k", &["key", "add", "--role", role, "--new-key-file", &format!("{role}.key")]).ok();
    }
    cloud
}

fn by(cloud: &Cloud, policy: &Policy, key: &str, args: &[&str]) -> Ran {
    cloud.server.habits(|habits| habits.policy = Some(policy.clone()));
    let ran = cloud.run_by(key, args);
    cloud.server.habits(|habits| habits.policy = None);
    ran
}

/// Leave an upload in parts behind, as old as those that a prune clears up.
fn leave_an_upload(cloud: &Cloud, seed: u64) {
    cloud.home.write("src/left", Rng::new(seed).bytes(12 << 20));
    cloud.server.instead("CompleteMultipartUpload", 0, 100, Instead::Refuse(403, "AccessDenied"));
    by(cloud, &machine(), "writer.key", &["backup", "src"]).expect(1);
    cloud.server.as_usual();
    assert!(cloud.server.unfinished() > 0);
    cloud.server.age(8 * 86_400);
}

#[test]
fn each_does_what_is_to_be_done_with_the_rights_of_the_guide() {
    let cloud = begun(Habits::default());
    for round in 0..2 {
        leave_an_upload(&cloud, round);
        for n in 0..2 {
            cloud.home.write("src/n", format!("{round} {n}"));
            cloud.server.asked();
            by(&cloud, &machine(), "writer.key", &["backup", "src"]).ok();
            cloud.home.write("src/m", format!("{round} {n}"));
            by(&cloud, &machine(), "writer.key", &["--no-cache", "backup", "src"]).ok();
        }
        by(&cloud, &machine(), "writer.key", &["ls", "latest"]).expect(1);
        by(&cloud, &keeper(), "keeper.key", &["forget", "--keep-last", "1"]).ok();
        by(&cloud, &keeper(), "keeper.key", &["prune", "--max-unused", "0%"]).ok();
        assert_eq!(cloud.objects("sessions"), Vec::<String>::new());
        assert_eq!(cloud.server.unfinished(), 0);
    }
    by(&cloud, &keeper(), "k", &["repair"]).ok();
    for args in [&["check", "--read-data"][..], &["snapshots"], &["ls", "latest"]] {
        by(&cloud, &restorer(), "k", args).ok();
    }
    by(&cloud, &restorer(), "k", &["--no-cache", "restore", &cloud.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
}

/// Each is for one repository of a bucket in which there may be others.
#[test]
fn nobody_gets_at_what_lies_beside_the_repository() {
    let creates = [("s3:if-none-match", "*"), ("s3:ObjectCreationOperation", "true")];
    for (name, policy) in [("machine", machine()), ("keeper", keeper()), ("restorer", restorer())] {
        for right in ["ListBucket", "ListBucketVersions"] {
            for prefix in ["", "repo", "repository/", "other/repo/"] {
                assert!(!allows(&policy, right, "", &[("s3:prefix", prefix)]), "{name}: {right} of '{prefix}'");
            }
            assert!(!allows(&policy, right, "", &[]), "{name}: {right} of all");
        }
        assert!(allows(&policy, "ListBucket", "", &[("s3:prefix", "repo/data/")]), "{name}");
        for action in policy.allowed().iter().filter(|action| !action.starts_with("s3:ListBucket")) {
            let right = action.strip_prefix("s3:").unwrap();
            assert!(allows(&policy, right, "repo/x", &creates), "{name}: {right}");
            for key in ["", "x", "repository/x", "other/repo/x"] {
                assert!(!allows(&policy, right, key, &creates), "{name}: {right} with '{key}'");
            }
        }
    }
}

/// Whoever takes over the machine has its credentials, and may have got at the owner's key, too.
#[test]
fn a_machine_can_neither_change_nor_remove_what_is_there() {
    let cloud = begun(Habits::default());
    cloud.home.write("src/large", Rng::new(4).bytes(12 << 20));
    cloud.server.asked();
    for n in 0..3 {
        cloud.home.write("src/n", n.to_string());
        by(&cloud, &machine(), "k", &["backup", "src"]).ok();
    }
    assert!(cloud.server.asked().iter().any(|(action, _)| *action == "UploadPart"));
    let before: Vec<_> = cloud.server.keys().into_iter().map(|key| (cloud.server.object(&key), key)).collect();
    for (args, right) in [
        (&["forget", "--keep-last", "1"][..], "DeleteObject"),
        (&["key", "passwd", "--new-key-file", "new.key"], "PutObject"),
        (&["prune", "--max-unused", "0%"], "DeleteObject"),
    ] {
        let ran = by(&cloud, &machine(), "k", args).expect(1);
        assert!(ran.stderr.contains(&format!("don't allow {right}")), "{args:?}: {}", ran.stderr);
    }
    for (object, key) in before {
        assert!(cloud.server.object(&key) == object, "{key}");
    }
    // Nor does it see, or use, what lies beside its repository.
    cloud.server.habits(|habits| habits.policy = Some(machine()));
    for (key, args) in [("other.key", &["init"][..]), ("k", &["snapshots"])] {
        let mut command = cloud.home.command(&[&["-r", &format!("s3://{BUCKET}/other"), "-k", key], args].concat());
        command.env("AWS_ACCESS_KEY_ID", KEYS.0).env("AWS_SECRET_ACCESS_KEY", KEYS.1);
        let ran = Ran::from(command.env("AWS_ENDPOINT_URL", cloud.server.endpoint()).output().unwrap()).expect(1);
        assert!(ran.stderr.contains("don't allow "), "{}", ran.stderr);
    }
    assert!(cloud.server.keys().iter().all(|key| key.starts_with("repo/")));
    // Its owner clears up, with the rights for that.
    by(&cloud, &keeper(), "k", &["forget", "--keep-last", "1"]).ok();
    by(&cloud, &keeper(), "k", &["prune", "--max-unused", "0%"]).ok();
    by(&cloud, &restorer(), "k", &["check", "--read-data"]).ok();
    assert_eq!(cloud.objects("sessions"), Vec::<String>::new());
    // It is what the policy forbids that kept it from writing over what is there.
    by(&cloud, &machine().allowing_alone(), "k", &["key", "passwd", "--new-key-file", "newer.key"]).ok();
}

/// The guide gives nobody a right that isn't needed.
#[test]
fn no_right_of_the_guide_can_be_left_out() {
    let cloud = begun(Habits { frozen: Some("COLD".into()), ..Habits::default() });
    let mut seed = 10;
    for action in machine().allowed() {
        cloud.home.write("src/n", action.clone());
        let ran = by(&cloud, &machine().without(&action), "writer.key", &["--no-cache", "backup", "src"]);
        assert_eq!(ran.code, Some(1), "a machine doesn't need {action}: {}{}", ran.stdout, ran.stderr);
        let right = action.strip_prefix("s3:").unwrap();
        assert!(ran.stderr.contains(right), "{action}: {}", ran.stderr);
    }
    for action in keeper().allowed() {
        seed += 1;
        leave_an_upload(&cloud, seed);
        by(&cloud, &machine(), "writer.key", &["backup", "src"]).ok();
        let less = keeper().without(&action);
        let forgot = by(&cloud, &less, "keeper.key", &["forget", "--keep-last", "1"]);
        let pruned = by(&cloud, &less, "keeper.key", &["prune", "--max-unused", "0%"]);
        let told = forgot.stderr + &pruned.stderr;
        assert!(told.contains(action.strip_prefix("s3:").unwrap()), "a keeper doesn't need {action}: {told}");
        by(&cloud, &keeper(), "keeper.key", &["prune", "--max-unused", "0%"]).expect(0);
        assert_eq!(cloud.server.unfinished(), 0);
    }
    cloud.home.write("src/new", Rng::new(1).bytes(1000));
    cloud.run(&["--storage-class", "COLD", "backup", "src"]).ok();
    let restore = ["--no-cache", "restore", &cloud.home.saved_folder(), "-t", "out"];
    for action in restorer().allowed() {
        let ran = by(&cloud, &restorer().without(&action), "k", &restore).expect(1);
        assert!(ran.stderr.contains(action.strip_prefix("s3:").unwrap()), "{action}: {}", ran.stderr);
        let _ = std::fs::remove_dir_all(cloud.home.path("out"));
    }
    by(&cloud, &restorer(), "k", &restore).ok();
    assert!(same(&cloud.home.path("src"), &cloud.home.path("out")));
}

#[test]
fn locks_are_as_long_as_the_guide_allows_and_no_longer() {
    let locks = policy("For thirty days of governance");
    let (machine, keeper) = (machine().and(locks.clone()), keeper().and(locks.clone().allowing_alone()));
    // However a server rounds: what it is asked for, by headers of a put or of an object that is there.
    for right in ["PutObject", "PutObjectRetention"] {
        let may = |mode, days| {
            let (mode, days) = (("s3:object-lock-mode", mode), ("s3:object-lock-remaining-retention-days", days));
            allows(&machine, right, "repo/x", &[mode, days])
        };
        assert!(may("GOVERNANCE", "30") && may("GOVERNANCE", "31"), "{right}");
        assert!(!may("GOVERNANCE", "32") && !may("GOVERNANCE", "36500") && !may("COMPLIANCE", "1"), "{right}");
    }
    let cloud = begun(Habits { locks: true, versions: true, ..Habits::default() });
    let backup = |lock: &str| by(&cloud, &machine, "writer.key", &["--object-lock", lock, "backup", "src"]);
    for lock in ["33", "36500", "compliance:30", "compliance:1"] {
        let before = cloud.server.keys();
        let ran = backup(lock).expect(1);
        assert!(ran.stderr.contains("don't allow PutObject"), "{lock}: {}", ran.stderr);
        let locked = |key: &String| cloud.server.lock_of(key).is_some() && !before.contains(key);
        assert!(!cloud.server.keys().iter().any(locked), "{lock}");
    }
    cloud.home.write("src/large", Rng::new(4).bytes(12 << 20));
    cloud.server.asked();
    backup("30").ok();
    cloud.home.write("src/n", "new");
    backup("30").ok();
    // It sees that what it has put in parts is locked.
    let asked = |action: &str| cloud.server.asked().iter().filter(|(of, _)| *of == action).count();
    assert_eq!(asked("PutObjectRetention"), 0);
    let packs = cloud.objects("data");
    assert!(!packs.is_empty() && packs.iter().all(|key| cloud.server.lock_of(key).is_some()));

    // The keeper begins the days anew once half of them are over: for that it has to see, and to set them.
    let prune = |policy: &Policy| by(&cloud, policy, "keeper.key", &["--object-lock", "30", "prune"]);
    by(&cloud, &keeper, "keeper.key", &["forget", "--keep-last", "1"]).ok();
    // The first one locks what its owner made without.
    prune(&keeper).ok();
    assert!(!prune(&keeper).ok().stdout.contains("object lock"));
    assert!(prune(&keeper.clone().without("s3:GetObjectRetention")).expect(0).stdout.contains("object lock: extended"));
    cloud.server.habits(|habits| habits.clock_ahead = 16 * 86_400);
    let ends = || packs.iter().filter_map(|key| cloud.server.lock_of(key)).map(|(_, end)| end).min();
    let before = ends();
    prune(&keeper.clone().without("s3:PutObjectRetention")).expect(1);
    assert_eq!(ends(), before);
    let ran = prune(&keeper).expect(0);
    assert!(ran.stdout.contains("object lock: extended for"), "{}", ran.stdout);
    assert!(ends() > before);
}

/// An earlier state is shown to who may list and read versions, and nothing besides.
#[test]
fn an_earlier_state_takes_the_two_rights_that_the_guide_names() {
    let cloud = begun(Habits { versions: true, ..Habits::default() });
    cloud.run(&["backup", "src"]).ok();
    let guide = include_str!("../../../../../docs/guides/s3.md");
    assert!(guide.contains("rights `s3:ListBucketVersions` and `s3:GetObjectVersion`"));
    let list =
        format!(r#"{{ "Effect": "Allow", "Action": "s3:ListBucketVersions", "Resource": "arn:aws:s3:::{BUCKET}" }}"#);
    let looker = Policy::read(&list).and(objects("s3:GetObjectVersion"));
    cloud.server.habits(|habits| habits.clock_ahead = 60);
    cloud.run(&["forget", "--keep-last", "1"]).expect(0);
    for args in [&["snapshots"][..], &["check", "--read-data"], &["restore", "latest", "-t", "out"]] {
        by(&cloud, &looker, "k", &[&["--as-of", "now"], args].concat()).expect(0);
        for action in looker.allowed() {
            let less = looker.clone().without(&action);
            let ran = by(&cloud, &less, "k", &[&["--as-of", "now"], args].concat()).expect(1);
            assert!(ran.stderr.contains(action.strip_prefix("s3:").unwrap()), "{action}: {}", ran.stderr);
        }
    }
}
