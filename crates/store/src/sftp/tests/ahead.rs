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

/// A store with one object, which comes slowly.
struct Slow {
    store: SftpStore,
    name: String,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

impl Slow {
    /// Each answer with data takes so long. `None`: there is no such server here.
    fn new(bytes: &[u8], delay: f64) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        if location(dir.path(), "").is_none() || !has_python() {
            return None;
        }
        let (folder, log) = (new_folder(dir.path(), "repo"), dir.path().join("log"));
        let name = format!("data/ab/{}", "ab".repeat(16));
        let direct = location(&folder, "").unwrap();
        SftpStore::create(&direct, &Surroundings::default()).unwrap().put(&name, bytes, Put::Create).unwrap();
        let script = meddling(dir.path(), &format!("LOG = '{}'\nDELAY = {delay}\n{SLOW}", log.display()));
        let store = SftpStore::open(&through(&script, &folder, ""), &Surroundings::default()).unwrap();
        Some(Slow { store, name, log, _dir: dir })
    }

    fn expect(&self, offset: usize, len: usize) {
        self.store.expect(Soon::Range { name: &self.name, offset: offset as u64, len });
    }

    fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.store.read_at(&self.name, offset as u64, &mut bytes).unwrap();
        bytes
    }

    /// Where the server was asked for bytes.
    fn asked(&self) -> Vec<String> {
        std::fs::read_to_string(&self.log).unwrap().lines().map(Into::into).collect()
    }

    /// For nothing twice, but for the first `passed` of its requests.
    fn assert_asked_once(&self, passed: usize) {
        let mut asked = self.asked().split_off(passed);
        let count = asked.len();
        asked.sort_unstable();
        asked.dedup();
        assert_eq!(count, asked.len(), "{count} reads of {} places", asked.len());
    }
}

/// Over a slow line what was asked for in advance takes its time: thrown away, it would be asked for once more.
#[test]
fn what_is_on_its_way_for_long_is_not_asked_for_twice() {
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| n as u8).collect();
    let Some(slow) = Slow::new(&bytes, 0.3) else { return };
    let len = 700_000;
    slow.read(0, 10);
    (0..3).for_each(|of| slow.expect(of * len, len));
    std::thread::sleep(std::time::Duration::from_millis(1500));
    slow.expect(3 * len, len);
    for of in 0..4 {
        assert_eq!(slow.read(of * len, len), bytes[of * len..][..len]);
    }
    slow.assert_asked_once(1);
    assert!(slow.asked().len() > 12);
}

/// What nobody has fetched makes room one day: all of it at once, not one after the other.
#[test]
fn what_nobody_fetches_makes_room_for_what_comes_next() {
    let len = 1 << 20;
    let Some(slow) = Slow::new(&vec![7; 40 * len], 0.005) else { return };
    slow.read(0, 10);
    let reads = || slow.asked().len();
    let fill = |from: usize| {
        let before = reads();
        (from..from + 20).for_each(|of| slow.expect(of * len, len));
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
    let len = 200_000;
    let Some(slow) = Slow::new(&vec![7; 3 * len], 0.2) else { return };
    (0..3).for_each(|of| slow.expect(of * len, len));
    slow.read(0, len);
    (1..3).for_each(|of| slow.expect(of * len, len));
    (1..3).for_each(|of| drop(slow.read(of * len, len)));
    slow.assert_asked_once(0);
}

/// Over a slow line one that is here may be wanted only after another one has been waited for, and that may take long.
#[test]
fn what_is_here_is_kept_while_another_is_waited_for() {
    let len = 200_000;
    let Some(slow) = Slow::new(&vec![7; 40 * len], 0.2) else { return };
    slow.read(39 * len, 10);
    slow.expect(0, len);
    std::thread::sleep(std::time::Duration::from_secs(1));
    // By this it is seen that the first one is here.
    slow.expect(len, len);
    slow.read(10 * len, 20 * len);
    slow.expect(2 * len, len);
    (0..3).for_each(|of| drop(slow.read(of * len, len)));
    slow.assert_asked_once(0);
}
