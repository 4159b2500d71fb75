//! The kinds that the server serves: rows of a table, with the few rules in which kinds differ.
//!
//! The verbs have one path for all kinds and ask the row where kinds differ. A custom kind is a row made from its
//! definition. It must not know requests, the store's content or watches.

mod about;
mod budget;
mod builtin;
mod config_map;
mod custom;
mod definition;
mod definition_check;
mod definition_columns;
mod definition_names;
mod event;
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
mod pod;
mod pod_container;
mod pod_defaults;
mod pod_group;
mod pod_placement;
mod pod_quality;
mod pod_resources;
mod pod_status;
mod pod_update;
mod printer_column;
mod priority_class;
mod quantities;
mod registry;
mod retype;
mod rollouts;
mod runtime_class;
mod templates;
mod zero_time;

use std::borrow::Cow;

use muster_playground_schema::FieldError;
use muster_playground_store::TableId;
use serde_json::Value;

pub(crate) use about::About;
pub(crate) use budget::deny_further_disruptions;
pub(crate) use custom::Custom;
pub(crate) use definition::{Definition, is_established, version_priority};
pub(crate) use definition_names::{Taken, decide, mark_terminating, tell_deletion};
pub(crate) use metadata::check_update as check_metadata_update;
pub(crate) use names::NameRule;
pub use native::NativeGroups;
pub(crate) use node::mark_not_ready;
pub(crate) use pod::{is_bound, is_finished, is_ready, phase};
pub(crate) use pod_defaults::tolerate_lost_nodes;
pub use printer_column::PrinterColumn;
pub(crate) use priority_class::SYSTEM_CLASSES;
pub(crate) use registry::Registry;
pub(crate) use retype::{Unreadable, retype};
pub(crate) use runtime_class::apply as apply_runtime_class;

/// How objects of a kind are read, completed and checked.
pub(crate) struct Builtin {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short_names: &'static [&'static str],
    pub(crate) namespaced: bool,
    /// The group whose resource of the same name holds the objects, if it is another one.
    pub(crate) stored_in: Option<&'static str>,
    /// Reads a value as the kind: refuses wrong types, drops what the kind does not have.
    pub(crate) read: fn(Value) -> Result<Value, Unreadable>,
    /// A part that means nothing to the server and is kept as it was written.
    pub(crate) opaque: Option<&'static str>,
    /// From this version's shape to the stored one, and back.
    pub(crate) inward: Option<fn(Value) -> Value>,
    pub(crate) outward: Option<fn(Value) -> Value>,
    /// Fields that selectors may ask for, beside name and namespace, in the stored shape; behind `=` what a field
    /// is that is not there.
    pub(crate) fields: &'static [&'static str],
    /// The same fields as this version names them.
    pub(crate) field_labels: &'static [&'static str],
    pub(crate) subresources: &'static [&'static str],
    /// Whether changes of the spec are counted.
    pub(crate) generation: bool,
    /// Whether a PUT without a resource version overwrites.
    pub(crate) overwrites: bool,
    /// Whether a PUT makes an object that is not there.
    pub(crate) creates_on_update: bool,
    /// Whether objects are answered rather than kept.
    pub(crate) reviews: bool,
    /// Whether DELETE answers with the object rather than a Status.
    pub(crate) returns_deleted: bool,
    /// Whether dependents are orphaned if the client does not say.
    pub(crate) orphans: bool,
    pub(crate) name_rule: NameRule,
    /// Fills in defaults.
    pub(crate) complete: fn(&mut Value),
    /// What the server sets or clears on a new object, whatever the client wrote.
    pub(crate) on_create: fn(&mut Value),
    /// What an update through the object itself may not touch.
    pub(crate) on_update: fn(&mut Value, &Value),
    /// What an update through `status` may not touch.
    pub(crate) on_status: fn(&mut Value, &Value),
    /// What is wrong with an object, new or not.
    pub(crate) check: fn(&Value) -> Vec<FieldError>,
    /// What is wrong with a change.
    pub(crate) check_update: fn(&Value, &Value) -> Vec<FieldError>,
    /// What is wrong with a change of the status.
    pub(crate) check_status: fn(&Value, &Value) -> Vec<FieldError>,
}

/// Where the rules of a kind come from.
pub(crate) enum Rules {
    Builtin(&'static Builtin),
    Custom(Box<Custom>),
}

/// A served kind in one version.
#[allow(clippy::struct_field_names)] // `kind` is what Kubernetes calls it
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
    /// The server's API for groups, by which pods name them.
    pub(crate) native_groups: NativeGroups,
    /// Whether clients may ask for this version. One that is only stored is not asked for.
    pub(crate) served: bool,
    pub(crate) rules: Rules,
}

/// What those may know who describe a kind or show its objects.
impl Kind {
    /// The group; the oldest one has no name.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What objects call it.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// What paths call it.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// Whether its objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The columns that its definition asks for; nothing if it is built in.
    pub fn printer_columns(&self) -> Option<&[PrinterColumn]> {
        match &self.rules {
            Rules::Builtin(_) => None,
            Rules::Custom(custom) => Some(&custom.columns),
        }
    }

