//! Create: one road for all kinds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::admission;
use super::answer::{Answer, printed};
use super::body::{self, Read};
use super::failure::Failure;
use super::hook::{self, AdmissionOperation, Heard, Question};
use super::ownership::{self, Owners, Writer};
use super::query::{Query, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use super::update::same_name;
use crate::kinds::{Kind, NameRule};

/// The longest name that a suffix can be put behind.
const GENERATED_PREFIX_MAX: usize = 58;
/// How often a generated name is drawn before one that is taken is refused.
const DRAWS_MAX: usize = 8;

/// Creates an object from a request's body.
pub(crate) fn create(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, Write::Create)?;
    let Read { mut value, mut warnings } = body::read(&state.registry, kind, bytes, options.unknown_fields)?;
    warnings.extend(name_owners_once(&mut value));
    let mut about_it = kind.warnings(&value);
    about_it.extend(hostname_warning(kind, &value));
    match insert(state, kind, target, value, Owners::Writer(&options.manager), options.dry_run) {
        Ok(answer) => Ok(answer.with_warnings(warnings).with_warnings(about_it)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Creates an object from its value.
pub(crate) fn insert(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    mut value: Value,
    owners: Owners<'_>,
    dry_run: bool,
) -> Result<Answer, Failure> {
    place(kind, target, &mut value)?;
    let is_named = is_named(&value);
    name(state, kind, target, &mut value);
    stamp(state, &mut value);
    kind.complete(&mut value);
    if let Owners::Writer(manager) = owners {
        let now = state.time();
        ownership::created(&state.registry, kind, &mut value, Writer { manager, subresource: "", now: &now });
    }
    admission::on_create(state, kind, target, &mut value)?;
    let warnings = listen(state, kind, target, &mut value, is_named, dry_run)?;
    match admitted(state, kind, target, value, owners, dry_run) {
        Ok(answer) => Ok(answer.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// Checks and stores a new object that all admission is done with.
fn admitted(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    mut value: Value,
    owners: Owners<'_>,
    dry_run: bool,
) -> Result<Answer, Failure> {
    kind.on_create(&mut value);
    let mut errors = kind.check_metadata(&value);
    errors.extend(kind.check(&value));
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if !errors.is_empty() {
        return Err(Failure::invalid(kind.about_kind(), &name, &errors));
    }
    forget_revision(&mut value)?;
    if let Some(other) = state.get(kind, &target.namespace, &name) {
        return Err(Failure::already_exists(kind.about(), &name, other.deleting));
    }
    admission::after_checks(state, kind, &value)?;
    fits(&mut value, owners)?;
    if dry_run {
        return Ok(Answer::Json { code: 201, text: printed(&kind.show(value)), warnings: Vec::new() });
    }
    let object = state.write(kind, value);
    Ok(Answer::object(201, kind, &object))
}

/// Asks the hook, if there is one for it. Answers with its warnings.
fn listen(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    value: &mut Value,
    is_named: bool,
    dry_run: bool,
) -> Result<Vec<String>, Failure> {
    let operation = AdmissionOperation::Create;
    let Some(hook) = hook::for_write(state, kind, operation) else { return Ok(Vec::new()) };
    // The real server asks before it draws a name and a UID.
    let mut shown = value.clone();
    let metadata = shown["metadata"].as_object_mut().expect("every object has metadata");
    let stamps = ["uid", "creationTimestamp"].map(|field| (field, metadata.remove(field)));
    if !is_named {
        metadata.remove("name");
    }
    let name = shown["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let question = Question { kind, operation, namespace: &target.namespace, name: &name, old: None, dry_run };
    let Heard { changed, mut warnings } = hook::ask(&hook, state, question, &shown)?;
    let Some(changed) = changed else { return Ok(warnings) };
    *value = changed;
    place(kind, target, value)?;
    if !target.name.is_empty() {
        same_name(target, value)?;
    }
    self::name(state, kind, target, value);
    for (field, stamp) in stamps {
        value["metadata"][field] = stamp.unwrap_or_default();
    }
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        value["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    warnings.extend(name_owners_once(value));
    // The server's own admission looks again at what others have changed.
    match admission::on_create(state, kind, target, value) {
        Ok(()) => Ok(warnings),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// The most bytes of an object: what etcd takes in one request.
const SIZE_MAX: usize = 1_536 * 1024;

/// Refuses an object that no real server could store. Its size is told by its texts, which are what can be large.
/// What does not fit with the list of its managers may do so without.
pub(crate) fn fits(value: &mut Value, owners: Owners<'_>) -> Result<(), Failure> {
    fn size(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len() + 2,
            Value::Array(entries) => 2 + entries.iter().map(|entry| 1 + size(entry)).sum::<usize>(),
            Value::Object(fields) => 2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
            Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        }
    }
    if size(value) <= SIZE_MAX {
        return Ok(());
    }
    if matches!(owners, Owners::Writer(_)) {
        ownership::put(value, None);
    }
    if size(value) > SIZE_MAX { Err(Failure::plain(500, "etcdserver: request is too large")) } else { Ok(()) }
}

/// The namespace of an object is that of the path.
pub(crate) fn place(kind: &Kind, target: &Target, value: &mut Value) -> Result<(), Failure> {
    if !kind.namespaced {
        value["metadata"].as_object_mut().map(|metadata| metadata.remove("namespace"));
        return Ok(());
    }
    let written = value["metadata"]["namespace"].as_str().unwrap_or_default();
    if !written.is_empty() && *written != *target.namespace {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    value["metadata"]["namespace"] = json!(target.namespace);
    Ok(())
}

fn is_named(value: &Value) -> bool {
    value["metadata"]["name"].as_str().is_some_and(|name| !name.is_empty())
}

/// Draws a name for an object that leaves it to the server.
fn name(state: &mut State, kind: &Kind, target: &Target, value: &mut Value) {
    let metadata = &value["metadata"];
    let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
    if !is_named(value) && !prefix.is_empty() {
        let cut = (0..=prefix.len().min(GENERATED_PREFIX_MAX)).rev().find(|end| prefix.is_char_boundary(*end));
        let prefix = &prefix[..cut.unwrap_or_default()];
        let mut drawn = String::new();
        for _ in 0..DRAWS_MAX {
            drawn = format!("{prefix}{}", state.random.name_suffix());
            if state.get(kind, &target.namespace, &drawn).is_none() {
                break;
            }
        }
        value["metadata"]["name"] = json!(drawn);
    }
}

/// A new object has no revision yet; what is not a number was never one.
fn forget_revision(value: &mut Value) -> Result<(), Failure> {
    let Some(metadata) = value["metadata"].as_object_mut() else { return Ok(()) };
    let written = metadata.remove("resourceVersion");
    let written = written.as_ref().and_then(Value::as_str).and_then(|text| text.parse::<u64>().ok());
    match written {
        None | Some(0) => Ok(()),
        Some(_) => Err(Failure::plain(500, "resourceVersion should not be set on objects to be created")),
    }
}

/// Strikes out owners that are named twice. Answers with a warning about them.
pub(crate) fn name_owners_once(value: &mut Value) -> Option<String> {
    let owners = value.pointer_mut("/metadata/ownerReferences")?.as_array_mut()?;
    let (mut seen, mut twice) = (BTreeSet::new(), Vec::new());
    owners.retain(|owner| {
        let is_first = seen.insert(owner.to_string());
        if !is_first {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        is_first
    });
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            twice.join(", ")
        )
    })
}

/// A pod's name becomes its hostname, which not all names can be.
fn hostname_warning(kind: &Kind, value: &Value) -> Option<String> {
    let name = value["metadata"]["name"].as_str().filter(|name| !name.is_empty())?;
    let is_pod = kind.group.is_empty() && *kind.plural == *"pods";
    let why = if is_pod { NameRule::Label.refusals(name, false) } else { Vec::new() };
    // A name that is refused is not warned about.
    let is_name = NameRule::Subdomain.refusals(name, false).is_empty();
    (!why.is_empty() && is_name).then(|| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            why.join(" ")
        )
    })
}

/// What only the server says about an object.
fn stamp(state: &mut State, value: &mut Value) {
    let Some(metadata) = value["metadata"].as_object_mut() else { return };
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.insert("uid".to_owned(), json!(state.random.uid()));
    metadata.insert("creationTimestamp".to_owned(), json!(state.time()));
}
