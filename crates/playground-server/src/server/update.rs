//! Update: one road for PUT and PATCH, for the object and its status.

use muster_playground_schema::FieldError;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::admission;
use super::answer::{Answer, printed};
use super::body::{self, Read};
use super::create;
use super::failure::Failure;
use super::hook::{self, AdmissionOperation, Heard, Question};
use super::ownership::{self, Owners, Writer};
use super::query::{Query, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use crate::kinds::{Kind, Rules, check_metadata_update};

/// Which part of an object a request may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// The number of replicas: the object itself in all but who is asked.
    Scale,
}

impl Part {
    /// The subresource; empty for the object itself.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Scale => "scale",
        }
    }
}

/// Replaces an object, or its status.
pub(crate) fn update(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
    part: Part,
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, Write::Update)?;
    let Read { mut value, mut warnings } = body::read(&state.registry, kind, bytes, options.unknown_fields)?;
    same_name(target, &value)?;
    create::place(kind, target, &mut value)?;
    warnings.extend(create::name_owners_once(&mut value));
    let Some(old) = state.get(kind, &target.namespace, &target.name) else {
        if part == Part::Main && kind.creates_on_update() {
            same_uid(kind, &value, target, "")?;
            value["metadata"].as_object_mut().map(|metadata| metadata.remove("resourceVersion"));
            let owners = Owners::Writer(&options.manager);
            return Ok(create::insert(state, kind, target, value, owners, options.dry_run)?.with_warnings(warnings));
        }
        return Err(Failure::not_found(kind.about(), &target.name));
    };
    same_uid(kind, &value, target, &old.uid)?;
    match replace(state, kind, &old, value, part, Owners::Writer(&options.manager), options.dry_run) {
        Ok(answer) => Ok(answer.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// The name in the object must be there, and be that of the path.
pub(crate) fn same_name(target: &Target, value: &Value) -> Result<(), Failure> {
    match value["metadata"]["name"].as_str().unwrap_or_default() {
        "" => Err(Failure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        ))),
        name if *name == *target.name => Ok(()),
        name => Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        ))),
    }
}

fn same_uid(kind: &Kind, value: &Value, target: &Target, old: &str) -> Result<(), Failure> {
    match value["metadata"]["uid"].as_str() {
        Some(uid) if !uid.is_empty() && *uid != *old => {
            // Custom objects are stored by their group.
            let group = if matches!(kind.rules, Rules::Custom(_)) { format!("{}/", kind.group) } else { String::new() };
            let key = format!("{group}{}/{}/{}", kind.plural, target.namespace, target.name);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{key}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old}"
            );
            Err(Failure::conflict(kind.about(), &target.name, why))
        }
        _ => Ok(()),
    }
}

/// What is to be replaced, and how.
#[derive(Clone, Copy)]
struct Change<'a> {
    kind: &'a Kind,
    old: &'a Object,
    was: &'a Value,
    part: Part,
    owners: Owners<'a>,
    dry_run: bool,
}