    /// The schema that its definition writes; nothing if it is built in.
    pub fn written_schema(&self) -> Option<&Value> {
        match &self.rules {
            Rules::Builtin(_) => None,
            Rules::Custom(custom) => Some(&custom.written_schema),
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

    /// Whether the server has it of its own.
    pub(crate) fn is_builtin(&self) -> bool {
        self.builtin().is_some()
    }

    /// How failures name the resource.
    pub(crate) fn about(&self) -> About<'_> {
        About { group: &self.group, resource: &self.plural }
    }

    /// How failures name the kind.
    pub(crate) fn about_kind(&self) -> About<'_> {
        // A kind that another group stores is of that group.
        let group = self.builtin().and_then(|builtin| builtin.stored_in);
        About { group: group.unwrap_or(&self.group), resource: &self.kind }
    }

    fn builtin(&self) -> Option<&'static Builtin> {
        match self.rules {
            Rules::Builtin(builtin) => Some(builtin),
            Rules::Custom(_) => None,
        }
    }

    /// Reads a client's value: the stored shape, and the paths of fields that the kind does not have.
    pub(crate) fn read(&self, value: Value) -> Result<(Value, Vec<String>), Unreadable> {
        match &self.rules {
            Rules::Builtin(builtin) => {
                let mut value = value;
                let part = builtin.opaque.unwrap_or_default();
                let opaque = builtin.opaque.and_then(|part| value.as_object_mut()?.remove(part));
                // In a schema, a field that is called like a resource list is something else.
                let value =
                    if builtin.kind == "CustomResourceDefinition" { value } else { quantities::canonical(value)? };
                let mut filled = value.clone();
                zero_time::stand_in(&mut filled);
                let reference = match self.native_groups {
                    NativeGroups::V1alpha1 => native_v1alpha1::set_aside(builtin.kind, &mut filled)?,
                    _ => None,
                };
                let mut read = (builtin.read)(filled)?;
                native_v1alpha1::put_back(builtin.kind, &mut read, reference);
                zero_time::clear(&mut read);
                let dropped = retype::dropped(&value, &read);
                retype::omit_empty(&mut read);
                if let Some(opaque) = opaque {
                    read[part] = opaque;
                }
                Ok((if let Some(inward) = builtin.inward { inward(read) } else { read }, dropped))
            }
            Rules::Custom(custom) => {
                let (mut stored, dropped) = custom.read(value)?;
                stored["apiVersion"] = format!("{}/{}", self.group, custom.storage_version).into();
                Ok((stored, dropped))
            }
        }
    }

    /// A stored value in the shape of this version.
    pub fn show(&self, mut value: Value) -> Value {
        match &self.rules {
            Rules::Builtin(builtin) => {
                if let Some(outward) = builtin.outward {
                    outward(value)
                } else {
                    value
                }
            }
            Rules::Custom(custom) => {
                value["apiVersion"] = Value::String(self.api_version());
                if !custom.is_storage_version {
                    custom.adapt(&mut value);
                }
                value
            }
        }
    }

    /// A value of this version in the shape that it is stored in, where built-in kinds differ in it.
    pub fn stored_shape<'a>(&self, value: &'a Value) -> Cow<'a, Value> {
        match self.builtin().and_then(|builtin| builtin.inward) {
            Some(inward) => Cow::Owned(inward(value.clone())),
            None => Cow::Borrowed(value),
        }
    }

    /// Whether stored objects are shown as they are.
    pub(crate) fn shows_as_stored(&self) -> bool {
        match &self.rules {
            Rules::Builtin(builtin) => builtin.outward.is_none(),
            Rules::Custom(custom) => custom.is_storage_version,
        }
    }

    /// The paths that selectors may ask for, in the stored shape.
    pub(crate) fn fields(&self) -> Vec<&str> {
        match &self.rules {
            Rules::Builtin(builtin) => builtin.fields.to_vec(),
            Rules::Custom(custom) => custom.fields.iter().map(|field| &**field).collect(),
        }
    }

    /// Where the card keeps the field that a selector asks for.
    pub(crate) fn field_index(&self, label: &str) -> Option<usize> {
        match &self.rules {
            Rules::Builtin(builtin) if !builtin.field_labels.is_empty() => {
                builtin.field_labels.iter().position(|field| *field == label)
            }
            _ => self.fields().iter().position(|field| field.split('=').next() == Some(label)),
        }
    }

    /// What clients are told about a new object that is taken all the same.
    pub(crate) fn warnings(&self, value: &Value) -> Vec<String> {
        if self.group.is_empty() && *self.kind == *"Pod" { pod_resources::warnings(&value["spec"]) } else { Vec::new() }
    }

    /// What clients of a deprecated version are told.
    pub(crate) fn deprecation(&self) -> Option<String> {
        match &self.rules {
            Rules::Builtin(builtin) if builtin.kind == "Endpoints" => {
                Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned())
            }
            Rules::Builtin(_) => None,
            Rules::Custom(custom) => custom.warning.clone(),
        }
    }

    /// Why a selector may not ask for this field.
    pub(crate) fn no_such_field(&self, label: &str) -> String {
        match &self.rules {
            Rules::Builtin(builtin) if builtin.fields.is_empty() => {
                format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
            }
            Rules::Builtin(builtin) if builtin.group == "batch" => {
                format!("field label {label:?} not supported for {}", builtin.kind)
            }
            _ => format!("field label not supported: {label}"),
        }
    }

    /// Whether it has a part of this name that is asked for on its own.
    pub fn has_subresource(&self, name: &str) -> bool {
        match &self.rules {
            Rules::Builtin(builtin) => builtin.subresources.contains(&name),
            Rules::Custom(custom) => (name == "status" && custom.status) || (name == "scale" && custom.scale.is_some()),
        }
    }

    pub(crate) fn overwrites(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.overwrites)
    }

    pub(crate) fn creates_on_update(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.creates_on_update)
    }

    /// Whether its objects are questions: they are answered and not kept.
    pub fn is_review(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.reviews)
    }

    pub(crate) fn returns_deleted(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.returns_deleted)
    }

    /// Whether all of a collection can be deleted at once. Namespaces go one by one.
    pub fn deletes_collections(&self) -> bool {
        !(self.group.is_empty() && *self.plural == *"namespaces")
    }

    pub(crate) fn orphans(&self) -> bool {
        self.builtin().is_some_and(|builtin| builtin.orphans)
    }

    pub(crate) fn name_rule(&self) -> NameRule {
        self.builtin().map_or(NameRule::Subdomain, |builtin| builtin.name_rule)
    }

    /// Fills in defaults.
    pub(crate) fn complete(&self, value: &mut Value) {
        match &self.rules {
            Rules::Builtin(builtin) => (builtin.complete)(value),
            Rules::Custom(custom) => custom.complete(value),
        }
    }

    /// Sets and clears what clients may not choose on a new object.
    pub(crate) fn on_create(&self, value: &mut Value) {
        match &self.rules {
            Rules::Builtin(builtin) => {
                if builtin.generation {
                    value["metadata"]["generation"] = 1.into();
                }
                (builtin.on_create)(value);
            }
            Rules::Custom(custom) => custom.on_create(value),
        }
    }

    /// Puts back what an update may not touch, and counts changes of the spec.
    pub(crate) fn on_update(&self, value: &mut Value, old: &Value) {
        match &self.rules {
            Rules::Builtin(builtin) => {
                (builtin.on_update)(value, old);
                if builtin.generation && value["spec"] != old["spec"] {
                    count_generation(value);
                }
            }
            Rules::Custom(custom) => custom.on_update(value, old),
        }
    }

    /// Puts back what an update of the status may not touch.
    pub(crate) fn on_status(&self, value: &mut Value, old: &Value) {
        match &self.rules {
            Rules::Builtin(builtin) => (builtin.on_status)(value, old),
            Rules::Custom(_) => Custom::on_status(value, old),
        }
    }

    /// What is wrong with the metadata of an object, new or not.
    pub(crate) fn check_metadata(&self, value: &Value) -> Vec<FieldError> {
        let mut errors = metadata::check_create(value, self.namespaced, self.name_rule());
        // Definitions and what they define are checked by another library.
        if self.builtin().is_some_and(|builtin| builtin.group != "apiextensions.k8s.io") {
            errors.extend(metadata::builtin_finalizer_errors(value));
        }
        errors
    }

    /// What is wrong with a new object.
    pub(crate) fn check(&self, value: &Value) -> Vec<FieldError> {
        match &self.rules {
            Rules::Builtin(builtin) => (builtin.check)(value),
            Rules::Custom(custom) => custom.check(value, None),
        }
    }

    /// What is wrong with a change.
    pub(crate) fn check_update(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        match &self.rules {
            Rules::Builtin(builtin) => (builtin.check_update)(value, old),
            Rules::Custom(custom) => custom.check(value, Some(old)),
        }
    }

    /// What is wrong with a change of the status.
    pub(crate) fn check_status(&self, value: &Value, old: &Value) -> Vec<FieldError> {
        match &self.rules {
            Rules::Builtin(builtin) => (builtin.check_status)(value, old),
            Rules::Custom(custom) => custom.check_status(value, old),
        }
    }
}

/// One more change of the spec.
pub(crate) fn count_generation(value: &mut Value) {
    let generation = value["metadata"]["generation"].as_i64().unwrap_or_default();
    value["metadata"]["generation"] = generation.saturating_add(1).into();
}

/// Puts a value where there is none.
fn present(object: &mut Value, field: &str, value: Value) {
    if object[field].is_null() {
        object[field] = value;
    }
}

/// Puts a part of the old object into the new one, or takes it away if there was none.
fn keep(object: &mut Value, part: &str, old: &Value) {
    match old.get(part) {
        Some(kept) => object[part] = kept.clone(),
        None => drop(object.as_object_mut().and_then(|fields| fields.remove(part))),
    }
}
