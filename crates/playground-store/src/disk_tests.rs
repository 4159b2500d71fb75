//! The disk under bad luck: crashes that lose part of what was written, failing writes, damaged files.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use muster_determinism::random::Random;
use serde_json::json;

use super::super::journal::{Entry, keep};
use super::super::object::Object;
use super::super::unlucky::{Unlucky, fresh_image};
use super::*;

/// A folder that is removed with this value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("muster-disk-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Unlucky {
    /// What the machine finds when it starts again.
    fn after_crash(&self, random: &mut Random) -> Vec<u8> {
        let luck = self.luck();
        let mut image = luck.synced.clone();
        image.resize(luck.now.len().max(image.len()), 0);
        for (offset, data) in &luck.loose {
            if random.per_mille(500) {
                image[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
        image
    }
}

type World = BTreeMap<String, String>;

fn entry(revision: u64, random: &mut Random) -> Entry {
    let name = format!("thing-{}", random.below(40));
    let filler = "x".repeat(random.below(9000) as usize);
    let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "filler": filler});
    let object = Arc::new(Object::file(value, revision, &[""; 0]));
    Entry { revision, table: "things".into(), object, gone: random.per_mille(200) }
}

fn apply(world: &mut World, entry: &Entry) {
    let (name, text) = (entry.object.key.name.to_string(), String::from_utf8_lossy(&entry.object.text).into_owned());
    if entry.gone {
        world.remove(&name);
    } else {
        world.insert(name, text);
    }
}

fn world_of(contents: &Contents) -> World {
    let name = |text: &Bytes| serde_json::from_slice::<serde_json::Value>(text).unwrap()["metadata"]["name"].clone();
    let objects = contents.objects.iter();
    objects
        .map(|saved| {
            (name(&saved.text).as_str().unwrap().to_owned(), String::from_utf8_lossy(&saved.text).into_owned())
        })
        .collect()
}

#[test]
fn a_crash_at_any_moment_leaves_a_moment_of_the_past_that_holds_all_that_was_settled() {
    let folder = Folder::new("crash");
    std::fs::create_dir_all(&folder.0).unwrap();
    let image = fresh_image();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let disk = Unlucky::new(image.clone(), 20 + random.below(400));
        let Ok(kept) = Disk::in_memory(disk.clone()) else { continue };
        // Every moment that there was: what the disk may show.
        let (mut world, mut moments) = (World::new(), BTreeMap::from([(super::super::FIRST_REVISION, World::new())]));
        let mut settled = super::super::FIRST_REVISION;
        let mut revision = settled;
        let mut alive = true;
        while alive && revision < 400 {
            let (sender, entries) = mpsc::channel();
            for _ in 0..=random.below(12) {
                revision += 1;
                let entry = entry(revision, &mut random);
                apply(&mut world, &entry);
                moments.insert(revision, world.clone());
                sender.send(entry).unwrap();
            }
            drop(sender);
            keep(
                &kept,
                &entries,
                || Some(()),
                |outcome| match outcome {
                    Ok(told) => settled = told,
                    Err(_) => alive = false,
                },
            );
        }
        let left = disk.after_crash(&mut random);
        drop(kept);
        std::fs::write(folder.file(), left).unwrap();
        let found = load(&folder.file()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(found.revision >= settled, "seed {seed}: {} was settled, {} is there", settled, found.revision);
        assert_eq!(Some(&world_of(&found)), moments.get(&found.revision), "seed {seed} at {}", found.revision);
    }
}

fn filled(folder: &Folder) -> World {
    let (disk, _) = Disk::open(&folder.0).unwrap();
    let mut random = Random::new(5);
    let (sender, entries) = mpsc::channel();
    let mut world = World::new();
    for revision in 2..100 {
        let entry = entry(revision, &mut random);
        apply(&mut world, &entry);
        sender.send(entry).unwrap();
    }
    drop(sender);
    keep(&disk, &entries, || Some(()), |outcome| assert!(outcome.is_ok()));
    world
}

#[test]
fn a_damaged_file_is_refused_or_read_right_and_stays_as_it_is() {
    let folder = Folder::new("damage");
    let world = filled(&folder);
    let sound = std::fs::read(folder.file()).unwrap();
    let mut random = Random::new(3);
    let (mut refused, mut read) = (0, 0);
    for turn in 0..200 {
        let mut bytes = sound.clone();
        let at = random.below(bytes.len() as u64) as usize;
        if random.below(3) == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        std::fs::write(folder.file(), &bytes).unwrap();
        match load(&folder.file()) {
            Ok(found) => {
                assert_eq!(world_of(&found), world, "turn {turn}: wrong and not noticed");
                read += 1;
            }
            Err(error) => {
                assert!(error.to_string().starts_with(&folder.file().display().to_string()), "{error}");
                assert!(Disk::open(&folder.0).is_err());
                refused += 1;
            }
        }
        assert!(std::fs::read(folder.file()).unwrap() == bytes, "turn {turn}: the file was changed");
    }
    assert!(refused > 50 && read > 10, "{refused} refused, {read} read");
}

#[test]
fn a_folder_belongs_to_one() {
    let folder = Folder::new("lock");
    let (first, _) = Disk::open(&folder.0).unwrap();
    let second = Disk::open(&folder.0).unwrap_err();
    assert!(matches!(&second, StateError::InUse { folder: named } if *named == folder.0), "{second}");
    drop(first);
    Disk::open(&folder.0).unwrap();
}

#[test]
fn what_is_not_ours_or_of_a_later_version_is_refused() {
    let folder = Folder::new("format");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.file(), "a letter to grandmother").unwrap();
    assert!(matches!(Disk::open(&folder.0), Err(StateError::Damaged { .. })));
    std::fs::remove_file(folder.file()).unwrap();
    let (disk, contents) = Disk::open(&folder.0).unwrap();
    assert_eq!((contents.revision, contents.objects.len()), (super::super::FIRST_REVISION, 0));
    let write = disk.database.begin_write().unwrap();
    write.open_table(COUNTERS).unwrap().insert(FORMAT, FORMAT_KNOWN + 1).unwrap();
    write.commit().unwrap();
    drop(disk);
    let before = std::fs::read(folder.file()).unwrap();
    let error = Disk::open(&folder.0).unwrap_err();
    assert!(matches!(error, StateError::Newer { found: 2, known: 1, .. }), "{error}");
    assert!(std::fs::read(folder.file()).unwrap() == before);
}

#[test]
fn a_file_that_was_never_finished_is_made_again() {
    let folder = Folder::new("unfinished");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.0.join(FILE_UNFINISHED), "half").unwrap();
    Disk::open(&folder.0).unwrap();
    assert!(folder.file().exists() && !folder.0.join(FILE_UNFINISHED).exists());
}
