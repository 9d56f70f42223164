//! Questions on the terminal whose answers are not shown.
//!
//! Not by a library: those that there are set the terminal's modes themselves, and back to what they found when a
//! signal comes, while that ends the program and gives the terminal back. Whoever came last had it.

use crate::signals::{BeforeEnd, before_end};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{ErrorKind, Read, Result, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use zeroize::Zeroizing;

const TERMINAL: &str = "/dev/tty";
/// The longest line that a terminal gives.
const LINE_MAX: usize = 4096;

/// The terminal on which something is being typed, and its modes before.
static ASKING: Mutex<Option<(File, Termios)>> = Mutex::new(None);

fn asking() -> MutexGuard<'static, Option<(File, Termios)>> {
    ASKING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// While this lives the terminal does not show what is typed. With its end, or when a signal ends the program, the
/// terminal shows it again.
pub struct Asking {
    _before_end: Option<BeforeEnd>,
}

impl Asking {
    /// From now on. To be called before the question is written: whoever answers at once is not shown either.
    pub fn begin() -> Self {
        let mut before = None;
        let modes = File::open(TERMINAL).and_then(|tty| Ok((tcgetattr(&tty)?, tty)));
        if let Ok((modes, tty)) = modes {
            let mut unseen = modes.clone();
            unseen.local_modes.remove(LocalModes::ECHO);
            // By whole lines, of which the end is shown, and which Ctrl-C breaks off, whatever was left behind.
            unseen.local_modes.insert(LocalModes::ECHONL | LocalModes::ICANON | LocalModes::ISIG);
            unseen.input_modes.insert(InputModes::ICRNL);
            before = Some(before_end(true, || show_again(asking().take())));
            let mut asking = asking();
            // A terminal that shows what is typed is better than none.
            let _ = tcsetattr(&tty, OptionalActions::Now, &unseen);
            *asking = Some((tty, modes));
        }
        Asking { _before_end: before }
    }

    /// Ask, and wait for a line. It is given without its end.
    ///
    /// # Errors
    /// There is no terminal, or it ends before a line does.
    pub fn answer(&self, question: &str) -> Result<Vec<u8>> {
        let mut terminal = File::options().read(true).write(true).open(TERMINAL)?;
        terminal.write_all(question.as_bytes())?;
        let (mut line, mut some) = (Zeroizing::new(Vec::with_capacity(LINE_MAX)), Zeroizing::new([0; LINE_MAX]));
        while !line.ends_with(b"\n") {
            match terminal.read(&mut *some) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(len) => line.extend_from_slice(&some[..len]),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        let end = line.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
        Ok(line[..end].to_vec())
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        show_again(asking().take());
    }
}

fn show_again(asked: Option<(File, Termios)>) {
    if let Some((tty, modes)) = asked {
        let _ = tcsetattr(&tty, OptionalActions::Now, &modes);
    }
}
