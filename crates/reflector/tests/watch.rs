//! Watches against a scripted API server: what they request, how they go on, and how old they say they are.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _, stream};
use http::{Request, Response};
use http_body::Frame;
use http_body_util::StreamBody;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::{Api, Client, ResourceExt as _};
use muster_reflector::{Delta, PAUSE_MAX, Selection, WatchAges, watch};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

/// What the API server answers to one request.
enum Answer {
    /// A status code and a body.
    Whole(u16, String),
    /// Lines, after which nothing more arrives.
    Open(Vec<String>),
    /// Lines, after which the stream ends.
    Closed(Vec<String>),
    /// No answer at all.
    Nothing,
}

/// An API server that answers by a script and keeps what was requested.
#[derive(Clone, Default)]
struct Script {
    requests: Arc<Mutex<Vec<String>>>,
}

impl Script {
    fn client(&self, answer: impl Fn(usize, &str) -> Answer + Clone + Send + Sync + 'static) -> Client {
        let requests = Arc::clone(&self.requests);
        let service = tower::service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let number = {
                let mut requests = requests.lock().unwrap();
                requests.push(query.clone());
                requests.len() - 1
            };
            let answer = answer(number, &query);
            async move { Ok::<_, Infallible>(respond(answer).await) }
        });
        Client::new(service, "default")
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

type Chunks = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

async fn respond(answer: Answer) -> Response<StreamBody<Chunks>> {
    let chunk =
        |lines: Vec<String>| stream::iter(lines.into_iter().map(|line| Ok(Frame::data(Bytes::from(line + "\n")))));
    let (code, chunks): (u16, Chunks) = match answer {
        Answer::Whole(code, body) => (code, Box::pin(chunk(vec![body]))),
        Answer::Open(lines) => (200, Box::pin(chunk(lines).chain(stream::pending()))),
        Answer::Closed(lines) => (200, Box::pin(chunk(lines))),
        Answer::Nothing => std::future::pending().await,
    };
    Response::builder().status(code).body(StreamBody::new(chunks)).unwrap()
}

fn object(name: &str, version: u64) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "resourceVersion": version.to_string()}})
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string()
}

fn bookmark(version: u64, ends_list: bool) -> String {
    let mut mark = object("", version);
    if ends_list {
        mark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    event("BOOKMARK", &mark)
}

fn failure(code: u16) -> String {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "m", "reason": "r", "code": code})
        .to_string()
}

fn page(objects: &[Value], next: &str, version: &str) -> Answer {
    let metadata = json!({"continue": next, "resourceVersion": version});
    Answer::Whole(
        200,
        json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": metadata, "items": objects}).to_string(),
    )
}

/// Watches for a while; the deltas, the errors, and the ages at the end.
async fn run(client: Client, span: Duration) -> (Vec<String>, Vec<String>, Duration) {
    let errors = Arc::new(Mutex::new(Vec::new()));
    let (seen, ages) = (Arc::clone(&errors), WatchAges::default());
    let api: Api<ConfigMap> = Api::all(client);
    let on_error = move |error: &muster_reflector::WatchError| seen.lock().unwrap().push(error.to_string());
    let mut deltas = watch(api, Selection::labels("a=b"), PAUSE_MAX, ages.add("configmaps"), on_error);
    let (mut shown, end) = (Vec::new(), Instant::now() + span);
    while let Ok(Some(delta)) = timeout(end.saturating_duration_since(Instant::now()), deltas.next()).await {
        let name = |object: &ConfigMap| object.name_any();
        shown.push(match &delta {
            Delta::ListStarted => "start".to_owned(),
            Delta::Listed(object) => format!("listed {}", name(object)),
            Delta::ListDone => "done".to_owned(),
            Delta::NotServed => "not served".to_owned(),
            Delta::Applied(object) => format!("applied {}", name(object)),
            Delta::Deleted(object) => format!("deleted {}", name(object)),
        });
    }
    let age = ages.by_kind()["configmaps"];
    let errors = errors.lock().unwrap().clone();
    (shown, errors, age)
}

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test(start_paused = true)]
async fn a_streaming_list_is_a_consistent_read_and_goes_on_as_a_watch() {
    let script = Script::default();
    let client = script.client(|number, _| match number {
        0 => Answer::Closed(vec![
            event("ADDED", &object("a", 3)),
            bookmark(3, false),
            bookmark(7, true),
            event("MODIFIED", &object("b", 8)),
            bookmark(9, false),
        ]),
        1 => Answer::Open(vec![event("DELETED", &object("a", 11))]),
        _ => Answer::Nothing,
    });
    let (shown, errors, _) = run(client, MINUTE).await;
    assert_eq!(shown, ["start", "listed a", "done", "applied b", "deleted a"]);
    assert_eq!(errors, [""; 0]);
    let requests = script.requests();
    for part in ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "labelSelector=a%3Db"] {
        assert!(requests[0].contains(part), "{requests:?}");
    }
    assert!(requests[0].ends_with("resourceVersion="), "as new as the request: {requests:?}");
    assert!(requests[1].ends_with("resourceVersion=9") && !requests[1].contains("sendInitialEvents"), "{requests:?}");
}

