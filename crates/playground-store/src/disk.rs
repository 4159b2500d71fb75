//! The database file of a durable store: every current object as JSON, and the last revision.
//!
//! Invariants: a commit is atomic; every row carries a checksum over its key and value, verified when it is read; only
//! one process uses a directory at a time. A damaged file is left unchanged. Must not depend on kinds or requests.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use thiserror::Error;

use super::copy_on_write::CopyOnWriteFile;
use super::object::Key;

const FILE: &str = "state.redb";
/// The file has this name until it is complete.
const UNFINISHED_FILE: &str = "state.redb.new";
const LOCK: &str = "lock";

const OBJECTS: TableDefinition<&str, &[u8]> = TableDefinition::new("objects");
const COUNTERS: TableDefinition<&str, u64> = TableDefinition::new("counters");
const FORMAT: &str = "format";
const REVISION: &str = "revision";
/// The version of the file layout. A file with a greater version was written by a later release.
const FORMAT_MAX: u64 = 1;
/// Small, because all objects are in memory anyway.
const CACHE_SIZE: usize = 32 * 1024 * 1024;
/// The size of the checksum in front of each value, in bytes.
const CHECKSUM_SIZE: usize = 8;

/// Why a state directory cannot be used. Nothing in it was changed.
#[derive(Debug, Error)]
pub enum StateError {
    /// The directory or a file in it cannot be created or read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Another process uses the directory.
    #[error("{}: another process uses this state folder; stop it first, or choose another folder", folder.display())]
    InUse {
        /// The directory.
        folder: PathBuf,
    },
    /// The file does not contain what was written to it.
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
    /// The file contains objects of a kind that this server does not serve.
    #[error("{}: holds {resource}, which this server does not serve", file.display())]
    NotServed {
        /// The file.
        file: PathBuf,
        /// Resource and group.
        resource: String,
    },
}

/// A stored object.
#[derive(Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// The name of its table.
    pub table: String,
    /// The object as JSON.
    pub text: Bytes,
}

/// The contents of a file.
#[derive(Debug)]
pub struct Contents {
    /// The last revision.
    pub revision: u64,
    /// Every current object.
    pub objects: Vec<StoredObject>,
}

/// A change to persist: the object's JSON, or `None` if it was deleted.
pub(crate) struct PersistedChange<'a> {
    pub(crate) table: &'a str,
    pub(crate) key: &'a Key,
    pub(crate) text: Option<&'a [u8]>,
}

/// The open file. Dropping it releases the directory.
#[derive(Debug)]
pub struct Disk {
    file: PathBuf,
    database: Database,
    _lock: Option<File>,
}

impl Disk {
    /// A database without a file, for tests.
    pub(crate) fn in_memory(backend: impl redb::StorageBackend) -> Result<Self, redb::Error> {
        let database = builder().create_with_backend(backend)?;
        Ok(Self { file: "in-memory disk".into(), database, _lock: None })
    }

