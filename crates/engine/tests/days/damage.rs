//! Each kind of object deleted, cut short, flipped or swapped for another, and then each operation: it names what is
//! wrong or goes on lawfully; what could be restored before can be restored after; and if the disk gives back what it
//! had lost, all can.

use crate::deed::{self, Deed, SILENT};
use crate::scene::{Objects, Scene, contents, objects, store_of};
use drumlin_format::SnapshotId;
use drumlin_store::{MemoryStore, Put, Store};
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Damage {
    Deleted,
    Cut,
    Flipped,
    Swapped,
}

const DAMAGES: [Damage; 4] = [Damage::Deleted, Damage::Cut, Damage::Flipped, Damage::Swapped];

const KINDS: [&str; 14] = [
    "config",
    "config.copy",
    "data",
    "decisions",
    "forgotten",
    "history",
    "index",
    "keys",
    "losses",
    "parity",
    "plans",
    "sessions",
    "snapshots",
    "tree",
];

fn folder(name: &str) -> &str {
    name.split('/').next().unwrap()
}

/// The objects as they are afterwards, and the names of those that are other ones now; `None` if there is no other one
/// to swap it for.
fn damaged(whole: &Objects, name: &str, damage: Damage) -> Option<(Objects, Vec<String>)> {
    let (mut objects, bytes) = (whole.clone(), &whole[name]);
    let mut names = vec![name.to_owned()];
    match damage {
        Damage::Deleted => _ = objects.remove(name),
        Damage::Cut => _ = objects.insert(name.into(), bytes[..bytes.len() / 2].to_vec()),
        Damage::Flipped => {
            // In each part of it: the header, what is sealed, and what ends it.
            let mut bent = bytes.clone();
            [3, bytes.len() / 3, bytes.len() / 2, bytes.len() - 20].iter().for_each(|at| bent[*at] ^= 0x20);
            objects.insert(name.into(), bent);
        }
        Damage::Swapped => {
            let fits = |other: &&String| folder(other) == folder(name) && *other != name && whole[*other] != *bytes;
            let other = whole.keys().find(fits)?;
            objects.insert(name.into(), whole[other].clone());
            objects.insert(other.clone(), bytes.clone());
            names.push(other.clone());
        }
    }
    Some((objects, names))
}

/// The snapshots that come back whole. What opens the repository is not in question.
fn whole_ones(scene: &Scene, store: &MemoryStore) -> BTreeSet<SnapshotId> {
    let store = store_of(&objects(store));
    store.put("config", &scene.objects["config"], Put::Replace).unwrap();
    let repository = scene.open(store);
    let Ok((infos, _)) = repository.snapshots() else { return BTreeSet::new() };
    let is_whole = |id: &SnapshotId, expected: &crate::scene::Contents| {
        let info = infos.iter().find(|info| info.snapshot.id == *id);
        info.is_some_and(|info| {
            contents(&repository, &info.snapshot, scene.folder.path()).is_ok_and(|found| found == *expected)
        })
    };
    scene.standing.iter().filter(|(id, expected)| is_whole(id, expected)).map(|(id, _)| *id).collect()
}

/// What came of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Came {
    /// To its end, with nothing to tell.
    Well,
    /// To its end, with something to tell.
    Told,
    /// To a wrong end, and nothing was told.
    Silent,
    /// To no end.
    Refused,
}

/// What came of an operation, and what was said.
fn attempt(scene: &Scene, deed: Deed, store: &MemoryStore) -> (Came, String) {
    let outcome = match scene.try_open(store.clone()) {
        Err(error) => Err(error.into()),
        Ok(repository) => deed.run(scene, &repository),
    };
    match outcome {
        Ok(told) if told.is_empty() => (Came::Well, String::new()),
        Ok(told) if told[0].starts_with(SILENT) => (Came::Silent, told.join("\n")),
        Ok(told) => (Came::Told, told.join("\n")),
        Err(error) => (Came::Refused, error.to_string()),
    }
}

/// Whether a user can tell from this what is the matter: an object's name, or what it held.
fn names_it(text: &str, names: &[String], damage: Damage) -> bool {
    let kind = folder(&names[0]);
    names.iter().any(|name| text.contains(name.rsplit('/').next().unwrap()))
        || match kind {
            "config" => text.contains("there is no repository"),
            // What was in a pack, or named by an index object: a chunk by its id, a path, or how many chunks.
            "data" | "tree" | "index" => [
                "is in no pack of the repository",
                "chunks that snapshots need are in none of the packs",
                "can't be brought back: its entries",
                "the contents of '",
                "something that snapshots need is lost, and packs ",
            ]
            .iter()
            .any(|words| text.contains(words)),
            // Of a key that is gone nobody knows the name, but that of the one that is asked for.
            "keys" => damage == Damage::Deleted && text.contains("there is no writer's key"),
            _ => false,
        }
}

