//! The file that a durable store is kept in: every present object as its text, and the last revision.
//!
//! Invariants: a commit is on the disk as a whole or not at all; what is read back carries a sum over its name and
//! text that must agree; a folder belongs to one process at a time. A file that cannot be trusted is left as it is.
//! It must not know kinds or requests.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use thiserror::Error;

use super::draft::Draft;
use super::object::Key;

const FILE: &str = "state.redb";
/// A file that was never finished has this name.
const FILE_UNFINISHED: &str = "state.redb.new";
const LOCK: &str = "lock";

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const FORMAT: &str = "format";
const REVISION: &str = "revision";
/// How the file is laid out. A file with a greater number is of a later Muster.
const FORMAT_KNOWN: u64 = 1;
/// All objects are in memory in any case.
const CACHE_SIZE: usize = 32 * 1024 * 1024;
/// How many bytes of sum stand before a text.
const SUM_SIZE: usize = 8;

/// Why a state folder cannot be used. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum StateError {
    /// The folder or a file in it cannot be made or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process keeps its cluster there.
    #[error("{}: another process uses this state folder; stop it first, or choose another folder", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The file does not hold what was written to it.
    #[error("{}: damaged: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file was written by a later version.
    #[error("{}: written in format {found}, and this version reads up to {known}; use a later version", file.display())]
    Newer {
        /// The file.
        file: PathBuf,
        /// Its format.
        found: u64,
        /// The latest format that can be read.
        known: u64,
    },
    /// The file holds objects of a kind that the server, as it is set up, does not serve.
    #[error("{}: holds {resource}, which this server does not serve", file.display())]
    NotServed {
        /// The file.
        file: PathBuf,
        /// Resource and group.
        resource: String,
    },
}

/// One object as it was kept.
#[derive(Debug, PartialEq, Eq)]
pub struct Saved {
    /// The name of its table.
    pub table: String,
    /// The object as JSON.
    pub text: Bytes,
}

/// What a file holds.
#[derive(Debug)]
pub struct Contents {
    /// The last revision.
    pub revision: u64,
    /// Every present object.
    pub objects: Vec<Saved>,
}

/// One change to keep: the object's text, or nothing if it is gone.
pub(crate) struct Kept<'a> {
    pub(crate) table: &'a str,
    pub(crate) key: &'a Key,
    pub(crate) text: Option<&'a [u8]>,
}

/// The open file. The folder is free again when it is dropped.
#[derive(Debug)]
pub struct Disk {
    file: PathBuf,
    database: Database,
    _lock: Option<File>,
}

impl Disk {
    /// A disk that is no file, for tests.
    pub(crate) fn in_memory(backend: impl redb::StorageBackend) -> Result<Self, redb::Error> {
        let database = builder().create_with_backend(backend)?;
        Ok(Self { file: "the test's disk".into(), database, _lock: None })
    }

    /// Opens the folder, or makes it, and reads what is there.
    pub fn open(folder: &Path) -> Result<(Self, Contents), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Io { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock = take_lock(folder)?;
        let file = folder.join(FILE);
        let exists = file.try_exists().map_err(failed(&file))?;
        let (database, contents) = if exists {
            let contents = load(&file)?;
            let database = builder().open(&file).map_err(|error| cannot_open(folder, &file, error))?;
            (database, contents)
        } else {
            // It gets its name when it is whole: a crash before that leaves nothing behind that looks like a state.
            let unfinished = folder.join(FILE_UNFINISHED);
            match std::fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&unfinished)(error)),
                _ => {}
            }
            let database = builder().create(&unfinished).map_err(|error| cannot_open(folder, &unfinished, error))?;
            let damaged = |error: redb::Error| StateError::Damaged { file: unfinished.clone(), why: error.to_string() };
            lay_out(&database).map_err(damaged)?;
            std::fs::rename(&unfinished, &file).map_err(failed(&file))?;
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
            (database, Contents { revision: super::FIRST_REVISION, objects: Vec::new() })
        };
        Ok((Self { file, database, _lock: Some(lock) }, contents))
    }

    /// The file, for messages.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Keeps changes, all or none. When it answers well they are on the disk.
    pub(crate) fn commit<'a>(
        &self,
        changes: impl IntoIterator<Item = Kept<'a>>,
        revision: u64,
    ) -> Result<(), redb::Error> {
        let mut write = self.database.begin_write()?;
        // Without it a damaged last commit would look like one that was cut short, and be taken back in silence.
        write.set_two_phase_commit(true);
        {
            let mut objects = write.open_table(OBJECTS)?;
            let (mut name, mut line) = (String::new(), Vec::new());
            for change in changes {
                name.clear();
                name.extend([change.table, "\0", &*change.key.namespace, "\0", &*change.key.name]);
                match change.text {
                    Some(text) => {
                        line.clear();
                        line.extend_from_slice(&sum(&name, text).to_le_bytes());
                        line.extend_from_slice(text);
                        objects.insert(&*name, &*line)?;
                    }
                    None => drop(objects.remove(&*name)?),
                }
            }
            write.open_table(COUNTERS)?.insert(REVISION, revision)?;
        }
        write.commit()?;
        Ok(())
    }
}

