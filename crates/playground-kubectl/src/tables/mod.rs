//! Objects as table rows, as `kubectl get` shows them.
//!
//! A printer has the columns of a kind and a function from an object to its cells; there is one file for each family of
//! kinds. Names, types, priorities and cells are those of the real server, the descriptions are our own.
//! Invariant: a row has as many cells as its printer has columns.
//! Must not depend on requests, the store or the use of the rows.

mod age;
mod apps;
mod batch;
mod cell_text;
mod core;
mod custom;
mod definition;
mod network;
mod node;
mod pod;
mod resource;
mod scheduling;
mod storage;

use jiff::Timestamp;
use muster_playground_server::{Kind, PrinterColumn};
use serde_json::{Value, json};

/// A column of a built-in kind.
struct Column {
    name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    data_type: &'static str,
    format: &'static str,
    /// Columns above 0 are shown only with wide output.
    priority: u8,
    description: &'static str,
}

const fn text(name: &'static str, description: &'static str) -> Column {
    Column { name, data_type: "string", format: "", priority: 0, description }
}

const fn integer(name: &'static str, description: &'static str) -> Column {
    Column { data_type: "integer", ..text(name, description) }
}

const fn boolean(name: &'static str, description: &'static str) -> Column {
    Column { data_type: "boolean", ..text(name, description) }
}

const fn wide(name: &'static str, description: &'static str) -> Column {
    Column { priority: 1, ..text(name, description) }
}

const NAME: Column = Column { format: "name", ..text("Name", "The name of the object, unique in its namespace.") };
const AGE: Column = text("Age", "The time since the object was created.");
const CREATED_AT: Column =
    Column { data_type: "date", ..text("Created At", "The time at which the object was created.") };
const CONTAINERS: Column = wide("Containers", "The names of the containers in the template.");
const IMAGES: Column = wide("Images", "The images of the containers in the template.");
const SELECTOR: Column = wide("Selector", "Which pods belong to the object, by their labels.");

/// The table printer of a built-in kind.
pub(crate) struct TablePrinter {
    columns: &'static [Column],
    /// The cells of an object in its storage version, at this time.
    cells: fn(&Value, Timestamp) -> Vec<Value>,
    /// Whether the real server writes null for no rows.
    null_for_none: bool,
}

impl TablePrinter {
    const fn new(columns: &'static [Column], cells: fn(&Value, Timestamp) -> Vec<Value>) -> Self {
        Self { columns, cells, null_for_none: false }
    }
}

/// The printer of kinds for which the real server has no columns.
static NAME_AND_CREATED_AT: TablePrinter = TablePrinter {
    columns: &[NAME, CREATED_AT],
    cells: |object, _| vec![cell_text::name(object), object["metadata"]["creationTimestamp"].clone()],
    null_for_none: true,
};

/// Name and age.
static NAME_AND_AGE: TablePrinter =
    TablePrinter::new(&[NAME, AGE], |object, now| vec![cell_text::name(object), age::of(object, now)]);

/// The printer of a built-in kind.
fn printer(group: &str, plural: &str) -> &'static TablePrinter {
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
        | ("resource.k8s.io", "deviceclasses" | "resourceclaimtemplates") => &NAME_AND_AGE,
        _ => &NAME_AND_CREATED_AT,
    }
}

/// The columns of a built-in or custom kind.
#[derive(Clone, Copy)]
pub(crate) enum Columns<'a> {
    Builtin(&'static TablePrinter),
    Custom(&'a [PrinterColumn]),
}

impl<'a> Columns<'a> {
    /// The columns of a kind.
    pub(crate) fn of(kind: &'a Kind) -> Self {
        match kind.printer_columns() {
            None => Columns::Builtin(printer(kind.group(), kind.plural())),
            Some(columns) => Columns::Custom(custom::or_age(columns)),
        }
    }

    /// The definitions of the columns.
    pub(crate) fn head(self) -> Value {
        match self {
            Columns::Builtin(printer) => printer.columns.iter().map(definition_of).collect(),
            Columns::Custom(columns) => custom::head(columns),
        }
    }

    /// The row of an object, without the object: cells, and conditions if there are any.
    pub(crate) fn row(self, object: &Value, now: Timestamp) -> Value {
        match self {
            Columns::Builtin(printer) => {
                let cells = (printer.cells)(object, now);
                debug_assert_eq!(cells.len(), printer.columns.len(), "a cell for each column");
                let mut row = json!({ "cells": cells });
                if std::ptr::eq(printer, &raw const pod::PODS)
                    && let Some(conditions) = pod::row_conditions(object)
                {
                    row["conditions"] = conditions;
                }
                row
            }
            Columns::Custom(columns) => json!({ "cells": custom::cells(columns, object, now) }),
        }
    }

    /// The value of `rows` if there are none.
    pub(crate) fn no_rows(self) -> Value {
        match self {
            Columns::Builtin(printer) if printer.null_for_none => Value::Null,
            _ => json!([]),
        }
    }
}

/// Which object of a list is marked as the default of its kind. Only lists have this mark.
pub(crate) fn default_of(group: &str, plural: &str, objects: impl Iterator<Item = Value>) -> Option<usize> {
    if (group, plural) != ("storage.k8s.io", "storageclasses") {
        return None;
    }
    storage::default_class(&objects.collect::<Vec<_>>())
}

fn definition_of(column: &Column) -> Value {
    json!({
        "name": column.name, "type": column.data_type, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}
