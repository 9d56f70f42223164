//! The one door to the terminal: results go to standard output, trouble and progress to standard error.
//!
//! A reader that goes away ends what only shows something, quietly; it never ends a backup. Once standard output is
//! closed nothing more is written to it.

use crate::exit::{Failure, Result};
use crate::render::json::{ExitError, OtherError, Warning};
use crate::render::path::shown;
use serde::Serialize;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How and where to write.
pub struct Out {
    json: bool,
    quiet: bool,
    verbose: u8,
    colour: bool,
    live: bool,
    screen: Mutex<Screen>,
}

struct Screen {
    stdout: BufWriter<io::Stdout>,
    /// Whoever read standard output has gone, or it failed.
    closed: bool,
    /// Why it failed: the end of the program tells, if nobody has.
    failed: Option<String>,
    /// A status line stands on the terminal.
    drawn: bool,
}

impl Out {
    /// As the user asked for it.
    pub fn new(json: bool, quiet: bool, verbose: u8) -> Self {
        let terminal = io::stderr().is_terminal();
        let plain = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        Out {
            json,
            quiet,
            verbose,
            colour: terminal && !plain && !dumb,
            live: terminal && !dumb && !json && !quiet,
            screen: Mutex::new(Screen {
                stdout: BufWriter::with_capacity(64 << 10, io::stdout()),
                closed: false,
                failed: None,
                drawn: false,
            }),
        }
    }

    /// Whether objects are wanted instead of words.
    pub fn json(&self) -> bool {
        self.json
    }

    /// Whether only errors are wanted.
    pub fn quiet(&self) -> bool {
        self.quiet
    }

    /// How often `-v` was given.
    pub fn verbose(&self) -> u8 {
        self.verbose
    }

    /// Whether there is a terminal for a status line.
    pub fn live(&self) -> bool {
        self.live
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A line of the result.
    ///
    /// # Errors
    /// [`Failure::silent`] if nobody reads it any more.
    pub fn line(&self, text: impl AsRef<str>) -> Result<()> {
        self.screen().write(&[text.as_ref().as_bytes(), b"\n"])
    }

    /// An object of the result, on a line of its own.
    ///
    /// # Errors
    /// As [`Out::line`].
    pub fn object(&self, value: &impl Serialize) -> Result<()> {
        let bytes = serde_json::to_vec(value).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
        self.screen().write(&[&bytes, b"\n"])
    }

    /// A line that tells what is being done; not with `-q` nor `--json`. Nobody needs to read it.
    pub fn note(&self, text: impl AsRef<str>) {
        if !self.quiet && !self.json {
            let _ = self.line(text);
        }
    }

    /// An object about an operation that goes on whether anybody reads it or not.
    pub fn tell(&self, value: &impl Serialize) {
        if let Ok(bytes) = serde_json::to_vec(value) {
            let _ = self.screen().write(&[&bytes, b"\n"]);
        }
    }

    /// A line on standard error, marked as an error or a warning.
    fn mark(&self, mark: &str, colour: &str, text: &str) {
        let mut screen = self.screen();
        let line = match self.colour {
            true => format!("\x1b[{colour}m{mark}:\x1b[0m {text}\n"),
            false => format!("{mark}: {text}\n"),
        };
        screen.err(line.as_bytes());
    }

    /// Something that the user should know, though it is no error.
    pub fn warn(&self, text: impl AsRef<str>) {
        match (self.json, self.quiet) {
            // Programs may have to know what it changes in what they were told.
            (true, _) => self.tell_err(&Warning::new(text.as_ref())),
            (false, true) => {}
            (false, false) => self.mark("warning", "33", text.as_ref()),
        }
    }

    /// Something that changes what the outcome means, though it is no error: whatever the verbosity.
    pub fn caution(&self, text: impl AsRef<str>) {
        self.warn(&text);
        self.insist(text);
    }

    /// What the user has to know whatever the verbosity, and has not been told yet: with `-q` alone.
    pub fn insist(&self, text: impl AsRef<str>) {
        if self.quiet && !self.json {
            self.mark("warning", "33", text.as_ref());
        }
    }

    /// Trouble with one entry, in words.
    pub fn trouble(&self, path: &[u8], cause: &str, serious: bool) {
        let text = format!("{}: {cause}", shown(path));
        if serious { self.mark("error", "31", &text) } else { self.warn(text) }
    }

    /// Trouble that isn't about one path, though the command goes on.
    pub fn trouble_with(&self, during: &'static str, message: &str) {
        match self.json {
            true => self.tell_err(&OtherError::new(during, message)),
            false => self.mark("error", "31", message),
        }
    }

    /// Trouble with what to do about it, though the command goes on; whatever the verbosity.
    pub fn alarm(&self, text: &str, hint: &str) {
        self.mark("error", "31", text);
        self.mark("hint", "36", hint);
    }

    /// What to do about what was told above.
    pub fn advise(&self, hint: &str) {
        if !self.json && !self.quiet {
            self.mark("hint", "36", hint);
        }
    }

    /// An object on standard error.
    pub fn tell_err(&self, value: &impl Serialize) {
        if let Ok(mut bytes) = serde_json::to_vec(value) {
            bytes.push(b'\n');
            self.screen().err(&bytes);
        }
    }

    /// The end of a command that failed.
    pub fn failure(&self, failure: &Failure) {
        if failure.message.is_empty() {
            return;
        }
        if self.json {
            self.tell_err(&ExitError::from(failure));
            return;
        }
        self.mark("error", "31", &failure.message);
        if let Some(hint) = &failure.hint {
            self.mark("hint", "36", hint);
        }
    }

    /// A line on standard error whatever the verbosity: an answer to a signal.
    pub fn answer(&self, text: &str) {
        self.screen().err(format!("{text}\n").as_bytes());
    }

    /// Draw the status line anew.
    pub fn status(&self, text: &str) {
        if !self.live {
            return;
        }
        // Some terminals don't say how wide they are.
        let width = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |w| usize::from(w.ws_col));
        let width = if width == 0 { 80 } else { width.max(20) };
        let text: String = text.chars().take(width - 1).collect();
        let mut screen = self.screen();
        screen.push_out();
        let _ = io::stderr().write_all(format!("\r\x1b[K{text}").as_bytes());
        screen.drawn = true;
    }

