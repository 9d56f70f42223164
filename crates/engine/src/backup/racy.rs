//! Racy files: changed so shortly before they were read that a change after that may bear the same time.
//!
//! By their times alone the next run would take such a file for unchanged, so it is marked and read again. After git's
//! "racy entries", whose document tells of the same trap.

use drumlin_format::tree::marks;
use drumlin_host::meta::Stat;
use drumlin_host::read;
use std::fs::File;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// File systems stamp with the kernel's coarse clock (up to 10 ms behind).
const FINE: Duration = Duration::from_millis(20);
/// Some know only every second second.
const COARSE: Duration = Duration::from_millis(2020);

/// The kernel writes dirty pages back within half a minute, and some more where there are many.
const WRITTEN_BACK: Duration = Duration::from_secs(60);
/// Where it was told to take its time.
const WRITTEN_BACK_LATE: Duration = Duration::from_secs(60 * 60);

/// To be asked before a file in this state is read. [`marks::RACY`] if a process may be writing to it through a memory
/// mapping without changing its times: it is open for writing, and both of its times are recent, as the last such write
/// has set them to the clock's. If that can't be told, or is unlikely, the next such write is made to change the times.
pub(super) fn mapped(file: &File, stat: &Stat) -> u8 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed_within = |span: Duration| {
        [stat.mtime, stat.ctime].iter().all(|time| Duration::new(time.sec.max(0) as u64, time.nsec) + span >= now)
    };
    if stat.size == 0 || !changed_within(WRITTEN_BACK_LATE) {
        return 0;
    }
    match read::has_writer(file) {
        // Whoever maps it later changes its times with his first write to a page.
        Ok(false) => 0,
        Ok(true) if changed_within(WRITTEN_BACK) => marks::RACY,
        _ => {
            read::have_stores_stamped(file);
            0
        }
    }
}

/// The mark of an entry of which this state was found at a moment: [`marks::RACY`] or none.
pub(super) fn racy(stat: &Stat, at: SystemTime) -> u8 {
    // By a clock that stands before 1970 everything is.
    let Ok(at) = at.duration_since(UNIX_EPOCH) else { return marks::RACY };
    let window = if stat.ctime.nsec == 0 { COARSE } else { FINE };
    let changed = Duration::new(stat.ctime.sec.max(0) as u64, stat.ctime.nsec);
    if changed + window >= at { marks::RACY } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_within_a_tick_of_its_change_is_racy() {
        let folder = tempfile::tempdir().unwrap();
        let some = drumlin_host::read::restat(std::fs::File::open(folder.path()).unwrap()).unwrap();
        let of = |sec: i64, nsec: u32, after: Duration| {
            let mut stat = some;
            (stat.ctime.sec, stat.ctime.nsec) = (sec, nsec);
            racy(&stat, UNIX_EPOCH + Duration::new(sec.max(0) as u64, nsec) + after)
        };
        let ms = Duration::from_millis;
        assert_eq!(of(100, 5, ms(0)), marks::RACY);
        assert_eq!(of(100, 5, ms(20)), marks::RACY);
        assert_eq!(of(100, 5, ms(21)), 0);
        // Whole seconds may be all that the file system knows.
        assert_eq!(of(100, 0, ms(2020)), marks::RACY);
        assert_eq!(of(100, 0, ms(2021)), 0);
        // Times in the future of the reading, and clocks that can't be right.
        assert_eq!(racy(&some, UNIX_EPOCH + ms(1)), marks::RACY);
        assert_eq!(racy(&some, UNIX_EPOCH - ms(1)), marks::RACY);
    }
}
