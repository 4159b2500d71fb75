//! Patches: what is to change, in one of the ways that clients write it.
//!
//! A patch is applied to the object in the version of the path; the result goes the road of every update.
//! JSON patch and merge patch are here; strategic merge and server-side apply have their place in [`Form`].

use serde_json::Value;

use super::answer::Answer;
use super::body::{self, Read};
use super::failure::{About, Failure};
use super::query::{Query, WriteOptions};
use super::request::Target;
use super::state::State;
use super::update::{Part, replace};
use crate::kinds::{Kind, Rules};

/// The most operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Merge,
}

impl Form {
    fn of(kind: &Kind, media_type: &str) -> Result<Self, Failure> {
        match media_type {
            "application/json-patch+json" => Ok(Form::Json),
            "application/merge-patch+json" => Ok(Form::Merge),
            "application/strategic-merge-patch+json" | "application/apply-patch+yaml" if is_builtin(kind) => {
                Err(Failure::not_implemented(format!("this server does not know {media_type} yet; use a merge patch")))
            }
            _ => Err(Failure::unsupported_media_type(accepted(kind))),
        }
    }
}

fn is_builtin(kind: &Kind) -> bool {
    matches!(kind.rules, Rules::Builtin(_))
}

fn accepted(kind: &Kind) -> &'static [&'static str] {
    const ALL: [&str; 4] = [
        "application/json-patch+json",
        "application/merge-patch+json",
        "application/apply-patch+yaml",
        "application/strategic-merge-patch+json",
    ];
    if is_builtin(kind) { &ALL } else { &ALL[..3] }
}

/// Changes an object, or its status.
pub(crate) fn patch(
    state: &mut State,
    kind: &Kind,
    target: &Target,
    query: &Query,
    media_type: &str,
    bytes: &[u8],
    part: Part,
) -> Result<Answer, Failure> {
    let form = Form::of(kind, media_type)?;
    let options = WriteOptions::read(query, "PatchOptions")?;
    let old = state.get(kind, &target.namespace, &target.name);
    let old = old.ok_or_else(|| Failure::not_found(kind.about(), &target.name))?;
    let mut value = kind.show(old.value());
    apply(form, &mut value, bytes, kind, &target.name)?;
    for (field, right) in [("apiVersion", kind.api_version()), ("kind", kind.kind.to_string())] {
        if value[field] != *right {
            let why = format!("{field}: a patch may not change it to {}", value[field]);
            return Err(Failure::bad_request(why));
        }
    }
    let Read { value, warnings } = body::read_value(kind, value, &[], options.unknown_fields)?;
    Ok(replace(state, kind, &old, value, part, options.dry_run)?.with_warnings(warnings))
}

fn apply(form: Form, value: &mut Value, bytes: &[u8], kind: &Kind, name: &str) -> Result<(), Failure> {
    let undecodable = |error: serde_json::Error| Failure::bad_request(format!("error decoding patch: {error}"));
    match form {
        Form::Merge => {
            let (patch, _) = body::parse(bytes).map_err(undecodable)?;
            if !patch.is_object() {
                return Err(Failure::bad_request("error decoding patch: a merge patch must be a JSON object"));
            }
            json_patch::merge(value, &patch);
        }
        Form::Json => {
            let patch: json_patch::Patch = serde_json::from_slice(bytes).map_err(undecodable)?;
            if patch.0.len() > OPERATIONS_MAX {
                return Err(Failure::too_large_patch(patch.0.len(), OPERATIONS_MAX));
            }
            json_patch::patch(value, &patch)
                .map_err(|error| Failure::patch_refused(kind.about(), name, &error.to_string()))?;
        }
    }
    Ok(())
}

/// What failures about patches are about.
impl Failure {
    fn too_large_patch(count: usize, most: usize) -> Self {
        Failure::entity_too_large(format!("The allowed maximum operations in a JSON patch is {most}, got {count}"))
    }

    fn patch_refused(about: About<'_>, name: &str, why: &str) -> Self {
        Failure::unprocessable(about, name, why)
    }
}
