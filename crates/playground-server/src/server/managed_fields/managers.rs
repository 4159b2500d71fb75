//! The managers of an object: decodes and encodes `metadata.managedFields`.
//!
//! Field sets stay encoded until they are needed, so that a write costs only what it touches.
//! Invariant: every manager owns at least one field.
//! Must not depend on types or objects.

use std::collections::BTreeMap;

use muster_playground_schema::go_text::quoted;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;

/// The `operation` of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// The identity of a manager. Conflicts are reported in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Manager {
    pub(crate) name: String,
    pub(crate) operation: Operation,
    /// Empty for apply: these entries are shared by all versions.
    pub(crate) version: String,
    pub(crate) subresource: String,
}

impl Manager {
    /// The manager of an apply.
    pub(crate) fn applier(name: &str, subresource: &str) -> Self {
        let (name, subresource) = (name.to_owned(), subresource.to_owned());
        Self { name, operation: Operation::Apply, version: String::new(), subresource }
    }

    /// The manager of an update in a version.
    pub(crate) fn updater(name: &str, version: &str, subresource: &str) -> Self {
        let name = if name.is_empty() { "unknown" } else { name };
        let (name, version, subresource) = (name.to_owned(), version.to_owned(), subresource.to_owned());
        Self { name, operation: Operation::Update, version, subresource }
    }

    /// The name in conflict messages.
    pub(crate) fn shown(&self) -> String {
        let mut shown = quoted(&self.name);
        if !self.subresource.is_empty() {
            shown = format!("{shown} with subresource {}", quoted(&self.subresource));
        }
        if self.operation == Operation::Update { format!("{shown} using {}", self.version) } else { shown }
    }
}

/// A set of fields, decoded only if needed.
#[derive(Clone, Debug)]
enum Fields {
    Written(Value),
    Read(FieldSet),
}

/// The fields of a manager.
#[derive(Clone, Debug)]
pub(crate) struct Owned {
    /// The version of these fields.
    pub(crate) version: String,
    pub(crate) time: Option<String>,
    fields: Fields,
}

impl Owned {
    pub(crate) fn new(version: &str, time: Option<String>, set: FieldSet) -> Self {
        Self { version: version.to_owned(), time, fields: Fields::Read(set) }
    }

    /// The fields, decoded.
    pub(crate) fn set(&mut self) -> &mut FieldSet {
        if let Fields::Written(written) = &mut self.fields {
            // Cannot fail: it was validated when it came from a client.
            self.fields = Fields::Read(FieldSet::read(written.take()).unwrap_or_default());
        }
        match &mut self.fields {
            Fields::Read(set) => set,
            Fields::Written(_) => unreachable!("it was just decoded"),
        }
    }

    /// Whether it may intersect a set.
    pub(crate) fn may_touch(&self, other: &FieldSet) -> bool {
        match &self.fields {
            Fields::Written(written) => other.may_touch(written),
            Fields::Read(_) => true,
        }
    }
}

/// All managers of an object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Managers(BTreeMap<Manager, Owned>);

/// The most update entries; beyond it the oldest are merged.
const UPDATERS_MAX: usize = 10;
/// The manager of merged old updates.
const ANCIENT: &str = "ancient-changes";

impl Managers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get_mut(&mut self, manager: &Manager) -> Option<&mut Owned> {
        self.0.get_mut(manager)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&Manager, &mut Owned)> {
        self.0.iter_mut()
    }

    pub(crate) fn insert(&mut self, manager: Manager, owned: Owned) {
        self.0.insert(manager, owned);
    }

    pub(crate) fn remove(&mut self, manager: &Manager) -> Option<Owned> {
        self.0.remove(manager)
    }

    /// Drops managers of versions that no longer exist, according to `is_known`.
    pub(crate) fn retain_versions(&mut self, is_known: impl Fn(&str) -> bool) {
        self.0.retain(|_, owned| is_known(&owned.version));
    }

    /// Drops managers without fields.
    pub(crate) fn drop_empty(&mut self) {
        self.0.retain(|_, owned| match &owned.fields {
            Fields::Read(set) => !set.is_empty(),
            Fields::Written(_) => true,
        });
    }

    /// Decodes `managedFields` from a client; `None` if an entry is invalid.
    pub(crate) fn read(written: &Value) -> Option<Self> {
        let mut managers = Self::default();
        for entry in written.as_array().into_iter().flatten() {
            let (manager, mut owned) = read_entry(entry.clone())?;
            if let Fields::Written(fields) = owned.fields {
                owned.fields = Fields::Read(FieldSet::read(fields).ok()?);
            }
            managers.0.insert(manager, owned);
        }
        Some(managers)
    }

    /// Decodes stored `managedFields`.
    pub(crate) fn stored(written: Value) -> Self {
        let Value::Array(entries) = written else { return Self::default() };
        Self(entries.into_iter().filter_map(read_entry).collect())
    }

    /// Encodes `managedFields`, sorted by operation, time and name; `None` if there are no managers.
    pub(crate) fn write(self) -> Option<Value> {
        let mut entries: Vec<(Manager, Owned)> = self.0.into_iter().collect();
        entries.sort_by(|(a, of_a), (b, of_b)| {
            let (a_name, b_name) = ((&a.name, &of_a.version, &a.subresource), (&b.name, &of_b.version, &b.subresource));
            (a.operation, &of_a.time, a_name).cmp(&(b.operation, &of_b.time, b_name))
        });
        let entries: Vec<Value> = entries.into_iter().map(|(manager, owned)| write_entry(manager, owned)).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    /// Merges the oldest updates if there are too many.
    pub(crate) fn merge_oldest_updates(&mut self) {
        let is_update = |manager: &&Manager| manager.operation == Operation::Update;
        let mut count = self.0.keys().filter(is_update).count();
        if count <= UPDATERS_MAX {
            return;
        }
        let mut oldest: Vec<Manager> = self.0.keys().filter(is_update).cloned().collect();
        oldest.sort_by(|a, b| (&self.0[a].time, a).cmp(&(&self.0[b].time, b)));
        let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
        for manager in oldest {
            if count <= UPDATERS_MAX {
                return;
            }
            let version = self.0[&manager].version.clone();
            let Some(first) = first_of.get(&version) else {
                first_of.insert(version, manager);
                continue;
            };
            let bucket = Manager::updater(ANCIENT, &version, "");
            if !self.0.contains_key(&bucket)
                && let Some(owned) = self.0.remove(first)
            {
                self.0.insert(bucket.clone(), owned);
            }
            let Some(mut owned) = self.0.remove(&manager) else { continue };
            let set = std::mem::take(owned.set());
            if let Some(ancient) = self.0.get_mut(&bucket) {
                ancient.set().add(set);
                ancient.time = owned.time;
            } else {
                self.0.insert(bucket, Owned::new(&version, owned.time, set));
            }
            count -= 1;
        }
    }
}

