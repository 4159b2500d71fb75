//! Injection of the CA bundle into webhook configurations, so that API servers trust the webhook.
//!
//! Only `caBundle` is changed. Must not depend on where the bundle comes from.

use std::fmt;

use k8s_openapi::ByteString;
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::Value;

use super::rotation::RotationError;

const GROUP: &str = "admissionregistration.k8s.io";
const ATTEMPTS: usize = 5;

/// The kind of a webhook configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigurationKind {
    /// MutatingWebhookConfiguration.
    Mutating,
    /// ValidatingWebhookConfiguration.
    Validating,
}

impl ConfigurationKind {
    fn resource(self) -> ApiResource {
        ApiResource {
            group: GROUP.to_owned(),
            version: "v1".to_owned(),
            api_version: format!("{GROUP}/v1"),
            kind: self.to_string(),
            plural: format!("{}s", self.to_string().to_lowercase()),
        }
    }
}

impl fmt::Display for ConfigurationKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Validating => "ValidatingWebhookConfiguration",
        })
    }
}

/// The state of a webhook configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConfigurationState {
    Current,
    Updated,
    Missing,
}

/// Makes sure that every webhook of a configuration has the bundle.
pub(super) async fn inject_ca_bundle(
    client: &kube::Client,
    kind: ConfigurationKind,
    name: &str,
    bundle: &[u8],
) -> Result<ConfigurationState, RotationError> {
    // Read as plain JSON, so that fields of newer API servers are not lost.
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &kind.resource());
    let failed = |doing, source| RotationError::Api { doing, what: format!("{kind} {name}"), source: Box::new(source) };
    for _ in 0..ATTEMPTS {
        let Some(mut object) = api.get_opt(name).await.map_err(|error| failed("read", error))? else {
            return Ok(ConfigurationState::Missing);
        };
        if !write_bundle(&mut object.data, bundle) {
            return Ok(ConfigurationState::Current);
        }
        match api.replace(name, &PostParams::default(), &object).await {
            Ok(_) => return Ok(ConfigurationState::Updated),
            // Another writer has changed it, perhaps to the same content, or it was deleted.
            Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => {}
            Err(error) => return Err(failed("write", error)),
        }
    }
    Err(RotationError::Contended { what: format!("{kind} {name}"), attempts: ATTEMPTS })
}

/// Writes the bundle into every webhook. Returns whether anything was changed.
fn write_bundle(configuration: &mut Value, bundle: &[u8]) -> bool {
    // Bytes are base64 in JSON.
    let bundle = serde_json::to_value(ByteString(bundle.to_vec())).unwrap_or_default();
    let mut changed = false;
    for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
        let Some(client_config) = webhook.get_mut("clientConfig").and_then(Value::as_object_mut) else { continue };
        if client_config.get("caBundle") != Some(&bundle) {
            client_config.insert("caBundle".to_owned(), bundle.clone());
            changed = true;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_webhook_gets_the_bundle_and_nothing_else_changes() {
        let mut object = json!({"webhooks": [
            {"name": "a", "clientConfig": {"service": {"name": "muster"}, "caBundle": "b2xk"}, "novelty": 1},
            {"name": "b", "clientConfig": {"service": {"name": "muster"}}},
        ]});
        assert!(write_bundle(&mut object, b"new"));
        let expected = json!({"webhooks": [
            {"name": "a", "clientConfig": {"service": {"name": "muster"}, "caBundle": "bmV3"}, "novelty": 1},
            {"name": "b", "clientConfig": {"service": {"name": "muster"}, "caBundle": "bmV3"}},
        ]});
        assert_eq!(object, expected);
        assert!(!write_bundle(&mut object, b"new"), "a current bundle is not written again");
        assert!(!write_bundle(&mut json!({"webhooks": null}), b"new"));
    }
}
