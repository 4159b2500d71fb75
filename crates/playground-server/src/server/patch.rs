//! Patches: what is to change, in one of the ways that clients write it.
//!
//! A patch is applied to the object in the version of the path; the result goes the road of every update.
//! Server-side apply is another matter: see `apply`.

use muster_playground_schema::FieldError;
use serde_json::Value;

use super::answer::{Answer, printed};
use super::failure::Failure;
use super::ownership::Owners;
use super::query::{Query, UnknownFields, Write, WriteOptions};
use super::request::Target;
use super::state::State;
use super::update::{Part, replace, same_name};
use super::{apply, body, create, json_patch, json_text, ownership, strategic_patch};
use crate::kinds::{About, Kind};

/// The most operations of one JSON patch.
const OPERATIONS_MAX: usize = 10_000;

/// How a patch is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Json,
    Merge,
    Strategic,
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Form {
    fn of(kind: &Kind, media_type: &str) -> Result<Self, Failure> {
        match media_type {
            "application/json-patch+json" => Ok(Form::Json),
            "application/merge-patch+json" => Ok(Form::Merge),
            STRATEGIC if kind.is_builtin() => Ok(Form::Strategic),
            _ if kind.is_builtin() => Err(Failure::unknown_patch()),
            _ => Err(Failure::unsupported_media_type(&CUSTOM)),
        }
    }
}

/// What custom kinds can be patched with.
const CUSTOM: [&str; 3] = ["application/json-patch+json", "application/merge-patch+json", APPLY];

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
    if media_type == APPLY {
        return apply::apply(state, kind, target, query, bytes, part);
    }
    let form = Form::of(kind, media_type)?;
    let options = WriteOptions::read(query, Write::Patch)?;
    let patch = Patch::read(form, bytes)?;
    let old = state.get(kind, &target.namespace, &target.name);
    let old = old.ok_or_else(|| Failure::not_found(kind.about(), &target.name))?;
    let mut value = kind.show(old.value());
    if !patch.names_managers() {
        // Who does not name them leaves them as they are; so they need not be read and written.
        ownership::take(&mut value);
    }
    let told = patch.apply(&mut value, options.unknown_fields)?;
    let (mut value, warnings) = read_patched(state, kind, value, told, options.unknown_fields)?;
    create::place(kind, target, &mut value)?;
    same_name(target, &value)?;
    create::name_owners_once(&mut value);
    match replace(state, kind, &old, value, part, Owners::Writer(&options.manager), options.dry_run) {
        Ok(answer) => Ok(answer.with_warnings(warnings)),
        Err(failure) => Err(failure.with_warnings(warnings)),
    }
}

/// A patch that can be read.
struct Patch {
    form: Form,
    value: Value,
    /// Fields that were there twice.
    twice: Vec<String>,
}

impl Patch {
    fn read(form: Form, bytes: &[u8]) -> Result<Self, Failure> {
        let (value, twice) = json_text::parse(bytes).map_err(|_| Failure::bad_request("invalid JSON patch"))?;
        Ok(Self { form, value, twice })
    }

    /// Whether the patch may read or change the list of managers.
    fn names_managers(&self) -> bool {
        if self.form != Form::Json {
            return self.value["metadata"].get("managedFields").is_some();
        }
        let operations = self.value.as_array().into_iter().flatten();
        let mut paths = operations.flat_map(|operation| [operation["path"].as_str(), operation["from"].as_str()]);
        paths.any(|path| {
            path.is_some_and(|path| path.starts_with("/metadata/managedFields") || ["", "/metadata"].contains(&path))
        })
    }

    /// Applies the patch. Answers with what was not understood in the patch itself.
    fn apply(&self, value: &mut Value, unknown: UnknownFields) -> Result<Vec<String>, Failure> {
        let decoding = |why: String| Failure::bad_request(format!("error decoding patch: {why}"));
        let twice = self.twice.iter().map(|path| format!("duplicate field \"{path}\""));
        if self.form == Form::Strategic {
            self.merge_strategically(value)?;
            return Ok(twice.collect());
        }
        if self.form == Form::Merge {
            if !self.value.is_object() {
                return Err(match &self.value {
                    other if other.is_null() || unknown == UnknownFields::Ignore => {
                        Failure::bad_request("Invalid JSON Patch")
                    }
                    other => decoding(format!(
                        "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
                        json_patch::go_type(other)
                    )),
                });
            }
            ::json_patch::merge(value, &self.value);
            return Ok(twice.collect());
        }
        if let Some(why) = json_patch::unreadable(&self.value) {
            return Err(decoding(why));
        }
        let count = self.value.as_array().map_or(0, Vec::len);
        if count > OPERATIONS_MAX {
            return Err(Failure::entity_too_large(format!(
                "The allowed maximum operations in a JSON patch is {OPERATIONS_MAX}, got {count}"
            )));
        }
        json_patch::apply(value, &self.value).map_err(|_| Failure::unprocessable())?;
        let strange = json_patch::unknown_fields(&self.value).into_iter();
        let strange = strange.map(|path| format!("unknown field \"{path}\""));
        Ok(twice.chain(strange).map(|problem| format!("json patch {problem}")).collect())
    }
}

impl Patch {
    fn merge_strategically(&self, value: &mut Value) -> Result<(), Failure> {
        let Some(patch) = self.value.as_object() else {
            let found = json_patch::go_type(&self.value);
            let why = format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
            return Err(Failure::bad_request(why));
        };
        let object = value.as_object_mut().ok_or_else(Failure::unprocessable)?;
        strategic_patch::apply(object, patch).map_err(|error| Failure::bad_request(error.to_string()))
    }
}

/// Reads what a patch made of an object. What is wrong with it is wrong with the patch.
fn read_patched(
    state: &State,
    kind: &Kind,
    mut value: Value,
    mut told: Vec<String>,
    unknown: UnknownFields,
) -> Result<(Value, Vec<String>), Failure> {
    let shown = printed(&value);
    let invalid = |why: String| {
        let error = FieldError::invalid("patch", String::from_utf8_lossy(&shown).into_owned(), why);
        Failure::invalid(About { group: "", resource: "" }, "", &[error])
    };
    body::identify(&state.registry, kind, &mut value, &[]).map_err(|failure| invalid(failure.message().to_owned()))?;
    let (value, problems) = body::read_value(kind, value, &[]).map_err(&invalid)?;
    told.extend(problems.iter().map(ToString::to_string));
    let warnings = unknown.judge(told).map_err(&invalid)?;
    Ok((value, warnings))
}
