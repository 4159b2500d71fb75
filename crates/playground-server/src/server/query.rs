//! The options in a request's query, read and checked as kube-apiserver does.
//!
//! Invariant: an option that is there is honoured or refused; unknown ones are ignored, as the real server does.
//! It must not know the store.

use muster_playground_schema::FieldError;
use muster_playground_schema::go_text::is_printed;
use serde_json::{Value, json};

use super::failure::Failure;
use crate::kinds::About;

/// A request's query, and who asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    options: Vec<(String, String)>,
    /// The program that asks, as its user agent names it.
    agent: String,
}

impl Query {
    pub(crate) fn parse(text: &str) -> Self {
        Self { options: form_urlencoded::parse(text.as_bytes()).into_owned().collect(), agent: String::new() }
    }

    /// Notes who asks, by the user agent: what stands before its version.
    pub(crate) fn asked_by(mut self, user_agent: &str) -> Self {
        let printed = user_agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printed(*c));
        for c in printed {
            if self.agent.len() + c.len_utf8() > FIELD_MANAGER_LENGTH_MAX {
                break;
            }
            self.agent.push(c);
        }
        self
    }

    /// The first value of an option; an empty one counts as left out.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// Whether an option is there, with whatever value.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(key, _)| key == name)
    }

    /// All values of an option.
    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.options.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        // Unlike a text, a number that is there and empty is none.
        let Some((_, text)) = self.options.iter().find(|(key, _)| key == name) else { return Ok(None) };
        match text.parse() {
            Ok(number) => Ok(Some(number)),
            Err(error) => {
                let why = match std::num::IntErrorKind::clone(std::num::ParseIntError::kind(&error)) {
                    std::num::IntErrorKind::PosOverflow | std::num::IntErrorKind::NegOverflow => "value out of range",
                    _ => "invalid syntax",
                };
                Err(Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: {why}")))
            }
        }
    }

    /// A flag: there without a value means yes, `false` and `0` mean no.
    fn flag(&self, name: &str) -> Option<bool> {
        let found = self.options.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(crate) fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or_default()
    }
}

/// Whether and how a write is only rehearsed, and what becomes of unknown fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WriteOptions {
    pub(crate) dry_run: bool,
    pub(crate) unknown_fields: UnknownFields,
    /// Who will own what is written.
    pub(crate) manager: String,
    /// Whether an apply takes what others own.
    pub(crate) force: bool,
}

/// What becomes of fields that the kind does not have. They are never kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnknownFields {
    Ignore,
    Warn,
    Refuse,
}

impl WriteOptions {
    /// Reads the options of a create, update or patch.
    pub(crate) fn read(query: &Query, form: Write) -> Result<Self, Failure> {
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        let mut errors = dry_run_errors(&dry_run);
        let manager = query.text("fieldManager").unwrap_or_default();
        if manager.len() > FIELD_MANAGER_LENGTH_MAX {
            errors.push(FieldError::too_long("fieldManager", FIELD_MANAGER_LENGTH_MAX as i64));
        }
        if let Some((position, strange)) = manager.char_indices().find(|(_, c)| !is_printed(*c)) {
            let why = format!("invalid character U+{:04X} (at position {position})", strange as u32);
            errors.push(FieldError::invalid("fieldManager", manager, why));
        }
        let validation = query.text("fieldValidation").unwrap_or_default();
        let unknown_fields = match validation {
            "" | "Warn" => UnknownFields::Warn,
            "Ignore" => UnknownFields::Ignore,
            "Strict" => UnknownFields::Refuse,
            _ => {
                let allowed = ["", "Ignore", "Strict", "Warn"];
                errors.push(FieldError::not_supported("fieldValidation", validation, &allowed));
                UnknownFields::Warn
            }
        };
        errors.extend(force_errors(query, manager, form));
        refuse(form.options_kind(), &errors)?;
        let manager = if manager.is_empty() { query.agent.clone() } else { manager.to_owned() };
        let force = query.flag("force").unwrap_or_default();
        Ok(Self { dry_run: !dry_run.is_empty(), unknown_fields, manager, force })
    }
}

/// Which request the options belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write {
    Create,
    Update,
    Patch,
    Apply,
}

impl Write {
    fn options_kind(self) -> &'static str {
        match self {
            Write::Create => "CreateOptions",
            Write::Update => "UpdateOptions",
            Write::Patch | Write::Apply => "PatchOptions",
        }
    }
}

/// Only server-side apply, and it only under a name, may take fields from others.
fn force_errors(query: &Query, manager: &str, form: Write) -> Option<FieldError> {
    match form {
        Write::Patch if query.flag("force").is_some() => {
            Some(FieldError::forbidden("force", "may not be specified for non-apply patch"))
        }
        Write::Apply if manager.is_empty() => Some(FieldError::required("fieldManager", "is required for apply patch")),
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

fn refuse(kind: &str, errors: &[FieldError]) -> Result<(), Failure> {
    let about = About { group: "meta.k8s.io", resource: kind };
    if errors.is_empty() { Ok(()) } else { Err(Failure::invalid(about, "", errors)) }
}

/// How old an answer may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freshness {
    /// The latest.
    Latest,
    /// Anything: the latest is as good as any.
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
    pub(crate) freshness: Freshness,
    pub(crate) timeout_seconds: Option<u64>,
    pub(crate) bookmarks: bool,
    pub(crate) send_initial_events: Option<bool>,
}

impl ListOptions {
    pub(crate) fn read(query: &Query, watch: bool) -> Result<Self, Failure> {
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
        refuse("ListOptions", &errors)?;
        Ok(Self {
            label_selector: query.text("labelSelector").unwrap_or_default().to_owned(),
            field_selector: query.text("fieldSelector").unwrap_or_default().to_owned(),
            limit: usize::try_from(limit).ok().filter(|limit| *limit > 0),
            freshness: freshness(revision, matching, watch, limit > 0)?,
            continued,
            timeout_seconds: timeout.and_then(|seconds| u64::try_from(seconds).ok()).filter(|seconds| *seconds > 0),
            bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
            send_initial_events,
        })
    }
}

fn freshness(revision: Option<&str>, matching: &str, watch: bool, limited: bool) -> Result<Freshness, Failure> {
    let Some(text) = revision else { return Ok(Freshness::Latest) };
    let revision = parse_revision(text).map_err(|error| {
        if watch {
            Failure::plain(500, error.to_string())
        } else {
            Failure::bad_request(format!("invalid resource version: {error}"))
        }
    })?;
    Ok(match (revision, matching) {
        (0, _) => Freshness::Any,
        (revision, "Exact") => Freshness::Exactly(revision),
        // From the time before clients could say which they mean.
        (revision, "") if limited && !watch => Freshness::Exactly(revision),
        (revision, _) => Freshness::NotOlderThan(revision),
    })
}

/// Reads a resource version.
pub(crate) fn parse_revision(text: &str) -> Result<u64, FieldError> {
    // Go takes no sign here.
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

/// What becomes of the objects that name a deleted one as their owner.
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
    /// Whether the old way of saying how was used.
    pub(crate) legacy: bool,
    pub(crate) dry_run: bool,
}

impl DeleteOptions {
    /// Reads the options from a query.
    pub(crate) fn from_query(query: &Query) -> Result<Self, Failure> {
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
    pub(crate) fn from_body(body: &Value) -> Result<Self, Failure> {
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
        refuse("DeleteOptions", &errors)?;
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
