use super::*;
use crate::list::fixture::{Fixture, tree_of};
use crate::monitor::Quiet;

fn paths(fixture: &Fixture, options: &Options) -> Vec<String> {
    let mut found = Vec::new();
    find(&fixture.reader(), &fixture.snapshots, options, &Quiet::default(), &mut |_, m| {
        found.push(String::from_utf8_lossy(&m.path()).into_owned());
        Ok(ControlFlow::Continue(()))
    })
    .unwrap();
    found
}

fn pattern(pattern: &str) -> Options {
    Options { patterns: vec![pattern.into()], ..Options::default() }
}

#[test]
fn by_name_path_type_and_size() {
    let fixture = tree_of(&[("/home/u/a.jpg", 10), ("/home/u/p/b.JPG", 2000), ("/home/v/a.txt", 5), ("/x.jpg", 1)]);
    assert_eq!(paths(&fixture, &pattern("*.jpg")), ["/x.jpg", "/home/u/a.jpg"]);
    assert_eq!(paths(&fixture, &Options { ignore_case: true, ..pattern("*.jpg") }).len(), 3);
    assert_eq!(paths(&fixture, &pattern("/home/*/a.*")), ["/home/u/a.jpg", "/home/v/a.txt"]);
    assert_eq!(paths(&fixture, &pattern("u/*")), ["/home/u/a.jpg", "/home/u/p"]);
    assert_eq!(paths(&fixture, &pattern("u/*/")), ["/home/u/p"]);
    assert_eq!(paths(&fixture, &pattern("[pv]/")), ["/home/v", "/home/u/p"]);
    let below = TreePath::parse(b"/home/v").unwrap();
    assert_eq!(paths(&fixture, &Options { below, ..pattern("a*") }), ["/home/v/a.txt"]);
    let dirs = Options { kinds: vec![Kind::Dir], ..Options::default() };
    assert_eq!(paths(&fixture, &dirs), ["/home", "/home/u", "/home/v", "/home/u/p"]);
    let sizes = Options { kinds: vec![Kind::File], size_min: Some(5), size_max: Some(10), ..Options::default() };
    assert_eq!(paths(&fixture, &sizes), ["/home/u/a.jpg", "/home/v/a.txt"]);
    let time = |sec| Some(Time { sec, nsec: 0 });
    assert!(paths(&fixture, &Options { newer: time(1_700_000_001), ..Options::default() }).is_empty());
    assert!(paths(&fixture, &Options { older: time(1_699_999_999), ..Options::default() }).is_empty());
    assert_eq!(
        paths(&fixture, &Options { newer: time(1_600_000_000), older: time(1_800_000_000), ..Options::default() })
            .len(),
        8
    );
    let bad =
        find(&fixture.reader(), &[], &pattern("[a"), &Quiet::default(), &mut |_, _| Ok(ControlFlow::Continue(())));
    assert!(bad.is_err());
}

#[test]
fn nearly_equal_snapshots_cost_about_one() {
    let mut files: Vec<_> = (0..30_000).map(|n| (format!("/d/{:02}/f{n:05}", n / 1000), 1)).collect();
    let mut fixture = Fixture::new();
    let mut expected = 0;
    for round in 0..6 {
        if round > 0 {
            files.push((format!("/d/{round:02}/f{round}-new"), 1));
        }
        expected += files.iter().filter(|(p, _)| p.ends_with('7')).count() as u64;
        fixture.write(&files.iter().map(|(p, s)| (p.as_str(), *s)).collect::<Vec<_>>());
    }
    let run = |snapshots: &[Snapshot], options: &Options| {
        let none = &mut |_: &Snapshot, _: &Match| Ok(ControlFlow::Continue(()));
        find(&fixture.reader(), snapshots, options, &Quiet::default(), none).unwrap()
    };
    for options in [pattern("f*7"), pattern("*-new")] {
        let one = run(&fixture.snapshots[..1], &options);
        let all = run(&fixture.snapshots, &options);
        assert!(one.leaves_read > 50);
        assert!(all.leaves_read <= one.leaves_read + 15, "{} and {}", all.leaves_read, one.leaves_read);
        if options.patterns[0] == b"f*7" {
            assert_eq!(all.matches, expected);
        } else {
            assert_eq!(all.matches, 1 + 2 + 3 + 4 + 5);
        }
    }
}
