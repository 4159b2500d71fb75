//! Our own kinds on the server: its schemas take and refuse what the API crate's cases say.
//!
//! The cases and the definitions are files of that crate; here they meet a server as a cluster would see them.

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
    /// The field that the schema is to name; none if it takes the spec.
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

/// What the server answers: the object, or the fields that it names.
type Verdict = Result<Value, Vec<String>>;

async fn ask(client: &Client, method: &str, path: &str, body: &Value) -> Verdict {
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

async fn play(client: &Client, case: &Case) -> Verdict {
    let plural = if case.kind == "PodGroup" { "podgroups" } else { "workloads" };
    let path = format!("/apis/muster.dev/v1alpha1/namespaces/default/{plural}");
    let Some(old) = &case.old else {
        return ask(client, "POST", &format!("{path}?dryRun=All"), &case.object(&case.spec)).await;
    };
    let made = ask(client, "POST", &path, &case.object(old)).await.expect(&case.name);
    let mut changed = case.object(&case.spec);
    changed["metadata"] = made["metadata"].clone();
    let verdict = ask(client, "PUT", &format!("{path}/x"), &changed).await;
    ask(client, "DELETE", &format!("{path}/x"), &json!({})).await.expect(&case.name);
    verdict
}

#[tokio::test(start_paused = true)]
async fn every_case_ends_on_the_server_as_it_says() {
    let client = Server::start(Settings::default()).client();
    for definition in [crds::PODGROUPS, crds::WORKLOADS] {
        let definition: Value = serde_saphyr::from_str(definition).expect("a definition");
        ask(&client, "POST", DEFINITIONS, &definition).await.expect("a definition that the server takes");
    }
    // Long enough for the definitions to be served.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cases: Vec<Case> = serde_saphyr::from_str(CASES).expect("cases that can be read");
    let mut wrong = Vec::new();
    for case in &cases {
        let verdict = play(&client, case).await;
        let agrees = match (case.expected(), &verdict) {
            (None, Ok(_)) => true,
            (Some(field), Err(named)) => named.iter().any(|named| named == field),
            _ => false,
        };
        if !agrees {
            wrong.push(format!("{}: expected {:?}, got {:?}", case.name, case.expected(), verdict.err()));
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
