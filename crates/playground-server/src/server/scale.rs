//! The `scale` subresource: the number of replicas of any scalable kind.

use muster_playground_schema::FieldError;
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::managed_fields::{FieldTracking, Scaled, Writer, scaled};
use super::query::{Query, WriteOptions, WriteVerb};
use super::request::Target;
use super::response::ApiResponse;
use super::state::State;
use super::status_error::StatusError;
use super::update::{Part, replace};
use super::{apply, json_text};
use crate::kinds::{GroupResource, Kind, Strategy};

/// Where a kind keeps its replica counts, as JSON pointers.
struct Paths {
    desired: String,
    current: String,
    selector: Option<String>,
}

fn paths(kind: &Kind) -> Paths {
    let pointer = |path: &str| path.replace('.', "/");
    match &kind.strategy {
        Strategy::Custom(custom) => {
            let scale = custom.scale.as_ref().expect("the kind has a scale subresource");
            Paths {
                desired: pointer(&scale.spec_replicas),
                current: pointer(&scale.status_replicas),
                selector: scale.selector.as_deref().map(pointer),
            }
        }
        Strategy::Builtin(_) => {
            Paths { desired: "/spec/replicas".to_owned(), current: "/status/replicas".to_owned(), selector: None }
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
        "spec": {"replicas": number(&paths.desired)},
        "status": {"replicas": number(&paths.current)},
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

fn find(state: &State, kind: &Kind, target: &Target) -> Result<std::sync::Arc<Object>, StatusError> {
    state
        .get(kind, &target.namespace, &target.name)
        .ok_or_else(|| StatusError::not_found(kind.group_resource(), &target.name))
}

/// Gets the Scale of an object.
pub(crate) fn get(state: &State, kind: &Kind, target: &Target) -> Result<ApiResponse, StatusError> {
    Ok(ApiResponse::value(200, &scale_of(kind, &*find(state, kind, target)?)))
}

/// How a Scale is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScaleWrite {
    Update,
    Merge,
    Apply,
}

impl ScaleWrite {
    /// The type of a patch.
    pub(crate) fn of(media_type: &str) -> Result<Self, StatusError> {
        match media_type {
            "application/merge-patch+json" => Ok(ScaleWrite::Merge),
            "application/apply-patch+yaml" => Ok(ScaleWrite::Apply),
            _ => Err(StatusError::unsupported_media_type(&[
                "application/merge-patch+json",
                "application/apply-patch+yaml",
            ])),
        }
    }

    fn verb(self) -> WriteVerb {
        match self {
            ScaleWrite::Update => WriteVerb::Update,
            ScaleWrite::Merge => WriteVerb::Patch,
            ScaleWrite::Apply => WriteVerb::Apply,
        }
    }
}

/// Decodes a Scale or a patch of one.
fn decode(write_form: ScaleWrite, bytes: &[u8]) -> Result<Value, StatusError> {
    let written = if write_form == ScaleWrite::Apply {
        let (config, _) = apply::decode(bytes)?;
        apply::check_kind(&config, "autoscaling/v1", "Scale")?;
        config
    } else {
        let decoding = |error| StatusError::bad_request(format!("error decoding Scale: {error}"));
        json_text::parse(bytes).map_err(decoding)?.0
    };
    let is_part = |part: &Value| part.is_object() || part.is_null();
    if !written.is_object() || !is_part(&written["metadata"]) || !is_part(&written["spec"]) {
        return Err(StatusError::bad_request("error decoding Scale: it, its metadata and its spec are objects"));
    }
    Ok(written)
}

/// Updates, patches or applies a Scale.
pub(crate) fn set(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    bytes: &[u8],
    write_form: ScaleWrite,
) -> Result<ApiResponse, StatusError> {
    let options = WriteOptions::read(query, write_form.verb())?;
    let old = find(state, kind, target)?;
    let written = decode(write_form, bytes)?;
    let mut scale = scale_of(kind, &old);
    let before = scale["spec"]["replicas"].clone();
    // Applying a Scale without `replicas` sets none.
    let sets_replicas = write_form != ScaleWrite::Apply || !written["spec"]["replicas"].is_null();
    if write_form == ScaleWrite::Update {
        scale = written;
    } else {
        json_patch::merge(&mut scale, &written);
    }
    let requested = &scale["spec"]["replicas"];
    let replicas =
        requested.as_i64().or(requested.is_null().then_some(0)).filter(|count| i32::try_from(*count).is_ok());
    let Some(replicas) = replicas else {
        return Err(StatusError::bad_request(format!("spec.replicas: {requested} is not a number of 32 bits")));
    };
    if replicas < 0 {
        let group_resource = GroupResource { group: "autoscaling", resource: "Scale" };
        let error = FieldError::invalid("spec.replicas", replicas, "must be greater than or equal to 0");
        return Err(StatusError::invalid(group_resource, &target.name, &[error]));
    }
    let revision = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !revision.is_empty() && *revision != old.revision.to_string() {
        return Err(StatusError::modified(kind.group_resource(), &target.name));
    }
    let mut value = old.value();
    let path = paths(kind).desired;
    let (parent, field) = path.rsplit_once('/').unwrap_or(("", &path));
    match value.pointer_mut(parent) {
        Some(parent) if parent.is_object() => parent[field] = json!(replicas),
        _ => return Err(StatusError::internal(format!("{} has no {parent}", target.name))),
    }
    if sets_replicas {
        let how =
            if write_form == ScaleWrite::Apply { Scaled::Applied { force: options.force } } else { Scaled::Updated };
        let writer = Writer { manager: &options.manager, subresource: "scale", now: &state.time() };
        let changes = before != json!(replicas);
        scaled(&state.registry, kind, &mut value, &path, changes, writer, how).map_err(apply::apply_error)?;
    }
    replace(state, kind, &old, value, Part::Scale, FieldTracking::AlreadySet, options.dry_run)?;
    let mut response = scale_of(kind, &*find(state, kind, target)?);
    // After a dry run the store still has the old number.
    response["spec"]["replicas"] = json!(replicas);
    Ok(ApiResponse::value(200, &response))
}
