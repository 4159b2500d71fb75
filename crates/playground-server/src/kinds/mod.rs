//! The served kinds: a table with the strategy of each kind.
//!
//! The verbs share one implementation for all kinds and use the strategy where kinds differ. A custom kind is a row
//! created from its definition. Must not depend on requests, the contents of the store or watches.

mod builtin;
mod composite_pod_group;
mod config_map;
mod custom;
mod definition;
mod definition_columns;
mod definition_names;
mod definition_validation;
mod event;
mod gated;
mod group_resource;
mod job;
mod job_policies;
mod label_selector;
mod lease;
mod metadata;
mod names;
mod namespace;
mod native;
mod native_errors;
mod native_v1alpha1;
mod native_v1alpha2;
mod node;
mod persistent_volume;
mod persistent_volume_claim;
mod pod;
mod pod_container;
mod pod_defaults;
mod pod_disruption_budget;
mod pod_group;
mod pod_placement;
mod pod_qos;
mod pod_resources;
mod pod_status;
mod pod_templates;
mod pod_update;
mod printer_column;
mod priority_class;
mod quantities;
mod registry;
mod rollouts;
mod runtime_class;
mod storage;
mod typed_decode;
mod zero_time;

use std::borrow::Cow;

use muster_api::native::Gates;
use muster_playground_schema::FieldError;
use muster_playground_store::TableId;
use serde_json::Value;

pub(crate) use custom::Custom;
pub(crate) use definition::{Definition, is_established, version_priority};
pub(crate) use definition_names::{AcceptedNames, mark_terminating, naming_status, set_deletion_progress};
pub(crate) use gated::Gated;
pub(crate) use group_resource::GroupResource;
pub(crate) use metadata::validate_update as validate_metadata_update;
pub(crate) use names::NameRule;
pub use native::NativeGroups;
pub(crate) use node::mark_not_ready;
pub(crate) use persistent_volume::{quantity, stamp_phase};
pub(crate) use persistent_volume_claim::class_of;
pub(crate) use pod::{is_bound, is_finished, is_ready, phase};
pub(crate) use pod_defaults::tolerate_lost_nodes;
pub(crate) use pod_disruption_budget::deny_further_disruptions;
pub use printer_column::PrinterColumn;
pub(crate) use priority_class::SYSTEM_CLASSES;
pub(crate) use registry::Registry;
pub(crate) use runtime_class::apply as apply_runtime_class;
pub(crate) use typed_decode::{DecodeError, decode_as};

/// The strategy of a built-in kind: how its objects are decoded, defaulted and validated.
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// The group whose resource of the same name stores the objects, if it is another one.
    pub(crate) stored_in: Option<&'static str>,
    /// Decodes a value as the kind: rejects wrong types, drops unknown fields.
    pub(crate) decode: fn(Value) -> Result<Value, DecodeError>,
    /// A field that the server does not interpret and keeps unchanged.
    pub(crate) opaque: Option<&'static str>,
    /// Converts from this version to the stored one, and back.
    pub(crate) to_stored: Option<fn(Value) -> Value>,
    pub(crate) from_stored: Option<fn(Value) -> Value>,
    /// Selectable fields in addition to name and namespace, in the stored form; after `=` the value of a missing field.
    pub(crate) fields: &'static [&'static str],
    /// The same fields as named in this version.
    pub(crate) field_labels: &'static [&'static str],
    pub(crate) subresources: &'static [&'static str],
    /// Whether changes of the spec increment `generation`.
    pub(crate) generation: bool,
    /// Whether a PUT without a resource version is unconditional.
    pub(crate) allows_unconditional_update: bool,
    /// Whether a PUT creates a missing object.
    pub(crate) allows_create_on_update: bool,
    /// Whether objects are reviews, which are answered and not stored.
    pub(crate) is_review: bool,
    /// Whether DELETE responds with the object rather than a Status.
    pub(crate) returns_deleted: bool,
    /// Whether dependents are orphaned by default.
    pub(crate) orphans_by_default: bool,
    pub(crate) name_rule: NameRule,
    /// Applies defaults.
    pub(crate) set_defaults: fn(&mut Value),
    /// Sets or clears fields of a new object that clients do not control.
    pub(crate) prepare_for_create: fn(&mut Value),
    /// Restores fields that an update of the object may not change.
    pub(crate) prepare_for_update: fn(&mut Value, &Value),
    /// Restores fields that an update of `status` may not change.
    pub(crate) prepare_for_status_update: fn(&mut Value, &Value),
    /// The errors of an object, new or not.
    pub(crate) validate: fn(&Value) -> Vec<FieldError>,
    /// The errors of an update.
    pub(crate) validate_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// The errors of a status update.
    pub(crate) validate_status_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// What depends on feature gates.
    pub(crate) gated: Option<&'static Gated>,
}

