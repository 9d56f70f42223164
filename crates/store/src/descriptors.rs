//! Where descriptors are short: what other threads hold they return soon.

use rustix::io::Errno;
use std::io;
use std::time::Duration;

const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// What opening something may fail with.
pub trait Shortage {
    /// Whether this process or the system is out of descriptors.
    fn is_of_descriptors(&self) -> bool;
}

impl Shortage for Errno {
    fn is_of_descriptors(&self) -> bool {
        matches!(*self, Errno::MFILE | Errno::NFILE)
    }
}

impl Shortage for io::Error {
    fn is_of_descriptors(&self) -> bool {
        Errno::from_io_error(self).is_some_and(|errno| errno.is_of_descriptors())
    }
}

/// Does again what found this process or the system out of descriptors. For a second at most.
///
/// # Errors
/// Those of `open`, the last one.
pub fn wait_for<T, E: Shortage>(mut open: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    for _ in 0..TRIES {
        match open() {
            Err(e) if e.is_of_descriptors() => std::thread::sleep(PAUSE),
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
        let opened = wait_for(|| left.pop().map_or(Ok("opened"), |e| Err(io::Error::from(e))));
        assert_eq!(opened.unwrap(), "opened");
        let mut tries = 0;
        let failed = wait_for(|| {
            tries += 1;
            Err::<(), _>(io::Error::from(Errno::NOSPC))
        });
        assert_eq!((failed.unwrap_err().raw_os_error(), tries), (Some(Errno::NOSPC.raw_os_error()), 1));
    }
}
