//! The query options of a request, decoded and validated as in kube-apiserver.
//!
//! Invariant: a known option is honoured or rejected; unknown ones are ignored, as in kube-apiserver.
//! Must not depend on the store.

use muster_playground_schema::FieldError;
use muster_playground_schema::go_text::is_printed;
use serde_json::{Value, json};

use super::status_error::StatusError;
use crate::kinds::GroupResource;

/// The query and the user agent of a request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    options: Vec<(String, String)>,
    /// The program name from the user agent.
    user_agent: String,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self { options: form_urlencoded::parse(text.as_bytes()).into_owned().collect(), user_agent: String::new() }
    }

    /// Sets the user agent; only the part before its version is kept.
    pub(crate) fn with_user_agent(mut self, user_agent: &str) -> Self {
        let printable = user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printed(*c));
        for c in printable {
            if self.user_agent.len() + c.len_utf8() > FIELD_MANAGER_LENGTH_MAX {
                break;
            }
            self.user_agent.push(c);
        }
        self
    }

    /// The first value of an option; an empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether an option is present, with any value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(key, _)| key == name)
    }

    /// All values of an option.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, StatusError> {
        // Unlike a string, an empty number is an error.
        let Some((_, text)) = self.options.iter().find(|(key, _)| key == name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(error) => {
                let why = match std::num::IntErrorKind::clone(std::num::ParseIntError::kind(&error)) {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Err(StatusError::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}")))
            }
        }
    }

    /// A boolean: present without a value means true, `false` and `0` mean false.
    fn flag(&self, name: &str) -> Option<bool> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or_default()
    }
}

/// The options of a create, update or patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) field_validation: FieldValidation,
    /// The field manager.
    pub(crate) manager: String,
    /// Whether an apply takes over fields of other managers.
    pub(crate) force: bool,
}

/// The `fieldValidation` option. Unknown fields are dropped in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

impl WriteOptions {
    /// Reads the options of a create, update or patch.
    pub(crate) fn read(query: &Query, form: WriteVerb) -> Result<Self, StatusError> {
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let mut errors = dry_run_errors(&dry_run);
        let manager = query.text("fieldManager").unwrap_or_default();
        if manager.len() > FIELD_MANAGER_LENGTH_MAX {
            errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_LENGTH_MAX as i64));
        }
        if let Some((position, unprintable)) = manager.char_indices().find(|(_, c)| !is_printed(*c)) {
            let why = format!("invalid character U+{:04X} (at position {position})", unprintable as u32);
            errors.push(FieldError::invalid("fieldManager", manager, why));
        }
        let validation = query.text("fieldValidation").unwrap_or_default();
        let field_validation = match validation {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            _ => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", validation, &allowed));
                FieldValidation::Warn
            }
        };
        errors.extend(force_errors(query, manager, form));
        reject(form.options_kind(), &errors)?;
        let manager = if manager.is_empty() { query.user_agent.clone() } else { manager.to_owned() };
        let force = query.flag("force").unwrap_or_default();
        Ok(Self { dry_run: !dry_run.is_empty(), field_validation, manager, force })
    }
}

/// The request that the options belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteVerb {
    Create,
    Update,
    Patch,
    Apply,
}

impl WriteVerb {
    fn options_kind(self) -> &'static str {
        match self {
            WriteVerb::Create => "CreateOptions",
            WriteVerb::Update => "UpdateOptions",
            WriteVerb::Patch | WriteVerb::Apply => "PatchOptions",
        }
    }
}

/// `force` is valid only for server-side apply, which requires a field manager.
fn force_errors(query: &Query, manager: &str, form: WriteVerb) -> Option<FieldError> {
    match form {
        WriteVerb::Patch if query.flag("force").is_some() => {
            Some(FieldError::forbidden("force", "may not be specified for non-apply patch"))
        }
        WriteVerb::Apply if manager.is_empty() => {
            Some(FieldError::required("fieldManager", "is required for apply patch"))
        }
        _ => None,
    }
}

const FIELD_MANAGER_LENGTH_MAX: usize = 128;

fn dry_run_errors(values: &[&str]) -> Vec<FieldError> {
    if values.iter().all(|value| *value == "All") {
        return Vec::new();
    }
    vec![FieldError::not_supported("dryRun", values, &["All"])]
}

fn reject(kind: &str, errors: &[FieldError]) -> Result<(), StatusError> {
    let group_resource = GroupResource { group: "meta.k8s.io", resource: kind };
    if errors.is_empty() { Ok(()) } else { Err(StatusError::invalid(group_resource, "", errors)) }
}

/// The requested resource version of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResourceVersionMatch {
    /// The latest revision.
    Latest,
    /// Any revision: the latest is used.
    Any,
    /// This revision or a later one.
    NotOlderThan(u64),
    /// Exactly this revision.
    Exactly(u64),
}

