//! A generic object: metadata, spec and status, usable with a Kubernetes client.
//!
//! Invariant: the serialized object has its apiVersion and kind, and deserializes to an equal object. Must not depend
//! on any particular kind.

use std::borrow::Cow;
use std::fmt::Debug;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_core::Resource;
use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct;
use serde::{Deserialize, Serialize, Serializer};

use crate::null::{is_default, null_is_default};
use crate::wire::metadata;

/// The traits of a spec or a status.
pub trait Part: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T> Part for T where T: Clone + Debug + Default + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {}

/// A kind of object and its place in the API. The type itself is only a marker.
pub trait Kind: Clone + Debug + Default + PartialEq + Send + Sync + 'static {
    /// The spec.
    type Spec: Part;
    /// The status.
    type Status: Part;
    /// Whether it is namespaced: `NamespaceResourceScope` or `ClusterResourceScope`.
    type Scope;
    /// The API group; empty for the core.
    const GROUP: &'static str;
    /// The version in the group.
    const VERSION: &'static str;
    /// The name of the kind.
    const KIND: &'static str;
    /// The plural name in paths.
    const PLURAL: &'static str;
}

/// The status of a kind that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoStatus {}

/// An object of a kind.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, bound = "")]
pub struct Object<K: Kind> {
    /// Name, labels and so on, without `managedFields`.
    #[serde(deserialize_with = "metadata::read")]
    pub metadata: ObjectMeta,
    /// The spec.
    #[serde(deserialize_with = "null_is_default")]
    pub spec: K::Spec,
    /// The status.
    #[serde(deserialize_with = "null_is_default")]
    pub status: K::Status,
}

impl<K: Kind> Object<K> {
    /// The name of the object in errors: `Kind namespace/name`, or `Kind name` for cluster-scoped kinds.
    pub fn object_name(&self) -> String {
        let name = self.metadata.name.as_deref().unwrap_or_default();
        match self.metadata.namespace.as_deref() {
            None | Some("") => format!("{} {name}", K::KIND),
            Some(namespace) => format!("{} {namespace}/{name}", K::KIND),
        }
    }
}

impl<K: Kind> Serialize for Object<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let with_status = !is_default(&self.status);
        let mut fields = serializer.serialize_struct(K::KIND, 4 + usize::from(with_status))?;
        fields.serialize_field("apiVersion", &Self::api_version(&()))?;
        fields.serialize_field("kind", K::KIND)?;
        fields.serialize_field("metadata", &self.metadata)?;
        fields.serialize_field("spec", &self.spec)?;
        if with_status {
            fields.serialize_field("status", &self.status)?;
        }
        fields.end()
    }
}

impl<K: Kind> Resource for Object<K> {
    type DynamicType = ();
    type Scope = K::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        K::KIND.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        K::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        K::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        K::PLURAL.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native;
    use crate::wire::{Node, Pod, PodDisruptionBudget, PodGroup, Workload};
    use kube_core::NamespaceResourceScope;
    use serde_json::json;

    /// The traits that a client's list, watch and patch calls need.
    fn is_watchable<K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Serialize + Send + 'static>()
    -> String {
        K::url_path(&(), Some("n"))
    }

    #[test]
    fn every_kind_has_its_path_on_the_server() {
        fn namespaced<K: Resource<Scope = NamespaceResourceScope>>() {}
        namespaced::<Pod>();
        namespaced::<PodGroup>();
        for (path, expected) in [
            (is_watchable::<Pod>(), "/api/v1/namespaces/n/pods"),
            (is_watchable::<PodDisruptionBudget>(), "/apis/policy/v1/namespaces/n/poddisruptionbudgets"),
            (is_watchable::<Workload>(), "/apis/muster.dev/v1alpha1/namespaces/n/workloads"),
            (is_watchable::<PodGroup>(), "/apis/muster.dev/v1alpha1/namespaces/n/podgroups"),
            (is_watchable::<native::Workload>(), "/apis/scheduling.k8s.io/v1beta1/namespaces/n/workloads"),
            (is_watchable::<native::PodGroup>(), "/apis/scheduling.k8s.io/v1beta1/namespaces/n/podgroups"),
            (is_watchable::<native::v1alpha2::PodGroup>(), "/apis/scheduling.k8s.io/v1alpha2/namespaces/n/podgroups"),
            (is_watchable::<native::v1alpha1::Workload>(), "/apis/scheduling.k8s.io/v1alpha1/namespaces/n/workloads"),
            (Node::url_path(&(), None), "/api/v1/nodes"),
        ] {
            assert_eq!(path, expected);
        }
    }

    #[test]
    fn serialized_object_has_its_kind_and_round_trips() {
        let json = json!({
            "apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "d"},
            "spec": {"policy": {"gang": {"minCount": 3}}, "minResources": {"cpu": "8"}},
        });
        let group: PodGroup = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(group.object_name(), "PodGroup d/g");
        assert_eq!(serde_json::to_value(&group).unwrap(), json);
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n1"}, "spec": null})).unwrap();
        assert_eq!(node.object_name(), "Node n1");
    }
}
