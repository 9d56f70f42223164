//! A window, handed out to the workers block by block in the order of the packs.

use super::window::{Use, Window};
use super::worker::{Context, Task};
use crate::{Error, Result};
use crossbeam_channel::Sender;
use drumlin_format::pack::Table;
use drumlin_repo::PackInfo;
use std::collections::VecDeque;
use std::sync::Arc;

/// Blocks of a window that a store far away is asked for in advance.
const BLOCKS_EXPECTED: usize = 8;
/// And packs whose tables are.
const TABLES_EXPECTED: usize = 4;
/// Of a pack that is gone one worker looks for so many: a prune may have moved all of them.
const LOST_USES: usize = 256;

/// Hand a window out.
pub(super) fn hand_out(context: &Context, mut window: Window, tasks: &Sender<Task>) -> Result<()> {
    let send = |task| tasks.send(task).map_err(|_| Error::Worker);
    window.shrink();
    window.uses.sort_unstable();
    let window = Arc::new(window);
    let mut at = 0;
    let mut pack: Option<(u32, Arc<PackInfo>, Arc<Table>)> = None;
    let of_window = window.clone();
    let mut packs = of_window.uses.chunk_by(|a, b| a.pack == b.pack).map(|uses| uses[0].pack);
    let mut expect_next = || {
        if let Some(number) = packs.next() {
            context.reader.expect_table(&context.reader.index().pack(number));
        }
    };
    (0..TABLES_EXPECTED).for_each(|_| expect_next());
    let mut ahead = VecDeque::new();
    while let Some(first) = window.uses.get(at) {
        if pack.as_ref().is_none_or(|(number, ..)| *number != first.pack) {
            let info = context.reader.index().pack(first.pack);
            expect_next();
            let table = match context.reader.table(&info) {
                Err(e) if e.is_damage() => {
                    // A pack that is gone costs what is in it and nowhere else, not the rest.
                    let end = at + window.uses[at..].iter().take_while(|u| u.pack == first.pack).count();
                    while at < end {
                        let uses = at..end.min(at + LOST_USES);
                        at = uses.end;
                        send(Task::Lost { window: window.clone(), pack: first.pack, uses, cause: e.to_string() })?;
                    }
                    continue;
                }
                other => other?,
            };
            pack = Some((first.pack, info, table));
        }
        let (_, info, table) = pack.clone().expect("set above");
        let block_of = |u: &Use| table.chunks.get(u.ordinal as usize).map(|c| c.block);
        let Some(block) = block_of(first) else {
            // It is in another pack, or nowhere: an index may claim what it likes.
            let cause = "the index and the pack's table contradict each other; after 'drumlin cache clear' the index is made anew";
            let uses = at..at + 1;
            at += 1;
            send(Task::Lost { window: window.clone(), pack: first.pack, uses, cause: cause.into() })?;
            continue;
        };
        let len = window.uses[at..].iter().take_while(|u| u.pack == first.pack && block_of(u) == Some(block)).count();
        let uses = at..at + len;
        at += len;
        context.reader.expect_block(&info, &table, block);
        ahead.push_back(Task::Block { window: window.clone(), info, table, block, uses });
        if ahead.len() > BLOCKS_EXPECTED
            && let Some(task) = ahead.pop_front()
        {
            send(task)?;
        }
    }
    ahead.into_iter().try_for_each(send)
}
