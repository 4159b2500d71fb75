//! Replaces values that differ from run to run by placeholders: UIDs, resource versions, times, generated names.
//!
//! The same UID or resourceVersion gets the same number within a recording, so that it stays distinguishable.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::{SpanRelativeTo, Timestamp, Unit};
use regex::{Captures, Regex};
use serde_json::{Map, Value};

static UID: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b").unwrap());
static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)").unwrap());
static ABOUT_REVISIONS: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)resource ?version|storage error|continue|object has been modified").unwrap());
static CURRENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"current: \d+").unwrap());
static TOO_OLD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"too old resource version: (\S+) \(\d+\)").unwrap());
static SUFFIX: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"^[bcdfghjklmnpqrstvwxz2456789]{5}$").unwrap());

/// Times further away than this were written by the recording itself.
const NEAR_HOURS: f64 = 36.0;

pub(crate) struct Normalizer {
    now: Timestamp,
    /// Whether `managedFields` are shown.
    keeps_managers: bool,
    uids: BTreeMap<String, String>,
    /// How many UIDs the real server generated that this one did not.
    uid_offset: usize,
    revisions: BTreeMap<String, String>,
    /// The number of the last new resourceVersion.
    last_revision: usize,
    names: Vec<(String, String)>,
    /// The columns of the last table that contain ages.
    ages: Vec<usize>,
}

impl Normalizer {
    pub(crate) fn new(now: Timestamp, keeps_managers: bool) -> Self {
        Self {
            now,
            keeps_managers,
            uids: BTreeMap::new(),
            uid_offset: 0,
            revisions: BTreeMap::new(),
            last_revision: 0,
            names: Vec::new(),
            ages: Vec::new(),
        }
    }