    /// Take the status line away, and write out what waits.
    pub fn settle(&self) {
        let mut screen = self.screen();
        screen.clear();
        screen.push_out();
    }

    /// Write out what waits, in the midst of things: what goes wrong is for the end to tell.
    pub fn push(&self) {
        self.screen().push_out();
    }

    /// Write out what waits, at the end.
    ///
    /// # Errors
    /// As [`Out::line`], whenever it was that something could not be written.
    pub fn flush(&self) -> Result<()> {
        self.screen().flush()
    }
}

impl Screen {
    fn clear(&mut self) {
        if std::mem::take(&mut self.drawn) {
            let _ = io::stderr().write_all(b"\r\x1b[K");
        }
    }

    fn err(&mut self, line: &[u8]) {
        self.push_out();
        self.clear();
        // Nobody to tell is nothing to fail for.
        let _ = io::stderr().write_all(line);
    }

    fn write(&mut self, parts: &[&[u8]]) -> Result<()> {
        if self.closed {
            return Err(Failure::silent());
        }
        self.clear();
        let written = parts.iter().try_for_each(|p| self.stdout.write_all(p));
        self.heed(written)
    }

    /// Write out what waits; a failure is for the end to tell.
    fn push_out(&mut self) {
        if !self.closed {
            let flushed = self.stdout.flush();
            let _ = self.heed(flushed);
        }
    }

    fn flush(&mut self) -> Result<()> {
        if self.closed {
            return self.failed.clone().map_or(Ok(()), |why| Err(Failure::failed(why)));
        }
        let flushed = self.stdout.flush();
        self.heed(flushed)
    }

    fn heed(&mut self, written: io::Result<()>) -> Result<()> {
        written.map_err(|e| {
            self.closed = true;
            match e.kind() {
                ErrorKind::BrokenPipe => Failure::silent(),
                _ => {
                    let why = format!("cannot write to standard output: {}", crate::exit::plain(&e));
                    self.failed = Some(why.clone());
                    Failure::failed(why)
                }
            }
        })
    }
}
