//! The served groups in the order of preference, their versions, most preferred first, and their resources with verbs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::state::State;
use crate::kinds::{Kind, Strategy, version_priority};

/// The order of kube-apiserver's own groups. Others come after them, sorted by name.
const GROUP_ORDER: [&str; 13] = [
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "batch",
    "policy",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
];

/// A group and its versions.
pub(super) struct Group<'a> {
    pub(super) name: &'a str,
    pub(super) versions: Vec<&'a str>,
}

/// A served resource.
pub(super) struct Resource<'a> {
    pub(super) plural: &'a str,
    pub(super) singular: &'a str,
    pub(super) namespaced: bool,
    pub(super) kind: &'a str,
    pub(super) verbs: Vec<&'static str>,
    pub(super) short_names: &'a [Box<str>],
    pub(super) categories: &'a [Box<str>],
    pub(super) parts: Vec<Part<'a>>,
    /// Whether it is a custom resource.
    pub(super) is_custom: bool,
}

/// A subresource.
pub(super) struct Part<'a> {
    pub(super) name: &'static str,
    /// Group and version of the kind, if they differ from those of the resource.
    pub(super) kind_group_version: Option<(&'static str, &'static str)>,
    pub(super) kind: &'a str,
    pub(super) verbs: &'static [&'static str],
}

/// The kinds that clients may request.
pub(super) fn served(state: &State) -> impl Iterator<Item = &Arc<Kind>> {
    state.registry.all().filter(|kind| kind.served)
}

/// Whether a group has served resources.
pub(super) fn serves(state: &State, group: &str) -> bool {
    state.registry.serves(group)
}

/// All groups except the core group.
pub(super) fn groups(state: &State) -> Vec<Group<'_>> {
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for kind in served(state).filter(|kind| !kind.group.is_empty()) {
        versions.entry(&kind.group).or_default().insert(&kind.version);
    }
    let group = |(name, versions): (_, BTreeSet<_>)| {
        let mut versions: Vec<&str> = versions.into_iter().collect();
        versions.sort_by_key(|version| std::cmp::Reverse(version_priority(version)));
        Group { name, versions }
    };
    let mut groups: Vec<Group<'_>> = versions.into_iter().map(group).collect();
    groups.sort_by_key(|group| GROUP_ORDER.iter().position(|name| *name == group.name).unwrap_or(GROUP_ORDER.len()));
    groups
}

/// The resources of a group in a version, sorted by name.
pub(super) fn resources<'a>(state: &'a State, group: &str, version: &str) -> Vec<Resource<'a>> {
    let kinds = served(state).filter(|kind| *kind.group == *group && *kind.version == *version);
    let mut resources: Vec<Resource<'_>> = kinds.map(|kind| resource(kind)).collect();
    if group.is_empty() && version == "v1" {
        resources.insert(0, legacy_bindings());
    }
    resources
}

fn resource(kind: &Kind) -> Resource<'_> {
    Resource {
        plural: &kind.plural,
        singular: &kind.singular,
        namespaced: kind.namespaced,
        kind: &kind.kind,
        verbs: verbs(kind),
        short_names: &kind.short_names,
        categories: &kind.categories,
        parts: parts(kind),
        is_custom: matches!(kind.strategy, Strategy::Custom(_)),
    }
}

/// The legacy bindings collection, which can be created but is not stored.
fn legacy_bindings() -> Resource<'static> {
    Resource {
        plural: "bindings",
        singular: "binding",
        namespaced: true,
        kind: "Binding",
        verbs: vec!["create"],
        short_names: &[],
        categories: &[],
        parts: Vec::new(),
        is_custom: false,
    }
}

/// kube-apiserver and the apiextensions server list the same verbs in different orders.
fn verbs(kind: &Kind) -> Vec<&'static str> {
    let mut verbs = match kind.strategy {
        Strategy::Builtin(_) if kind.is_review() => vec!["create"],
        Strategy::Builtin(_) => vec!["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"],
        Strategy::Custom(_) => vec!["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"],
    };
    if !kind.supports_delete_collection() {
        verbs.retain(|verb| *verb != "deletecollection");
    }
    verbs
}

fn parts(kind: &Kind) -> Vec<Part<'_>> {
    let names: Vec<&'static str> = match &kind.strategy {
        Strategy::Builtin(builtin) => {
            let mut names = builtin.subresources.to_vec();
            names.sort_unstable();
            names
        }
        Strategy::Custom(_) => ["status", "scale"].into_iter().filter(|name| kind.has_subresource(name)).collect(),
    };
    names.into_iter().map(|name| part(kind, name)).collect()
}

fn part<'a>(kind: &'a Kind, name: &'static str) -> Part<'a> {
    let verbs: &[&str] = match name {
        "binding" | "eviction" => &["create"],
        "log" => &["get"],
        _ => &["get", "patch", "update"],
    };
    let (kind_group_version, kind) = match name {
        "binding" => (None, "Binding"),
        "eviction" => (Some(("policy", "v1")), "Eviction"),
        "scale" => (Some(("autoscaling", "v1")), "Scale"),
        _ => (None, &*kind.kind),
    };
    Part { name, kind_group_version, kind, verbs }
}