/// The strategy of a kind.
pub(crate) enum Strategy {
    Builtin(&'static Builtin),
    Custom(Box<Custom>),
}

/// A served kind in one version.
#[allow(clippy::struct_field_names)] // `kind` is the Kubernetes term
pub struct Kind {
    pub(crate) group: Box<str>,
    pub(crate) version: Box<str>,
    pub(crate) kind: Box<str>,
    pub(crate) plural: Box<str>,
    pub(crate) singular: Box<str>,
    pub(crate) short_names: Vec<Box<str>>,
    pub(crate) categories: Vec<Box<str>>,
    pub(crate) namespaced: bool,
    pub(crate) table: TableId,
    /// The version of the native PodGroup API, which determines how pods reference groups.
    pub(crate) native_groups: NativeGroups,
    /// The feature gates of the server.
    pub(crate) gates: Gates,
    /// Whether clients may request this version, as opposed to one that is only stored.
    pub(crate) served: bool,
    pub(crate) strategy: Strategy,
}

/// Accessors for code that describes kinds or formats their objects.
impl Kind {
    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The kind, as in objects.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The plural name, as in paths.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Whether it is namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The printer columns of its definition; `None` if it is built in.
    pub fn printer_columns(&self) -> Option<&[PrinterColumn]> {
        match &self.strategy {
            Strategy::Builtin(_) => None,
            Strategy::Custom(custom) => Some(&custom.columns),
        }
    }

    /// The schema of its definition; `None` if it is built in.
    pub fn written_schema(&self) -> Option<&Value> {
        match &self.strategy {
            Strategy::Builtin(_) => None,
            Strategy::Custom(custom) => Some(&custom.written_schema),
        }
    }
}

impl Kind {
    /// `v1`, or `group/version`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_string() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Whether this is the resource of that name, in any version.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        *self.group == *group && *self.plural == *plural
    }