/// Whether a check of everything may be content: these are gone as they go by themselves, or were never there, and only
/// who has seen them misses them. And an index object that names what no snapshot needs, if all are `whole`.
fn may_be_content(kind: &str, damage: Damage, whole: bool) -> bool {
    let passing =
        ["config.copy", "decisions", "forgotten", "history", "keys", "losses", "plans", "sessions", "snapshots"];
    damage == Damage::Deleted && (passing.contains(&kind) || whole && kind == "index")
}

/// The largest objects of each kind: one, and two where others depend on them.
fn victims<'o>(objects: &'o Objects, kinds: &[&str]) -> Vec<&'o String> {
    let mut victims = Vec::new();
    for kind in kinds {
        let is_of = |name: &&String| folder(name) == *kind && (!name.ends_with(".copy") || *kind == "config.copy");
        let mut of_kind: Vec<&String> = objects.keys().filter(is_of).collect();
        of_kind.sort_by_key(|name| std::cmp::Reverse(objects[*name].len()));
        of_kind.truncate(if matches!(*kind, "data" | "keys" | "tree") { 2 } else { 1 });
        victims.extend(of_kind);
    }
    victims
}

#[test]
fn any_damage_and_then_any_operation() {
    matrix(&Scene::new(true, true), &KINDS);
}

/// The same of a repository that was given new secrets half-way.
#[test]
fn any_damage_after_a_rekey() {
    let scene = Scene::rekeyed();
    assert_eq!(scene.objects.keys().filter(|name| folder(name) == "generations").count(), 2);
    matrix(&scene, &["config", "config.copy", "data", "generations", "index", "snapshots", "tree"]);
}

fn matrix(scene: &Scene, kinds: &[&str]) {
    let deeds = || deed::ALL.into_iter().chain(deed::LOOKS).chain(deed::KEYS);
    for deed in deeds() {
        let (came, text) = attempt(scene, deed, &scene.store());
        assert_eq!((came, text.as_str()), (Came::Well, ""), "{deed:?} on a sound repository");
    }
    let found: BTreeSet<&str> = scene.objects.keys().map(|name| folder(name)).collect();
    assert!(found.into_iter().filter(|kind| *kind != "generations").eq(KINDS), "the scene has one of each kind");
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for name in victims(&scene.objects, kinds) {
        let kind = folder(name);
        for damage in DAMAGES {
            let Some((damaged, names)) = damaged(&scene.objects, name, damage) else { continue };
            let before = whole_ones(scene, &store_of(&damaged));
            if !matches!(kind, "data" | "tree" | "index" | "snapshots") {
                assert_eq!(before.len(), scene.standing.len(), "{name} {damage:?} is nothing that a restore needs");
            }
            for deed in deeds() {
                let what = format!("{name} {damage:?}, then {deed:?}");
                let store = store_of(&damaged);
                let (came, text) = attempt(scene, deed, &store);
                *table.entry(format!("{kind} {damage:?} {deed:?} {came:?}")).or_default() += 1;
                let fine = match came {
                    Came::Well => {
                        deed != Deed::Check || may_be_content(kind, damage, before.len() == scene.standing.len())
                    }
                    Came::Told => true,
                    Came::Silent => false,
                    Came::Refused => names_it(&text, &names, damage),
                };
                if !fine {
                    wrong.push(format!("{what}: {came:?}: {text}"));
                }
                let mut after = whole_ones(scene, &store);
                after.extend(deed.takes(scene));
                // Damage that nobody has looked for, and what it can be healed by is taken away.
                if deed == Deed::ParityOff && matches!(damage, Damage::Flipped | Damage::Swapped) {
                    after.extend(before.iter());
                }
                if !after.is_superset(&before) {
                    wrong.push(format!("{what}: {came:?}: {before:?} were whole, {after:?} are ({text})"));
                }
                // The packs say all that the index does.
                if (kind, deed) == ("index", Deed::Repair) && after.len() < scene.standing.len() {
                    wrong.push(format!("{what}: {came:?}, and only {after:?} are whole ({text})"));
                }
                // The disk gives it back. Whether a prune is told all snapshots is for the signed history to say.
                if (kind, damage, deed) == ("snapshots", Damage::Deleted, Deed::Prune) {
                    continue;
                }
                for (name, bytes) in scene.objects.iter().filter(|(name, bytes)| damaged.get(*name) != Some(bytes)) {
                    store.put(name, bytes, Put::Replace).unwrap();
                }
                if matches!(deed, Deed::Prune | Deed::Repair) {
                    let (came, text) = attempt(scene, Deed::Repair, &store);
                    assert_ne!(came, Came::Refused, "{what}, healed, then a repair: {text}");
                }
                let wrongs = scene.wrongs(&store, &deed.takes(scene));
                if !wrongs.is_empty() {
                    wrong.push(format!("{what}: {came:?}, and the damage healed: {wrongs:?}"));
                }
            }
        }
    }
    if std::env::var_os("DRUMLIN_DAMAGE_TABLE").is_some() {
        println!("{}", table.keys().map(String::as_str).collect::<Vec<_>>().join("\n"));
    }
    assert!(wrong.is_empty(), "{} of them: {wrong:#?}", wrong.len());
}
