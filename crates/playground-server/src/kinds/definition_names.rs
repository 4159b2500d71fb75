//! Accepts the names of definitions, which must not conflict within a group, and sets their conditions.
//!
//! The first definition to request a name gets it. Must not depend on the store.

use std::collections::BTreeSet;

use serde_json::{Value, json};

/// The accepted names of the definitions of a group.
#[derive(Default)]
pub(crate) struct AcceptedNames {
    resources: BTreeSet<String>,
    kinds: BTreeSet<String>,
}

impl AcceptedNames {
    /// Adds the accepted names of a definition.
    pub(crate) fn add(&mut self, definition: &Value) {
        let names = &definition["status"]["acceptedNames"];
        let text = |value: &Value| value.as_str().map(str::to_owned).filter(|name| !name.is_empty());
        self.resources.extend(["plural", "singular"].iter().filter_map(|field| text(&names[field])));
        self.resources.extend(names["shortNames"].as_array().into_iter().flatten().filter_map(text));
        self.kinds.extend(["kind", "listKind"].iter().filter_map(|field| text(&names[field])));
    }
}

/// Why a name is not accepted: a reason and a message.
type Conflict = (&'static str, String);

/// The status of a definition after its names were decided. `taken` has the names of the whole group, including its
/// own.
pub(crate) fn naming_status(definition: &Value, taken: &AcceptedNames, now: &str) -> Value {
    let mut status = definition["status"].clone();
    let (accepted, conflict) = accept(definition, taken);
    status["acceptedNames"] = accepted;
    match conflict {
        None => {
            set(&mut status, "NamesAccepted", "True", ("NoConflicts", "no conflicts found"), now);
            set(
                &mut status,
                "Established",
                "True",
                ("InitialNamesAccepted", "the initial names have been accepted"),
                now,
            );
        }
        Some((reason, message)) => {
            set(&mut status, "NamesAccepted", "False", (reason, &message), now);
            if !super::definition::is_established(definition) {
                set(&mut status, "Established", "False", ("NotAccepted", "not all names are accepted"), now);
            }
        }
    }
    status
}

/// The accepted names, and the last conflict if there is one.
fn accept(definition: &Value, taken: &AcceptedNames) -> (Value, Option<Conflict>) {
    let (requested, had) = (&definition["spec"]["names"], &definition["status"]["acceptedNames"]);
    let mut names = had.clone();
    let mut conflict = None;
    for (field, reason, used) in [
        ("plural", "PluralConflict", &taken.resources),
        ("singular", "SingularConflict", &taken.resources),
        ("shortNames", "ShortNamesConflict", &taken.resources),
        ("kind", "KindConflict", &taken.kinds),
        ("listKind", "ListKindConflict", &taken.kinds),
    ] {
        let as_list = |value: &Value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]);
        let mut messages = Vec::new();
        for name in as_list(&requested[field]).iter().filter_map(Value::as_str) {
            if !as_list(&had[field]).iter().any(|had| had == name) && used.contains(name) {
                messages.push(format!("{name:?} is already in use"));
            }
        }
        match messages.len() {
            0 => super::copy_field(&mut names, field, requested),
            1 => conflict = messages.pop().map(|message| (reason, message)),
            _ => conflict = Some((reason, format!("[{}]", messages.join(", ")))),
        }
    }
    super::copy_field(&mut names, "categories", requested);
    (names, conflict)
}

/// Sets the `Terminating` condition of a deleted definition.
pub(crate) fn mark_terminating(definition: &mut Value, now: &str) {
    let message = "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon";
    let mut status = definition["status"].take();
    set(&mut status, "Terminating", "True", ("InstanceDeletionPending", message), now);
    definition["status"] = status;
}

/// Updates the condition with the progress of the deletion of its objects.
pub(crate) fn set_deletion_progress(definition: &mut Value, is_empty: bool, now: &str) {
    let (status, reason, message) = if is_empty {
        ("False", "InstanceDeletionCompleted", "removed all instances")
    } else {
        ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress")
    };
    let mut whole = definition["status"].take();
    set(&mut whole, "Terminating", status, (reason, message), now);
    definition["status"] = whole;
}

fn set(status: &mut Value, kind: &str, truth: &str, why: (&str, &str), now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    let mut condition = json!({
        "type": kind, "status": truth, "reason": why.0, "message": why.1, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            if old["status"] == truth {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
}
