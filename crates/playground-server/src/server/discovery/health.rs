//! Whether the server is well: it answers, and it is ready as long as its state can be written.

use super::super::answer::Answer;
use super::super::query::Query;

/// The check of an answer.
const PING: &str = "ping";
/// The check of the disk; a real server calls its storage so.
const STORAGE: &str = "etcd";

/// Answers `/livez` and its like, `rest` being what follows in the path; `broken` says why nothing can be written.
pub(super) fn answer(name: &str, rest: &[&str], query: &Query, broken: Option<&str>) -> Answer {
    let excluded: Vec<&str> = query.all("exclude").collect();
    // A server that only reads is alive: starting it again does not mend its disk.
    let failed = broken.filter(|_| name != "livez" && !excluded.contains(&STORAGE));
    let (code, text) = match *rest {
        [] if query.has("verbose") || failed.is_some() => (code(failed), verbose(name, &excluded, failed)),
        [] | [PING] => (200, "ok".to_owned()),
        [STORAGE] => (code(broken), broken.map_or_else(|| "ok".to_owned(), |why| format!("failed: {why}"))),
        _ => return Answer::page_not_found(),
    };
    Answer::Text { code, text }
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

    fn told(rest: &[&str], query: &str) -> String {
        told_of("readyz", rest, query, None).1
    }

    fn told_of(name: &str, rest: &[&str], query: &str, broken: Option<&str>) -> (u16, String) {
        match answer(name, rest, &Query::parse(query), broken) {
            Answer::Text { code, text } => (code, text),
            _ => panic!("no text"),
        }
    }

    #[test]
    fn checks_are_told_on_demand() {
        assert_eq!(told(&[], ""), "ok");
        assert_eq!(told(&["ping"], ""), "ok");
        assert_eq!(told(&[], "verbose"), "[+]ping ok\n[+]etcd ok\nreadyz check passed\n");
        assert!(told(&[], "verbose&exclude=ping&exclude=x").starts_with("[+]ping excluded: ok\n[+]etcd ok\nwarn: "));
        assert!(told(&["other"], "").starts_with("404"));
    }

    #[test]
    fn a_server_that_only_reads_is_alive_and_not_ready() {
        let broken = Some("no space");
        assert_eq!(told_of("livez", &[], "", broken), (200, "ok".to_owned()));
        let (code, text) = told_of("readyz", &[], "", broken);
        assert_eq!((code, &*text), (500, "[+]ping ok\n[-]etcd failed: no space\nreadyz check failed\n"));
        assert_eq!(told_of("readyz", &[], "exclude=etcd", broken), (200, "ok".to_owned()));
    }
}
