//! The registry of served kinds: the built-in ones, and each version of each definition.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_api::native::Gates;
use muster_playground_store::{Store, TableId};

use super::builtin::BUILTINS;
use super::definition::Definition;
use super::{Kind, NativeGroups, Strategy, native};

/// The categories of a kind, which select several kinds at once.
fn categories(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod"
        | "Service"
        | "ReplicationController"
        | "DaemonSet"
        | "Deployment"
        | "ReplicaSet"
        | "StatefulSet"
        | "Job"
        | "CronJob" => &["all"],
        "CustomResourceDefinition" => &["api-extensions"],
        _ => &[],
    }
}

/// A table's name in the store, as `resource.group`.
fn table_name(group: &str, plural: &str) -> String {
    if group.is_empty() { plural.to_owned() } else { format!("{plural}.{group}") }
}

/// Group, version and plural name.
type Place = (Box<str>, Box<str>, Box<str>);

/// The served kinds.
pub(crate) struct Registry {
    kinds: BTreeMap<Place, Arc<Kind>>,
    /// The table of each resource, kept when its definition is deleted and created again.
    tables: BTreeMap<(Box<str>, Box<str>), TableId>,
    native_groups: NativeGroups,
    gates: Gates,
}

impl Registry {
    /// The built-in kinds, with a table in the store for each.
    pub(crate) fn new(store: &mut Store, native_groups: NativeGroups, gates: Gates) -> Self {
        let mut registry = Self { kinds: BTreeMap::new(), tables: BTreeMap::new(), native_groups, gates };
        for builtin in BUILTINS.iter().chain(native_groups.rows()).chain(native_groups.gated_rows(gates)) {
            let stored_in = builtin.stored_in.unwrap_or(builtin.group);
            let table = registry.table(store, stored_in, builtin.plural);
            registry.insert(Kind {
                group: builtin.group.into(),
                version: builtin.version.into(),
                kind: builtin.kind.into(),
                plural: builtin.plural.into(),
                singular: builtin.kind.to_lowercase().into(),
                short_names: builtin.short_names.iter().map(|name| (*name).into()).collect(),
                categories: categories(builtin.kind).iter().map(|name| (*name).into()).collect(),
                namespaced: builtin.namespaced,
                table,
                native_groups,
                gates,
                served: true,
                strategy: Strategy::Builtin(builtin),
            });
        }
        registry
    }

    fn table(&mut self, store: &mut Store, group: &str, plural: &str) -> TableId {
        *self.tables.entry((group.into(), plural.into())).or_insert_with(|| store.add_table(&table_name(group, plural)))
    }

    fn insert(&mut self, kind: Kind) {
        self.kinds.insert((kind.group.clone(), kind.version.clone(), kind.plural.clone()), Arc::new(kind));
    }

    /// Serves a definition, in place of its previous form.
    pub(crate) fn define(&mut self, store: &mut Store, definition: Definition) {
        self.undefine(&definition.group, &definition.plural);
        if self.all().any(|kind| *kind.group == *definition.group && *kind.plural == *definition.plural) {
            // A built-in kind cannot be replaced.
            return;
        }
        let table = self.table(store, &definition.group, &definition.plural);
        let boxed = |names: &[String]| names.iter().map(|name| name.as_str().into()).collect::<Vec<Box<str>>>();
        let (short_names, categories) = (boxed(&definition.short_names), boxed(&definition.categories));
        for (version, strategy) in definition.versions {
            self.insert(Kind {
                group: definition.group.as_str().into(),
                version: version.into(),
                kind: definition.kind.as_str().into(),
                plural: definition.plural.as_str().into(),
                singular: definition.singular.as_str().into(),
                short_names: short_names.clone(),
                categories: categories.clone(),
                namespaced: definition.namespaced,
                table,
                native_groups: self.native_groups,
                gates: self.gates,
                served: strategy.is_served,
                strategy: Strategy::Custom(Box::new(strategy)),
            });
        }
    }

    /// Stops serving a resource. Returns its table, if it was served.
    pub(crate) fn undefine(&mut self, group: &str, plural: &str) -> Option<TableId> {
        let count = self.kinds.len();
        self.kinds.retain(|(of_group, _, of_plural), kind| {
            **of_group != *group || **of_plural != *plural || matches!(kind.strategy, Strategy::Builtin(_))
        });
        let was_served = self.kinds.len() < count;
        was_served.then(|| self.tables.get(&(group.into(), plural.into())).copied()).flatten()
    }

    /// The kind that stores objects in the table of this name.
    pub(crate) fn of_table_name(&self, name: &str) -> Option<&Arc<Kind>> {
        let mut tables = self.tables.iter();
        let (_, table) = tables.find(|((group, plural), _)| table_name(group, plural) == name)?;
        self.of_table(*table)
    }

    /// Serves these definitions and no others.
    pub(crate) fn define_only(&mut self, store: &mut Store, definitions: impl IntoIterator<Item = Definition>) {
        self.kinds.retain(|_, kind| matches!(kind.strategy, Strategy::Builtin(_)));
        for definition in definitions {
            self.define(store, definition);
        }
    }

    /// The kind of a path.
    pub(crate) fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Kind>> {
        self.kinds.get(&(group.into(), version.into(), plural.into())).filter(|kind| kind.served)
    }

    /// The kind that stores the objects of a table.
    pub(crate) fn of_table(&self, table: TableId) -> Option<&Arc<Kind>> {
        let mut kinds = self.kinds.values().filter(|kind| kind.table == table);
        kinds.find(|kind| kind.is_stored_form())
    }

    /// The built-in kind of this name, which always exists.
    pub(crate) fn builtin(&self, group: &str, plural: &str) -> &Arc<Kind> {
        self.get(group, "v1", plural).expect("a built-in kind")
    }

    /// Native PodGroups, if the server has them.
    pub(crate) fn pod_groups(&self) -> Option<&Arc<Kind>> {
        self.get(native::GROUP, self.native_groups.pod_groups()?, "podgroups")
    }

    /// The kind with this name in objects.
    pub(crate) fn of_kind(&self, group: &str, version: &str, name: &str) -> Option<&Arc<Kind>> {
        let mut kinds = self.kinds.values();
        kinds.find(|kind| kind.served && *kind.group == *group && *kind.version == *version && *kind.kind == *name)
    }

    /// Whether any kind of this group is served.
    pub(crate) fn serves(&self, group: &str) -> bool {
        self.kinds.values().any(|kind| kind.served && *kind.group == *group)
    }

    /// Whether the group has built-in kinds.
    pub(crate) fn has_builtins(&self, group: &str) -> bool {
        self.kinds.values().any(|kind| *kind.group == *group && matches!(kind.strategy, Strategy::Builtin(_)))
    }

    /// All served kinds, sorted by group, version and name.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        self.kinds.values()
    }
}
