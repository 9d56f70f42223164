//! A window of work: many small files whose chunks are fetched together, in the order in which they lie in the packs.
//! Compact, because there may be hundreds of thousands.

use drumlin_format::ChunkId;
use drumlin_host::meta::{Extras, Time};
use drumlin_host::place::{FileId, NewFile};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32};

/// A file to be restored.
pub(super) struct File {
    /// Its directory: a number into [`Window::dirs`].
    pub dir: u32,
    /// Its name in [`Window::text`].
    pub name: (u32, u16),
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    pub size: u64,
    /// What its contents are called: as a chunk, if they are one, and else as a whole.
    pub whole: [u8; 32],
    /// 0, or one more than a number into [`Window::extras`].
    pub extras: u32,
    /// 0, or one more than a number into [`Window::multis`].
    pub multi: u32,
}

/// Where a chunk of a file is, and where it goes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use {
    pub pack: u32,
    pub ordinal: u32,
    pub file: u32,
    pub offset: u64,
    /// Of a file of several chunks its number in [`Window::ids`].
    pub id: u32,
}

/// A file of several chunks, on its way.
pub(super) struct Multi {
    /// Chunks still to be written.
    pub left: AtomicU32,
    /// Some chunk of it could not be had: it is not restored.
    pub failed: AtomicBool,
    pub state: Mutex<MultiState>,
}

/// What the workers share of a file of several chunks.
#[derive(Default)]
pub(super) struct MultiState {
    pub made: Option<FileId>,
    /// Open while chunks come in; closed in between if too many are open.
    pub file: Option<NewFile>,
    /// Bytes at the start that are hashed already: chunks mostly come in order.
    pub hashed: u64,
    /// In a box, since it is large, and most files of a window have none yet or none any more.
    pub hasher: Option<Box<drumlin_seal::Hasher>>,
    pub holes: Vec<u8>,
}

/// What a directory takes besides its two paths: where they are, and what the allocator keeps of them.
const DIR_BYTES: usize = size_of::<(Vec<u8>, Vec<u8>)>() + 32;

/// The work.
#[derive(Default)]
pub(super) struct Window {
    /// Tells it from all other windows of the run.
    pub number: u32,
    /// Directories: absolute path in the source, path below the target, both joined by slashes.
    pub dirs: Vec<(Vec<u8>, Vec<u8>)>,
    /// How long those paths are together.
    pub dirs_bytes: usize,
    pub text: Vec<u8>,
    pub files: Vec<File>,
    pub uses: Vec<Use>,
    /// The chunks of files of several, and how long the file has each: the index says where they are, and what is there
    /// need not be so.
    pub ids: Vec<(ChunkId, u32)>,
    pub extras: Vec<Extras>,
    /// What they take besides.
    pub extras_bytes: usize,
    pub multis: Vec<Multi>,
}

impl Window {
    /// One more directory; its number.
    pub fn add_dir(&mut self, source: Vec<u8>, path: Vec<u8>) -> u32 {
        self.dirs_bytes += source.len() + path.len();
        self.dirs.push((source, path));
        self.dirs.len() as u32 - 1
    }

    /// Give back the room that grew in advance.
    pub fn shrink(&mut self) {
        self.text.shrink_to_fit();
        self.files.shrink_to_fit();
        self.uses.shrink_to_fit();
        self.ids.shrink_to_fit();
    }

    /// Bytes that it takes, about.
    pub fn memory(&self) -> usize {
        self.files.len() * size_of::<File>()
            + self.uses.len() * size_of::<Use>()
            + self.ids.len() * size_of::<(ChunkId, u32)>()
            + self.text.len()
            + self.dirs.len() * DIR_BYTES
            + self.dirs_bytes
            // Any number of them may be half done at a time.
            + self.multis.len() * (size_of::<Multi>() + size_of::<drumlin_seal::Hasher>())
            + self.extras.len() * size_of::<Extras>()
            + self.extras_bytes
    }

    pub fn name(&self, file: &File) -> &[u8] {
        &self.text[file.name.0 as usize..][..usize::from(file.name.1)]
    }

    pub fn extras(&self, file: &File) -> Option<&Extras> {
        self.extras.get((file.extras as usize).wrapping_sub(1))
    }

    pub fn multi(&self, file: &File) -> Option<&Multi> {
        self.multis.get((file.multi as usize).wrapping_sub(1))
    }

    /// Whether the chunk is all of its file.
    pub fn is_of_one(&self, used: &Use) -> bool {
        self.files[used.file as usize].multi == 0
    }

    /// The chunk that is wanted.
    pub fn chunk(&self, used: &Use) -> ChunkId {
        let file = &self.files[used.file as usize];
        if file.multi == 0 { ChunkId(file.whole) } else { self.ids[used.id as usize].0 }
    }

    /// How long it has to be.
    pub fn len(&self, used: &Use) -> u64 {
        let file = &self.files[used.file as usize];
        if file.multi == 0 { file.size } else { u64::from(self.ids[used.id as usize].1) }
    }

    /// The path of a file in the source.
    pub fn path(&self, file: &File) -> Vec<u8> {
        let mut path = self.dirs[file.dir as usize].0.clone();
        path.push(b'/');
        path.extend_from_slice(self.name(file));
        path
    }

    /// Its directory below the target, and its name.
    pub fn place(&self, file: &File) -> (Vec<u8>, Vec<u8>) {
        (self.dirs[file.dir as usize].1.clone(), self.name(file).to_vec())
    }

    /// Keep what a file has besides its contents. Gives what [`File::extras`] says of it.
    pub fn add_extras(&mut self, extras: Extras) -> u32 {
        self.extras_bytes += extras.xattrs.iter().map(|(name, value)| name.len() + value.len() + 64).sum::<usize>();
        self.extras.push(extras);
        self.extras.len() as u32
    }

    /// Where an entry's chunks shall go, its name first.
    pub fn add_name(&mut self, name: &[u8]) -> (u32, u16) {
        let at = self.text.len() as u32;
        self.text.extend_from_slice(name);
        (at, name.len() as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deep_directories_count_with_their_paths() {
        let (mut flat, mut deep) = (Window::default(), Window::default());
        assert_eq!((flat.add_dir(b"/a".to_vec(), Vec::new()), flat.add_dir(b"/b".to_vec(), Vec::new())), (0, 1));
        deep.add_dir(vec![b'a'; 30_000], vec![b'a'; 20_000]);
        assert!(flat.memory() < 300 && deep.memory() > 50_000, "{} and {}", flat.memory(), deep.memory());
    }
}