    /// Records generated names.
    pub(crate) fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
                let (prefix, name) = (text("generateName"), text("name"));
                let known = self.names.iter().any(|(old, _)| *old == name);
                let suffix = name.len().checked_sub(5).and_then(|start| name.get(start..)).unwrap_or_default();
                // A long prefix is cut.
                let cut = prefix.starts_with(&name[..name.len() - suffix.len()]);
                if !prefix.is_empty() && cut && !known && SUFFIX.is_match(suffix) {
                    let shown = format!("{}<suffix:{}>", &name[..name.len() - 5], self.names.len() + 1);
                    self.names.push((name, shown));
                }
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Array(entries) => entries.iter().for_each(|entry| self.learn(entry)),
            _ => {}
        }
    }

    /// Adjusts the numbering of UIDs after the real server created more or fewer objects.
    pub(crate) fn follow_uid(&mut self, ours: &str, real: &str) {
        let number = |shown: &str| -> Option<usize> { shown.strip_prefix("<uid:")?.strip_suffix('>')?.parse().ok() };
        let (Some(_), Some(real_number)) = (number(ours), number(real)) else { return };
        if let Some(shown) = self.uids.values_mut().find(|shown| *shown == ours) {
            real.clone_into(shown);
        }
        self.uid_offset = real_number.saturating_sub(self.uids.len());
    }

    /// Adjusts the numbering of resource versions after the real server wrote more or less often.
    pub(crate) fn follow(&mut self, ours: &str, real: &str) {
        let number = |shown: &str| -> Option<usize> { shown.strip_prefix("<rv:")?.strip_suffix('>')?.parse().ok() };
        let (Some(_), Some(real_number)) = (number(ours), number(real)) else { return };
        if let Some(shown) = self.revisions.values_mut().find(|shown| *shown == ours) {
            real.clone_into(shown);
        }
        self.last_revision =
            real_number.max(self.revisions.values().filter_map(|shown| number(shown)).max().unwrap_or_default());
    }

    /// Shows a resourceVersion as an older one: nothing visible has changed. Returns whether it is new.
    pub(crate) fn alias(&mut self, revision: &str, shown: &str) -> bool {
        self.revisions.insert(revision.to_owned(), shown.to_owned()).is_none()
    }

    fn text(&mut self, text: &str) -> String {
        let mut uids = std::mem::take(&mut self.uids);
        let mut shown = UID
            .replace_all(text, |found: &Captures<'_>| {
                if found[0].starts_with("00000000-") {
                    found[0].to_owned()
                } else {
                    numbered(&mut uids, "uid", &found[0], self.uid_offset)
                }
            })
            .into_owned();
        self.uids = uids;
        shown = TIME.replace_all(&shown, |found: &Captures<'_>| self.time(&found[0])).into_owned();
        for (name, new) in &self.names {
            shown = shown.replace(name, new);
        }
        if ABOUT_REVISIONS.is_match(&shown) {
            shown = CURRENT.replace_all(&shown, "current: <rv>").into_owned();
            shown = TOO_OLD.replace_all(&shown, "too old resource version: $1 (<rv>)").into_owned();
            for (revision, new) in &self.revisions {
                shown = replace_number(&shown, revision, new);
            }
        }
        shown
    }

    fn time(&self, text: &str) -> String {
        let Ok(time) = text.parse::<Timestamp>() else { return text.to_owned() };
        let away = (time - self.now).total((Unit::Hour, SpanRelativeTo::days_are_24_hours())).unwrap_or(f64::MAX);
        match (away.abs() > NEAR_HOURS, text.contains('.')) {
            (true, _) => text.to_owned(),
            (false, true) => "<microtime>".to_owned(),
            (false, false) => "<time>".to_owned(),
        }
    }

    /// A watch event.
    pub(crate) fn event(&mut self, event: &Value) -> Value {
        let mut event = event.clone();
        let bookmark = event["type"] == "BOOKMARK";
        if bookmark {
            event["object"]["$bookmark"] = true.into();
        }
        let mut shown = self.value(&event);
        if bookmark && let Some(object) = shown["object"].as_object_mut() {
            object.remove("$bookmark");
        }
        shown
    }

    pub(crate) fn value(&mut self, value: &Value) -> Value {
        match value {
            Value::String(text) => self.text(text).into(),
            Value::Array(entries) => entries.iter().map(|entry| self.value(entry)).collect(),
            Value::Object(fields) => self.object(value, fields),
            other => other.clone(),
        }
    }

    fn object(&mut self, value: &Value, fields: &Map<String, Value>) -> Value {
        let collective = value["items"].is_array()
            || value["kind"].as_str().is_some_and(|kind| kind.ends_with("List"))
            || ["Table", "Status"].iter().any(|kind| value["kind"] == **kind)
            || fields.contains_key("$bookmark")
            || !value["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null();
        let mut out = Map::new();
        // The numbering must not depend on the position of the metadata: the real server prints it before spec and
        // status.
        let first = fields.iter().filter(|(key, _)| *key == "metadata");
        let rest = fields.iter().filter(|(key, _)| *key != "metadata");
        let keeps_managers = self.keeps_managers;
        let causes = |value: &Value| value.as_array().is_some_and(|causes| causes.iter().all(is_conflict));
        for (key, value) in first.chain(rest).filter(|(key, _)| keeps_managers || *key != "managedFields") {
            let shown = match (key.as_str(), value) {
                ("metadata", Value::Object(metadata)) => self.metadata(metadata, collective),
                // Conflicts come in any order.
                ("causes", Value::Array(conflicts)) if causes(value) => {
                    let mut conflicts = conflicts.clone();
                    conflicts.sort_by_key(|cause| ["message", "field"].map(|field| cause[field].to_string()));
                    conflicts.into()
                }
                _ => self.value(value),
            };
            // Entries of lists may be keyed by a UID.
            let key = if key.starts_with("k:{") { self.text(key) } else { key.clone() };
            out.insert(key, shown);
        }
        let mut shown = Value::Object(out);
        if value["kind"] == "Table" {
            self.hide_ages(&mut shown);
        }
        shown
    }

    /// Hides ages, which differ from run to run. Later events of a watch use the columns that the first one defined.
    fn hide_ages(&mut self, table: &mut Value) {
        if let Some(columns) = table["columnDefinitions"].as_array() {
            let is_age = |name: &Value| ["Age", "Last Seen", "First Seen"].iter().any(|age| name == age);
            let ages = columns.iter().enumerate().filter(|(_, column)| is_age(&column["name"]));
            self.ages = ages.map(|(index, _)| index).collect();
        }
        for row in table["rows"].as_array_mut().into_iter().flatten() {
            for index in &self.ages {
                row["cells"][index] = "<age>".into();
            }
        }
    }

    fn revision(&mut self, revision: &str) -> String {
        if let Some(shown) = self.revisions.get(revision) {
            return shown.clone();
        }
        self.last_revision += 1;
        let shown = format!("<rv:{}>", self.last_revision);
        self.revisions.insert(revision.to_owned(), shown.clone());
        shown
    }

    fn metadata(&mut self, metadata: &Map<String, Value>, collective: bool) -> Value {
        let mut out = Map::new();
        let (revision, token) = (metadata.get("resourceVersion"), metadata.get("continue"));
        // Times are hidden, and with them the order of managers.
        let managers = metadata.get("managedFields").filter(|_| self.keeps_managers);
        let skipped = ["resourceVersion", "continue", "managedFields"];
        // The UID first: the real server prints it before owner references.
        let uid = metadata.iter().filter(|(key, _)| *key == "uid");
        let rest = metadata.iter().filter(|(key, _)| *key != "uid" && !skipped.contains(&key.as_str()));
        for (key, value) in uid.chain(rest) {
            out.insert(key.clone(), self.value(value));
        }
        if let Some(Value::Array(managers)) = managers.map(|managers| self.value(managers)) {
            out.insert("managedFields".to_owned(), sorted(managers).into());
        }
        if let Some(Value::String(revision)) = revision {
            let plain = revision.is_empty() || revision == "0" || !revision.bytes().all(|byte| byte.is_ascii_digit());
            let shown = match (plain, collective) {
                (true, _) => revision.clone(),
                (false, true) => "<rv>".to_owned(),
                (false, false) => self.revision(revision),
            };
            out.insert("resourceVersion".to_owned(), shown.into());
        }
        if let Some(Value::String(token)) = token {
            out.insert("continue".to_owned(), if token.is_empty() { "" } else { "<continue>" }.into());
        }
        Value::Object(out)
    }
}

