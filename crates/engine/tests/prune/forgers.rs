//! Plans, decisions and losses that are well made, by somebody whose word they can't be: they condemn nothing, and
//! excuse nothing.

use crate::common::options;
use crate::history::{History, lesser, objects, prune_options};
use crate::liars::entries;
use drumlin_engine::backup::backup;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::prune::{self, prune};
use drumlin_engine::{Error, Result};
use drumlin_format::decision::{self, Verdict};
use drumlin_format::key::{Role, Secrets};
use drumlin_format::loss::Loss;
use drumlin_format::pack::PackKind;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::{KeyId, LossId, PlanId, Sealing, SessionId};
use drumlin_repo::{Cache, Repository, Unlock, names, random_id};
use drumlin_seal::{Secret, SigningKey};
use drumlin_store::{Put, Store};
use std::sync::Arc;

/// Who signs, with what; and whether plans and losses are his to put.
fn signers(history: &History) -> [(&'static str, Secrets, bool); 4] {
    let owner = history.bench.repository.secrets();
    let other = || Some(SigningKey::new(Secret::new([9; 32])).unwrap());
    [
        ("a writer", lesser(&history.bench, Role::Writer).secrets().clone(), false),
        ("a key that nobody has certified", Secrets { key: KeyId([1; 16]), signing: other(), ..owner.clone() }, false),
        ("another under the owner's name", Secrets { signing: other(), ..owner.clone() }, false),
        // So that it isn't something else that is wrong with them.
        ("the owner", owner.clone(), true),
    ]
}

fn sealing(secrets: &Secrets) -> Sealing<'_> {
    secrets.sealing(0, random_id().unwrap()).unwrap()
}

/// The repository as somebody has it who comes new.
fn fresh(history: &History) -> (Repository, Arc<Cache>) {
    let bench = &history.bench;
    let repository = Repository::open(Arc::new(bench.memory.clone()), &Unlock::File(bench.key_file())).unwrap();
    let cache = Arc::new(Cache::open(&repository, None, bench.folder.path()).unwrap());
    (repository, cache)
}

fn pruned(history: &History, evict: Vec<SessionId>) -> Result<prune::Report> {
    let (repository, cache) = fresh(history);
    prune(&repository, &cache, &prune::Options { evict, ..prune_options() }, &Quiet::default())
}

/// All packs of a store.
fn packs(history: &History) -> Vec<String> {
    let is_pack = |name: &String| [names::DATA, names::TREE].iter().any(|folder| name.starts_with(folder));
    objects(&history.bench.memory).into_keys().filter(is_pack).collect()
}

/// It says that all is condemned, and that this was decided.
#[test]
fn a_plan_is_worth_as_much_as_who_has_signed_it() {
    for number in 0..4 {
        let history = History::new(2);
        let (bench, suite) = (&history.bench, history.bench.repository.config().suite);
        let (who, secrets, may) = signers(&history).into_iter().nth(number).unwrap();
        let (session, id) = (SessionId(random_id().unwrap()), PlanId(random_id().unwrap()));
        let plan = Plan {
            id,
            session,
            packs: entries(&history).iter().map(|entry| entry.pack).collect(),
            indexes: bench.repository.index_objects().unwrap().into_iter().map(|(id, _)| id).collect(),
            snapshots: Vec::new(),
            unnamed: Vec::new(),
        };
        for (name, bytes) in [
            (names::session(session), Session::new("elsewhere", "prune", 0).seal(session, suite, sealing(&secrets))),
            (names::plan(id), plan.seal(suite, sealing(&secrets))),
            (
                names::decision(session),
                decision::seal(session, &Verdict::Collected { plan: id }, suite, sealing(&secrets)),
            ),
        ] {
            bench.memory.put(&name, &bytes, Put::Create).unwrap();
        }
        let (repository, _) = fresh(&history);
        let report = backup(&repository, &bench.cache, options(&[&history.source]), &Quiet::default()).unwrap();
        let is_heeded = report.counts.bytes_new > 0;
        assert_eq!(is_heeded, may, "{who}: {:?}", report.counts);
        if may {
            continue;
        }
        assert_eq!(report.parent.as_ref(), Some(&history.states[1].0), "{who}");
        assert_eq!((report.counts.unmodified, report.counts.bytes_read), (report.counts.entries, 0), "{who}");
        let before = packs(&history);
        pruned(&history, vec![session]).unwrap();
        let after = packs(&history);
        assert!(before.iter().all(|pack| after.contains(pack)), "{who}");
        history.whole();
    }
}

/// It says that what a pack had is lost, and no reason to wait for it.
#[test]
fn a_loss_is_worth_as_much_as_who_has_signed_it() {
    for number in 0..4 {
        let mut history = History::new(2);
        let suite = history.bench.repository.config().suite;
        let (who, secrets, may) = signers(&history).into_iter().nth(number).unwrap();
        let kept = entries(&history).into_iter().rfind(|entry| entry.kind == PackKind::Data).unwrap();
        let name = names::pack(kept.kind, kept.pack);
        let bytes = history.bench.memory.get(&name).unwrap();
        history.bench.memory.delete(&name).unwrap();
        let mut chunks: Vec<_> = kept.table.chunks.iter().map(|chunk| chunk.id).collect();
        chunks.sort_unstable();
        let loss = Loss { id: LossId(random_id().unwrap()), chunks, packs: vec![kept.pack] };
        history.bench.memory.put(&names::loss(loss.id), &loss.seal(suite, sealing(&secrets)), Put::Create).unwrap();
        history.forget(|at| at == 0);
        let before = packs(&history);
        let outcome = pruned(&history, Vec::new());
        match may {
            true => assert!(outcome.is_ok(), "{who}: {outcome:?}"),
            false => {
                assert!(matches!(outcome, Err(Error::Doubt(_))), "{who}: {outcome:?}");
                assert_eq!(packs(&history), before, "{who}");
                history.bench.memory.put(&name, &bytes, Put::Create).unwrap();
                history.whole();
                // Nor does it keep a prune from its work for ever.
                let outcome = pruned(&history, Vec::new());
                assert!(outcome.is_ok(), "{who}: {outcome:?}");
                assert_ne!(packs(&history), before, "{who}");
                history.whole();
            }
        }
    }
}
