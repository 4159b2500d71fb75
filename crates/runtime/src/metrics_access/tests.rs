//! Reviews against a fake API server that knows two tokens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use http::Method;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::advance;

use super::*;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));

/// The requests that the API server has got, and whether it answers.
#[derive(Clone)]
pub(crate) struct FakeServer {
    requests: Arc<Mutex<Vec<Value>>>,
    answers: Arc<Semaphore>,
}

impl FakeServer {
    pub(crate) fn start() -> Self {
        Self { requests: Arc::default(), answers: Arc::new(Semaphore::new(Semaphore::MAX_PERMITS)) }
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        Client::new(
            tower::service_fn(move |request: http::Request<kube::client::Body>| {
                let server = server.clone();
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            }),
            "default",
        )
    }

    async fn answer(&self, request: http::Request<kube::client::Body>) -> http::Response<Body> {
        assert_eq!(request.method(), Method::POST);
        let path = request.uri().path().to_owned();
        let bytes = to_bytes(Body::new(request.into_body()), 1 << 20).await.unwrap();
        let mut object: Value = serde_json::from_slice(&bytes).unwrap();
        locked(&self.requests).push(object.clone());
        self.answers.acquire().await.unwrap().forget();
        let user = |name: &str| json!({"authenticated": true, "user": {"username": name, "groups": ["g"], "uid": "1"}});
        let (code, status) = match (&*path, object["spec"]["token"].as_str(), object["spec"]["user"].as_str()) {
            ("/apis/authentication.k8s.io/v1/tokenreviews", Some("good"), _) => (201, user("prometheus")),
            ("/apis/authentication.k8s.io/v1/tokenreviews", Some("other"), _) => (201, user("other")),
            ("/apis/authentication.k8s.io/v1/tokenreviews", Some("broken"), _) => (500, Value::Null),
            ("/apis/authentication.k8s.io/v1/tokenreviews", ..) => (201, json!({"user": {}, "error": "unknown"})),
            ("/apis/authorization.k8s.io/v1/subjectaccessreviews", _, name) => {
                (201, json!({"allowed": name == Some("prometheus")}))
            }
            other => panic!("{other:?}"),
        };
        object["status"] = status;
        if code == 500 {
            object = json!({"kind": "Status", "status": "Failure", "code": 500, "message": "broken"});
        }
        http::Response::builder().status(code).body(Body::from(object.to_string())).unwrap()
    }

    fn requests(&self) -> Vec<Value> {
        std::mem::take(&mut *locked(&self.requests))
    }
}

fn bearer(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}")).unwrap())])
}

async fn review(reviewer: &AccessReviewer, headers: &HeaderMap) -> Verdict {
    reviewer.review(PEER, headers, "GET", "/metrics").await
}

fn forbidden(user: &str) -> Verdict {
    Err(Denial::Forbidden { user: user.to_owned(), verb: "get".to_owned(), path: "/metrics".to_owned() })
}

#[tokio::test(start_paused = true)]
async fn api_server_decides_who_reads() {
    let server = FakeServer::start();
    let reviewer = AccessReviewer::new(server.client());
    assert_eq!(review(&reviewer, &bearer("good")).await, Ok(()));
    let requests = server.requests();
    let spec = json!({
        "user": "prometheus", "groups": ["g"], "uid": "1",
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    });
    assert_eq!((&requests[0]["spec"], &requests[1]["spec"]), (&json!({"token": "good"}), &spec));
    assert_eq!(review(&reviewer, &bearer("other")).await, forbidden("other"));
    assert_eq!(review(&reviewer, &bearer("guessed")).await, Err(Denial::Unauthorized));
    assert_eq!(review(&reviewer, &bearer("broken")).await, Err(Denial::Unauthorized));
    server.requests();
    assert_eq!(review(&reviewer, &HeaderMap::new()).await, forbidden("system:anonymous"));
    assert_eq!(server.requests().len(), 1, "there is no token to review");
}

