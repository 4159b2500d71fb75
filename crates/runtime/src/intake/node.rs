//! A node in the engine's types.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::resources::{Place, list_in_base_units, validate};
use muster_api::toleration::WrittenTaint;
use muster_api::wire::Node;
use muster_clock::millis;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::Taint;

use super::class::effect;
use crate::settings::TaintKey;

/// The node as the engine observes it.
pub(crate) fn node(node: &Node, startup: &[TaintKey]) -> Result<NodeSpec, InvalidField> {
    let path = FieldPath::Root("status.allocatable");
    let allocatable = validate(&node.status.allocatable, Place::Node, &path)?;
    let images = node.status.images.iter();
    let images =
        images.flat_map(|image| image.names.iter().map(|name| (name.as_str().into(), image.size_bytes.max(0))));
    let taints = WrittenTaint::validate_all(&node.spec.taints, &FieldPath::Root("spec.taints"))?;
    let taints: Vec<Taint> = taints
        .into_iter()
        .map(|taint| Taint { key: taint.key, value: taint.value, effect: effect(taint.effect) })
        .collect();
    let is_startup = |taint: &&Taint| startup.iter().any(|key| key.matches(&taint.key));
    Ok(NodeSpec {
        startup_taints: taints.iter().filter(is_startup).cloned().collect(),
        created_ms: node.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0)),
        name: node.metadata.name.clone().unwrap_or_default(),
        labels: node.metadata.labels.clone().unwrap_or_default(),
        taints,
        unschedulable: node.spec.unschedulable,
        images: images.collect(),
        features: node.status.declared_features.iter().cloned().collect(),
        allocatable: list_in_base_units(&allocatable, &path)?.into_iter().collect(),
    })
}
