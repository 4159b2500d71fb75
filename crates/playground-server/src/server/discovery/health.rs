//! Health checks: the server is live if it responds, and ready as long as its state can be written.

use super::super::query::Query;
use super::super::response::ApiResponse;

/// The check that always passes.
const PING: &str = "ping";
/// The check of the disk, under the name of kube-apiserver's storage.
const STORAGE: &str = "etcd";

/// Answers `/livez` and similar paths; `rest` is the rest of the path, `write_error` why writes fail.
pub(super) fn respond(name: &str, rest: &[&str], query: &Query, write_error: Option<&str>) -> ApiResponse {
    let excluded: Vec<&str> = query.all("exclude").collect();
    // A read-only server is live: a restart does not repair its disk.
    let failed = write_error.filter(|_| name != "livez" && !excluded.contains(&STORAGE));
    let (code, text) = match *rest {
        [] if query.has("verbose") || failed.is_some() => (code(failed), verbose(name, &excluded, failed)),
        [] | [PING] => (200, "ok".to_owned()),
        [STORAGE] => (code(write_error), write_error.map_or_else(|| "ok".to_owned(), |why| format!("failed: {why}"))),
        _ => return ApiResponse::page_not_found(),
    };
    ApiResponse::Text { code, text }
}

fn code(failed: Option<&str>) -> u16 {
    if failed.is_some() { 500 } else { 200 }
}

fn verbose(name: &str, excluded: &[&str], failed: Option<&str>) -> String {
    let line = |check: &str, failed: Option<&str>| match failed {
        Some(why) => format!("[-]{check} failed: {why}\n"),
        None if excluded.contains(&check) => format!("[+]{check} excluded: ok\n"),
        None => format!("[+]{check} ok\n"),
    };
    let unknown = excluded.iter().filter(|check| ![PING, STORAGE].contains(check));
    let unknown: Vec<String> = unknown.map(|check| format!("{check:?}")).collect();
    let warning = match unknown.join(",") {
        unknown if unknown.is_empty() => String::new(),
        unknown => format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"),
    };
    let end = if failed.is_some() { "failed" } else { "passed" };
    format!("{}{}{warning}{name} check {end}\n", line(PING, None), line(STORAGE, failed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(rest: &[&str], query: &str) -> String {
        response_to("readyz", rest, query, None).1
    }

    fn response_to(name: &str, rest: &[&str], query: &str, write_error: Option<&str>) -> (u16, String) {
        match respond(name, rest, &Query::parse(query), write_error) {
            ApiResponse::Text { code, text } => (code, text),
            _ => panic!("not a text response"),
        }
    }

    #[test]
    fn verbose_lists_checks() {
        assert_eq!(body_of(&[], ""), "ok");
        assert_eq!(body_of(&["ping"], ""), "ok");
        assert_eq!(body_of(&[], "verbose"), "[+]ping ok\n[+]etcd ok\nreadyz check passed\n");
        assert!(body_of(&[], "verbose&exclude=ping&exclude=x").starts_with("[+]ping excluded: ok\n[+]etcd ok\nwarn: "));
        assert!(body_of(&["other"], "").starts_with("404"));
    }

    #[test]
    fn read_only_server_is_live_but_not_ready() {
        let write_error = Some("no space");
        assert_eq!(response_to("livez", &[], "", write_error), (200, "ok".to_owned()));
        let (code, text) = response_to("readyz", &[], "", write_error);
        assert_eq!((code, &*text), (500, "[+]ping ok\n[-]etcd failed: no space\nreadyz check failed\n"));
        assert_eq!(response_to("readyz", &[], "exclude=etcd", write_error), (200, "ok".to_owned()));
    }
}
