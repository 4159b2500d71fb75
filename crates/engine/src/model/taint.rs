//! Taints of nodes and tolerations of pods.

use serde::{Deserialize, Serialize};

/// The taint that stands for `spec.unschedulable`.
pub const UNSCHEDULABLE_KEY: &str = "node.kubernetes.io/unschedulable";

/// What a taint does to pods that do not tolerate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Effect {
    /// No new pod.
    NoSchedule,
    /// No new pod, if avoidable.
    PreferNoSchedule,
    /// No new pod, and running pods are evicted.
    NoExecute,
}

/// A taint.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value; may be empty.
    #[serde(default)]
    pub value: String,
    /// The effect.
    pub effect: Effect,
}

/// A toleration. A field that is `None` matches everything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Toleration {
    /// The key, or every key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The value, or every value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The effect, or every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<Effect>,
}

impl Toleration {
    /// Whether this toleration tolerates the taint.
    pub fn tolerates(&self, taint: &Taint) -> bool {
        self.effect.is_none_or(|effect| effect == taint.effect)
            && self.key.as_ref().is_none_or(|key| *key == taint.key)
            && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

/// Whether any of the tolerations tolerates the taint.
pub fn tolerated(tolerations: &[Toleration], taint: &Taint) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_field_matches_everything() {
        let taint = Taint { key: "gpu".into(), value: "a100".into(), effect: Effect::NoSchedule };
        let toleration = |key: Option<&str>, value: Option<&str>, effect| Toleration {
            key: key.map(Into::into),
            value: value.map(Into::into),
            effect,
        };
        assert!(toleration(None, None, None).tolerates(&taint));
        assert!(toleration(Some("gpu"), None, None).tolerates(&taint));
        assert!(toleration(Some("gpu"), Some("a100"), Some(Effect::NoSchedule)).tolerates(&taint));
        assert!(!toleration(Some("gpu"), Some("h100"), None).tolerates(&taint));
        assert!(!toleration(Some("cpu"), None, None).tolerates(&taint));
        assert!(!toleration(None, None, Some(Effect::NoExecute)).tolerates(&taint));
        assert!(!tolerated(&[], &taint));
    }
}
