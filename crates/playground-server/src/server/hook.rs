//! What a stranger says about a write: a hook that is asked as kube-apiserver asks a mutating webhook, but as a function
//! in the process.
//!
//! It turns a write into an AdmissionReview and an answer into a changed object, a refusal or warnings, in the words of
//! the real server. It must not know what the hook does, nor where in a write it is asked.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_playground_schema::go_text::quoted;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::failure::Failure;
use super::state::State;
use super::{body, json_patch, json_text, ownership};
use crate::kinds::Kind;

const API_VERSION: &str = "admission.k8s.io/v1";
const KIND: &str = "AdmissionReview";

/// A write that a hook can be asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionOperation {
    /// POST, and whatever else makes an object that was not there.
    Create,
    /// PUT, and every kind of PATCH of what is there.
    Update,
}

impl AdmissionOperation {
    fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
        }
    }
}

/// Answers an AdmissionReview with one.
type Respond = dyn Fn(Value) -> Value + Send + Sync;

/// A function that the server asks about writes, as kube-apiserver asks a mutating webhook.
///
/// It is given an `admission.k8s.io/v1` AdmissionReview and answers with one. It is asked after the defaults and the
/// server's own admission, before the object is checked, on creates and updates of objects themselves: not of
/// subresources, not on deletes, and not about what the server itself writes. What it leaves of the object goes through
/// the same admission and checks as any other.
///
/// It runs while the server is locked, so it must be a pure function: it must neither wait nor ask the server, and if
/// it panics the server is broken for good.
#[derive(Clone)]
pub struct Admission {
    name: Arc<str>,
    rules: Vec<Rule>,
    respond: Arc<Respond>,
}

#[derive(Clone, Debug)]
struct Rule {
    group: String,
    plural: String,
    operations: Vec<AdmissionOperation>,
}

impl Admission {
    /// A hook that errors will name so. It is asked about nothing yet.
    pub fn new(name: &str, respond: impl Fn(Value) -> Value + Send + Sync + 'static) -> Self {
        Self { name: name.into(), rules: Vec::new(), respond: Arc::new(respond) }
    }

    /// Asks it about these writes of a resource too, in whichever version.
    #[must_use]
    pub fn about(mut self, group: &str, plural: &str, operations: &[AdmissionOperation]) -> Self {
        let (group, plural) = (group.to_owned(), plural.to_owned());
        self.rules.push(Rule { group, plural, operations: operations.to_vec() });
        self
    }

    fn is_asked(&self, kind: &Kind, operation: AdmissionOperation) -> bool {
        self.rules.iter().any(|rule| kind.is(&rule.group, &rule.plural) && rule.operations.contains(&operation))
    }

    /// The hook could not be asked, or what it said means nothing.
    fn not_called(&self, why: impl std::fmt::Display) -> Failure {
        Failure::internal(format!("failed calling webhook {}: {why}", quoted(&self.name)))
    }
}

impl std::fmt::Debug for Admission {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Admission").field("name", &self.name).field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A write, as the hook is asked about it.
#[derive(Clone, Copy)]
pub(crate) struct Question<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) operation: AdmissionOperation,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    /// What is to be replaced, as it is stored.
    pub(crate) old: Option<&'a Value>,
    pub(crate) dry_run: bool,
}

/// What a hook had to say to a write that it allows.
#[derive(Debug)]
pub(crate) struct Heard {
    /// The object after the hook's patch, if there was one.
    pub(crate) changed: Option<Value>,
    pub(crate) warnings: Vec<String>,
}

/// The hook that is to be asked about a write, if there is one.
pub(crate) fn for_write(state: &State, kind: &Kind, operation: AdmissionOperation) -> Option<Admission> {
    state.admission.as_ref().filter(|hook| hook.is_asked(kind, operation)).cloned()
}

/// Asks a hook about an object, which is read again if the hook changes it.
pub(crate) fn ask(
    hook: &Admission,
    state: &mut State,
    question: Question<'_>,
    value: &Value,
) -> Result<Heard, Failure> {
    let uid = state.random.uid();
    let shown = question.kind.show(value.clone());
    let answer = Answer::read(hook, (hook.respond)(question.review(&uid, &shown)), &uid)?;
    if !answer.allowed {
        return Err(refused(hook, answer.status.unwrap_or_default()).with_warnings(answer.warnings));
    }
    let changed = match answer.patch {
        Some(patch) => Some(
            patched(hook, state, question.kind, shown, &patch)
                .map_err(|failure| failure.with_warnings(answer.warnings.clone()))?,
        ),
        None => None,
    };
    Ok(Heard { changed, warnings: answer.warnings })
}

impl Question<'_> {
    /// The review, without the options of the request.
    fn review(&self, uid: &str, object: &Value) -> Value {
        let kind = self.kind;
        let of_kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let of_resource = json!({"group": kind.group, "version": kind.version, "resource": kind.plural});
        let mut request = json!({
            "uid": uid,
            "kind": of_kind, "resource": of_resource, "requestKind": of_kind, "requestResource": of_resource,
            "operation": self.operation.name(),
            "userInfo": {"username": "system:anonymous", "groups": ["system:unauthenticated"]},
            "object": object,
            "oldObject": self.old.map(|old| kind.show(old.clone())),
            "dryRun": self.dry_run,
        });
        for (field, text) in [("name", self.name), ("namespace", self.namespace)] {
            if !text.is_empty() {
                request[field] = json!(text);
            }
        }
        json!({"apiVersion": API_VERSION, "kind": KIND, "request": request})
    }
}

