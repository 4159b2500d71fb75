//! Objects as rows: what `kubectl get` shows, made on the server.
//!
//! A sheet is the columns of a kind and a function from an object to its cells; there is one file for each family of
//! kinds. Names, types, priorities and cells are those of the real server, the descriptions are our own words.
//! Invariant: a row has as many cells as its sheet has columns.
//! It must not know requests, the store or what is done with the rows.

mod age;
mod apps;
mod batch;
mod core;
mod custom;
mod definition;
mod network;
mod node;
mod pod;
mod resource;
mod scheduling;
mod storage;
mod words;

use jiff::Timestamp;
use muster_playground_server::{Kind, PrinterColumn};
use serde_json::{Value, json};

/// A column of a built-in kind.
struct Column {
    name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    data_type: &'static str,
    format: &'static str,
    /// Columns above nought are shown to those who ask for wide output.
    priority: u8,
    about: &'static str,
}

const fn text(name: &'static str, about: &'static str) -> Column {
    Column { name, data_type: "string", format: "", priority: 0, about }
}

const fn integer(name: &'static str, about: &'static str) -> Column {
    Column { data_type: "integer", ..text(name, about) }
}

const fn boolean(name: &'static str, about: &'static str) -> Column {
    Column { data_type: "boolean", ..text(name, about) }
}

const fn wide(name: &'static str, about: &'static str) -> Column {
    Column { priority: 1, ..text(name, about) }
}

const NAME: Column = Column { format: "name", ..text("Name", "The name of the object, unique in its namespace.") };
const AGE: Column = text("Age", "The time since the object was created.");
const CREATED_AT: Column =
    Column { data_type: "date", ..text("Created At", "The time at which the object was created.") };
const CONTAINERS: Column = wide("Containers", "The names of the containers in the template.");
const IMAGES: Column = wide("Images", "The images of the containers in the template.");
const SELECTOR: Column = wide("Selector", "Which pods belong to the object, by their labels.");

/// How objects of a built-in kind are shown.
pub(crate) struct Sheet {
    columns: &'static [Column],
    /// The cells of an object in its stored shape, at this time.
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Whether the real server says null for no rows.
    null_for_none: bool,
}

impl Sheet {
    const fn new(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Self {
        Self { columns, cells, null_for_none: false }
    }
}

/// What the real server shows of a kind that it has no columns for.
static PLAIN: Sheet = Sheet {
    columns: &[NAME, CREATED_AT],
    cells: |object, _| vec![words::name(object), object["metadata"]["creationTimestamp"].clone()],
    null_for_none: true,
};

/// Name and age, for kinds that have no more to show.
static AGED: Sheet = Sheet::new(&[NAME, AGE], |object, now| vec![words::name(object), age::of(object, now)]);

/// The sheet of a built-in kind.
fn sheet(group: &str, plural: &str) -> &'static Sheet {
    match (group, plural) {
        ("", "pods") => &pod::PODS,
        ("", "podtemplates") => &pod::TEMPLATES,
        ("", "nodes") => &node::NODES,
        ("", "namespaces") => &core::NAMESPACES,
        ("" | "events.k8s.io", "events") => &core::EVENTS,
        ("", "configmaps") => &core::CONFIG_MAPS,
        ("", "secrets") => &core::SECRETS,
        ("", "resourcequotas") => &core::QUOTAS,
        ("", "services") => &network::SERVICES,
        ("", "endpoints") => &network::ENDPOINTS,
        ("discovery.k8s.io", "endpointslices") => &network::SLICES,
        ("", "persistentvolumeclaims") => &storage::CLAIMS,
        ("", "persistentvolumes") => &storage::VOLUMES,
        ("storage.k8s.io", "storageclasses") => &storage::CLASSES,
        ("storage.k8s.io", "csinodes") => &storage::NODES,
        ("storage.k8s.io", "csidrivers") => &storage::DRIVERS,
        ("storage.k8s.io", "volumeattachments") => &storage::ATTACHMENTS,
        ("", "replicationcontrollers") => &apps::REPLICATION_CONTROLLERS,
        ("apps", "replicasets") => &apps::REPLICA_SETS,
        ("apps", "deployments") => &apps::DEPLOYMENTS,
        ("apps", "statefulsets") => &apps::STATEFUL_SETS,
        ("apps", "daemonsets") => &apps::DAEMON_SETS,
        ("apps", "controllerrevisions") => &apps::REVISIONS,
        ("batch", "jobs") => &batch::JOBS,
        ("batch", "cronjobs") => &batch::CRON_JOBS,
        ("policy", "poddisruptionbudgets") => &scheduling::BUDGETS,
        ("scheduling.k8s.io", "priorityclasses") => &scheduling::PRIORITY_CLASSES,
        ("scheduling.k8s.io", "podgroups") => &scheduling::POD_GROUPS,
        ("coordination.k8s.io", "leases") => &scheduling::LEASES,
        ("node.k8s.io", "runtimeclasses") => &scheduling::RUNTIME_CLASSES,
        ("apiextensions.k8s.io", "customresourcedefinitions") => &definition::DEFINITIONS,
        ("resource.k8s.io", "resourceclaims") => &resource::CLAIMS,
        ("resource.k8s.io", "resourceslices") => &resource::SLICES,
        ("", "serviceaccounts")
        | ("scheduling.k8s.io", "workloads")
        | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => &AGED,
        _ => &PLAIN,
    }
}

/// The columns and rows of a kind, whichever way it came to be.
#[derive(Clone, Copy)]
pub(crate) enum Columns<'a> {
    Builtin(&'static Sheet),
    Custom(&'a [PrinterColumn]),
}

impl<'a> Columns<'a> {
    /// How objects of a kind are shown as rows.
    pub(crate) fn of(kind: &'a Kind) -> Self {
        match kind.printer_columns() {
            None => Columns::Builtin(sheet(kind.group(), kind.plural())),
            Some(columns) => Columns::Custom(custom::or_age(columns)),
        }
    }

    /// The definitions of the columns.
    pub(crate) fn head(self) -> Value {
        match self {
            Columns::Builtin(sheet) => sheet.columns.iter().map(definition_of).collect(),
            Columns::Custom(columns) => custom::head(columns),
        }
    }

    /// The row of an object, without the object: cells, and conditions if there are any.
    pub(crate) fn row(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Columns::Builtin(sheet) => {
                let cells = (sheet.cells)(object, now);
                debug_assert_eq!(cells.len(), sheet.columns.len(), "a cell for each column");
                let mut row = json!({ "cells": cells });
                if std::ptr::eq(sheet, &raw const pod::PODS)
                    && let Some(conditions) = pod::row_conditions(object)
                {
                    row["conditions"] = conditions;
                }
                row
            }
            Columns::Custom(columns) => json!({ "cells": custom::cells(columns, object, now) }),
        }
    }

    /// What stands in place of the rows if there are none.
    pub(crate) fn no_rows(self) -> Value {
        match self {
            Columns::Builtin(sheet) if sheet.null_for_none => Value::Null,
            _ => json!([]),
        }
    }
}

/// Which object of a list is marked as the default of its kind. Only lists have such a mark.
pub(crate) fn default_of(group: &str, plural: &str, objects: impl Iterator<Item = Value>) -> Option<usize> {
    if (group, plural) != ("storage.k8s.io", "storageclasses") {
        return None;
    }
    storage::default_class(&objects.collect::<Vec<_>>())
}

fn definition_of(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.data_type, "format": column.format,
        "description": column.about, "priority": column.priority,
    })
}
