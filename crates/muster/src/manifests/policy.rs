//! A ValidatingAdmissionPolicy and the binding that puts it into force.
//!
//! The API server evaluates policies itself, so they hold whether or not Muster runs. `failurePolicy` is `Fail`: an
//! expression that cannot be evaluated admits nothing.

use serde_json::{Value, json};

use super::labels;

/// A policy that is in force for every object that it matches.
pub(super) struct Policy {
    pub(super) name: &'static str,
    /// API groups, resources and operations.
    pub(super) rules: Vec<Value>,
    /// Named conditions under which a request is validated at all.
    pub(super) conditions: Vec<(&'static str, String)>,
    pub(super) variables: Vec<(&'static str, String)>,
    pub(super) validations: Vec<Value>,
}

/// A rule for resources of one API group, in all of its versions.
pub(super) fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({"apiGroups": [group], "apiVersions": ["*"], "resources": resources, "operations": operations})
}

impl Policy {
    /// The policy and its binding.
    pub(super) fn documents(self) -> [Value; 2] {
        let named = |(name, expression): (&str, String)| json!({"name": name, "expression": expression});
        let mut spec = json!({
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": self.rules},
            "validations": self.validations,
        });
        if !self.conditions.is_empty() {
            spec["matchConditions"] = self.conditions.into_iter().map(named).collect();
        }
        if !self.variables.is_empty() {
            spec["variables"] = self.variables.into_iter().map(named).collect();
        }
        let policy = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": self.name, "labels": labels()},
            "spec": spec,
        });
        [policy, binding(self.name)]
    }
}

/// Puts a policy into force.
pub(super) fn binding(name: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name, "labels": labels()},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}