pub(crate) fn builder() -> redb::Builder {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_SIZE);
    builder
}

fn take_lock(folder: &Path) -> Result<File, StateError> {
    let path = folder.join(LOCK);
    let opened = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = opened.map_err(|source| StateError::Io { path: path.clone(), source })?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(StateError::InUse { folder: folder.to_owned() }),
        Err(TryLockError::Error(source)) => Err(StateError::Io { path, source }),
    }
}

fn cannot_open(folder: &Path, file: &Path, error: redb::DatabaseError) -> StateError {
    match error {
        redb::DatabaseError::DatabaseAlreadyOpen => StateError::InUse { folder: folder.to_owned() },
        redb::DatabaseError::Storage(redb::StorageError::Io(source)) => {
            StateError::Io { path: file.to_owned(), source }
        }
        other => StateError::Damaged { file: file.to_owned(), why: other.to_string() },
    }
}

/// What a new file starts with.
pub(crate) fn lay_out(database: &Database) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    {
        write.open_table(OBJECTS)?;
        let mut counters = write.open_table(COUNTERS)?;
        counters.insert(FORMAT, FORMAT_KNOWN)?;
        counters.insert(REVISION, super::FIRST_REVISION)?;
    }
    write.commit()?;
    Ok(())
}

/// What a file holds, read in whole and checked, before anything is written to it.
fn load(file: &Path) -> Result<Contents, StateError> {
    let failed = |source| StateError::Io { path: file.to_owned(), source };
    let draft = File::open(file).and_then(Draft::of).map_err(failed)?;
    let damaged = |why: String| StateError::Damaged { file: file.to_owned(), why };
    let mut database = builder().create_with_backend(draft).map_err(|error| damaged(error.to_string()))?;
    database.check_integrity().map_err(|error| damaged(error.to_string()))?;
    let (format, revision) = counters(&database).map_err(|error| damaged(error.to_string()))?;
    match format {
        None => return Err(damaged("it has no format number: not a state of this program".to_owned())),
        Some(found) if found > FORMAT_KNOWN => {
            return Err(StateError::Newer { file: file.to_owned(), found, known: FORMAT_KNOWN });
        }
        Some(_) => {}
    }
    let revision = revision.ok_or_else(|| damaged("it has no revision".to_owned()))?;
    let lines = objects(&database).map_err(|error| damaged(error.to_string()))?;
    let checked = lines.into_iter().map(|(name, line)| read(&name, &line).map_err(damaged));
    Ok(Contents { revision, objects: checked.collect::<Result<_, _>>()? })
}

fn counters(database: &Database) -> Result<(Option<u64>, Option<u64>), redb::Error> {
    let counters = database.begin_read()?.open_table(COUNTERS)?;
    let get = |name: &str| Ok::<_, redb::Error>(counters.get(name)?.map(|number| number.value()));
    Ok((get(FORMAT)?, get(REVISION)?))
}

fn objects(database: &Database) -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
    let objects = database.begin_read()?.open_table(OBJECTS)?;
    let mut all = Vec::new();
    for entry in objects.iter()? {
        let (name, line) = entry?;
        all.push((name.value().to_owned(), line.value().to_owned()));
    }
    Ok(all)
}

/// An object from its name and line; the sum must agree.
fn read(name: &str, line: &[u8]) -> Result<Saved, String> {
    let shown = || name.replace('\0', " ");
    let (stored, text) = line.split_first_chunk::<SUM_SIZE>().ok_or_else(|| format!("{}: cut short", shown()))?;
    if u64::from_le_bytes(*stored) != sum(name, text) {
        return Err(format!("{}: its text is not what was written", shown()));
    }
    let table = name.split_once('\0').map(|(table, _)| table.to_owned());
    let table = table.ok_or_else(|| format!("{}: not the name of an object", shown()))?;
    Ok(Saved { table, text: Bytes::copy_from_slice(text) })
}

/// FNV-1a over name and text: it finds accidents, not forgers.
fn sum(name: &str, text: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = name.bytes().chain([0]).chain(text.iter().copied());
    bytes.fold(START, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