    /// Opens or creates the directory and reads its contents.
    pub fn open(folder: &Path) -> Result<(Self, Contents), StateError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| StateError::Io { path, source }
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let lock = acquire_lock(folder)?;
        let file = folder.join(FILE);
        let exists = file.try_exists().map_err(failed(&file))?;
        let (database, contents) = if exists {
            let contents = load(&file)?;
            let database = builder().open(&file).map_err(|error| cannot_open(folder, &file, error))?;
            (database, contents)
        } else {
            // The file is renamed when it is complete, so that a crash before that leaves no partial state file.
            let unfinished = folder.join(UNFINISHED_FILE);
            match std::fs::remove_file(&unfinished) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(&unfinished)(error)),
                _ => {}
            }
            let database = builder().create(&unfinished).map_err(|error| cannot_open(folder, &unfinished, error))?;
            let damaged = |error: redb::Error| StateError::Damaged { file: unfinished.clone(), why: error.to_string() };
            initialize(&database).map_err(damaged)?;
            std::fs::rename(&unfinished, &file).map_err(failed(&file))?;
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed(folder))?;
            (database, Contents { revision: super::FIRST_REVISION, objects: Vec::new() })
        };
        Ok((Self { file, database, _lock: Some(lock) }, contents))
    }

    /// The path of the file, for messages.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Commits changes atomically. When it returns `Ok`, they are on the disk.
    pub(crate) fn commit<'a>(
        &self,
        changes: impl IntoIterator<Item = PersistedChange<'a>>,
        revision: u64,
    ) -> Result<(), redb::Error> {
        let mut write = self.database.begin_write()?;
        // Without two phases a damaged last commit would look like an incomplete one and be dropped silently.
        write.set_two_phase_commit(true);
        {
            let mut objects = write.open_table(OBJECTS)?;
            let (mut name, mut row) = (String::new(), Vec::new());
            for change in changes {
                name.clear();
                name.extend([change.table, "\0", &*change.key.namespace, "\0", &*change.key.name]);
                match change.text {
                    Some(text) => {
                        row.clear();
                        row.extend_from_slice(&checksum(&name, text).to_le_bytes());
                        row.extend_from_slice(text);
                        objects.insert(&*name, &*row)?;
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

fn acquire_lock(folder: &Path) -> Result<File, StateError> {
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

/// Writes the initial contents of a new file.
pub(crate) fn initialize(database: &Database) -> Result<(), redb::Error> {
    let mut write = database.begin_write()?;
    write.set_two_phase_commit(true);
    {
        write.open_table(OBJECTS)?;
        let mut counters = write.open_table(COUNTERS)?;
        counters.insert(FORMAT, FORMAT_MAX)?;
        counters.insert(REVISION, super::FIRST_REVISION)?;
    }
    write.commit()?;
    Ok(())
}

/// Reads and verifies the whole file before anything is written to it.
fn load(file: &Path) -> Result<Contents, StateError> {
    let failed = |source| StateError::Io { path: file.to_owned(), source };
    let overlay = File::open(file).and_then(CopyOnWriteFile::new).map_err(failed)?;
    let damaged = |why: String| StateError::Damaged { file: file.to_owned(), why };
    let mut database = builder().create_with_backend(overlay).map_err(|error| damaged(error.to_string()))?;
    database.check_integrity().map_err(|error| damaged(error.to_string()))?;
    let (format, revision) = counters(&database).map_err(|error| damaged(error.to_string()))?;
    match format {
        None => return Err(damaged("it has no format number: not a state of this program".to_owned())),
        Some(found) if found > FORMAT_MAX => {
            return Err(StateError::Newer { file: file.to_owned(), found, known: FORMAT_MAX });
        }
        Some(_) => {}
    }
    let revision = revision.ok_or_else(|| damaged("it has no revision".to_owned()))?;
    let rows = objects(&database).map_err(|error| damaged(error.to_string()))?;
    let checked = rows.into_iter().map(|(name, row)| decode_row(file, &name, &row));
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
        let (name, row) = entry?;
        all.push((name.value().to_owned(), row.value().to_owned()));
    }
    Ok(all)
}

/// Decodes a row and verifies its checksum.
fn decode_row(file: &Path, name: &str, row: &[u8]) -> Result<StoredObject, StateError> {
    let damaged = |what: &str| {
        let why = format!("{}: {what}", name.replace('\0', " "));
        StateError::Damaged { file: file.to_owned(), why }
    };
    let (stored, text) = row.split_first_chunk::<CHECKSUM_SIZE>().ok_or_else(|| damaged("cut short"))?;
    if u64::from_le_bytes(*stored) != checksum(name, text) {
        return Err(damaged("its text is not what was written"));
    }
    let table = name.split_once('\0').map(|(table, _)| table.to_owned());
    let table = table.ok_or_else(|| damaged("not the name of an object"))?;
    Ok(StoredObject { table, text: Bytes::copy_from_slice(text) })
}

/// FNV-1a over key and value: detects accidental damage, not manipulation.
fn checksum(name: &str, text: &[u8]) -> u64 {
    const START: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let bytes = name.bytes().chain([0]).chain(text.iter().copied());
    bytes.fold(START, |checksum, byte| (checksum ^ u64::from(byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
