//! Where a test happens: a real control plane with simulated nodes, Muster installed by its manifests and run as
//! processes with the rights of its own service account, and a witness of all pods.
//!
//! Invariant: tests that need the whole machine have it for themselves. A test that fails tells what was seen, and its
//! logs stay where it says.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use muster_controlplane::{Binary, Plane, Profile, Version, required};
use muster_playground::clients::{KubeletSettings, Kubelets, Shape};
use muster_playground::clock::Clock;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep};

use crate::audit::Audit;
use crate::cluster::{client_of, kubectl_fed};
use crate::objects::GPUS;
use crate::replica::Replica;
use crate::witness::{Book, Witness};

const NAMESPACE: &str = "default";
/// Where the manifests put Muster.
pub(crate) const HOME: &str = "muster-system";
const CONTROLLERS: &str = "kube-controller-manager";
const LOOK_EVERY: Duration = Duration::from_millis(20);
const READY_WITHIN: Duration = Duration::from_secs(90);
const REQUESTS_MAX: usize = 16;

/// How much of the machine a test needs: all of it, or half.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    Whole = 2,
    Half = 1,
}

static MACHINE: Semaphore = Semaphore::const_new(Load::Whole as usize);

/// A cluster with Muster installed, none of its replicas started yet.
pub(crate) struct Stage {
    pub(crate) plane: Plane,
    pub(crate) client: Client,
    pub(crate) audit: Audit,
    pub(crate) replicas: Vec<Replica>,
    witness: Witness,
    kubelets: Vec<Kubelets>,
    folder: PathBuf,
    /// Whether all of its programs should run.
    plane_is_whole: bool,
    _machine: SemaphorePermit<'static>,
}

impl Stage {
    /// Starts a control plane and installs Muster; `None` if it was not built. `flags` are more of `controlplane up`.
    pub(crate) async fn open(name: &str, load: Load, profile: Profile, flags: &[&str]) -> Option<Self> {
        let binary = required(Version::V1_37, name)?;
        Some(Self::open_on(&binary, Version::V1_37, name, load, (profile, flags)).await)
    }

    /// The same on a version that was built.
    pub(crate) async fn open_on(
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
        let stage = Self {
            witness: Witness::start(client.clone()),
            plane,
            client,
            audit,
            replicas: Vec::new(),
            kubelets: Vec::new(),
            folder,
            plane_is_whole: true,
            _machine: machine,
        };
        stage.install(version);
        stage.await_account().await;
        stage
    }

    /// Runs kubectl with all rights, and gives what it said.
    pub(crate) fn kubectl(&self, arguments: &[&str], input: &str) -> String {
        String::from_utf8(kubectl_fed(&self.plane, arguments, input).stdout).expect("text")
    }

