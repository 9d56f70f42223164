//! Repair: what is damaged is healed as far as can be, what is lost is stored again by the next backup that meets it,
//! and nothing else is touched.

#[path = "../common/mod.rs"]
mod common;

mod healed;
mod lost;
mod scene;

use common::repair_options;
use drumlin_engine::Error;
use drumlin_engine::monitor::Quiet;
use drumlin_engine::repair::{self, repair};
use drumlin_format::decision::Verdict;
use drumlin_format::loss::Loss;
use drumlin_format::plan::Plan;
use drumlin_format::session::Session;
use drumlin_format::{ChunkId, LossId, PackId, PlanId, SessionId};
use drumlin_repo::collection::{Board, Desk, Flag};
use drumlin_repo::names;
use drumlin_store::{Put, Store};
use scene::Scene;

#[test]
fn what_is_sound_is_left_alone() {
    let scene = Scene::new();
    let before = scene.objects();
    let report = scene.repair(&[]);
    assert!(report.is_sound(), "{report:?}");
    assert!(scene.objects() == before);
}

#[test]
fn the_index_is_made_anew_from_the_packs() {
    for damage in ["all gone", "one gone", "first part", "second part"] {
        let scene = Scene::new();
        let objects = scene.names(names::INDEX);
        match damage {
            "all gone" => objects.iter().for_each(|name| scene.bench.memory.delete(name).unwrap()),
            "one gone" => scene.bench.memory.delete(&objects[0]).unwrap(),
            "first part" => scene.flip(&objects[0], |_| 100),
            _ => scene.flip(&objects[0], |len| len - 100),
        }
        assert!(scene.differences(0) != Some(0) || scene.differences(1) != Some(0), "{damage} is no damage");
        let report = scene.repair(&[]);
        assert!(report.named > 0 && report.lost_chunks == 0 && report.unreadable.is_empty(), "{damage}: {report:?}");
        scene.assert_whole();
        assert!(scene.repair(&[]).is_sound());
        scene.prune().unwrap();
        scene.assert_whole();
    }
}

/// Somebody else's prune, with a plan.
fn planned(scene: &Scene, session: SessionId, plan: PlanId) -> Desk<'_> {
    let desk = Desk::of(&scene.bench.repository, Session::new("elsewhere", "prune", 5));
    desk.put_session(session).unwrap();
    let (packs, indexes, snapshots) = (vec![PackId([9; 16])], Vec::new(), Vec::new());
    desk.put_plan(&Plan { id: plan, session, packs, indexes, snapshots, unnamed: Vec::new() }).unwrap();
    desk
}

/// What another collector has decided on is carried out all the same.
#[test]
fn a_plan_that_nobody_can_read_beside_one_that_was_decided_on() {
    let mut scene = Scene::new();
    let (session, plan) = (SessionId([3; 16]), PlanId([3; 16]));
    let desk = planned(&scene, session, plan);
    desk.create(Flag::Decision(session), &Verdict::Collected { plan }).unwrap();
    scene.bench.memory.put(&names::plan(PlanId([5; 16])), b"torn", Put::Create).unwrap();
    let (repository, cache) = scene.fresh();
    let report = repair(&repository, &cache, &repair_options(), &Quiet::default()).unwrap();
    assert_eq!(report.cleared, 1);
    for folder in [names::PLANS, names::SESSIONS] {
        assert_eq!(scene.names(folder), Vec::<String>::new());
    }
    scene.prune().unwrap();
    scene.backup();
    scene.assert_whole();
}

#[test]
fn plans_and_losses_that_nobody_can_read_go_once_nobody_is_at_work() {
    for decided in [false, true] {
        let mut scene = Scene::new();
        let (session, plan) = (SessionId([3; 16]), PlanId([3; 16]));
        let desk = planned(&scene, session, plan);
        if decided {
            desk.create(Flag::Decision(session), &Verdict::Collected { plan }).unwrap();
        }
        let loss = Loss { id: LossId([4; 16]), chunks: vec![ChunkId([4; 32])], packs: vec![PackId([4; 16])] };
        scene.bench.repository.put_loss(&loss).unwrap();
        let (plan, loss) = (names::plan(plan), names::loss(loss.id));
        for name in [&plan, &loss] {
            let mut bytes = scene.bench.memory.get(name).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            scene.bench.memory.put(name, &bytes, Put::Replace).unwrap();
        }
        let refused = scene.prune().map(|_| ()).unwrap_err().to_string();
        assert!(refused.contains(&plan), "{refused}");
        let (repository, cache) = scene.fresh();
        let busy = repair(&repository, &cache, &repair_options(), &Quiet::default());
        match decided {
            // It is over, but for what nobody can read.
            true => assert!(busy.as_ref().unwrap_err().to_string().contains(&plan), "{busy:?}"),
            false => assert!(matches!(busy, Err(Error::Busy(_))), "{busy:?}"),
        }
        assert_eq!((scene.names(names::PLANS), scene.names(names::SESSIONS).len()), (vec![plan.clone()], 1));
        let monitor = Quiet::default();
        let evicting = repair::Options { evict: vec![session], ..repair_options() };
        let outcome = repair(&repository, &cache, &evicting, &monitor);
        if decided {
            // It may be carried out at this very moment by somebody who is not as dead as it is said.
            let refused = outcome.unwrap_err().to_string();
            assert!(refused.contains(&plan), "{refused}");
            assert!(scene.names(names::PLANS).contains(&plan) && scene.names(names::SESSIONS).len() == 1);
            continue;
        }
        assert_eq!(outcome.unwrap().cleared, 2);
        let told: Vec<_> = monitor.problems().iter().map(|p| String::from_utf8(p.path.clone()).unwrap()).collect();
        assert_eq!(told, [plan, loss]);
        for folder in [names::PLANS, names::LOSSES, names::SESSIONS] {
            assert_eq!(scene.names(folder), Vec::<String>::new());
        }
        scene.prune().unwrap();
        scene.backup();
        scene.assert_whole();
    }
}
