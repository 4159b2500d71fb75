//! Whether the server is well. It answers, so it is: there is one check.

use super::super::answer::Answer;
use super::super::query::Query;

const CHECK: &str = "ping";

/// Answers `/livez` and its like, `rest` being what follows in the path.
pub(super) fn answer(name: &str, rest: &[&str], query: &Query) -> Answer {
    let text = match *rest {
        [] if query.has("verbose") => verbose(name, query),
        [] | [CHECK] => "ok".to_owned(),
        _ => return Answer::page_not_found(),
    };
    Answer::Text { code: 200, text }
}

fn verbose(name: &str, query: &Query) -> String {
    let excluded: Vec<&str> = query.all("exclude").collect();
    let fate = if excluded.contains(&CHECK) { "excluded: ok" } else { "ok" };
    let unknown: Vec<String> =
        excluded.iter().filter(|check| **check != CHECK).map(|check| format!("{check:?}")).collect();
    let warning = match unknown.join(",") {
        unknown if unknown.is_empty() => String::new(),
        unknown => format!("warn: some health checks cannot be excluded: no matches for {unknown}\n"),
    };
    format!("[+]{CHECK} {fate}\n{warning}{name} check passed\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(rest: &[&str], query: &str) -> String {
        match answer("readyz", rest, &Query::parse(query)) {
            Answer::Text { text, .. } => text,
            _ => panic!("no text"),
        }
    }

    #[test]
    fn checks_are_told_on_demand() {
        assert_eq!(told(&[], ""), "ok");
        assert_eq!(told(&["ping"], ""), "ok");
        assert_eq!(told(&[], "verbose"), "[+]ping ok\nreadyz check passed\n");
        assert!(told(&[], "verbose&exclude=ping&exclude=x").starts_with("[+]ping excluded: ok\nwarn: "));
        assert!(told(&["other"], "").starts_with("404"));
    }
}