#[tokio::test(start_paused = true)]
async fn verdict_is_kept_for_a_short_time() {
    let server = FakeServer::start();
    let reviewer = AccessReviewer::new(server.client());
    for (token, reviews) in [("good", 2), ("other", 2), ("guessed", 1)] {
        let first = review(&reviewer, &bearer(token)).await;
        assert_eq!(server.requests().len(), reviews);
        advance(VERDICT_AGE_MAX / 2).await;
        assert_eq!(review(&reviewer, &bearer(token)).await, first);
        assert_eq!(server.requests().len(), 0);
        assert_eq!(reviewer.review(PEER, &bearer(token), "GET", "/other").await.is_ok(), first.is_ok());
        assert!(!server.requests().is_empty(), "a verdict is for one path");
        advance(VERDICT_AGE_MAX / 2).await;
        assert_eq!(review(&reviewer, &bearer(token)).await, first);
        assert_eq!(server.requests().len(), reviews);
    }
    assert_eq!(review(&reviewer, &bearer("broken")).await, Err(Denial::Unauthorized));
    assert_eq!(review(&reviewer, &bearer("broken")).await, Err(Denial::Unauthorized));
    assert_eq!(server.requests().len(), 2, "a failure is no verdict");
}

#[tokio::test(start_paused = true)]
async fn kept_verdicts_are_bounded() {
    let server = FakeServer::start();
    let reviewer = AccessReviewer::new(server.client());
    for number in 0..2 * VERDICTS_MAX {
        assert_eq!(review(&reviewer, &bearer(&format!("guess-{number}"))).await, Err(Denial::Unauthorized));
    }
    assert_eq!(locked(&reviewer.verdicts).len(), VERDICTS_MAX);
}

#[tokio::test(start_paused = true)]
async fn reviews_in_flight_are_limited_per_client_and_in_all() {
    let server = FakeServer::start();
    let reviewer = Arc::new(AccessReviewer::new(server.client()));
    server.answers.forget_permits(Semaphore::MAX_PERMITS);
    let mut waiting = tokio::task::JoinSet::new();
    let first = IpAddr::from([10, 0, 1, 0]);
    for number in 0..REVIEWS_IN_FLIGHT_MAX as u8 {
        let asked = Arc::clone(&reviewer);
        let headers = bearer(&format!("guess-{number}"));
        waiting.spawn(async move { asked.review(IpAddr::from([10, 0, 1, number]), &headers, "GET", "/metrics").await });
        tokio::time::sleep(Duration::from_millis(1)).await;
        let denied = reviewer.review(first, &bearer("next"), "GET", "/metrics").await;
        assert_eq!(denied, Err(Denial::TooManyReviews), "this client has one in flight");
    }
    assert_eq!(review(&reviewer, &bearer("good")).await, Err(Denial::TooManyReviews), "another client");
    // The API server does not answer in time.
    while let Some(denied) = waiting.join_next().await {
        assert_eq!(denied.unwrap(), Err(Denial::Failed));
    }
    server.answers.add_permits(2);
    assert_eq!(review(&reviewer, &bearer("good")).await, Ok(()));
}

#[tokio::test]
async fn denial_is_the_status_of_an_api_server() {
    let answer = async |denial: Denial| {
        let response = denial.into_response();
        let code = response.status().as_u16();
        let status: Value = serde_json::from_slice(&to_bytes(response.into_body(), 1 << 10).await.unwrap()).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&json!("Status"), &json!(code)));
        (code, status["message"].as_str().unwrap().to_owned())
    };
    assert_eq!(answer(Denial::Unauthorized).await, (401, "Unauthorized".to_owned()));
    let text = "forbidden: User \"a\" cannot get path \"/metrics\"".to_owned();
    assert_eq!(answer(forbidden("a").unwrap_err()).await, (403, text));
    assert_eq!(answer(Denial::TooManyReviews).await.0, 429);
    assert_eq!(answer(Denial::Failed).await.0, 500);
}

#[test]
fn token_is_read_as_api_servers_do() {
    let token = |value: &str| {
        bearer_token(&HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).unwrap())])).to_owned()
    };
    assert_eq!(token("Bearer abc"), "abc");
    assert_eq!(token("bearer  abc "), "abc");
    for other in ["Basic abc", "Bearer", "Bearer ", "abc", ""] {
        assert_eq!(token(other), "", "{other:?}");
    }
}
