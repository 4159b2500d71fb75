//! The audit log of the API server: Muster's requests and their responses.
//!
//! Must not depend on the test cases.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

const POLICY: &str = r#"{
    "apiVersion": "audit.k8s.io/v1", "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [
        {"level": "Metadata", "users": ["system:serviceaccount:muster-system:muster"]},
        {"level": "None"}
    ]
}"#;

/// The audit log of an API server.
pub(crate) struct Audit {
    policy: PathBuf,
    log: PathBuf,
}

/// One completed request.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) verb: String,
    #[serde(rename = "requestURI")]
    pub(crate) path: String,
    #[serde(default)]
    pub(crate) user_agent: String,
    #[serde(default)]
    object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ObjectRef {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    namespace: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Entry {
    pub(crate) fn code(&self) -> u16 {
        self.response_status.code
    }

    fn is_bind(&self) -> bool {
        self.verb == "create" && self.object_ref.resource == "pods" && self.object_ref.subresource == "binding"
    }
}

impl Audit {
    /// Prepares a log in a folder; `flags` enable it in the API server.
    pub(crate) fn in_folder(folder: &Path) -> Self {
        let audit = Self { policy: folder.join("audit-policy.json"), log: folder.join("audit.log") };
        fs::write(&audit.policy, POLICY).expect("a policy that can be written");
        audit
    }

    /// The flags of `controlplane up`.
    pub(crate) fn flags(&self) -> Vec<String> {
        let flag = |name: &str, path: &Path| format!("--flag=kube-apiserver=--{name}={}", path.display());
        vec![flag("audit-policy-file", &self.policy), flag("audit-log-path", &self.log)]
    }

    /// All requests of Muster so far.
    pub(crate) fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.log).expect("the audit log");
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
    }

    /// The response codes of binds, by pod.
    pub(crate) fn binds(&self) -> BTreeMap<String, Vec<u16>> {
        let mut binds: BTreeMap<String, Vec<u16>> = BTreeMap::new();
        for entry in self.entries().iter().filter(|entry| entry.is_bind()) {
            let ObjectRef { namespace, name, .. } = &entry.object_ref;
            binds.entry(format!("{namespace}/{name}")).or_default().push(entry.code());
        }
        binds
    }
}

/// Whether a pod was bound more than once, by the response codes of its binds.
pub(crate) fn bound_twice(answers: &[u16]) -> bool {
    answers.iter().filter(|code| **code == 201).count() > 1
}
