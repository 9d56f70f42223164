//! Files of the cache where descriptors are short: what other threads hold they return soon, and without the cache a run takes longer than a wait.

use rustix::io::Errno;
use std::io;
use std::time::Duration;

const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Does again what found this process or the system out of descriptors. For a second at most.
pub fn wait_for<T>(mut open: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    let is_short = |e: &io::Error| matches!(Errno::from_io_error(e), Some(Errno::MFILE | Errno::NFILE));
    for _ in 0..TRIES {
        match open() {
            Err(e) if is_short(&e) => std::thread::sleep(PAUSE),
            other => return other,
        }
    }
    open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_others_return_is_waited_for() {
        let mut left = vec![Errno::MFILE, Errno::NFILE];
        let opened = wait_for(|| left.pop().map_or(Ok("opened"), |e| Err(e.into())));
        assert_eq!(opened.unwrap(), "opened");
        let mut tries = 0;
        let failed = wait_for(|| {
            tries += 1;
            Err::<(), _>(io::Error::from(Errno::NOSPC))
        });
        assert_eq!((failed.unwrap_err().raw_os_error(), tries), (Some(Errno::NOSPC.raw_os_error()), 1));
    }
}