    /// Whether it is built in.
    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin().is_some()
    }

    /// The resource as named in errors.
    pub(crate) fn group_resource(&self) -> GroupResource<'_> {
        GroupResource { group: &self.group, resource: &self.plural }
    }

    /// The kind as named in errors.
    pub(crate) fn group_kind(&self) -> GroupResource<'_> {
        // A kind that is stored in another group is named with that group.
        let group = self.builtin().and_then(|builtin| builtin.stored_in);
        GroupResource { group: group.unwrap_or(&self.group), resource: &self.kind }
    }

    fn builtin(&self) -> Option<&'static Builtin> {
        match self.strategy {
            Strategy::Builtin(builtin) => Some(builtin),
            Strategy::Custom(_) => None,
        }
    }

    /// Decodes a value: the stored form, and the paths of unknown fields.
    pub(crate) fn decode(&self, value: Value) -> Result<(Value, Vec<String>), DecodeError> {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                let mut value = value;
                let part = builtin.opaque.unwrap_or_default();
                let opaque = builtin.opaque.and_then(|part| value.as_object_mut()?.remove(part));
                let value = quantities::canonical(builtin.kind, value)?;
                let mut filled = value.clone();
                zero_time::insert_placeholders(&mut filled);
                let reference = match self.native_groups {
                    NativeGroups::V1alpha1 => native_v1alpha1::extract_reference(builtin.kind, &mut filled)?,
                    _ => None,
                };
                let mut decoded = (builtin.decode)(filled)?;
                native_v1alpha1::insert_reference(builtin.kind, &mut decoded, reference);
                zero_time::remove_placeholders(&mut decoded);
                let dropped = typed_decode::dropped(&value, &decoded);
                typed_decode::omit_empty(&mut decoded);
                if let Some(opaque) = opaque {
                    decoded[part] = opaque;
                }
                Ok((if let Some(to_stored) = builtin.to_stored { to_stored(decoded) } else { decoded }, dropped))
            }
            Strategy::Custom(custom) => {
                let (mut stored, dropped) = custom.decode(value)?;
                stored["apiVersion"] = format!("{}/{}", self.group, custom.storage_version).into();
                Ok((stored, dropped))
            }
        }
    }

    /// Converts a stored value to this version.
    pub fn show(&self, mut value: Value) -> Value {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                if let Some(from_stored) = builtin.from_stored {
                    from_stored(value)
                } else {
                    value
                }
            }
            Strategy::Custom(custom) => {
                value["apiVersion"] = Value::String(self.api_version());
                if !custom.is_storage_version {
                    custom.adapt(&mut value);
                }
                value
            }
        }
    }

    /// Converts a value of this version to the stored form, if a built-in kind has two.
    pub fn stored_shape<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        match self.builtin().and_then(|builtin| builtin.to_stored) {
            Some(to_stored) => Cow::Owned(to_stored(value.clone())),
            None => Cow::Borrowed(value),
        }
    }

    /// Whether stored objects need no conversion.
    pub(crate) fn is_stored_form(&self) -> bool {
        match &self.strategy {
            Strategy::Builtin(builtin) => builtin.from_stored.is_none(),
            Strategy::Custom(custom) => custom.is_storage_version,
        }
    }

    /// The selectable fields, in the stored form.
    pub(crate) fn fields(&self) -> Vec<&str> {
        match &self.strategy {
            Strategy::Builtin(builtin) => builtin.fields.to_vec(),
            Strategy::Custom(custom) => custom.fields.iter().map(|field| &**field).collect(),
        }
    }

    /// The index of a selectable field.
    pub(crate) fn field_index(&self, label: &str) -> Option<usize> {
        match &self.strategy {
            Strategy::Builtin(builtin) if !builtin.field_labels.is_empty() => {
                builtin.field_labels.iter().position(|field| *field == label)
            }
            _ => self.fields().iter().position(|field| field.split('=').next() == Some(label)),
        }
    }

    /// The warnings about a valid new object.
    pub(crate) fn warnings(&self, value: &Value) -> Vec<String> {
        if self.is("", "pods") { pod_resources::warnings(&value["spec"]) } else { self.volume_warnings(value) }
    }

    /// The warnings about a valid object of a kind that is checked in updates too.
    pub(crate) fn volume_warnings(&self, value: &Value) -> Vec<String> {
        match (&*self.group, &*self.plural) {
            ("", "persistentvolumes") => persistent_volume::warnings(value),
            ("", "persistentvolumeclaims") => persistent_volume_claim::warnings(value),
            _ => Vec::new(),
        }
    }

    /// The warning for clients of a deprecated version.
    pub(crate) fn deprecation(&self) -> Option<String> {
        match &self.strategy {
            Strategy::Builtin(builtin) if builtin.kind == "Endpoints" => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
            }
            Strategy::Builtin(_) => None,
            Strategy::Custom(custom) => custom.warning.clone(),
        }
    }

    /// The error of a field that is not selectable.
    pub(crate) fn no_such_field(&self, label: &str) -> String {
        match &self.strategy {
            Strategy::Builtin(builtin) if builtin.fields.is_empty() => {
                format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            Strategy::Builtin(builtin) if builtin.group == "batch" => {
                format!("field label {label:?} not supported for {}", builtin.kind)
            }
            _ => format!("field label not supported: {label}"),
        }
    }

    /// Whether it has this subresource.
    pub fn has_subresource(&self, name: &str) -> bool {
        match &self.strategy {
            Strategy::Builtin(builtin) => builtin.subresources.contains(&name),
            Strategy::Custom(custom) => {
                (name == "status" && custom.status) || (name == "scale" && custom.scale.is_some())
            }
        }
    }

    pub(crate) fn allows_unconditional_update(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.allows_unconditional_update)
    }

    pub(crate) fn allows_create_on_update(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.allows_create_on_update)
    }

    /// Whether its objects are reviews: they are answered and not stored.
    pub fn is_review(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.is_review)
    }

    pub(crate) fn returns_deleted(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.returns_deleted)
    }

    /// Whether it supports `deletecollection`. Namespaces do not.
    pub fn supports_delete_collection(&self) -> bool {
        !(self.group.is_empty() && *self.plural == *"namespaces")
    }

    pub(crate) fn orphans_by_default(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.orphans_by_default)
    }

    pub(crate) fn name_rule(&self) -> NameRule {
        self.builtin().map_or(NameRule::Subdomain, |builtin| builtin.name_rule)
    }

    /// Applies defaults.
    pub(crate) fn set_defaults(&self, value: &mut Value) {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                (builtin.set_defaults)(value);
                if let Some(gated) = builtin.gated {
                    (gated.set_defaults)(value, self.gates);
                }
            }
            Strategy::Custom(custom) => custom.set_defaults(value),
        }
    }

    /// Sets and clears fields of a new object that clients do not control.
    pub(crate) fn prepare_for_create(&self, value: &mut Value) {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                if builtin.generation {
                    value["metadata"]["generation"] = 1.into();
                }
                (builtin.prepare_for_create)(value);
                self.drop_disabled(builtin, value, None);
            }
            Strategy::Custom(custom) => custom.prepare_for_create(value),
        }
    }

    /// Restores fields that an update may not change, and increments `generation` if the spec changed.
    pub(crate) fn prepare_for_update(&self, value: &mut Value, old: &Value) {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                (builtin.prepare_for_update)(value, old);
                self.drop_disabled(builtin, value, Some(old));
                if builtin.generation && value["spec"] != old["spec"] {
                    increment_generation(value);
                }
            }
            Strategy::Custom(custom) => custom.prepare_for_update(value, old),
        }
    }

    /// Restores fields that a status update may not change.
    pub(crate) fn prepare_for_status_update(&self, value: &mut Value, old: &Value) {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                (builtin.prepare_for_status_update)(value, old);
                self.drop_disabled(builtin, value, Some(old));
            }
            Strategy::Custom(_) => Custom::prepare_for_status_update(value, old),
        }
    }

    fn drop_disabled(&self, builtin: &Builtin, value: &mut Value, old: Option<&Value>) {
        if let Some(gated) = builtin.gated {
            (gated.drop_disabled)(value, old, self.gates);
        }
    }

    /// The errors of the metadata of an object, new or not.
    pub(crate) fn validate_metadata(&self, value: &Value) -> Vec<FieldError> {
        let mut errors = metadata::validate_create(value, self.namespaced, self.name_rule());
        // Definitions and custom objects are validated by another library.
        if self.builtin().is_some_and(|builtin| builtin.group != "apiextensions.k8s.io") {
            errors.extend(metadata::builtin_finalizer_errors(value));
        }
        errors
    }

    /// The errors of a new object.
    pub(crate) fn validate(&self, value: &Value) -> Vec<FieldError> {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                let gated = builtin.gated.map(|gated| (gated.validate)(value, self.gates));
                (builtin.validate)(value).into_iter().chain(gated.into_iter().flatten()).collect()
            }
            Strategy::Custom(custom) => custom.validate(value, None),
        }
    }

    /// The errors of an update.
    pub(crate) fn validate_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        match &self.strategy {
            Strategy::Builtin(builtin) => {
                let gated = builtin.gated.map(|gated| (gated.validate_update)(value, old, self.gates));
                (builtin.validate_update)(value, old).into_iter().chain(gated.into_iter().flatten()).collect()
            }
            Strategy::Custom(custom) => custom.validate(value, Some(old)),
        }
    }

    /// The errors of a status update.
    pub(crate) fn validate_status_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        match &self.strategy {
            Strategy::Builtin(builtin) => (builtin.validate_status_update)(value, old),
            Strategy::Custom(custom) => custom.validate_status_update(value, old),
        }
    }
}

/// Increments `generation`.
pub(crate) fn increment_generation(value: &mut Value) {
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    value["metadata"]["generation"] = generation.saturating_add(1).into();
}

/// Sets a field that is missing.
fn default_field(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

/// Copies a field from the old object, or removes it if there is none.
fn copy_field(object: &mut Value, part: &str, old: &Value) {
    match old.get(part) {
        Some(kept) => object[part] = kept.clone(),
        None => drop(object.as_object_mut().and_then(|fields| fields.remove(part))),
    }
}
