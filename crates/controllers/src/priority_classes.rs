//! The PriorityClasses of the cluster, for the admission webhook.
//!
//! They are watched apart from what the controllers need: the webhook also runs in replicas that do not lead.
//! Must not depend on which objects name a class.

use std::convert::Infallible;

use futures::StreamExt as _;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::{Api, Client};
use muster_reflector::{Delta, Guarded, Key, Table, WatchAges, key_of};
use tokio::sync::watch;

use crate::controllers::watch_kind;

/// What the watch has shown of the PriorityClasses.
#[derive(Clone, Debug)]
pub struct PriorityClasses {
    table: watch::Receiver<Table<Key, Class>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Class {
    value: i32,
    is_default: bool,
}

/// The priority that a class gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Resolution {
    /// The classes have not been listed yet.
    NotSynced,
    /// There is no class of this name.
    NoSuchClass,
    /// The value of the class.
    Value(i32),
}

impl PriorityClasses {
    /// Starts a watch on the current tokio runtime. It ends when the result and its clones are dropped.
    pub fn watch(client: &Client, ages: &WatchAges) -> Self {
        let (sender, table) = watch::channel(Table::default());
        let mut deltas = watch_kind("priorityclasses", Api::<Guarded<PriorityClass>>::all(client.clone()), None, ages);
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = sender.closed() => return,
                    delta = deltas.next() => match delta {
                        Some(delta) => sender.send_modify(|table| apply(table, delta)),
                        None => return,
                    },
                }
            }
        });
        Self { table }
    }

    /// Classes that are never known: no priority is filled in and none is refused.
    pub fn unknown() -> Self {
        Self { table: watch::channel(Table::default()).1 }
    }

    /// Waits until the classes have been listed.
    pub async fn synced(&self) {
        // It fails if the watch has ended, which only a bug can cause; then there is nothing to wait for.
        let _ = self.table.clone().wait_for(Table::has_synced).await;
    }

    /// The priority that a class gives; without a name, that of the default class, or zero.
    pub(crate) fn resolve(&self, name: Option<&str>) -> Resolution {
        let table = self.table.borrow();
        if !table.has_synced() {
            return Resolution::NotSynced;
        }
        let Some(name) = name else {
            // Of several default classes the API server takes the lowest.
            let defaults = table.entries.values().filter(|class| class.is_default);
            return Resolution::Value(defaults.map(|class| class.value).min().unwrap_or(0));
        };
        let class = table.entries.get(&(String::new(), name.to_owned()));
        class.map_or(Resolution::NoSuchClass, |class| Resolution::Value(class.value))
    }
}

fn apply(table: &mut Table<Key, Class>, delta: Delta<PriorityClass>) {
    let read = |class: PriorityClass| {
        let class = Class { value: class.value.unwrap_or(0), is_default: class.global_default == Some(true) };
        Ok::<_, Infallible>(class)
    };
    table.update(delta, key_of, read);
}

#[cfg(test)]
impl PriorityClasses {
    /// These classes: name, value and whether it is the default.
    pub(crate) fn of(classes: &[(&str, i32, bool)]) -> Self {
        let mut table = Table::default();
        apply(&mut table, Delta::ListStarted);
        for (name, value, is_default) in classes {
            let mut class =
                PriorityClass { value: Some(*value), global_default: Some(*is_default), ..PriorityClass::default() };
            class.metadata.name = Some((*name).to_owned());
            apply(&mut table, Delta::Listed(class));
        }
        apply(&mut table, Delta::ListDone);
        Self { table: watch::channel(table).1 }
    }
}