fn is_conflict(cause: &Value) -> bool {
    cause["reason"] == "FieldManagerConflict"
}

/// Sorts managers by their identity.
fn sorted(mut managers: Vec<Value>) -> Vec<Value> {
    let key = |manager: &Value| {
        let text = |field: &str| manager[field].as_str().unwrap_or_default().to_owned();
        ["operation", "manager", "subresource", "apiVersion"].map(text)
    };
    managers.sort_by_key(key);
    managers
}

fn numbered(numbers: &mut BTreeMap<String, String>, kind: &str, value: &str, offset: usize) -> String {
    let next = numbers.len() + 1 + offset;
    numbers.entry(value.to_owned()).or_insert_with(|| format!("<{kind}:{next}>")).clone()
}

/// Replaces a whole number.
fn replace_number(text: &str, number: &str, new: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(number) {
        let end = start + number.len();
        let before = rest[..start].chars().next_back().or(out.chars().next_back());
        let alone = !before.is_some_and(|c| c.is_alphanumeric() || "_:<".contains(c))
            && !rest[end..].chars().next().is_some_and(|c| c.is_alphanumeric() || c == '_');
        out.push_str(&rest[..start]);
        out.push_str(if alone { new } else { number });
        rest = &rest[end..];
    }
    out.push_str(rest);
    out
}
