//! A test cluster: a real control plane with simulated nodes, Muster installed by its manifests and run as processes
//! with the permissions of its own service account, and a recorder of all pods.
//!
//! Invariant: tests that need the whole machine run alone. A failing test prints what was recorded, and where its logs
//! are.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use muster_controlplane::{Binary, Plane, Profile, Version, required};
use muster_playground::clock::Clock;
use muster_playground::components::{KubeletSettings, Kubelets, Shape};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::audit::Audit;
use crate::cluster::{client_of, kubectl_fed};
use crate::objects::GPUS;
use crate::pod_recorder::{PodRecorder, RecordedPods};
use crate::replica::Replica;

const NAMESPACE: &str = "default";
/// The namespace of Muster in the manifests.
pub(crate) const HOME: &str = "muster-system";
const CONTROLLERS: &str = "kube-controller-manager";
const POLL_EVERY: Duration = Duration::from_millis(20);
const WEBHOOKS: &str = "kind: MutatingWebhookConfiguration";
/// Connections to it are refused, whereas packets to an address of a service would be lost: a request would wait for it.
const CLOSED_PORT: u16 = 1;
const READY_WITHIN: Duration = Duration::from_secs(90);
const REQUESTS_MAX: usize = 16;

/// How much of the machine a test needs: all of it, or half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    Whole = 2,
    Half = 1,
}

static MACHINE: Semaphore = Semaphore::const_new(Load::Whole as usize);

/// A cluster with Muster installed and no replica started yet.
pub(crate) struct TestCluster {
    pub(crate) plane: Plane,
    pub(crate) client: Client,
    pub(crate) audit: Audit,
    pub(crate) replicas: Vec<Replica>,
    pod_recorder: PodRecorder,
    kubelets: Vec<Kubelets>,
    folder: PathBuf,
    /// Whether all of its programs should run.
    plane_is_complete: bool,
    _machine: SemaphorePermit<'static>,
}

impl TestCluster {
    /// Starts a control plane and installs Muster; `None` if it was not built. `flags` are further flags of
    /// `controlplane up`.
    pub(crate) async fn start(name: &str, load: Load, profile: Profile, flags: &[&str]) -> Option<Self> {
        let binary = required(Version::V1_37, name)?;
        Some(Self::start_on(&binary, Version::V1_37, name, load, (profile, flags)).await)
    }

    /// The same on a version that was built.
    pub(crate) async fn start_on(
        binary: &Binary,
        version: Version,
        name: &str,
        load: Load,
        (profile, flags): (Profile, &[&str]),
    ) -> Self {
        let machine = MACHINE.acquire_many(load as u32).await.expect("it is never closed");
        let folder = std::env::temp_dir().join(format!("muster-real-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder for logs");
        let audit = Audit::in_folder(&folder);
        let audit_flags = audit.flags();
        let flags: Vec<&str> = flags.iter().copied().chain(audit_flags.iter().map(String::as_str)).collect();
        let plane = Plane::start(binary, profile, &flags).unwrap_or_else(|error| panic!("{error}"));
        let client = client_of(&plane).await;
        let cluster = Self {
            pod_recorder: PodRecorder::start(client.clone()),
            plane,
            client,
            audit,
            replicas: Vec::new(),
            kubelets: Vec::new(),
            folder,
            plane_is_complete: true,
            _machine: machine,
        };
        cluster.install(version);
        cluster.await_account().await;
        cluster
    }

    /// Runs kubectl with all permissions and returns its output.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        String::from_utf8(kubectl_fed(&self.plane, arguments, input).stdout).expect("text")
    }

    /// Kills a program of the control plane. Directly, since a start can be over before `controlplane stop` has an
    /// effect.
    pub(crate) async fn kill_program(&mut self, program: &str) {
        self.plane_is_complete = false;
        let id = self.plane.pid(program).expect("it runs");
        let sent = Command::new("kill").args(["-KILL", &id.to_string()]).status().expect("kill");
        assert!(sent.success(), "kill -KILL {id}");
        while runs(id) {
            sleep(POLL_EVERY).await;
        }
    }

    /// Starts it again, with the same data.
    pub(crate) fn restart_program(&mut self, program: &str) {
        self.plane.start_program(program).unwrap_or_else(|error| panic!("{error}"));
        self.plane_is_complete = true;
    }

