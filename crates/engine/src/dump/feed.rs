//! The threads of a dump: one plans, some fetch and decode ahead, the caller's writes in order.
//!
//! A block that holds several of the wanted chunks is read and decoded once, by one worker, into a buffer that is used
//! again. So many batches may wait; none is larger than a block.

use super::plan::{Batch, Event, Fetched, Job, Plan};
use super::{Options, Report, Sink, write_error};
use crate::monitor::Monitor;
use crate::threads;
use crate::{Error, Result};
use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Root;
use drumlin_repo::pack::Reader;
use std::sync::Arc;
use std::thread::Builder;

/// Run a dump.
pub(super) fn run(
    reader: &Arc<Reader>,
    root: Option<Root>,
    options: &Options,
    links: bool,
    monitor: &dyn Monitor,
    sink: &mut Sink,
) -> Result<Report> {
    reader.repository().may_read()?;
    let workers = options.workers.max(1);
    let (jobs, jobs_in) = unbounded();
    let (batches, batches_in) = bounded(workers + 2);
    let (free, free_in) = unbounded();
    std::thread::scope(|scope| {
        threads::start(scope, "fetch", workers, || {
            let (jobs, free) = (jobs_in.clone(), free_in.clone());
            Ok(move || fetch(reader, &jobs, &free))
        })?;
        let plan = Plan::new(reader, options, links, monitor, jobs, batches);
        let planner = Builder::new()
            .name("plan".into())
            .spawn_scoped(scope, move || plan.run(root))
            .map_err(Error::system("start a thread"))?;
        // Dropping the queue ends the planner, whatever it is at, and with it the workers.
        let written = write(batches_in, &free, sink);
        let planned = planner.join().map_err(|_| Error::Worker)?;
        written?;
        planned?;
        sink.archive.finish().map_err(write_error)?;
        Ok(sink.report)
    })
}

fn write(batches: Receiver<Batch>, free: &Sender<Vec<u8>>, sink: &mut Sink) -> Result<()> {
    for batch in batches {
        if sink.monitor.stop() {
            return Err(Error::Interrupted);
        }
        let mut fetched = match batch.fetched {
            Some(fetched) => fetched.recv().map_err(|_| Error::Worker)?,
            None => Fetched { bytes: Vec::new(), chunks: Vec::new() },
        };
        let mut chunks = fetched.chunks.drain(..);
        for event in batch.events {
            match event {
                Event::Entry(item, several) => sink.begin(&item, several)?,
                Event::Missing(path, cause) => sink.missing(path, &cause),
                Event::Chunk(len) => {
                    let chunk = chunks.next().ok_or(Error::Worker)?;
                    sink.chunk(chunk.map(|range| &fetched.bytes[range]), len)?;
                }
                Event::Hole(len) => sink.hole(len)?,
                Event::Broken(e) if e.is_damage() => {
                    let cause = e.to_string();
                    sink.damage(&cause, Some(e))?;
                }
                Event::Broken(e) => return Err(e.into()),
                Event::End(whole) => sink.end(whole)?,
            }
        }
        drop(chunks);
        // Whoever fetches next writes over it.
        let _ = free.send(fetched.bytes);
    }
    Ok(())
}

fn fetch(reader: &Reader, jobs: &Receiver<Job>, free: &Receiver<Vec<u8>>) {
    let mut scratch = Vec::new();
    for job in jobs {
        let mut bytes = free.try_recv().unwrap_or_default();
        bytes.clear();
        let chunks = match whole_block(reader, &job, &mut scratch, &mut bytes) {
            Some(chunks) => chunks,
            None => single_chunks(reader, &job, &mut bytes),
        };
        // Whoever asked may be gone.
        let _ = job.reply.send(Fetched { bytes, chunks });
    }
}

/// Several chunks of one block. `None` if anything is wrong with it: then each chunk is tried by itself.
fn whole_block(
    reader: &Reader,
    job: &Job,
    scratch: &mut Vec<u8>,
    bytes: &mut Vec<u8>,
) -> Option<Vec<drumlin_repo::Result<std::ops::Range<usize>>>> {
    let (pack, number) = job.block.filter(|_| job.ids.len() > 1)?;
    let info = reader.index().pack(pack);
    let table = reader.table(&info).ok().filter(|_| info.kind == PackKind::Data)?;
    reader.block(&info, &table, number, scratch, bytes).ok()?;
    job.ids
        .iter()
        .map(|id| {
            let location = reader.index().lookup(id).ok()?.filter(|l| l.pack == pack)?;
            let chunk = table.chunks.get(location.ordinal as usize).filter(|c| c.id == *id && c.block == number)?;
            let range = chunk.offset as usize..chunk.offset as usize + chunk.len as usize;
            let sound = reader.check(PackKind::Data, id, bytes.get(range.clone())?).ok()?;
            sound.then_some(Ok(range))
        })
        .collect()
}

/// One by one, through the reader's own cache of blocks.
fn single_chunks(reader: &Reader, job: &Job, bytes: &mut Vec<u8>) -> Vec<drumlin_repo::Result<std::ops::Range<usize>>> {
    bytes.clear();
    let one = |id| {
        let chunk = reader.chunk(PackKind::Data, id)?;
        let start = bytes.len();
        bytes.extend_from_slice(&chunk);
        Ok(start..bytes.len())
    };
    job.ids.iter().map(one).collect()
}
