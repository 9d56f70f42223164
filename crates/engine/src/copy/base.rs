//! The copy that the target has of an older snapshot, read in order beside the source's two trees: what is alike there
//! is taken over from here.

use crate::list::{Entered, Span, Steps, body};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::{Body, Content, Data, Leaf, Meta, marks};
use drumlin_repo::Result;
use drumlin_repo::pack::Reader;
use drumlin_repo::tree::LeafRef;
use std::sync::Arc;

/// A part of the copy.
pub(super) enum Part {
    /// All entries of a leaf.
    Leaf(LeafRef, Arc<Leaf>),
    /// One entry, with its contents in the target.
    Entry(Arc<Leaf>, usize, Content),
    /// One whose contents are missing here, which the source may have.
    Missing(Arc<Leaf>, usize),
}

/// The copy.
pub(super) struct Base {
    reader: Arc<Reader>,
    steps: Steps,
    open: Option<Open>,
}

struct Open {
    entered: Entered,
    body: Option<Body>,
}

impl Base {
    pub fn new(reader: &Arc<Reader>, root: Option<Root>) -> Self {
        Base { reader: reader.clone(), steps: Steps::new(reader, root, Span::default()), open: None }
    }

    /// Go on to the first entry that doesn't come before `key`. Whether there is one.
    fn seek(&mut self, key: (&[u8], &[u8])) -> Result<bool> {
        loop {
            if let Some(Open { entered: Entered { leaf, within, .. }, .. }) = &mut self.open {
                while within.start < within.end {
                    let (dir, name, _) = leaf.get(within.start);
                    if (dir, name) >= key {
                        return Ok(true);
                    }
                    within.start += 1;
                }
                self.open = None;
            }
            let Some(head) = self.steps.head() else { return Ok(false) };
            if head.next.is_some_and(|next| next <= key) {
                self.steps.skip();
            } else if let Some(entered) = self.steps.enter()? {
                self.open = Some(Open { entered, body: None });
            }
        }
    }

    /// The parts of a stretch, which comes after all that was asked for before. To be called until it gives `None`.
    pub fn part(&mut self, span: &Span) -> Result<Option<Part>> {
        if !self.seek((&span.start.0, &span.start.1))? {
            return Ok(None);
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let leaf = open.entered.leaf.clone();
        let at = open.entered.within.start;
        let key_of = |at| {
            let (dir, name, _) = leaf.get(at);
            (dir, name)
        };
        if !span.before_end(key_of(at)) {
            return Ok(None);
        }
        let whole = at == 0
            && open.entered.within.end == leaf.len()
            && span.before_end(key_of(leaf.len() - 1))
            && leaf.iter().all(|(.., meta)| !is_missing(meta));
        if whole {
            let child = open.entered.child.clone();
            self.open = None;
            return Ok(Some(Part::Leaf(child, leaf)));
        }
        let missing = is_missing(leaf.get(at).2);
        let content = if missing { None } else { Some(self.content(at)?) };
        if let Some(open) = &mut self.open {
            open.entered.within.start += 1;
        }
        Ok(Some(match content {
            Some(content) => Part::Entry(leaf, at, content),
            None => Part::Missing(leaf, at),
        }))
    }

    /// Where the contents of an entry are in the target, if the copy has it with all of them.
    pub fn data(&mut self, key: (&[u8], &[u8]), size: u64) -> Result<Option<Data>> {
        if !self.seek(key)? {
            return Ok(None);
        }
        let Some(open) = &self.open else { return Ok(None) };
        let at = open.entered.within.start;
        let (dir, name, meta) = open.entered.leaf.get(at);
        if (dir, name) != key || is_missing(meta) || meta.size != size {
            return Ok(None);
        }
        Ok(Some(self.content(at)?.data).filter(|data| *data != Data::None))
    }

    fn content(&mut self, at: usize) -> Result<Content> {
        let Some(open) = &mut self.open else { return Ok(Content::default()) };
        let body = match open.body.take() {
            Some(body) => body,
            None => body(&self.reader, &open.entered.child, &open.entered.leaf)?,
        };
        let content = body.contents.get(at).cloned().unwrap_or_default();
        open.body = Some(body);
        Ok(content)
    }
}

fn is_missing(meta: &Meta) -> bool {
    meta.marks & marks::CONTENTS_MISSING != 0
}
