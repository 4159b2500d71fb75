//! A file that may be written to without being changed: what is written stays in memory.
//!
//! The database writes to its file as soon as it is opened. A file that turns out to be damaged must stay as it was,
//! so it is opened as a draft first. Invariant: the file itself is only read.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::StorageBackend;

const BLOCK_SIZE: u64 = 4096;

/// The draft of a file.
#[derive(Debug)]
pub(super) struct Draft {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// How long the draft is.
    length: u64,
    /// How much of the file it still shows: what was cut off comes back as zeros.
    shown: u64,
    /// The blocks that were written, by their number.
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Draft {
    pub(super) fn of(file: File) -> io::Result<Self> {
        let length = file.metadata()?.len();
        Ok(Self { inner: Mutex::new(Inner { file, length, shown: length, blocks: BTreeMap::new() }) })
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// A block of the file, with zeros behind its end.
    fn block_of_file(&mut self, number: u64) -> io::Result<Vec<u8>> {
        let mut block = vec![0; BLOCK_SIZE as usize];
        let start = number * BLOCK_SIZE;
        let there = self.shown.saturating_sub(start).min(BLOCK_SIZE) as usize;
        self.file.seek(SeekFrom::Start(start))?;
        self.file.read_exact(&mut block[..there])?;
        Ok(block)
    }

    /// Visits the blocks of a range: number of the block, where in it, and how many bytes.
    fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, usize, usize)> {
        let end = offset + length as u64;
        (offset / BLOCK_SIZE..end.div_ceil(BLOCK_SIZE)).map(move |number| {
            let start = (number * BLOCK_SIZE).max(offset);
            let stop = ((number + 1) * BLOCK_SIZE).min(end);
            (number, (start % BLOCK_SIZE) as usize, (stop - start) as usize)
        })
    }
}

impl StorageBackend for Draft {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut inner = self.lock();
        if offset + out.len() as u64 > inner.length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut done = 0;
        for (number, at, count) in Inner::pieces(offset, out.len()) {
            let target = &mut out[done..done + count];
            match inner.blocks.get(&number) {
                Some(block) => target.copy_from_slice(&block[at..at + count]),
                None => target.copy_from_slice(&inner.block_of_file(number)?[at..at + count]),
            }
            done += count;
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut inner = self.lock();
        if length < inner.length {
            let first_gone = length.div_ceil(BLOCK_SIZE);
            inner.blocks.split_off(&first_gone);
            let (last, kept) = (length / BLOCK_SIZE, (length % BLOCK_SIZE) as usize);
            if let Some(block) = inner.blocks.get_mut(&last) {
                block[kept..].fill(0);
            }
            inner.shown = inner.shown.min(length);
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
        for (number, at, count) in Inner::pieces(offset, data.len()) {
            if !inner.blocks.contains_key(&number) {
                let block = inner.block_of_file(number)?;
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