#[tokio::test(start_paused = true)]
async fn without_streaming_lists_it_lists_page_by_page() {
    for refusal in [400, 422] {
        let script = Script::default();
        let client = script.client(move |_, query| {
            if query.contains("sendInitialEvents") {
                Answer::Whole(refusal, failure(refusal))
            } else if query.contains("watch=true") {
                Answer::Open(Vec::new())
            } else if query.contains("continue=next") {
                page(&[object("b", 2)], "", "5")
            } else {
                page(&[object("a", 1)], "next", "5")
            }
        });
        let (shown, errors, _) = run(client, MINUTE).await;
        assert_eq!(shown, ["start", "listed a", "listed b", "done"]);
        assert_eq!(errors, [""; 0]);
        assert!(script.requests().last().unwrap().ends_with("resourceVersion=5"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_with_too_many_bytes_is_requested_again_with_fewer_objects() {
    let script = Script::default();
    let client = script.client(|_, query| {
        let limit = query.split('&').find_map(|part| part.strip_prefix("limit=")?.parse::<usize>().ok());
        match limit {
            None if query.contains("sendInitialEvents") => Answer::Whole(422, failure(422)),
            None => Answer::Open(Vec::new()),
            // Objects of 1 MiB each.
            Some(limit) => {
                let mut large = object("large", 1);
                large["data"] = json!({"text": "x".repeat(1 << 20)});
                page(&vec![large; limit.min(20)], "", "5")
            }
        }
    });
    let (shown, errors, _) = run(client, MINUTE).await;
    let listed = shown.iter().filter(|delta| *delta == "listed large").count();
    assert!((1..8).contains(&listed), "{listed} objects of 1 MiB in a page");
    assert_eq!((shown.last().map(String::as_str), errors.len()), (Some("done"), 0));
}

#[tokio::test(start_paused = true)]
async fn a_page_has_a_deadline() {
    let script = Script::default();
    let client = script.client(|_, query| match query {
        query if query.contains("sendInitialEvents") => Answer::Whole(422, failure(422)),
        query if query.contains("continue=") => Answer::Nothing,
        _ => page(&[object("a", 1)], "next", "5"),
    });
    let (shown, errors, age) = run(client, 10 * MINUTE).await;
    assert_eq!(shown[..4], ["start", "listed a", "start", "listed a"]);
    assert!(!shown.contains(&"done".to_owned()));
    assert_eq!(errors[0], "list: no page within 60 s");
    assert!(age >= 10 * MINUTE, "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_never_ends_a_streaming_list_is_asked_for_pages() {
    let script = Script::default();
    let client = script.client(|_, query| match query {
        query if query.contains("sendInitialEvents") => Answer::Open(vec![event("ADDED", &object("a", 1))]),
        query if query.contains("watch=true") => Answer::Open(Vec::new()),
        _ => page(&[object("a", 1)], "", "5"),
    });
    let (shown, _, _) = run(client, 2 * MINUTE).await;
    assert_eq!(shown, ["start", "listed a", "start", "listed a", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_opened_again_where_it_was() {
    let script = Script::default();
    let client = script.client(|number, _| match number {
        0 => Answer::Open(vec![bookmark(7, true)]),
        1 => Answer::Open(vec![event("ADDED", &object("a", 8))]),
        _ => Answer::Nothing,
    });
    let (shown, errors, age) = run(client, 6 * MINUTE).await;
    assert_eq!(shown, ["start", "done", "applied a"]);
    assert_eq!(errors, ["watch: nothing arrived for 300 s"]);
    assert!(script.requests()[1].ends_with("resourceVersion=7"));
    assert!(age < MINUTE, "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn an_expired_watch_lists_again_and_another_error_does_not() {
    for (code, second) in [(410, "resourceVersion="), (500, "resourceVersion=7")] {
        let script = Script::default();
        let client = script.client(move |number, _| match number {
            0 => {
                let status: Value = serde_json::from_str(&failure(code)).unwrap();
                Answer::Closed(vec![bookmark(7, true), event("ERROR", &status)])
            }
            _ => Answer::Open(vec![bookmark(9, true)]),
        });
        let (shown, errors, _) = run(client, MINUTE).await;
        assert_eq!(errors, [format!("watch: m ({code})")]);
        assert!(script.requests()[1].ends_with(second), "{:?}", script.requests());
        assert_eq!(shown.iter().filter(|delta| *delta == "start").count(), if code == 410 { 2 } else { 1 });
    }
}

#[tokio::test(start_paused = true)]
async fn watches_that_are_closed_at_once_do_not_burden_the_server() {
    let script = Script::default();
    let client = script.client(|number, _| match number {
        0 => Answer::Closed(vec![bookmark(7, true), bookmark(8, false)]),
        _ => Answer::Closed(Vec::new()),
    });
    let (_, errors, _) = run(client, 10 * MINUTE).await;
    assert!(errors.iter().all(|error| error == "watch: it was closed at once, without an event"), "{errors:?}");
    assert!((20..40).contains(&script.requests().len()), "{} requests in ten minutes", script.requests().len());
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_current_and_asked_for_again() {
    let script = Script::default();
    let client = script.client(|_, _| Answer::Whole(404, failure(404)));
    let (shown, errors, age) = run(client, 10 * MINUTE).await;
    assert!(shown.len() > 10 && shown.iter().all(|delta| delta == "not served"), "{shown:?}");
    assert_eq!(errors, [""; 0]);
    assert!(age <= PAUSE_MAX);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_listed_becomes_old() {
    let script = Script::default();
    let client = script.client(|_, _| Answer::Whole(403, failure(403)));
    let (shown, errors, age) = run(client, 10 * MINUTE).await;
    assert_eq!(shown, [""; 0]);
    assert!(errors.len() > 10 && errors[0].starts_with("watch: "), "{errors:?}");
    assert!(age >= 10 * MINUTE);
}

#[tokio::test(start_paused = true)]
async fn a_streaming_list_that_is_cut_short_is_read_page_by_page() {
    let script = Script::default();
    let client = script.client(|_, query| match query {
        query if query.contains("sendInitialEvents") => Answer::Closed(vec![event("ADDED", &object("a", 1))]),
        query if query.contains("watch=true") => Answer::Open(Vec::new()),
        _ => page(&[object("a", 1)], "", "5"),
    });
    let (shown, _, _) = run(client, MINUTE).await;
    assert_eq!(shown, ["start", "listed a", "start", "listed a", "done"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_accepted_and_silent_becomes_old() {
    let script = Script::default();
    let client = script.client(|number, _| match number {
        0 => Answer::Open(vec![bookmark(7, true)]),
        _ => Answer::Open(Vec::new()),
    });
    let (_, errors, age) = run(client, 20 * MINUTE).await;
    assert!(errors.iter().all(|error| error == "watch: nothing arrived for 300 s"), "{errors:?}");
    assert!(age > 19 * MINUTE, "{age:?}");
}
