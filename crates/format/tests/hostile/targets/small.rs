//! Snapshots, sessions, decisions, plans, losses, entries of the history.

use super::*;

/// A snapshot's object, its message, or its body.
pub fn snapshot(bytes: &[u8]) -> bool {
    let (header, id) = (Header::new(ObjectType::Snapshot, SUITE, [5; 16]), SnapshotId([5; 16]));
    let message = match depth(bytes, 3) {
        (0, object) => {
            let most = small(object.len());
            let opened = bounded(most, || snapshot::open(id, &KEYS.meta, object));
            return opened.is_ok_and(|(snapshot, _)| check_snapshot(&snapshot));
        }
        (1, message) => message.to_vec(),
        (_, body) => {
            let plain = [&id.0[..], body].concat();
            if let Ok(snapshot) = bounded(small(plain.len()), || Snapshot::from_plain(&plain)) {
                return check_snapshot(&snapshot);
            }
            return false;
        }
    };
    let mut sealed = message;
    SealKey::new(SUITE, &KEYS.small).seal(0, &header.encode(), &mut sealed);
    let object = [&header.encode()[..], &KEYS.small_wrapped, &sealed].concat();
    let most = small(object.len());
    let opened = bounded(most, || snapshot::open(id, &KEYS.meta, &object));
    opened.is_ok_and(|(snapshot, _)| check_snapshot(&snapshot))
}

fn check_snapshot(snapshot: &Snapshot) -> bool {
    assert_eq!(Snapshot::from_plain(&snapshot.to_plain()).as_ref(), Ok(snapshot));
    true
}

pub fn snapshot_samples() -> Vec<Vec<u8>> {
    let sums = Sums { entries: 10, files: 5, dirs: 3, bytes: 1 << 40 };
    let whole = Snapshot {
        id: SnapshotId([5; 16]),
        session: SessionId([2; 16]),
        time: (1_790_000_000, 5),
        host: "host".into(),
        user: "user".into(),
        paths: vec![b"/home/\xff".to_vec(), b"/etc".to_vec()],
        tags: vec!["tag".into(), "Füße".into()],
        root: Some(Root { node: ChunkId([3; 32]), level: 2, sums }),
        partial: Some(Reached { dir: b"home".to_vec(), name: b"x".to_vec() }),
        parent: Some(SnapshotId([6; 16])),
        program: "drumlin".into(),
        summary: Summary { new: 10, bytes_read: 1 << 50, ..Summary::default() },
        plans: vec![PlanId([9; 16]), PlanId([8; 16])],
        original: Some(SnapshotId([7; 16])),
        passed_by: Some(vec![b"/srv".to_vec(), b"/mnt/\xff".to_vec()]),
    };
    let (paths, tags) = Default::default();
    let empty = Snapshot { root: None, partial: None, parent: None, paths, tags, passed_by: None, ..whole.clone() };
    let mut samples = Vec::new();
    for snapshot in [whole, empty] {
        let (key, seed, signer) = (secret(21), secret(22), (KEY, &KEYS.signing));
        let to = Recipient { suite: SUITE, generation: 0, meta_key: &KEYS.meta.public() };
        let object = snapshot::seal(&snapshot, signer, to, &key, &seed).unwrap();
        let body = &snapshot.to_plain()[16..];
        samples.extend(shared_samples(&object, body));
    }
    samples
}

/// A session's object, its message, or its body.
pub fn session(bytes: &[u8]) -> bool {
    let id = SessionId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Session, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || Session::open(id, &KEYS.index, &object));
    let Ok((session, _)) = opened else { return false };
    let again = session.seal(id, SUITE, sealing());
    assert_eq!(Session::open(id, &KEYS.index, &again).unwrap().0, session);
    true
}

pub fn session_samples() -> Vec<Vec<u8>> {
    let session = Session { plan_seen: 7, ..Session::new("host", "backup", -5) };
    let object = session.seal(SessionId([3; 16]), SUITE, sealing());
    shared_samples(&object, &minicbor::to_vec(&session).unwrap())
}

/// A decision's object, its message, or its body.
pub fn decision(bytes: &[u8]) -> bool {
    let id = SessionId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Decision, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || decision::open(id, &KEYS.index, &object));
    let Ok((verdict, _)) = opened else { return false };
    let again = decision::seal(id, &verdict, SUITE, sealing());
    assert_eq!(decision::open(id, &KEYS.index, &again).unwrap().0, verdict);
    true
}

