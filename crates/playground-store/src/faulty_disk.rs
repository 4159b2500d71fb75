//! An in-memory disk that fails after a number of operations, for tests of disk failures.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

use super::disk::{Disk, builder, initialize};

/// A disk that keeps what was synced, and a random part of what was not.
#[derive(Debug)]
pub(crate) struct DiskState {
    pub(crate) synced: Vec<u8>,
    pub(crate) current: Vec<u8>,
    /// Writes since the last sync.
    pub(crate) unsynced: Vec<(usize, Vec<u8>)>,
    /// After this many more operations all fail.
    operations_left: u64,
}

/// Clones share one disk.
#[derive(Clone, Debug)]
pub(crate) struct FaultyDisk(Arc<Mutex<DiskState>>);

impl FaultyDisk {
    pub(crate) fn new(image: Vec<u8>, operations_left: u64) -> Self {
        Self(Arc::new(Mutex::new(DiskState {
            synced: image.clone(),
            current: image,
            unsynced: Vec::new(),
            operations_left,
        })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, DiskState> {
        // Every operation leaves the disk consistent, even if it panics.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn operation<T>(&self, act: impl FnOnce(&mut DiskState) -> T) -> io::Result<T> {
        let mut state = self.lock();
        if state.operations_left == 0 {
            return Err(io::Error::other("no space left on this device"));
        }
        state.operations_left -= 1;
        Ok(act(&mut state))
    }
}

impl StorageBackend for FaultyDisk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        out.copy_from_slice(&self.lock().current[offset as usize..offset as usize + out.len()]);
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.operation(|state| state.current.resize(length as usize, 0))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operation(|state| {
            state.synced.clone_from(&state.current);
            state.unsynced.clear();
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.operation(|state| {
            state.current[offset as usize..offset as usize + data.len()].copy_from_slice(data);
            state.unsynced.push((offset as usize, data.to_vec()));
        })
    }
}

/// The image of a new, initialized disk.
pub(crate) fn fresh_image() -> Vec<u8> {
    let disk = FaultyDisk::new(Vec::new(), u64::MAX);
    let database = builder().create_with_backend(disk.clone()).expect("the disk works");
    initialize(&database).expect("the disk works");
    drop(database);
    let state = disk.lock();
    state.current.clone()
}

/// An in-memory disk that works for this many operations.
pub fn failing_after(operations: u64) -> Disk {
    Disk::in_memory(FaultyDisk::new(fresh_image(), operations)).expect("opening takes no counted operation")
}
