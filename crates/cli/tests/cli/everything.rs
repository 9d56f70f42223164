//! All that is done with a repository, wherever it lies.

use crate::home::{Home, Ran, same};
use drumlin_testkit::Rng;

/// From the beginning to the end; `say` is what the first command has to tell.
pub fn done(home: &Home, run: &dyn Fn(&[&str]) -> Ran, say: &str) {
    home.sources();
    home.write("src/large", Rng::new(1).bytes(80 << 20));
    let ran = run(&["init"]).expect(0);
    assert!(ran.stderr.contains(say) && ran.stderr.is_empty() == say.is_empty(), "{}", ran.stderr);
    std::fs::rename(home.path("k"), home.path("its key")).unwrap();
    let ran = run(&["init"]).expect(1);
    assert!(ran.stderr.contains("there is a repository in"), "{}", ran.stderr);
    std::fs::rename(home.path("its key"), home.path("k")).unwrap();
    run(&["backup", "src"]).ok();
    home.write("src/new", "new");
    run(&["backup", "src"]).ok();
    let summary = run(&["--json", "backup", "src"]).ok().the("summary");
    assert_eq!((&summary["entries_new"], &summary["data_added"]), (&0.into(), &0.into()), "{summary}");
    run(&["check", "--read-data"]).ok();
    run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    home.run(&["-r", "beside", "-k", "k2", "init"]).ok();
    run(&["copy", "--to", "beside", "--to-key-file", "k2", "latest"]).ok();
    home.run(&["-r", "beside", "-k", "k2", "check", "--read-data"]).ok();
    std::fs::remove_file(home.path("src/large")).unwrap();
    run(&["backup", "src"]).ok();
    run(&["forget", "--keep-last", "1"]).ok();
    run(&["prune", "--max-unused", "0%"]).ok();
    run(&["check", "--read-data"]).ok();
    run(&["--no-cache", "backup", "src"]).ok();
    run(&["key", "list"]).ok();
    run(&["stats"]).ok();
}
