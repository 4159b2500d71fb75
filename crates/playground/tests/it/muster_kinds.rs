//! Tests that the server accepts and rejects Muster's kinds as the API crate's cases demand.
//!
//! The cases and the definitions are files of that crate; here they are applied to a server as on a cluster.

use std::time::Duration;

use kube::Client;
use muster_api::crds;
use muster_playground::{Server, Settings};
use serde::Deserialize;
use serde_json::{Value, json};

const CASES: &str = include_str!("../../../api/tests/crd_cases.yaml");
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    kind: String,
    old: Option<Value>,
    spec: Value,
    error: Option<String>,
    schema_error: Option<String>,
    seen_by: Option<String>,
}

impl Case {
    /// The field that the error has to name; none if the spec is valid.
    fn expected(&self) -> Option<&str> {
        match self.seen_by.as_deref() {
            Some("rust") => None,
            _ => self.schema_error.as_deref().or(self.error.as_deref()),
        }
    }

    fn object(&self, spec: &Value) -> Value {
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": self.kind, "metadata": {"name": "x"}, "spec": spec})
    }
}

/// The server's response: the object, or the fields that the error names.
type Response = Result<Value, Vec<String>>;

async fn send_request(client: &Client, method: &str, path: &str, body: &Value) -> Response {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", "application/json")
        .body(serde_json::to_vec(body).unwrap())
        .unwrap();
    match client.request::<Value>(request).await {
        Ok(object) => Ok(object),
        Err(kube::Error::Api(status)) => {
            let causes = status.details.map(|details| details.causes).unwrap_or_default();
            Err(causes.into_iter().map(|cause| cause.field).collect())
        }
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

async fn apply_case(client: &Client, case: &Case) -> Response {
    let plural = if case.kind == "PodGroup" { "podgroups" } else { "workloads" };
    let path = format!("/apis/muster.dev/v1alpha1/namespaces/default/{plural}");
    let Some(old) = &case.old else {
        return send_request(client, "POST", &format!("{path}?dryRun=All"), &case.object(&case.spec)).await;
    };
    let created = send_request(client, "POST", &path, &case.object(old)).await.expect(&case.name);
    let mut changed = case.object(&case.spec);
    changed["metadata"] = created["metadata"].clone();
    let response = send_request(client, "PUT", &format!("{path}/x"), &changed).await;
    send_request(client, "DELETE", &format!("{path}/x"), &json!({})).await.expect(&case.name);
    response
}

#[tokio::test(start_paused = true)]
async fn every_crd_case_has_its_expected_result() {
    let client = Server::start(Settings::default()).client();
    for definition in [crds::PODGROUPS, crds::WORKLOADS] {
        let definition: Value = serde_saphyr::from_str(definition).expect("a definition");
        send_request(&client, "POST", DEFINITIONS, &definition).await.expect("a definition that the server takes");
    }
    // Long enough for the definitions to be served.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cases: Vec<Case> = serde_saphyr::from_str(CASES).expect("cases that can be read");
    let mut wrong = Vec::new();
    for case in &cases {
        let response = apply_case(&client, case).await;
        let agrees = match (case.expected(), &response) {
            (None, Ok(_)) => true,
            (Some(field), Err(named)) => named.iter().any(|named| named == field),
            _ => false,
        };
        if !agrees {
            wrong.push(format!("{}: expected {:?}, got {:?}", case.name, case.expected(), response.err()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