    /// Kills a program of the plane. Directly, since a start can be over before `controlplane stop` has begun its work.
    pub(crate) async fn take_away(&mut self, program: &str) {
        self.plane_is_whole = false;
        let id = self.plane.pid(program).expect("it runs");
        let sent = Command::new("kill").args(["-KILL", &id.to_string()]).status().expect("kill");
        assert!(sent.success(), "kill -KILL {id}");
        while runs(id) {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts it again, with the same data.
    pub(crate) fn bring_back(&mut self, program: &str) {
        self.plane.start_program(program).unwrap_or_else(|error| panic!("{error}"));
        self.plane_is_whole = true;
    }

    /// The controller manager ends when it cannot renew its lease; on a real cluster it is started again, too.
    fn tend_plane(&self) {
        if self.plane_is_whole && !self.plane.pid(CONTROLLERS).is_some_and(runs) {
            self.plane.start_program(CONTROLLERS).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Applies what `muster manifests` prints for a version.
    pub(crate) fn apply_manifests(&self, version: Version, flags: &[&str]) {
        let mut manifests = Command::new(env!("CARGO_BIN_EXE_muster"));
        let manifests = manifests.args(["manifests", "--kubernetes-version", version.name()]).args(flags).output();
        let manifests = manifests.expect("muster");
        assert!(manifests.status.success(), "{manifests:?}");
        let manifests = String::from_utf8(manifests.stdout).expect("text");
        self.kubectl(&["apply", "-f", "-"], &manifests);
    }

    /// Applies the manifests, and writes a kubeconfig with a token of Muster's account and nothing else.
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

    /// Pods cannot be made before their namespace has its account.
    async fn await_account(&self) {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), NAMESPACE);
        let until = Instant::now() + READY_WITHIN;
        while accounts.get_opt("default").await.expect("the API server answers").is_none() {
            assert!(Instant::now() < until, "the controller manager has made no account in {NAMESPACE}");
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts a replica. Its configuration is that of the manifests with `changes`, a JSON object, merged into it.
    pub(crate) fn start_replica(&mut self, name: &str, changes: &Value) {
        let shipped = self.kubectl(&["--namespace", HOME, "get", "configmap", "muster", "--output", "json"], "");
        let shipped: Value = serde_json::from_str(&shipped).expect("JSON");
        let shipped = shipped["data"]["config.yaml"].as_str().expect("a configuration");
        let mut config: Value = serde_saphyr::from_str(shipped).expect("YAML");
        // Several replicas live on one machine here.
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

    /// The replica that leads, if any does.
    pub(crate) async fn leader(&self) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), HOME);
        let lease = leases.get_opt("muster").await.expect("the API server answers")?;
        let holder = lease.spec?.holder_identity?;
        holder.split_once('_').map(|(name, _)| name.to_owned())
    }

    pub(crate) async fn await_leader(&mut self, name: &str) {
        let until = Instant::now() + READY_WITHIN;
        while self.leader().await.as_deref() != Some(name) {
            self.look();
            if Instant::now() >= until {
                self.fail(&format!("{name} does not lead"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Starts kubelets for the nodes of a shape, and waits until all of them may be given pods.
    pub(crate) async fn add_nodes(&mut self, shape: &Shape) {
        let names: Vec<String> = shape.nodes().expect("a good shape").into_iter().map(|node| node.name).collect();
        for name in &names {
            self.witness.book().expect_room(name, GPUS);
        }
        let kubelets = Kubelets::start(self.client.clone(), shape, KubeletSettings::default(), Clock::real());
        self.kubelets.push(kubelets.expect("a good shape"));
        let nodes: Api<Node> = Api::all(self.client.clone());
        let is_open = |node: &Node| node.spec.as_ref().is_none_or(|spec| spec.taints.is_none());
        let until = Instant::now() + READY_WITHIN;
        loop {
            let list = nodes.list(&ListParams::default()).await.expect("the API server answers");
            let open: Vec<&str> = list
                .items
                .iter()
                .filter(|node| is_open(node))
                .filter_map(|node| node.metadata.name.as_deref())
                .collect();
            if names.iter().all(|name| open.contains(&name.as_str())) {
                return;
            }
            assert!(Instant::now() < until, "of {} nodes only {} are open to pods", names.len(), open.len());
            sleep(LOOK_EVERY * 10).await;
        }
    }

    /// Where objects of a kind are, in the namespace of the tests.
    pub(crate) fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    /// Creates objects, many at once.
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
        let selector = ListParams::default().labels(&format!("{}={gang}", crate::witness::GANG));
        let pods = self.api("v1", "Pod");
        pods.delete_collection(&DeleteParams::default(), &selector).await.expect("the API server answers");
    }

    /// What has been seen.
    pub(crate) fn seen<T>(&self, look: impl FnOnce(&Book) -> T) -> T {
        look(&self.witness.book())
    }

    /// Waits until something is seen.
    pub(crate) async fn until(&mut self, what: &str, within: Duration, is_true: impl Fn(&Book) -> bool) {
        let until = Instant::now() + within;
        while !self.seen(&is_true) {
            self.look();
            if Instant::now() >= until {
                self.fail(&format!("not seen within {within:?}: {what}"));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Waits until an object shows a condition with this status.
    pub(crate) async fn until_condition(&mut self, api_version: &str, name: &str, condition: &str, status: &str) {
        let groups = self.api(api_version, "PodGroup");
        let until = Instant::now() + READY_WITHIN;
        loop {
            let object = groups.get(name).await.unwrap_or_else(|error| panic!("PodGroup {name}: {error}"));
            let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
            if conditions.into_iter().any(|one| one["type"] == condition && one["status"] == status) {
                return;
            }
            self.look();
            if Instant::now() >= until {
                self.fail(&format!("PodGroup {name} never said {condition}={status}: {}", object.data["status"]));
            }
            sleep(LOOK_EVERY * 10).await;
        }
    }

    /// Lets time pass.
    pub(crate) async fn pass(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while Instant::now() < until {
            self.look();
            sleep(LOOK_EVERY).await;
        }
    }

    /// Looks after all processes, and fails if something happened that never may.
    pub(crate) fn look(&mut self) {
        self.tend_plane();
        let ended: Vec<String> = self.replicas.iter_mut().filter_map(|replica| replica.tend().err()).collect();
        if !ended.is_empty() {
            self.fail(&ended.join("; "));
        }
        if !self.seen(|book| book.moved().is_empty()) {
            self.fail("pods have moved");
        }
    }

    /// Ends the test with all that was seen.
    pub(crate) fn fail(&self, why: &str) -> ! {
        let logs: Vec<String> = self.replicas.iter().map(Replica::told).collect();
        panic!("{why}\n\n{}\n{}\n\nlogs are in {}", self.seen(Book::told), logs.join("\n\n"), self.folder.display());
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            fs::remove_dir_all(&self.folder).ok();
            return;
        }
        // The plane's folder goes with it.
        for program in ["etcd", "kube-apiserver", CONTROLLERS, "kube-scheduler"] {
            let name = format!("{program}.log");
            fs::copy(self.plane.folder().join(&name), self.folder.join(&name)).ok();
        }
    }
}

/// Whether a process runs.
fn runs(id: u32) -> bool {
    // Of one that has ended and that nobody waited for, this is empty.
    fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| !line.is_empty())
}

/// Puts every value of `changes` in its place.
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