/// An answer, as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written {
    api_version: Option<String>,
    kind: Option<String>,
    response: Option<Response>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response {
    uid: Option<String>,
    allowed: Option<bool>,
    status: Option<Status>,
    patch: Option<String>,
    patch_type: Option<String>,
    warnings: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
struct Status {
    code: Option<u16>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Map<String, Value>>,
}

/// An answer that makes sense.
struct Answer {
    allowed: bool,
    status: Option<Status>,
    /// A patch with at least one operation.
    patch: Option<Value>,
    warnings: Vec<String>,
}

impl Answer {
    fn read(hook: &Admission, answer: Value, uid: &str) -> Result<Self, Failure> {
        let uncalled = |why: String| hook.not_called(format!("failed to call webhook: {why}"));
        let invalid = |why: String| hook.not_called(format!("received invalid webhook response: {why}"));
        let written: Written = serde_json::from_value(answer).map_err(|error| uncalled(error.to_string()))?;
        let response = written.response.ok_or_else(|| invalid("webhook response was absent".to_owned()))?;
        let own = response.uid.unwrap_or_default();
        if *own != *uid {
            return Err(invalid(format!("expected response.uid={}, got {}", quoted(uid), quoted(&own))));
        }
        let (version, kind) = (written.api_version.unwrap_or_default(), written.kind.unwrap_or_default());
        if (&*version, &*kind) != (API_VERSION, KIND) {
            let why = format!("expected webhook response of {API_VERSION}, Kind={KIND}, got {version}, Kind={kind}");
            return Err(invalid(why));
        }
        let patch = STANDARD.decode(response.patch.unwrap_or_default()).map_err(|error| uncalled(error.to_string()))?;
        match &response.patch_type {
            None if !patch.is_empty() => {
                return Err(invalid("webhook returned response.patch but not response.patchType".to_owned()));
            }
            Some(_) if patch.is_empty() => {
                return Err(invalid("webhook returned response.patchType but not response.patch".to_owned()));
            }
            Some(kind) if kind.is_empty() => {
                return Err(invalid("webhook returned invalid response.patchType of \"\"".to_owned()));
            }
            _ => {}
        }
        let allowed = response.allowed.unwrap_or_default();
        // A patch of what is refused is not looked at.
        let patch = if allowed && !patch.is_empty() {
            operations(hook, &patch, &response.patch_type.unwrap_or_default())?
        } else {
            None
        };
        Ok(Self { allowed, status: response.status, patch, warnings: response.warnings.unwrap_or_default() })
    }
}

/// The operations of a patch, if there are any.
fn operations(hook: &Admission, patch: &[u8], kind: &str) -> Result<Option<Value>, Failure> {
    let undecodable = |why: String| hook.not_called(format!("received undecodable patch in webhook response: {why}"));
    let (patch, _) = json_text::parse(patch).map_err(undecodable)?;
    if let Some(why) = json_patch::unreadable(&patch) {
        return Err(undecodable(why));
    }
    if patch.as_array().is_none_or(Vec::is_empty) {
        return Ok(None);
    }
    if kind != "JSONPatch" {
        return Err(hook.not_called(format!("unsupported patch type {}", quoted(kind))));
    }
    Ok(Some(patch))
}

/// The status of a write that the hook refuses.
fn refused(hook: &Admission, status: Status) -> Failure {
    let (reason, message) = (status.reason.unwrap_or_default(), status.message.unwrap_or_default());
    let why = match [&message, &reason].into_iter().find(|text| !text.is_empty()) {
        Some(why) => format!(": {why}"),
        None => " without explanation".to_owned(),
    };
    let message = format!("admission webhook {} denied the request{why}", quoted(&hook.name));
    // A refusal is never a success, whatever code it carries.
    Failure::denied(status.code.unwrap_or_default().max(400), reason, message, status.details)
}

/// An object after a hook's patch, with its defaults. The list of its managers stays as it is: what a hook changes,
/// nobody owns.
fn patched(hook: &Admission, state: &State, kind: &Kind, mut object: Value, patch: &Value) -> Result<Value, Failure> {
    let managed = object["metadata"].get("managedFields").cloned();
    // The liberties that it takes are those of the library that the real server uses here as well.
    json_patch::apply(&mut object, patch).map_err(|_| {
        Failure::internal(format!("the patch of webhook {} does not apply to the object", quoted(&hook.name)))
    })?;
    if !object["metadata"].is_object() {
        return Err(Failure::internal(format!("webhook {} has left no metadata", quoted(&hook.name))));
    }
    ownership::take(&mut object);
    body::identify(&state.registry, kind, &mut object, &[]).map_err(|failure| Failure::internal(failure.message()))?;
    let (mut value, _) = body::read_value(kind, object, &[]).map_err(Failure::internal)?;
    ownership::put(&mut value, managed);
    kind.complete(&mut value);
    Ok(value)
}
