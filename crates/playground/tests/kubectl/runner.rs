//! Runs a test case with every kubectl and compares the output with the expected one.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::kubectls::{KUBECTLS, Kubectl};
use super::normalize;
use super::test_case::{Output, Step, TestCase};
use super::test_cluster::TestCluster;

/// The time limit of a command.
const COMMAND_SECONDS_MAX: u64 = 60;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

/// Runs a test case with every kubectl, on the cluster that the environment names or on playgrounds.
pub(crate) fn run_test_case(name: &str) {
    run_test_case_on(name, std::env::var_os("MUSTER_KUBECONFIG").map(PathBuf::from).as_deref(), &KUBECTLS);
}

/// Runs a test case with these kubectls, on another cluster if one is given.
pub(crate) fn run_test_case_on(name: &str, kubeconfig: Option<&Path>, kubectls: &[Kubectl]) {
    let path = folder().join(format!("{name}.console"));
    let text = std::fs::read_to_string(&path).expect("a test case");
    let mut test_case = TestCase::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let is_recorded = std::env::var_os("MUSTER_RECORD").is_some();
    let mut failures = String::new();
    for (index, kubectl) in kubectls.iter().enumerate() {
        let run = TestRun::start(name, kubeconfig, kubectl);
        for step in &mut test_case.steps {
            if step.skipped.iter().any(|(of, _)| run.is(of)) {
                continue;
            }
            let found = run.run(&step.command.join("\n"));
            if is_recorded {
                run.record(step, found, index == 0);
            } else if let Some(difference) = run.difference(step, &found) {
                let _ = writeln!(failures, "\n{}:{} with {}\n{difference}", path.display(), step.line, kubectl.name);
            }
        }
    }
    if is_recorded {
        std::fs::write(&path, test_case.text()).expect("the test case is written");
    }
    assert!(failures.is_empty(), "{failures}");
}

/// A cluster with a home folder for kubectl.
struct TestRun {
    cluster: TestCluster,
    kubectl: Kubectl,
    home: PathBuf,
    namespace: String,
}

impl TestRun {
    fn start(name: &str, kubeconfig: Option<&Path>, kubectl: &Kubectl) -> Self {
        let place = kubeconfig.map_or("playground", |_| "cluster");
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}-{place}", kubectl.name));
        // Left over by an earlier run.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(home.join("bin")).expect("a folder");
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", kubectl.path.display());
        std::fs::write(home.join("bin/kubectl"), script).expect("a script");
        let created = Command::new("chmod").arg("+x").arg(home.join("bin/kubectl")).status();
        assert!(created.is_ok_and(|status| status.success()), "a script that can be run");
        let cluster = TestCluster::open(&kubectl.path, kubeconfig);
        let namespace = format!("story-{name}");
        cluster.write_kubeconfig(&home.join("kubeconfig"), &kubectl.path, &namespace);
        let run = Self { cluster, kubectl: kubectl.clone(), home, namespace };
        for command in ["kubectl create namespace $NAMESPACE", "kubectl wait --for=condition=Ready node --all"] {
            let done = run.run(command);
            assert!(done.code == 0, "{command}: {done:?}");
        }
        run
    }

    /// Whether a condition of a test case applies to this run.
    fn is(&self, named: &str) -> bool {
        let is = |name| name == self.kubectl.name || (name == "playground" && self.cluster.is_playground());
        named.split('+').all(is)
    }

    fn run(&self, command: &str) -> Output {
        let path = format!("{}:{}", self.home.join("bin").display(), std::env::var("PATH").unwrap_or_default());
        let child = Command::new("sh")
            .args(["-c", command])
            .current_dir(folder())
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.home.join("kubeconfig"))
            .env("KUBECACHEDIR", self.home.join("cache"))
            .env("NAMESPACE", &self.namespace)
            .env("TZ", "UTC")
            .env("LC_ALL", "C")
            .env_remove("KUBE_EDITOR")
            .env_remove("EDITOR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a shell");
        let id = child.id();
        let (send, receive) = mpsc::channel();
        std::thread::spawn(move || send.send(child.wait_with_output()));
        let output = receive.recv_timeout(Duration::from_secs(COMMAND_SECONDS_MAX)).unwrap_or_else(|_| {
            let _ = Command::new("kill").arg(id.to_string()).status();
            panic!("not done within {COMMAND_SECONDS_MAX} s: {command}");
        });
        let output = output.expect("a shell");
        let lines = |bytes: &[u8]| normalize::lines(&String::from_utf8_lossy(bytes));
        Output {
            stdout: lines(&output.stdout),
            stderr: lines(&output.stderr),
            code: output.status.code().unwrap_or(-1),
        }
    }

    /// The expected output of a step in this run.
    fn expected<'a>(&self, step: &'a Step) -> &'a Output {
        let variant = step.variants.iter().find(|variant| self.is(&variant.of));
        variant.map_or(&step.expected, |variant| &variant.output)
    }

    fn difference(&self, step: &Step, found: &Output) -> Option<String> {
        let expected = self.expected(step);
        let is_same = expected.code == found.code
            && normalize::same(&expected.stdout, &found.stdout)
            && normalize::same(&expected.stderr, &found.stderr);
        (!is_same).then(|| {
            let shown = |output: &Output| {
                let step = Step { expected: output.clone(), ..Step::default() };
                TestCase { steps: vec![step], tail: Vec::new() }.text()
            };
            format!("$ {}\nexpected:\n{}found:\n{}", step.command.join("\n> "), shown(expected), shown(found))
        })
    }

    /// Records the output: that of another cluster with the newest kubectl is the expected one, everything else is
    /// recorded only in variants.
    fn record(&self, step: &mut Step, found: Output, is_newest: bool) {
        match step.variants.iter_mut().find(|variant| self.is(&variant.of)) {
            Some(variant) if is_newest || variant.of.contains(&self.kubectl.name) => variant.output = found,
            None if is_newest && !self.cluster.is_playground() => step.expected = found,
            _ => {}
        }
    }
}

impl Drop for TestRun {
    fn drop(&mut self) {
        if !self.cluster.is_playground() && !std::thread::panicking() {
            self.run("kubectl delete namespace $NAMESPACE");
        }
    }
}