/// Puts a new version in the place of the old one, if it keeps the rules.
pub(crate) fn replace(
    state: &mut State,
    kind: &Kind,
    old: &Object,
    mut value: Value,
    part: Part,
    owners: Owners<'_>,
    dry_run: bool,
) -> Result<Answer, Failure> {
    let was = &old.value();
    same_revision(kind, &mut value, was, old)?;
    kind.complete(&mut value);
    if let Owners::Writer(manager) = owners {
        let writer = Writer { manager, subresource: part.name(), now: &state.time() };
        ownership::updated(&state.registry, kind, was, &mut value, writer);
    }
    keep_system_fields(&mut value, was);
    if part != Part::Status {
        admission::on_update(state, kind, &mut value)?;
    }
    let change = Change { kind, old, was, part, owners, dry_run };
    let warnings = if part == Part::Main { listen(state, change, &mut value)? } else { Vec::new() };
    match admitted(state, change, value) {
        Ok(answer) => Ok(answer.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Asks the hook, if there is one for it. Answers with its warnings.
fn listen(state: &mut State, change: Change<'_>, value: &mut Value) -> Result<Vec<String>, Failure> {
    let Change { kind, old, was, dry_run, .. } = change;
    let operation = AdmissionOperation::Update;
    let Some(hook) = hook::for_write(state, kind, operation) else { return Ok(Vec::new()) };
    let (namespace, name) = (&*old.key.namespace, &*old.key.name);
    let question = Question { kind, operation, namespace, name, old: Some(was), dry_run };
    let Heard { changed, mut warnings } = hook::ask(&hook, state, question, value)?;
    let Some(changed) = changed else { return Ok(warnings) };
    *value = changed;
    warnings.extend(create::name_owners_once(value));
    same_revision(kind, value, was, old)?;
    keep_system_fields(value, was);
    // The server's own admission looks again at what others have changed.
    match admission::on_update(state, kind, value) {
        Ok(()) => Ok(warnings),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Checks and stores a change that all admission is done with.
fn admitted(state: &mut State, change: Change<'_>, mut value: Value) -> Result<Answer, Failure> {
    let Change { kind, old, was, part, owners, dry_run } = change;
    let managed = ownership::take(&mut value);
    match part {
        Part::Main | Part::Scale => kind.on_update(&mut value, was),
        Part::Status => kind.on_status(&mut value, was),
    }
    ownership::put(&mut value, managed);
    ownership::forgive_times(&mut value, was);
    let mut errors = kind.check_metadata(&value);
    errors.extend(check_metadata_update(&value, was));
    errors.extend(match part {
        Part::Main | Part::Scale => kind.check_update(&value, was),
        Part::Status => kind.check_status(&value, was),
    });
    if !errors.is_empty() {
        return Err(Failure::invalid(kind.about_kind(), &old.key.name, &errors));
    }
    create::fits(&mut value, owners)?;
    if dry_run {
        return Ok(Answer::Json { code: 200, text: printed(&kind.show(value)), warnings: Vec::new() });
    }
    if value == *was {
        return Ok(Answer::object(200, kind, old));
    }
    if is_done(&value) {
        // The change itself is never stored: watchers see the object end as it was.
        state.erase(kind, was.clone());
        return Ok(Answer::value(200, &kind.show(value)));
    }
    Ok(Answer::object(200, kind, &state.write(kind, value)))
}

/// The revision in the object, if there is one, must be the latest.
fn same_revision(kind: &Kind, value: &mut Value, was: &Value, old: &Object) -> Result<(), Failure> {
    match value["metadata"]["resourceVersion"].as_str().unwrap_or_default() {
        "" | "0" if kind.overwrites() => {
            value["metadata"]["resourceVersion"] = was["metadata"]["resourceVersion"].clone();
            Ok(())
        }
        "" | "0" => {
            let error = FieldError::invalid("metadata.resourceVersion", json!(0), "must be specified for an update");
            // The real server names the resource here, not the kind.
            Err(Failure::invalid(kind.about(), &old.key.name, &[error]))
        }
        written if was["metadata"]["resourceVersion"] == *written => Ok(()),
        written if written.parse::<u64>().is_err() => {
            Err(Failure::plain(500, format!("strconv.ParseUint: parsing {written:?}: invalid syntax")))
        }
        _ => Err(Failure::modified(kind.about(), &old.key.name)),
    }
}

/// What no update changes.
fn keep_system_fields(value: &mut Value, was: &Value) {
    let old = &was["metadata"];
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    metadata.remove("selfLink");
    for field in ["generation", "creationTimestamp"] {
        match old.get(field) {
            Some(kept) => metadata.insert(field.to_owned(), kept.clone()),
            None => metadata.remove(field),
        };
    }
    // A deletion is not taken back; that none may be written is checked.
    if let Some(kept) = old.get("deletionTimestamp") {
        metadata.insert("deletionTimestamp".to_owned(), kept.clone());
    }
    if let (Some(kept), None) = (old.get("deletionGracePeriodSeconds"), metadata.get("deletionGracePeriodSeconds")) {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), kept.clone());
    }
    for field in ["uid", "name", "namespace"] {
        let written = metadata.get(field).and_then(Value::as_str).unwrap_or_default();
        if written.is_empty()
            && let Some(kept) = old.get(field)
        {
            metadata.insert(field.to_owned(), kept.clone());
        }
    }
    for field in ["labels", "annotations", "finalizers", "ownerReferences"] {
        let empty = |value: &Value| {
            value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(serde_json::Map::is_empty)
        };
        if metadata.get(field).is_some_and(empty) {
            metadata.remove(field);
        }
    }
}

/// Whether nothing holds a deleted object any more.
fn is_done(value: &Value) -> bool {
    let metadata = &value["metadata"];
    let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    metadata["deletionTimestamp"].is_string() && !held && grace == 0 && !is_terminating_namespace(value)
}

/// A namespace is held by its contents, which the finalizers in its spec stand for.
fn is_terminating_namespace(value: &Value) -> bool {
    value["kind"] == "Namespace"
        && value["spec"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}
