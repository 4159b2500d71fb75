//! The reference: the program `scores` of the control plane that `tools/controlplane` has built.
//!
//! Without it the test is skipped with a banner; where `CI` is set it fails.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use super::answer::Answer;

/// The version of kube-scheduler that Muster is compared with.
const MINOR: &str = "-v1.37.";

/// The running program, which answers one case after the other.
pub(super) struct Reference {
    program: Child,
    cases: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Reference {
    /// Starts the program, if it is built.
    pub(super) fn find() -> Option<Self> {
        let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/controlplane/build");
        let built = Command::new(tool).arg("--built").output().map(|output| output.stdout).unwrap_or_default();
        let built = String::from_utf8_lossy(&built);
        let Some(path) = built.lines().find(|path| path.contains(MINOR)) else {
            assert!(std::env::var_os("CI").is_none(), "there is no kube-scheduler: run tools/controlplane/build");
            skipped();
            return None;
        };
        let mut command = Command::new(path);
        command.arg("scores").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut program = command.spawn().unwrap_or_else(|error| panic!("{path}: {error}"));
        let (cases, answers) = (program.stdin.take().expect("piped"), program.stdout.take().expect("piped"));
        Some(Self { program, cases, answers: BufReader::new(answers) })
    }

    /// Its answer, or why the case is invalid.
    pub(super) fn evaluate(&mut self, case: &Value) -> Result<Answer, String> {
        writeln!(self.cases, "{case}").expect("the program `scores` reads");
        let mut line = String::new();
        self.answers.read_line(&mut line).expect("the program `scores` answers");
        assert!(!line.is_empty(), "the program `scores` died of {case}");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line}"));
        if let Some(error) = answer["error"].as_str() {
            return Err(error.to_owned());
        }
        Ok(serde_json::from_value(answer).unwrap_or_else(|error| panic!("{error} in {line}")))
    }
}

impl Drop for Reference {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

fn skipped() {
    let line = "=".repeat(70);
    let banner = format!(
        "{line}\nSKIPPED: the comparison with kube-scheduler, since there is none.\n\
         tools/controlplane/build makes it (it needs Go).\n{line}\n"
    );
    // Written past the test harness, which hides the output of passing tests. The write may fail.
    let _ = std::io::stderr().write_all(banner.as_bytes());
}
