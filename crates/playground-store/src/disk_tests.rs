//! Tests of the disk: crashes that lose part of what was written, failing writes, damaged files.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};

use muster_determinism::random::Random;
use serde_json::json;

use super::super::faulty_disk::{FaultyDisk, fresh_image};
use super::super::journal::{Entry, persist};
use super::super::object::Object;
use super::*;

/// A directory that is removed on drop.
struct StateDirectory(PathBuf);

impl StateDirectory {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("muster-disk-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join(FILE)
    }
}

impl Drop for StateDirectory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl FaultyDisk {
    /// The image after a crash and restart.
    fn after_crash(&self, random: &mut Random) -> Vec<u8> {
        let state = self.lock();
        let mut image = state.synced.clone();
        image.resize(state.current.len().max(image.len()), 0);
        for (offset, data) in &state.unsynced {
            if random.per_mille(500) {
                image[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
        image
    }
}

type Objects = BTreeMap<String, String>;

fn entry(revision: u64, random: &mut Random) -> Entry {
    let name = format!("thing-{}", random.below(40));
    let filler = "x".repeat(random.below(9000) as usize);
    let value = json!({"metadata": {"namespace": "n", "name": name, "uid": name}, "filler": filler});
    let object = Arc::new(Object::encode(value, revision, &[""; 0]));
    Entry { revision, table: "things".into(), object, deleted: random.per_mille(200) }
}

fn apply(objects: &mut Objects, entry: &Entry) {
    let (name, text) = (entry.object.key.name.to_string(), String::from_utf8_lossy(&entry.object.text).into_owned());
    if entry.deleted {
        objects.remove(&name);
    } else {
        objects.insert(name, text);
    }
}

fn objects_of(contents: &Contents) -> Objects {
    let name = |text: &Bytes| serde_json::from_slice::<serde_json::Value>(text).unwrap()["metadata"]["name"].clone();
    let objects = contents.objects.iter();
    objects
        .map(|saved| {
            (name(&saved.text).as_str().unwrap().to_owned(), String::from_utf8_lossy(&saved.text).into_owned())
        })
        .collect()
}

#[test]
fn crash_leaves_a_past_state_with_all_durable_changes() {
    let folder = StateDirectory::new("crash");
    std::fs::create_dir_all(&folder.0).unwrap();
    let image = fresh_image();
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let disk = FaultyDisk::new(image.clone(), 20 + random.below(400));
        let Ok(database) = Disk::in_memory(disk.clone()) else { continue };
        // Every state that there was: what the disk may contain.
        let (mut objects, mut states) =
            (Objects::new(), BTreeMap::from([(super::super::FIRST_REVISION, Objects::new())]));
        let mut durable = super::super::FIRST_REVISION;
        let mut revision = durable;
        let mut working = true;
        while working && revision < 400 {
            let (sender, entries) = mpsc::channel();
            for _ in 0..=random.below(12) {
                revision += 1;
                let entry = entry(revision, &mut random);
                apply(&mut objects, &entry);
                states.insert(revision, objects.clone());
                sender.send(entry).unwrap();
            }
            drop(sender);
            persist(
                &database,
                &entries,
                || Some(()),
                |outcome| match outcome {
                    Ok(revision) => durable = revision,
                    Err(_) => working = false,
                },
            );
        }
        let image = disk.after_crash(&mut random);
        drop(database);
        std::fs::write(folder.file(), image).unwrap();
        let found = load(&folder.file()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(found.revision >= durable, "seed {seed}: {} was durable, {} is there", durable, found.revision);
        assert_eq!(Some(&objects_of(&found)), states.get(&found.revision), "seed {seed} at {}", found.revision);
    }
}

fn fill(folder: &StateDirectory) -> Objects {
    let (disk, _) = Disk::open(&folder.0).unwrap();
    let mut random = Random::new(5);
    let (sender, entries) = mpsc::channel();
    let mut objects = Objects::new();
    for revision in 2..100 {
        let entry = entry(revision, &mut random);
        apply(&mut objects, &entry);
        sender.send(entry).unwrap();
    }
    drop(sender);
    persist(&disk, &entries, || Some(()), |outcome| assert!(outcome.is_ok()));
    objects
}

#[test]
fn damaged_file_is_refused_or_read_correctly_and_stays_unchanged() {
    let folder = StateDirectory::new("damage");
    let objects = fill(&folder);
    let intact = std::fs::read(folder.file()).unwrap();
    let mut random = Random::new(3);
    let (mut refused, mut read) = (0, 0);
    for turn in 0..200 {
        let mut bytes = intact.clone();
        let at = random.below(bytes.len() as u64) as usize;
        if random.below(3) == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 1 << random.below(8);
        }
        std::fs::write(folder.file(), &bytes).unwrap();
        match load(&folder.file()) {
            Ok(found) => {
                assert_eq!(objects_of(&found), objects, "turn {turn}: damage was not detected");
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
fn directory_is_used_by_one_process_at_a_time() {
    let folder = StateDirectory::new("lock");
    let (first, _) = Disk::open(&folder.0).unwrap();
    let second = Disk::open(&folder.0).unwrap_err();
    assert!(matches!(&second, StateError::InUse { folder: named } if *named == folder.0), "{second}");
    drop(first);
    Disk::open(&folder.0).unwrap();
}

#[test]
fn foreign_or_newer_file_is_refused() {
    let folder = StateDirectory::new("format");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.file(), "not a database").unwrap();
    assert!(matches!(Disk::open(&folder.0), Err(StateError::Damaged { .. })));
    std::fs::remove_file(folder.file()).unwrap();
    let (disk, contents) = Disk::open(&folder.0).unwrap();
    assert_eq!((contents.revision, contents.objects.len()), (super::super::FIRST_REVISION, 0));
    let write = disk.database.begin_write().unwrap();
    write.open_table(COUNTERS).unwrap().insert(FORMAT, FORMAT_MAX + 1).unwrap();
    write.commit().unwrap();
    drop(disk);
    let before = std::fs::read(folder.file()).unwrap();
    let error = Disk::open(&folder.0).unwrap_err();
    assert!(matches!(error, StateError::Newer { found: 2, known: 1, .. }), "{error}");
    assert!(std::fs::read(folder.file()).unwrap() == before);
}

#[test]
fn unfinished_file_is_created_again() {
    let folder = StateDirectory::new("unfinished");
    std::fs::create_dir_all(&folder.0).unwrap();
    std::fs::write(folder.0.join(UNFINISHED_FILE), "half").unwrap();
    Disk::open(&folder.0).unwrap();
    assert!(folder.file().exists() && !folder.0.join(UNFINISHED_FILE).exists());
}
