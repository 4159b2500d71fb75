//! A disk in memory that fails after so many steps, for tests of what happens when a real one does.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use super::disk::{Disk, builder, lay_out};

/// A disk that keeps what was synced, and of the rest only what chance lets through.
#[derive(Debug)]
pub(crate) struct Luck {
    pub(crate) synced: Vec<u8>,
    pub(crate) now: Vec<u8>,
    /// Writes since the last sync.
    pub(crate) loose: Vec<(usize, Vec<u8>)>,
    /// After so many more steps nothing works any more.
    steps_left: u64,
}

/// Clones are the same disk.
#[derive(Clone, Debug)]
pub(crate) struct Unlucky(Arc<Mutex<Luck>>);

impl Unlucky {
    pub(crate) fn new(image: Vec<u8>, steps_left: u64) -> Self {
        Self(Arc::new(Mutex::new(Luck { synced: image.clone(), now: image, loose: Vec::new(), steps_left })))
    }

    pub(crate) fn luck(&self) -> MutexGuard<'_, Luck> {
        // Every step leaves the disk whole, also one that panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn step<T>(&self, act: impl FnOnce(&mut Luck) -> T) -> io::Result<T> {
        let mut luck = self.luck();
        if luck.steps_left == 0 {
            return Err(io::Error::other("no space left on this device"));
        }
        luck.steps_left -= 1;
        Ok(act(&mut luck))
    }
}

impl StorageBackend for Unlucky {
    fn len(&self) -> io::Result<u64> {
        Ok(self.luck().now.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self.luck().now[offset as usize..offset as usize + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.step(|luck| luck.now.resize(length as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(|luck| {
            luck.synced.clone_from(&luck.now);
            luck.loose.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.step(|luck| {
            luck.now[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            luck.loose.push((offset as usize, data.to_vec()));
        })
    }
}

/// What a disk holds that is new and laid out.
pub(crate) fn fresh_image() -> Vec<u8> {
    let disk = Unlucky::new(Vec::new(), u64::MAX);
    let database = builder().create_with_backend(disk.clone()).expect("a disk that works");
    lay_out(&database).expect("a disk that works");
    drop(database);
    let luck = disk.luck();
    luck.now.clone()
}

/// A disk in memory that works for so many steps.
pub fn failing_after(steps: u64) -> Disk {
    Disk::in_memory(Unlucky::new(fresh_image(), steps)).expect("opening takes no step that is counted")
}
