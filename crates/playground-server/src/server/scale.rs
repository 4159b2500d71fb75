//! The `scale` subresource: how many replicas a set has and should have, whatever its kind.

use muster_playground_schema::FieldError;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::answer::Answer;
use super::failure::Failure;
use super::ownership::{Owners, Scaled, Writer, scaled};
use super::query::{Query, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use super::update::{Part, replace};
use super::{apply, json_text};
use crate::kinds::{About, Kind, Rules};

/// Where a kind keeps the numbers, as JSON pointers.
struct Paths {
    wanted: String,
    present: String,
    selector: Option<String>,
}

fn paths(kind: &Kind) -> Paths {
    let pointer = |path: &str| path.replace('.', "/");
    match &kind.rules {
        Rules::Custom(custom) => {
            let scale = custom.scale.as_ref().expect("only kinds with a scale are asked for it");
            Paths {
                wanted: pointer(&scale.spec_replicas),
                present: pointer(&scale.status_replicas),
                selector: scale.selector.as_deref().map(pointer),
            }
        }
        Rules::Builtin(_) => {
            Paths { wanted: "/spec/replicas".to_owned(), present: "/status/replicas".to_owned(), selector: None }
        }
    }
}

fn scale_of(kind: &Kind, object: &Object) -> Value {
    let (value, paths) = (object.value(), paths(kind));
    let number = |path: &str| value.pointer(path).and_then(Value::as_i64).unwrap_or_default();
    let metadata = &value["metadata"];
    let mut scale = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"], "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"], "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {"replicas": number(&paths.wanted)},
        "status": {"replicas": number(&paths.present)},
    });
    if let Some(namespace) = metadata.get("namespace") {
        scale["metadata"]["namespace"] = namespace.clone();
    }
    let selector = match &paths.selector {
        Some(path) => value.pointer(path).and_then(Value::as_str).map(str::to_owned),
        None => value["spec"]["selector"]["matchLabels"].as_object().map(|labels| {
            let pairs = labels.iter().map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
            pairs.collect::<Vec<_>>().join(",")
        }),
    };
    if let Some(selector) = selector {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

fn find(state: &State, kind: &Kind, target: &Target) -> Result<std::sync::Arc<Object>, Failure> {
    state.get(kind, &target.namespace, &target.name).ok_or_else(|| Failure::not_found(kind.about(), &target.name))
}

/// Shows the numbers.
pub(crate) fn get(state: &State, kind: &Kind, target: &Target) -> Result<Answer, Failure> {
    Ok(Answer::value(200, &scale_of(kind, &*find(state, kind, target)?)))
}

/// How another number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Merge,
    Apply,
}

impl Form {
    /// The form of a patch.
    pub(crate) fn of(media_type: &str) -> Result<Self, Failure> {
        match media_type {
            "application/merge-patch+json" => Ok(Form::Merge),
            "application/apply-patch+yaml" => Ok(Form::Apply),
            _ => {
                Err(Failure::unsupported_media_type(&["application/merge-patch+json", "application/apply-patch+yaml"]))
            }
        }
    }

    fn write(self) -> Write {
        match self {
            Form::Whole => Write::Update,
            Form::Merge => Write::Patch,
            Form::Apply => Write::Apply,
        }
    }
}

/// Reads a Scale, or a part of one.
fn read(form: Form, bytes: &[u8]) -> Result<Value, Failure> {
    let written = if form == Form::Apply {
        let (config, _) = apply::read(bytes)?;
        apply::is_of_kind(&config, "autoscaling/v1", "Scale")?;
        config
    } else {
        let decoding = |error| Failure::bad_request(format!("error decoding Scale: {error}"));
        json_text::parse(bytes).map_err(decoding)?.0
    };
    let is_part = |part: &Value| part.is_object() || part.is_null();
    if !written.is_object() || !is_part(&written["metadata"]) || !is_part(&written["spec"]) {
        return Err(Failure::bad_request("error decoding Scale: it, its metadata and its spec are objects"));
    }
    Ok(written)
}

/// Asks for another number, by a whole Scale or a part of one.
pub(crate) fn set(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
    form: Form,
) -> Result<Answer, Failure> {
    let options = WriteOptions::read(query, form.write())?;
    let old = find(state, kind, target)?;
    let written = read(form, bytes)?;
    let mut scale = scale_of(kind, &old);
    let before = scale["spec"]["replicas"].clone();
    // Who applies no number wants none.
    let wants = form != Form::Apply || !written["spec"]["replicas"].is_null();
    if form == Form::Whole {
        scale = written;
    } else {
        json_patch::merge(&mut scale, &written);
    }
    let asked = &scale["spec"]["replicas"];
    let replicas = asked.as_i64().or(asked.is_null().then_some(0)).filter(|count| i32::try_from(*count).is_ok());
    let Some(replicas) = replicas else {
        return Err(Failure::bad_request(format!("spec.replicas: {asked} is not a number of 32 bits")));
    };
    if replicas < 0 {
        let about = About { group: "autoscaling", resource: "Scale" };
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(Failure::invalid(about, &target.name, &[error]));
    }
    let revision = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !revision.is_empty() && *revision != old.revision.to_string() {
        return Err(Failure::modified(kind.about(), &target.name));
    }
    let mut value = old.value();
    let path = paths(kind).wanted;
    let (parent, field) = path.rsplit_once('/').unwrap_or(("", &path));
    match value.pointer_mut(parent) {
        Some(parent) if parent.is_object() => parent[field] = json!(replicas),
        _ => return Err(Failure::internal(format!("{} has no {parent}", target.name))),
    }
    if wants {
        let how = if form == Form::Apply { Scaled::Applied { force: options.force } } else { Scaled::Updated };
        let writer = Writer { manager: &options.manager, subresource: "scale", now: &state.time() };
        let changes = before != json!(replicas);
        scaled(&state.registry, kind, &mut value, &path, changes, writer, how).map_err(apply::refused)?;
    }
    replace(state, kind, &old, value, Part::Scale, Owners::Settled, options.dry_run)?;
    let mut answer = scale_of(kind, &*find(state, kind, target)?);
    // After a rehearsal the store still has the old number.
    answer["spec"]["replicas"] = json!(replicas);
    Ok(Answer::value(200, &answer))
}