/// The options of a list or watch.
#[derive(Clone, Debug)]
pub(crate) struct ListOptions {
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
    pub(crate) limit: Option<usize>,
    pub(crate) continued: Option<String>,
    pub(crate) resource_version_match: ResourceVersionMatch,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn read(query: &Query, watch: bool) -> Result<Self, StatusError> {
        let send_initial_events = query.flag("sendInitialEvents");
        let limit = query.integer("limit")?.unwrap_or_default();
        let timeout = query.integer("timeoutSeconds")?;
        let revision = query.text("resourceVersion");
        let matching = query.text("resourceVersionMatch").unwrap_or_default();
        let continued = query.text("continue").map(str::to_owned);
        let errors = if watch {
            watch_errors(matching, send_initial_events, continued.is_some())
        } else {
            list_errors(matching, revision, send_initial_events, continued.is_some())
        };
        reject("ListOptions", &errors)?;
        Ok(Self {
            label_selector: query.text("labelSelector").unwrap_or_default().to_owned(),
            field_selector: query.text("fieldSelector").unwrap_or_default().to_owned(),
            limit: usize::try_from(limit).ok().filter(|limit| *limit > 0),
            resource_version_match: resource_version_match(revision, matching, watch, limit > 0)?,
            continued,
            timeout_seconds: timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events,
        })
    }
}

fn resource_version_match(
    revision: Option<&str>,
    matching: &str,
    watch: bool,
    limited: bool,
) -> Result<ResourceVersionMatch, StatusError> {
    let Some(text) = revision else { return Ok(ResourceVersionMatch::Latest) };
    let revision = parse_revision(text).map_err(|error| {
        if watch {
            StatusError::without_reason(500, error.to_string())
        } else {
            StatusError::bad_request(format!("invalid resource version: {error}"))
        }
    })?;
    Ok(match (revision, matching) {
        (0, _) => ResourceVersionMatch::Any,
        (revision, "Exact") => ResourceVersionMatch::Exactly(revision),
        // The behaviour from before `resourceVersionMatch` existed.
        (revision, "") if limited && !watch => ResourceVersionMatch::Exactly(revision),
        (revision, _) => ResourceVersionMatch::NotOlderThan(revision),
    })
}

/// Parses a resource version.
pub(crate) fn parse_revision(text: &str) -> Result<u64, FieldError> {
    // Go accepts no sign here.
    text.parse().ok().filter(|_| !text.starts_with('+')).ok_or_else(|| {
        let why = format!("strconv.ParseUint: parsing {text:?}: invalid syntax");
        FieldError::invalid("resourceVersion", text, why)
    })
}

fn list_errors(matching: &str, revision: Option<&str>, initial: Option<bool>, continued: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let forbidden = |detail: &str| FieldError::forbidden("resourceVersionMatch", detail);
    if !matching.is_empty() {
        if revision.is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided"));
        }
        if continued {
            errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
        }
        if !["Exact", "NotOlderThan"].contains(&matching) {
            let allowed = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &allowed));
        }
        if matching == "Exact" && revision == Some("0") {
            errors.push(forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""));
        }
    }
    if initial.is_some() {
        errors.push(FieldError::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    errors
}

fn watch_errors(matching: &str, initial: Option<bool>, continued: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let forbidden = |detail: &str| FieldError::forbidden("resourceVersionMatch", detail);
    let right = matching == "NotOlderThan";
    if initial.is_some() && !right {
        errors.push(forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"));
    }
    if !matching.is_empty() {
        if initial.is_none() {
            errors.push(forbidden("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"));
        }
        if !right {
            errors.push(FieldError::not_supported("resourceVersionMatch", matching, &["NotOlderThan"]));
        }
    }
    if continued {
        errors.push(forbidden("resourceVersionMatch is forbidden when continue is provided"));
    }
    errors
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// The options of a delete, from its body or its query.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    pub(crate) grace_seconds: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) revision: Option<String>,
    pub(crate) propagation: Option<Propagation>,
    /// Whether the deprecated `orphanDependents` was used.
    pub(crate) legacy: bool,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads the options from a query.
    pub(crate) fn from_query(query: &Query) -> Result<Self, StatusError> {
        let mut body = serde_json::Map::new();
        if let Some(seconds) = query.integer("gracePeriodSeconds")? {
            body.insert("gracePeriodSeconds".to_owned(), json!(seconds));
        }
        if let Some(orphan) = query.flag("orphanDependents") {
            body.insert("orphanDependents".to_owned(), json!(orphan));
        }
        if let Some(policy) = query.text("propagationPolicy") {
            body.insert("propagationPolicy".to_owned(), json!(policy));
        }
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        if !dry_run.is_empty() {
            body.insert("dryRun".to_owned(), json!(dry_run));
        }
        Self::from_body(&Value::Object(body))
    }

    /// Reads the options from a `DeleteOptions` object.
    pub(crate) fn from_body(body: &Value) -> Result<Self, StatusError> {
        let mut errors = Vec::new();
        let policy = body["propagationPolicy"].as_str();
        let orphan = body["orphanDependents"].as_bool();
        if policy.is_some() && orphan.is_some() {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid("propagationPolicy", body["propagationPolicy"].clone(), detail));
        }
        let propagation = match policy {
            Some("Background") => Some(Propagation::Background),
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Orphan") => Some(Propagation::Orphan),
            Some(other) => {
                let allowed = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported("propagationPolicy", other, &allowed));
                None
            }
            None => orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background }),
        };
        let dry_run = body["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>();
        errors.extend(dry_run_errors(&dry_run));
        reject("DeleteOptions", &errors)?;
        let preconditions = &body["preconditions"];
        Ok(Self {
            grace_seconds: body["gracePeriodSeconds"].as_i64(),
            uid: preconditions["uid"].as_str().map(str::to_owned),
            revision: preconditions["resourceVersion"].as_str().map(str::to_owned),
            propagation,
            legacy: orphan.is_some(),
            dry_run: !dry_run.is_empty(),
        })
    }
}