fn read_entry(entry: Value) -> Option<(Manager, Owned)> {
    let Value::Object(mut entry) = entry else { return None };
    let mut text = |field: &str| match entry.remove(field) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let operation = match &*text("operation") {
        "Apply" => Operation::Apply,
        "Update" => Operation::Update,
        _ => return None,
    };
    let version = text("apiVersion");
    if version.is_empty() || text("fieldsType") != "FieldsV1" {
        return None;
    }
    let of_manager = if operation == Operation::Apply { String::new() } else { version.clone() };
    let manager = Manager { name: text("manager"), operation, version: of_manager, subresource: text("subresource") };
    let time = Some(text("time")).filter(|time| !time.is_empty());
    let fields = entry.remove("fieldsV1").unwrap_or_else(|| Value::Object(Map::new()));
    Some((manager, Owned { version, time, fields: Fields::Written(fields) }))
}

fn write_entry(manager: Manager, owned: Owned) -> Value {
    let fields = match owned.fields {
        Fields::Written(fields) => fields,
        Fields::Read(set) => set.write(),
    };
    let operation = if manager.operation == Operation::Apply { "Apply" } else { "Update" };
    let mut entry = Map::new();
    entry.insert("manager".to_owned(), Value::String(manager.name));
    entry.insert("operation".to_owned(), json!(operation));
    entry.insert("apiVersion".to_owned(), Value::String(owned.version));
    if let Some(time) = owned.time {
        entry.insert("time".to_owned(), Value::String(time));
    }
    entry.insert("fieldsType".to_owned(), json!("FieldsV1"));
    entry.insert("fieldsV1".to_owned(), fields);
    if !manager.subresource.is_empty() {
        entry.insert("subresource".to_owned(), Value::String(manager.subresource));
    }
    Value::Object(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(name: &str, operation: &str, time: &str) -> Value {
        json!({"manager": name, "operation": operation, "apiVersion": "v1", "time": time, "fieldsType": "FieldsV1",
               "fieldsV1": {format!("f:{name}"): {}}})
    }

    #[test]
    fn entries_are_sorted_by_operation_time_and_name() {
        let [a, b, c, d] = [
            entry("z", "Apply", "2"),
            entry("a", "Update", "1"),
            entry("b", "Update", "1"),
            entry("a2", "Update", "3"),
        ];
        let written = json!([d, b, c, a]);
        assert_eq!(Managers::stored(written.clone()).write(), Some(json!([a, b, c, d])));
        assert_eq!(Managers::read(&written).unwrap().write(), Some(json!([a, b, c, d])));
        assert_eq!(Managers::stored(json!([])).write(), None);
    }

    #[test]
    fn invalid_managed_fields_are_rejected() {
        assert!(Managers::read(&json!([{}])).is_none());
        for (field, value) in [("operation", "Do"), ("apiVersion", ""), ("fieldsType", "FieldsV2")] {
            let mut wrong = entry("a", "Update", "1");
            wrong[field] = json!(value);
            assert!(Managers::read(&json!([wrong])).is_none(), "{field}");
        }
        let mut wrong = entry("a", "Update", "1");
        wrong["fieldsV1"] = json!({"a": {}});
        assert!(Managers::read(&json!([wrong])).is_none());
    }

    #[test]
    fn oldest_updates_are_merged() {
        let times = ["5", "1", "3", "2", "4", "6", "7", "8", "9", "9", "9", "9"];
        let entries: Vec<Value> =
            times.iter().enumerate().map(|(index, time)| entry(&format!("m{index:02}"), "Update", time)).collect();
        let mut managers = Managers::stored(json!(entries));
        managers.merge_oldest_updates();
        let written = managers.write().unwrap();
        assert_eq!(written.as_array().map(Vec::len), Some(10));
        assert_eq!(written[0]["manager"], ANCIENT);
        assert_eq!(written[0]["time"], "3");
        assert_eq!(written[0]["fieldsV1"], json!({"f:m01": {}, "f:m02": {}, "f:m03": {}}));
    }
}
