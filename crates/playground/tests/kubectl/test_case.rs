//! The format of test cases: commands with their expected output.
//!
//! Invariant: a test case that is parsed and written again is the same text. Must not depend on the runner.

/// The output and exit code of a command.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Output {
    pub(crate) stdout: Vec<String>,
    pub(crate) stderr: Vec<String>,
    pub(crate) code: i32,
}

/// A different expected output for some runs, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// `playground`, `kubectl-1.32`, or both with a plus between them.
    pub(crate) of: String,
    pub(crate) reason: String,
    pub(crate) output: Output,
}

/// A command with its expected output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    /// Comments and blank lines before it.
    pub(crate) prose: Vec<String>,
    /// Runs that skip this step, with the reason.
    pub(crate) skipped: Vec<(String, String)>,
    pub(crate) line: usize,
    pub(crate) command: Vec<String>,
    pub(crate) expected: Output,
    pub(crate) variants: Vec<Variant>,
}

/// A whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TestCase {
    pub(crate) steps: Vec<Step>,
    /// The lines after the last step.
    pub(crate) tail: Vec<String>,
}

/// The prefixes of lines that are not output.
const MARKS: [&str; 5] = ["$ ", "# ", "! ", "? ", "% "];

impl TestCase {
    /// Parses a file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut test_case = TestCase::default();
        let mut prose = Vec::new();
        let mut skipped = Vec::new();
        let mut lines = text.lines().enumerate().peekable();
        while let Some((index, line)) = lines.next() {
            if let Some(command) = line.strip_prefix("$ ") {
                let mut step = Step { prose: std::mem::take(&mut prose), line: index + 1, ..Step::default() };
                step.skipped = std::mem::take(&mut skipped);
                step.command.push(command.to_owned());
                while let Some((_, more)) = lines.next_if(|(_, line)| *line == ">" || line.starts_with("> ")) {
                    step.command.push(more.strip_prefix("> ").unwrap_or_default().to_owned());
                }
                step.expected = output(&mut lines)?;
                while let Some((index, head)) = lines.next_if(|(_, line)| line.starts_with("% on ")) {
                    let (of, reason) = named(head, "% on ", index)?;
                    step.variants.push(Variant { of, reason, output: output(&mut lines)? });
                }
                test_case.steps.push(step);
            } else if line.starts_with("% not on ") {
                skipped.push(named(line, "% not on ", index)?);
            } else if line.is_empty() || line == "#" || line.starts_with("# ") {
                prose.push(line.to_owned());
            } else {
                return Err(format!("line {}: output without a command: {line}", index + 1));
            }
        }
        test_case.tail = prose;
        Ok(test_case)
    }

    /// Formats the file.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        for step in &self.steps {
            for line in &step.prose {
                push(&mut text, line);
            }
            for (of, reason) in &step.skipped {
                push(&mut text, &format!("% not on {of}: {reason}"));
            }
            for (index, line) in step.command.iter().enumerate() {
                let mark = if index == 0 { "$" } else { ">" };
                push(&mut text, format!("{mark} {line}").trim_end());
            }
            write_output(&mut text, &step.expected);
            for variant in &step.variants {
                push(&mut text, &format!("% on {}: {}", variant.of, variant.reason));
                write_output(&mut text, &variant.output);
            }
        }
        for line in &self.tail {
            push(&mut text, line);
        }
        text
    }
}

fn named(line: &str, mark: &str, index: usize) -> Result<(String, String), String> {
    let rest = line.strip_prefix(mark).unwrap_or_default();
    let (of, reason) =
        rest.split_once(": ").ok_or_else(|| format!("line {}: \"{mark}\" needs NAME: REASON", index + 1))?;
    Ok((of.to_owned(), reason.to_owned()))
}

/// The lines up to the next prefix. Trailing blank lines belong to the next step.
fn output<'a>(
    lines: &mut std::iter::Peekable<impl Iterator<Item = (usize, &'a str)> + Clone>,
) -> Result<Output, String> {
    let mut found = Output::default();
    loop {
        // Blank lines are output only if output follows them.
        let mut ahead = lines.clone();
        let mut blank = 0;
        while ahead.next_if(|(_, line)| line.is_empty()).is_some() {
            blank += 1;
        }
        let Some((index, line)) = ahead.next() else { return Ok(found) };
        let is_mark = MARKS.iter().any(|mark| line.starts_with(mark)) || line == "#";
        let is_own = line.starts_with("! ") || line.starts_with("? ");
        if (is_mark && !is_own) || (is_own && blank > 0) {
            return Ok(found);
        }
        for _ in 0..blank {
            lines.next();
            found.stdout.push(String::new());
        }
        lines.next();
        if let Some(complaint) = line.strip_prefix("! ") {
            found.stderr.push(complaint.to_owned());
        } else if let Some(code) = line.strip_prefix("? ") {
            found.code = code.parse().map_err(|_| format!("line {}: no exit code: {code}", index + 1))?;
        } else {
            found.stdout.push(line.strip_prefix('\\').unwrap_or(line).to_owned());
        }
    }
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn write_output(text: &mut String, output: &Output) {
    for line in &output.stdout {
        let is_mark = MARKS.iter().any(|mark| line.starts_with(mark)) || line.starts_with('\\') || line == "#";
        let escape = if is_mark { "\\" } else { "" };
        push(text, &format!("{escape}{line}"));
    }
    for line in &output.stderr {
        push(text, &format!("! {line}"));
    }
    if output.code != 0 {
        push(text, &format!("? {}", output.code));
    }
}

#[test]
fn test_case_round_trips() {
    let text = "\
# A title.

% not on kubectl-1.32: it has no such flag
$ kubectl apply -f - <<'E'
> a: 1
>
> E
one

two
\\$ three
! oh
? 1
% on playground: it says so
other

# More.
$ kubectl get pods

$ kubectl version
# The end.
";
    let test_case = TestCase::parse(text).expect("a test case");
    assert_eq!(test_case.text(), text);
    assert_eq!(test_case.steps.len(), 3);
    let first = &test_case.steps[0];
    assert_eq!(first.command.join("\n"), "kubectl apply -f - <<'E'\na: 1\n\nE");
    assert_eq!(first.expected.stdout, ["one", "", "two", "$ three"]);
    assert_eq!((first.expected.code, &*first.expected.stderr), (1, &["oh".to_owned()][..]));
    assert_eq!(first.variants[0].output.stdout, ["other"]);
    assert!(TestCase::parse("words").is_err());
    assert!(TestCase::parse("% not on x").is_err());
}
