//! A copy-on-write view of a file: writes stay in memory.
//!
//! The database writes to its file as soon as it is opened. A file that turns out to be damaged must stay unchanged, so
//! it is opened through this view first. Invariant: the file itself is only read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

const BLOCK_SIZE: u64 = 4096;

/// A file whose writes stay in memory.
#[derive(Debug)]
pub(super) struct CopyOnWriteFile {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// The length including writes.
    length: u64,
    /// How much of the file is still visible: after a truncation the rest reads as zeros.
    visible: u64,
    /// The written blocks, by block number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl CopyOnWriteFile {
    pub(super) fn new(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { inner: Mutex::new(Inner { file, length, visible: length, blocks: BTreeMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A block of the file, padded with zeros after its end.
    fn file_block(&mut self, number: u64) -> io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_SIZE as usize];
        let start = number * BLOCK_SIZE;
        let available = self.visible.saturating_sub(start).min(BLOCK_SIZE) as usize;
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut block[..available])?;
        Ok(block)
    }

    /// The blocks of a byte range: block number, offset in the block, and length.
    fn block_ranges(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
        let end = offset + length as u64;
        (offset / BLOCK_SIZE..end.div_ceil(BLOCK_SIZE)).map(move |number| {
            let start = (number * BLOCK_SIZE).max(offset);
            let stop = ((number + 1) * BLOCK_SIZE).min(end);
            (number, (start % BLOCK_SIZE) as usize, (stop - start) as usize)
        })
    }
}

impl StorageBackend for CopyOnWriteFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut inner = self.lock();
        if offset + out.len() as u64 > inner.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for (number, at, count) in Inner::block_ranges(offset, out.len()) {
            let target = &mut out[done..done + count];
            match inner.blocks.get(&number) {
                Some(block) => target.copy_from_slice(&block[at..at + count]),
                None => target.copy_from_slice(&inner.file_block(number)?[at..at + count]),
            }
            done += count;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut inner = self.lock();
        if length < inner.length {
            let first_removed = length.div_ceil(BLOCK_SIZE);
            inner.blocks.split_off(&first_removed);
            let (last, remaining) = (length / BLOCK_SIZE, (length % BLOCK_SIZE) as usize);
            if let Some(block) = inner.blocks.get_mut(&last) {
                block[remaining..].fill(0);
            }
            inner.visible = inner.visible.min(length);
        }
        inner.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut inner = self.lock();
        let mut done = 0;
        for (number, at, count) in Inner::block_ranges(offset, data.len()) {
            if !inner.blocks.contains_key(&number) {
                let block = inner.file_block(number)?;
                inner.blocks.insert(number, block);
            }
            if let Some(block) = inner.blocks.get_mut(&number) {
                block[at..at + count].copy_from_slice(&data[done..done + count]);
            }
            done += count;
        }
        Ok(())
    }
}
