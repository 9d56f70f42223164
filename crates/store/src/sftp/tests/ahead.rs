//! What is asked for in advance over a line that is slow: once, and not for ever.

use super::*;

/// Gives the bytes of a file slowly, and notes what it was asked for.
const SLOW: &str = r#"
import time
log = open(LOG, "a", buffering=1)

def heard(packet):
    if packet[0] == 5:  # READ: id, handle, offset, length
        length = struct.unpack(">I", packet[5:9])[0]
        log.write("%d\n" % struct.unpack(">Q", packet[9 + length:17 + length])[0])
    return packet

def said(packet):
    if packet[0] == 103:  # DATA
        time.sleep(DELAY)
    return packet
"#;

/// Over a slow line what was asked for in advance takes its time: thrown away, it would be asked for once more.
#[test]
fn what_is_on_its_way_for_long_is_not_asked_for_twice() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let (folder, log) = (new_folder(dir.path(), "repo"), dir.path().join("log"));
    let name = format!("data/ab/{}", "ab".repeat(16));
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let direct = location(&folder, "").unwrap();
    SftpStore::create(&direct, &Surroundings::default()).unwrap().put(&name, &bytes, Put::Create).unwrap();
    let script = meddling(dir.path(), &format!("LOG = '{}'\nDELAY = 0.3\n{SLOW}", log.display()));
    let store = SftpStore::open(&through(&script, &folder, ""), &Surroundings::default()).unwrap();
    let len = 700_000;
    let mut got = vec![0; len];
    store.read_at(&name, 0, &mut got[..10]).unwrap();
    let offsets = [0, 700_000, 1_400_000, 2_100_000];
    let expect = |offset: u64| store.expect(Soon::Range { name: &name, offset, len });
    offsets[..3].iter().for_each(|offset| expect(*offset));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    expect(offsets[3]);
    for offset in offsets {
        store.read_at(&name, offset, &mut got).unwrap();
        assert_eq!(got, bytes[offset as usize..][..len]);
    }
    let mut asked: Vec<String> = std::fs::read_to_string(log).unwrap().lines().skip(1).map(Into::into).collect();
    let count = asked.len();
    asked.sort_unstable();
    asked.dedup();
    assert!(count == asked.len() && count >= 12, "{count} reads of {} places", asked.len());
}

/// What nobody has fetched makes room one day: all of it at once, not one after the other.
#[test]
fn what_nobody_fetches_makes_room_for_what_comes_next() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let (folder, log) = (new_folder(dir.path(), "repo"), dir.path().join("log"));
    let name = format!("data/ab/{}", "ab".repeat(16));
    let len = 1 << 20;
    let direct = location(&folder, "").unwrap();
    let store = SftpStore::create(&direct, &Surroundings::default()).unwrap();
    store.put(&name, &vec![7; 40 * len], Put::Create).unwrap();
    let script = meddling(dir.path(), &format!("LOG = '{}'\nDELAY = 0.005\n{SLOW}", log.display()));
    let store = SftpStore::open(&through(&script, &folder, ""), &Surroundings::default()).unwrap();
    store.read_at(&name, 0, &mut [0; 10]).unwrap();
    let reads = || std::fs::read_to_string(&log).unwrap().lines().count();
    let fill = |from: u64| {
        let before = reads();
        (from..from + 20).for_each(|of| store.expect(Soon::Range { name: &name, offset: of * len as u64, len }));
        // All that was asked for is here, and then for longer than anybody waits.
        let mut last = usize::MAX;
        while last != reads() {
            last = reads();
            std::thread::sleep(std::time::Duration::from_millis(1500));
        }
        last - before
    };
    let first = fill(0);
    assert!((8 * 5..20 * 5).contains(&first), "{first} reads: there is no room for all");
    // By the first of these it is seen that the others are here; but for what was here while they were asked for, on a
    // machine that is busy: that makes room at once, and what comes instead has none the next time.
    let (second, third) = (fill(20), fill(20));
    assert!(second < first && second + third >= first, "{first}, {second} and {third} reads");
}

/// What was asked for before its object was open is not asked for once more when it is.
#[test]
fn what_was_asked_for_before_it_was_open_is_asked_for_once() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let (folder, log) = (new_folder(dir.path(), "repo"), dir.path().join("log"));
    let name = format!("data/ab/{}", "ab".repeat(16));
    let len = 200_000;
    let direct = location(&folder, "").unwrap();
    SftpStore::create(&direct, &Surroundings::default()).unwrap().put(&name, &vec![7; 3 * len], Put::Create).unwrap();
    let script = meddling(dir.path(), &format!("LOG = '{}'\nDELAY = 0.2\n{SLOW}", log.display()));
    let store = SftpStore::open(&through(&script, &folder, ""), &Surroundings::default()).unwrap();
    let offsets = [0, len as u64, 2 * len as u64];
    let expect = |offset: u64| store.expect(Soon::Range { name: &name, offset, len });
    offsets.iter().for_each(|offset| expect(*offset));
    let mut got = vec![0; len];
    store.read_at(&name, offsets[0], &mut got).unwrap();
    offsets[1..].iter().for_each(|offset| expect(*offset));
    offsets[1..].iter().for_each(|offset| store.read_at(&name, *offset, &mut got).unwrap());
    let mut asked: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(Into::into).collect();
    let count = asked.len();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(count, asked.len(), "{count} reads of {} places", asked.len());
}

/// Over a slow line one that is here may be wanted only after another one has been waited for, and that may take long.
#[test]
fn what_is_here_is_kept_while_another_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    if location(dir.path(), "").is_none() || !has_python() {
        return;
    }
    let (folder, log) = (new_folder(dir.path(), "repo"), dir.path().join("log"));
    let name = format!("data/ab/{}", "ab".repeat(16));
    let len = 200_000;
    let direct = location(&folder, "").unwrap();
    SftpStore::create(&direct, &Surroundings::default()).unwrap().put(&name, &vec![7; 40 * len], Put::Create).unwrap();
    let script = meddling(dir.path(), &format!("LOG = '{}'\nDELAY = 0.2\n{SLOW}", log.display()));
    let store = SftpStore::open(&through(&script, &folder, ""), &Surroundings::default()).unwrap();
    store.read_at(&name, 39 * len as u64, &mut [0; 10]).unwrap();
    let expect = |of: usize| store.expect(Soon::Range { name: &name, offset: (of * len) as u64, len });
    expect(0);
    std::thread::sleep(std::time::Duration::from_secs(1));
    // By this it is seen that the first one is here.
    expect(1);
    store.read_at(&name, 10 * len as u64, &mut vec![0; 20 * len]).unwrap();
    expect(2);
    (0..3).for_each(|of| store.read_at(&name, (of * len) as u64, &mut vec![0; len]).unwrap());
    let mut asked: Vec<String> = std::fs::read_to_string(log).unwrap().lines().map(Into::into).collect();
    let count = asked.len();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(count, asked.len(), "{count} reads of {} places", asked.len());
}
