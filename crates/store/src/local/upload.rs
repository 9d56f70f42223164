//! Uploads: large objects written in order through the [`Writer`].
//!
//! The order that survives a crash: data (`fdatasync`) → name (`link`) → folder (`fsync`, in [`Root::sync`]) → the
//! sync returns. Up to the name there is only a file in `tmp/`.

use std::sync::Arc;

use rustix::fs::{FallocateFlags, OFlags, fallocate, fdatasync, ftruncate};
use rustix::io::{Errno, Result, dup, retry_on_intr};

use super::Inner;
use super::folder::split;
use super::temporary::Temporary;
use super::writer::{Buffer, Output, Seat};
use crate::descriptors;
use crate::{Action, Put, Upload};

/// No more than this is set aside in advance, whatever the hint says.
const ALLOCATE_BYTES_MAX: u64 = 1 << 30;

pub(super) struct LocalUpload {
    store: Arc<Inner>,
    name: String,
    temporary: Option<Temporary>,
    output: Arc<Output>,
    /// Without one, every write goes straight to the file.
    seat: Option<Seat>,
    /// The buffer that is being filled.
    buffer: Option<Buffer>,
    /// Where the buffer's first byte belongs.
    offset: u64,
    /// How far the file reaches that is set aside.
    allocated: u64,
}

impl LocalUpload {
    pub(super) fn begin(store: Arc<Inner>, name: &str, len_hint: u64) -> Result<Self> {
        let seat = store.writer().and_then(super::writer::Writer::seat);
        let (temporary, direct) = match &seat {
            Some(_) => match Temporary::create(&store.root, OFlags::DIRECT) {
                // No direct writes here.
                Err(Errno::INVAL | Errno::NOTSUP) => (Temporary::create(&store.root, OFlags::empty())?, false),
                temporary => (temporary?, true),
            },
            None => (Temporary::create(&store.root, OFlags::empty())?, false),
        };
        let wanted = len_hint.min(ALLOCATE_BYTES_MAX);
        // In advance, the file gets few extents, and writes needn't grow it. Where that fails, the writes will tell.
        let allocated = match fallocate(temporary.file(), FallocateFlags::empty(), 0, wanted) {
            Ok(()) if wanted > 0 => wanted,
            // What a failed one has set aside so far would be missing elsewhere.
            Err(_) => ftruncate(temporary.file(), 0).map(|()| 0)?,
            Ok(()) => 0,
        };
        let output = Arc::new(Output::new(descriptors::wait_for(|| dup(temporary.file()))?.into(), direct));
        let name = name.to_owned();
        Ok(Self { store, name, temporary: Some(temporary), output, seat, buffer: None, offset: 0, allocated })
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.output.check()?;
        let (Some(seat), Some(writer)) = (&self.seat, self.store.writer()) else {
            self.output.write(bytes, self.offset)?;
            self.offset += bytes.len() as u64;
            return Ok(());
        };
        while !bytes.is_empty() {
            let mut buffer = match self.buffer.take() {
                Some(buffer) => buffer,
                None => writer.buffer(seat)?,
            };
            bytes = buffer.fill(bytes);
            if buffer.is_full() {
                let offset = self.offset;
                self.offset += buffer.filled() as u64;
                writer.submit(&self.output, buffer, offset)?;
            } else {
                self.buffer = Some(buffer);
            }
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let mut len = self.offset;
        if let (Some(buffer), Some(writer)) = (self.buffer.take(), self.store.writer()) {
            len += buffer.filled() as u64;
            writer.submit(&self.output, buffer, self.offset)?;
        }
        self.output.wait()?;
        let Some(temporary) = self.temporary.take() else { return Err(Errno::IO) };
        // The last block may have been written whole, and more set aside than was needed.
        if self.allocated > len || !len.is_multiple_of(super::writer::BLOCK_BYTES as u64) {
            retry_on_intr(|| ftruncate(self.output.file(), len))?;
        }
        retry_on_intr(|| fdatasync(self.output.file()))?;
        temporary.publish(&self.store.root, &self.name, Put::Create)?;
        self.store.root.mark(split(&self.name).0);
        Ok(())
    }
}

impl Upload for LocalUpload {
    fn write(&mut self, bytes: &[u8]) -> crate::Result<()> {
        self.append(bytes).map_err(|errno| self.store.error(Action::Write, &self.name, errno))
    }

    fn finish(mut self: Box<Self>) -> crate::Result<()> {
        self.complete().map_err(|errno| self.store.error(Action::Write, &self.name, errno))
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        self.output.abandon();
        if let (Some(buffer), Some(writer)) = (self.buffer.take(), self.store.writer()) {
            writer.discard(&self.output, buffer);
        }
        if self.temporary.is_some() {
            // The thread may hold the file a little longer. It never had a name, so its room can be given back at
            // once; once there was an attempt to name it, only the file system knows, and it must stay as it is.
            let _ = self.output.wait();
            let _ = ftruncate(self.output.file(), 0);
        }
    }
}