    /// The controller manager exits when it cannot renew its lease; it is restarted as on a real cluster.
    fn restart_controllers(&self) {
        if self.plane_is_complete && !self.plane.pid(CONTROLLERS).is_some_and(runs) {
            self.plane.start_program(CONTROLLERS).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Applies the output of `muster manifests` for a version. The webhook is not called before a test serves it.
    pub(crate) fn apply_manifests(&self, version: Version, flags: &[&str]) {
        let mut manifests = Command::new(env!("CARGO_BIN_EXE_muster"));
        let manifests = manifests.args(["manifests", "--kubernetes-version", version.name()]).args(flags).output();
        let manifests = manifests.expect("muster");
        assert!(manifests.status.success(), "{manifests:?}");
        let manifests = String::from_utf8(manifests.stdout).expect("text");
        let documents = manifests.split("\n---\n").map(|document| {
            if document.contains(WEBHOOKS) {
                called_at(CLOSED_PORT, serde_saphyr::from_str(document).expect("YAML")).to_string()
            } else {
                document.to_owned()
            }
        });
        self.kubectl(&["apply", "-f", "-"], &documents.collect::<Vec<_>>().join("\n---\n"));
    }

    /// Applies the manifests, and writes a kubeconfig with only a token of Muster's service account.
    fn install(&self, version: Version) {
        self.apply_manifests(version, &[]);
        let kinds = ["crd/workloads.muster.dev", "crd/podgroups.muster.dev"];
        self.kubectl(&[&["wait", "--for=condition=Established", "--timeout=60s"][..], &kinds].concat(), "");
        let token = self.kubectl(&["--namespace", HOME, "create", "token", "muster", "--duration=2h"], "");
        let text = fs::read_to_string(self.plane.kubeconfig()).expect("a kubeconfig");
        let admin: Value = serde_json::from_str(&text).expect("a kubeconfig in JSON");
        let own = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{"name": "plane", "cluster": admin["clusters"][0]["cluster"]}],
            "contexts": [{"name": "own", "context": {"cluster": "plane", "user": "muster"}}],
            "users": [{"name": "muster", "user": {"token": token.trim()}}],
        });
        fs::write(self.folder.join("kubeconfig"), own.to_string()).expect("a kubeconfig");
    }

    /// A client with only the token of Muster's service account.
    pub(crate) async fn own_client(&self) -> Client {
        let file = Kubeconfig::read_from(self.folder.join("kubeconfig")).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
        Client::try_from(config).expect("a client")
    }

    /// Pods cannot be created before their namespace has its service account.
    async fn await_account(&self) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let until = Instant::now() + READY_WITHIN;
        while accounts.get_opt("default").await.expect("the API server answers").is_none() {
            assert!(Instant::now() < until, "the controller manager has created no service account in {NAMESPACE}");
            sleep(POLL_EVERY).await;
        }
    }

    /// Starts a replica. Its configuration is that of the manifests with `changes`, a JSON object, merged into it.
    pub(crate) fn start_replica(&mut self, name: &str, changes: &Value) {
        let shipped = self.kubectl(&["--namespace", HOME, "get", "configmap", "muster", "--output", "json"], "");
        let shipped: Value = serde_json::from_str(&shipped).expect("JSON");
        let shipped = shipped["data"]["config.yaml"].as_str().expect("a configuration");
        let mut config: Value = serde_saphyr::from_str(shipped).expect("YAML");
        // Several replicas run on one machine here.
        merge(&mut config, &json!({"webhook": {"listen": "127.0.0.1:0"}}));
        merge(&mut config, changes);
        let file = self.folder.join(format!("{name}.yaml"));
        fs::write(&file, config.to_string()).expect("a configuration");
        let shown = |path: &Path| path.display().to_string();
        let kubeconfig = shown(&self.folder.join("kubeconfig"));
        let arguments = ["--config", &shown(&file), "--kubeconfig", &kubeconfig, "--log-level", "debug"];
        let arguments = arguments.map(str::to_owned).to_vec();
        self.replicas.push(Replica::start(name, self.folder.join(format!("{name}.log")), arguments));
    }

    pub(crate) fn replica(&mut self, name: &str) -> &mut Replica {
        self.replicas.iter_mut().find(|replica| replica.name() == name).expect("a replica of this name")
    }

    /// The leading replica, if any.
    pub(crate) async fn leader(&self) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), HOME);
        let lease = leases.get_opt("muster").await.expect("the API server answers")?;
        let holder = lease.spec?.holder_identity?;
        holder.split_once('_').map(|(name, _)| name.to_owned())
    }

    pub(crate) async fn await_leader(&mut self, name: &str) {
        let until = Instant::now() + READY_WITHIN;
        while self.leader().await.as_deref() != Some(name) {
            self.check();
            if Instant::now() >= until {
                self.fail(&format!("{name} does not lead"));
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Starts kubelets for the nodes of a shape, and waits until all of them are ready and untainted.
    pub(crate) async fn add_nodes(&mut self, shape: &Shape) {
        let names: Vec<String> = shape.nodes().expect("a valid shape").into_iter().map(|node| node.name).collect();
        for name in &names {
            self.pod_recorder.pods().set_gpus(name, GPUS);
        }
        let kubelets = Kubelets::start(self.client.clone(), shape, KubeletSettings::default(), Clock::real());
        self.kubelets.push(kubelets.expect("a valid shape"));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let is_open = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none());
        let until = Instant::now() + READY_WITHIN;
        loop {
            let list = nodes.list(&ListParams::default()).await.expect("the API server answers");
            let ready: Vec<&str> = list
                .items
                .iter()
                .filter(|node| is_open(node))
                .filter_map(|node| node.metadata.name.as_deref())
                .collect();
            if names.iter().all(|name| ready.contains(&name.as_str())) {
                return;
            }
            assert!(Instant::now() < until, "of {} nodes only {} are ready", names.len(), ready.len());
            sleep(POLL_EVERY * 10).await;
        }
    }

    /// The API of a kind in the namespace of the tests.
    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    /// Creates objects concurrently.
    pub(crate) async fn create(&self, objects: Vec<Value>) {
        let requests = objects.into_iter().map(async |object| {
            let text = |field: &str| object[field].as_str().expect("a whole object").to_owned();
            let api = self.api(&text("apiVersion"), &text("kind"));
            let object: DynamicObject = serde_json::from_value(object).expect("an object");
            api.create(&PostParams::default(), &object).await.unwrap_or_else(|error| panic!("{object:?}: {error}"));
        });
        stream::iter(requests).buffer_unordered(REQUESTS_MAX).collect::<Vec<()>>().await;
    }

    /// Deletes all pods of a gang.
    pub(crate) async fn delete_pods(&self, gang: &str) {
        let selector = ListParams::default().labels(&format!("{}={gang}", crate::pod_recorder::GANG));
        let pods = self.api("v1", "Pod");
        pods.delete_collection(&DeleteParams::default(), &selector).await.expect("the API server answers");
    }

    /// Reads from the recorded pods.
    pub(crate) fn seen<T>(&self, check: impl FnOnce(&RecordedPods) -> T) -> T {
        check(&self.pod_recorder.pods())
    }

    /// Waits until a predicate on the recorded pods holds.
    pub(crate) async fn until(&mut self, what: &str, within: Duration, is_true: impl Fn(&RecordedPods) -> bool) {
        let until = Instant::now() + within;
        while !self.seen(&is_true) {
            self.check();
            if Instant::now() >= until {
                self.fail(&format!("not seen within {within:?}: {what}"));
            }
            sleep(POLL_EVERY).await;
        }
    }

    /// Waits until an object has a condition with this status.
    pub(crate) async fn until_condition(&mut self, api_version: &str, name: &str, condition: &str, status: &str) {
        let groups = self.api(api_version, "PodGroup");
        let until = Instant::now() + READY_WITHIN;
        loop {
            let object = groups.get(name).await.unwrap_or_else(|error| panic!("PodGroup {name}: {error}"));
            let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.into_iter().any(|one| one["type"] == condition && one["status"] == status) {
                return;
            }
            self.check();
            if Instant::now() >= until {
                self.fail(&format!("PodGroup {name} never had {condition}={status}: {}", object.data["status"]));
            }
            sleep(POLL_EVERY * 10).await;
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.check();
            sleep(POLL_EVERY).await;
        }
    }

    /// Checks all processes, and fails if an invariant is violated.
    pub(crate) fn check(&mut self) {
        self.restart_controllers();
        let ended: Vec<String> = self.replicas.iter_mut().filter_map(|replica| replica.check_process().err()).collect();
        if !ended.is_empty() {
            self.fail(&ended.join("; "));
        }
        if !self.seen(|pods| pods.moved().is_empty()) {
            self.fail("pods have changed their node");
        }
    }

    /// Fails the test with all that was recorded.
    pub(crate) fn fail(&self, why: &str) -> ! {
        let logs: Vec<String> = self.replicas.iter().map(Replica::dump).collect();
        panic!(
            "{why}\n\n{}\n{}\n\nlogs are in {}",
            self.seen(RecordedPods::dump),
            logs.join("\n\n"),
            self.folder.display()
        );
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.folder).ok();
            return;
        }
        // The folder of the control plane is deleted with it.
        for program in ["etcd", "kube-apiserver", CONTROLLERS, "kube-scheduler"] {
            let name = format!("{program}.log");
            fs::copy(self.plane.folder().join(&name), self.folder.join(&name)).ok();
        }
    }
}

/// Whether a process runs.
fn runs(id: u32) -> bool {
    // The file is empty for a zombie process.
    fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Merges every value of `changes`.
/// A webhook configuration whose webhooks are called at a port of this machine: there is no service network.
pub(crate) fn called_at(port: u16, mut configuration: Value) -> Value {
    for hook in configuration["webhooks"].as_array_mut().expect("hooks") {
        hook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/mutate")});
    }
    configuration
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, changes) => *into = changes.clone(),
    }
}
