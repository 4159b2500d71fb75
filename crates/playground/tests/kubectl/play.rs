//! Plays a story with every kubectl and compares what is printed with what the file says.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use super::kubectls::{KUBECTLS, Kubectl};
use super::normal;
use super::place::Place;
use super::story::{Output, Step, Story};

/// The longest that a command may take.
const COMMAND_SECONDS_MAX: u64 = 60;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kubectl")
}

/// Plays the story of a file with every kubectl, on the cluster that the environment names or on playgrounds.
pub(crate) fn play(name: &str) {
    play_at(name, std::env::var_os("MUSTER_KUBECONFIG").map(PathBuf::from).as_deref(), &KUBECTLS);
}

/// Plays the story of a file with these kubectls, on another cluster if one is named.
pub(crate) fn play_at(name: &str, kubeconfig: Option<&Path>, kubectls: &[Kubectl]) {
    let path = folder().join(format!("{name}.console"));
    let text = std::fs::read_to_string(&path).expect("a story");
    let mut story = Story::parse(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    let is_recorded = std::env::var_os("MUSTER_RECORD").is_some();
    let mut failures = String::new();
    for (index, kubectl) in kubectls.iter().enumerate() {
        let stage = Stage::set(name, kubeconfig, kubectl);
        for step in &mut story.steps {
            if step.left_out.iter().any(|(of, _)| stage.is(of)) {
                continue;
            }
            let found = stage.run(&step.command.join("\n"));
            if is_recorded {
                stage.record(step, found, index == 0);
            } else if let Some(difference) = stage.difference(step, &found) {
                let _ = writeln!(failures, "\n{}:{} with {}\n{difference}", path.display(), step.line, kubectl.name);
            }
        }
    }
    if is_recorded {
        std::fs::write(&path, story.text()).expect("the story is written");
    }
    assert!(failures.is_empty(), "{failures}");
}

/// A place with a folder for what kubectl keeps.
struct Stage {
    place: Place,
    kubectl: Kubectl,
    home: PathBuf,
    namespace: String,
}

impl Stage {
    fn set(name: &str, kubeconfig: Option<&Path>, kubectl: &Kubectl) -> Self {
        let place = kubeconfig.map_or("playground", |_| "cluster");
        let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}-{place}", kubectl.name));
        // Left over by an earlier run.
        let _ = std::fs::remove_dir_all(&home);
        std::fs::create_dir_all(home.join("bin")).expect("a folder");
        let script = format!("#!/bin/sh\nexec '{}' \"$@\"\n", kubectl.path.display());
        std::fs::write(home.join("bin/kubectl"), script).expect("a script");
        let made = Command::new("chmod").arg("+x").arg(home.join("bin/kubectl")).status();
        assert!(made.is_ok_and(|status| status.success()), "a script that can be run");
        let place = Place::open(&kubectl.path, kubeconfig);
        let namespace = format!("story-{name}");
        place.write_kubeconfig(&home.join("kubeconfig"), &kubectl.path, &namespace);
        let stage = Self { place, kubectl: kubectl.clone(), home, namespace };
        for command in ["kubectl create namespace $NAMESPACE", "kubectl wait --for=condition=Ready node --all"] {
            let done = stage.run(command);
            assert!(done.code == 0, "{command}: {done:?}");
        }
        stage
    }

    /// Whether this is the one that a story speaks of.
    fn is(&self, named: &str) -> bool {
        let is = |name| name == self.kubectl.name || (name == "playground" && self.place.is_playground());
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
        let lines = |bytes: &[u8]| normal::lines(&String::from_utf8_lossy(bytes));
        Output {
            printed: lines(&output.stdout),
            complained: lines(&output.stderr),
            code: output.status.code().unwrap_or(-1),
        }
    }

    /// What is expected of this one.
    fn expected<'a>(&self, step: &'a Step) -> &'a Output {
        let variant = step.variants.iter().find(|variant| self.is(&variant.of));
        variant.map_or(&step.expected, |variant| &variant.output)
    }

    fn difference(&self, step: &Step, found: &Output) -> Option<String> {
        let expected = self.expected(step);
        let is_same = expected.code == found.code
            && normal::same(&expected.printed, &found.printed)
            && normal::same(&expected.complained, &found.complained);
        (!is_same).then(|| {
            let shown = |output: &Output| {
                let step = Step { expected: output.clone(), ..Step::default() };
                Story { steps: vec![step], tail: Vec::new() }.text()
            };
            format!("$ {}\nexpected:\n{}found:\n{}", step.command.join("\n> "), shown(expected), shown(found))
        })
    }

    /// Writes down what was found: another cluster's word to the newest kubectl is the truth, everything else counts
    /// only where it may differ.
    fn record(&self, step: &mut Step, found: Output, is_newest: bool) {
        match step.variants.iter_mut().find(|variant| self.is(&variant.of)) {
            Some(variant) if is_newest || variant.of.contains(&self.kubectl.name) => variant.output = found,
            None if is_newest && !self.place.is_playground() => step.expected = found,
            _ => {}
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !self.place.is_playground() && !std::thread::panicking() {
            self.run("kubectl delete namespace $NAMESPACE");
        }
    }
}