pub fn decision_samples() -> Vec<Vec<u8>> {
    let verdicts = [
        Verdict::Committed { snapshot: SnapshotId([3; 16]) },
        Verdict::Evicted { plan: 1 << 40 },
        Verdict::Claimed { by: SessionId([4; 16]) },
        Verdict::Collected { plan: PlanId([5; 16]) },
    ];
    let samples = verdicts.iter().map(|verdict| {
        let object = decision::seal(SessionId([3; 16]), verdict, SUITE, sealing());
        shared_samples(&object, &minicbor::to_vec(verdict).unwrap())
    });
    samples.flatten().collect()
}

/// A loss's object, its message, or its body.
pub fn loss(bytes: &[u8]) -> bool {
    let id = LossId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Loss, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || Loss::open(id, &KEYS.index, &object));
    let Ok((loss, _)) = opened else { return false };
    let again = loss.seal(SUITE, sealing());
    assert_eq!(Loss::open(id, &KEYS.index, &again).unwrap().0, loss);
    true
}

pub fn loss_samples() -> Vec<Vec<u8>> {
    let loss = Loss { id: LossId([3; 16]), chunks: vec![ChunkId([5; 32]); 2], packs: vec![PackId([7; 16])] };
    // The body as it is encoded: a map of two strings of ids.
    let mut body = Vec::new();
    let mut e = Encoder::new(&mut body);
    e.map(2).unwrap();
    for (key, ids) in [(0, &[5; 64][..]), (1, &[7; 16])] {
        e.u8(key).unwrap().bytes(ids).unwrap();
    }
    shared_samples(&loss.seal(SUITE, sealing()), &body)
}

/// The object of an entry of the history, its message, or its body.
pub fn history(bytes: &[u8]) -> bool {
    let id = HistoryId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::History, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || HistoryEntry::open(id, &KEYS.index, &object));
    let Ok((entry, _)) = opened else { return false };
    let again = entry.seal(SUITE, sealing());
    assert_eq!(HistoryEntry::open(id, &KEYS.index, &again).unwrap().0, entry);
    true
}

pub fn history_samples() -> Vec<Vec<u8>> {
    let (snapshots, indexes) = (vec![SnapshotId([5; 16]); 2], vec![IndexId([7; 16])]);
    let entry = HistoryEntry { snapshots, indexes, ..HistoryEntry::new(HistoryId([3; 16]), "prune", -5) };
    // The body as it is encoded: a map of the act, its time and three strings of ids.
    let mut body = Vec::new();
    let mut e = Encoder::new(&mut body);
    e.map(5).unwrap().u8(0).unwrap().str("prune").unwrap().u8(1).unwrap().i64(-5).unwrap();
    for (key, ids) in [(2, &[5; 32][..]), (3, &[7; 16]), (4, &[])] {
        e.u8(key).unwrap().bytes(ids).unwrap();
    }
    shared_samples(&entry.seal(SUITE, sealing()), &body)
}

/// A plan's object, its message, or its body.
pub fn plan(bytes: &[u8]) -> bool {
    let id = PlanId([3; 16]);
    let object = shared_object(&Header::new(ObjectType::Plan, SUITE, id.0), bytes);
    let opened = bounded(small(object.len()), || Plan::open(id, &KEYS.index, &object));
    let Ok((plan, _)) = opened else { return false };
    let again = plan.seal(SUITE, sealing());
    assert_eq!(Plan::open(id, &KEYS.index, &again).unwrap().0, plan);
    true
}

pub fn plan_samples() -> Vec<Vec<u8>> {
    let (packs, indexes) = (vec![PackId([5; 16]); 2], vec![IndexId([7; 16])]);
    let plan = Plan {
        id: PlanId([3; 16]),
        session: SessionId([4; 16]),
        packs,
        indexes,
        snapshots: Vec::new(),
        unnamed: vec![PackId([9; 16])],
    };
    // The body as it is encoded: a map of the session and three strings of ids.
    let mut body = Vec::new();
    let mut e = Encoder::new(&mut body);
    e.map(4).unwrap().u8(0).unwrap().bytes(&[4; 16]).unwrap();
    for (key, ids) in [(1, &[5; 32][..]), (2, &[7; 16]), (3, &[])] {
        e.u8(key).unwrap().bytes(ids).unwrap();
    }
    shared_samples(&plan.seal(SUITE, sealing()), &body)
}
