//! Uploads that go on while nobody writes to them. What is held, as no connection has had room for it yet, is sent as
//! answers come; else a line would be idle while its producer has nothing for it, and all of that be to be carried at
//! the end.

use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::Duration;

use super::upload::SftpUpload;
use crate::lock::lock;
use crate::{Result, Upload};

/// How often it is looked whether more can be sent.
const LOOK: Duration = Duration::from_millis(50);

/// An upload, which a thread feeds as long as it holds something.
pub(super) struct Fed(Arc<Mutex<Turn>>);

/// Whoever has it is the one who sends.
struct Turn {
    /// `None` once it has ended. It ends in its owner's thread, who waits for what that takes.
    upload: Option<SftpUpload>,
    has_thread: bool,
}

impl Fed {
    pub fn new(upload: SftpUpload) -> Self {
        Fed(Arc::new(Mutex::new(Turn { upload: Some(upload), has_thread: false })))
    }
}

/// Feed it until it holds nothing, or has ended, or is to be mended: that is for its owner.
fn feed(turn: &Weak<Mutex<Turn>>) {
    loop {
        thread::sleep(LOOK);
        let Some(turn) = turn.upgrade() else { return };
        // Its owner may wait for answers, and sends by himself then.
        let Ok(mut turn) = turn.try_lock() else { continue };
        if !turn.upload.as_mut().is_some_and(SftpUpload::go_on) {
            turn.has_thread = false;
            return;
        }
    }
}

impl Upload for Fed {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let mut turn = lock(&self.0);
        let Some(upload) = &mut turn.upload else { return Ok(()) };
        upload.write(bytes)?;
        if upload.holds() && !turn.has_thread {
            let fed = Arc::downgrade(&self.0);
            let thread = thread::Builder::new().name("sftp-feed".into()).spawn(move || feed(&fed));
            turn.has_thread = thread.is_ok();
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let upload = lock(&self.0).upload.take();
        upload.map_or(Ok(()), SftpUpload::finish)
    }
}

impl Drop for Fed {
    fn drop(&mut self) {
        let upload = lock(&self.0).upload.take();
        drop(upload);
    }
}
