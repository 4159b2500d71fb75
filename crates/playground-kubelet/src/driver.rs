//! Connects the kubelets' state machine to the clock and the API.
//!
//! Turns watch events into state machine events and sends its requests with bounded concurrency. It decides nothing.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::Client;
use kube::api::Api;
use muster_api::wire::Node;
use muster_clock::Clock;
use muster_playground_client::recorder::{EventQueue, EventType};
use muster_playground_client::untyped::{UntypedPod, strip_unused_fields};
use muster_playground_client::watch::watch;
use muster_reflector::{Cache, Delta, Selection, key_of};
use tokio::sync::{mpsc, oneshot};

use super::KubeletSettings;
use super::api_requests::send;
use super::state_machine::{ApiRequest, Event, Operation, Outcome, StateMachine};
use super::volumes::VolumeEvent;
use crate::shape::NodeShape;

/// A command from the owner of the handle.
#[derive(Clone, Copy, Debug)]
pub(super) enum Command {
    Kill(usize),
    Revive(usize),
}

type Commands = mpsc::UnboundedReceiver<(Command, oneshot::Sender<()>)>;
type Call = Pin<Box<dyn Future<Output = (Operation, Outcome)> + Send>>;

/// Runs the state machine.
pub(super) struct Driver {
    client: Client,
    machine: StateMachine,
    events: EventQueue,
    clock: Clock,
    commands: Commands,
    requests_max: usize,
    pods: Cache<UntypedPod>,
    waiting: VecDeque<ApiRequest>,
    calls: FuturesUnordered<Call>,
}

/// What the driver loop waits for.
enum Wakeup {
    Command(Command, oneshot::Sender<()>),
    Pod(Delta<UntypedPod>),
    Node(Delta<Node>),
    Volume(Box<VolumeEvent>),
    Done(Operation, Outcome),
    Time,
    End,
}

impl Driver {
    pub(super) fn new(
        client: Client,
        nodes: &[Arc<NodeShape>],
        settings: KubeletSettings,
        clock: Clock,
        commands: Commands,
    ) -> Self {
        Self {
            events: EventQueue::start(client.clone(), clock, "kubelet"),
            client,
            machine: StateMachine::new(nodes, settings, clock.now()),
            clock,
            commands,
            requests_max: settings.requests_max.max(1),
            pods: Cache::default(),
            waiting: VecDeque::new(),
            calls: FuturesUnordered::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let bound = Selection::fields("spec.nodeName!=");
        let pods = watch(Api::<UntypedPod>::all(self.client.clone()), bound);
        let mut pods = pods.map(|event| event.modify(strip_unused_fields));
        let mut nodes = watch(Api::<Node>::all(self.client.clone()), Selection::default());
        let mut volumes = self.watch_volumes();
        loop {
            self.send_requests();
            match self.wait(&mut pods, &mut nodes, &mut volumes).await {
                Wakeup::Command(command, done) => {
                    let event = match command {
                        Command::Kill(node) => Event::Kill(node),
                        Command::Revive(node) => Event::Revive(node),
                    };
                    self.machine.observe(self.clock.now(), event);
                    self.drop_queued_requests(command);
                    done.send(()).ok();
                }
                Wakeup::Pod(event) => self.observe_pod_event(event),
                Wakeup::Node(Delta::Applied(node) | Delta::Listed(node)) => {
                    self.machine.observe(self.clock.now(), Event::Node(Box::new(node)));
                }
                Wakeup::Node(Delta::ListDone) => self.machine.observe(self.clock.now(), Event::NodesListed),
                Wakeup::Volume(event) => self.machine.observe(self.clock.now(), Event::Volume(event)),
                Wakeup::Node(_) | Wakeup::Time => {}
                Wakeup::Done(operation, outcome) => {
                    self.machine.observe(self.clock.now(), Event::Done(operation, outcome));
                }
                Wakeup::End => return,
            }
        }
    }

    fn send_requests(&mut self) {
        self.waiting.extend(self.machine.tick(self.clock.now()));
        for event in self.machine.take_events() {
            self.events.record(event.pod, EventType::Warning, "FailedMount", event.message);
        }
        while self.calls.len() < self.requests_max
            && let Some(request) = self.waiting.pop_front()
        {
            let shape = match &request.operation {
                Operation::Node(node, _) => Some(Arc::clone(self.machine.shape(*node))),
                Operation::PatchStatus(..) | Operation::DeletePod(..) => None,
            };
            self.calls.push(Box::pin(send(self.client.clone(), request, shape, self.clock.now())));
        }
    }

    fn watch_volumes(&self) -> impl Stream<Item = VolumeEvent> + Unpin + 'static {
        let client = || self.client.clone();
        let all = Selection::default;
        stream::select_all([
            watch(Api::<CSIDriver>::all(client()), all()).map(VolumeEvent::Driver).boxed(),
            watch(Api::<PersistentVolume>::all(client()), all()).map(VolumeEvent::Volume).boxed(),
            watch(Api::<PersistentVolumeClaim>::all(client()), all()).map(VolumeEvent::Claim).boxed(),
            watch(Api::<VolumeAttachment>::all(client()), all()).map(VolumeEvent::Attachment).boxed(),
        ])
    }

    /// A stopped kubelet does not send its queued requests either.
    fn drop_queued_requests(&mut self, command: Command) {
        if let Command::Kill(node) = command {
            let machine = &self.machine;
            self.waiting.retain(|request| machine.node_of(&request.operation) != Some(node));
        }
    }

    async fn wait(
        &mut self,
        pods: &mut (impl Stream<Item = Delta<UntypedPod>> + Unpin),
        nodes: &mut (impl Stream<Item = Delta<Node>> + Unpin),
        volumes: &mut (impl Stream<Item = VolumeEvent> + Unpin),
    ) -> Wakeup {
        let wakeup = self.machine.next_wakeup();
        let left = wakeup.map(|time| until(self.clock.now(), time));
        tokio::select! {
            biased;
            command = self.commands.recv() => {
                command.map_or(Wakeup::End, |(command, done)| Wakeup::Command(command, done))
            }
            event = nodes.next() => event.map_or(Wakeup::End, Wakeup::Node),
            event = volumes.next() => event.map_or(Wakeup::End, |event| Wakeup::Volume(Box::new(event))),
            event = pods.next() => event.map_or(Wakeup::End, Wakeup::Pod),
            Some((operation, outcome)) = self.calls.next(), if !self.calls.is_empty() => {
                Wakeup::Done(operation, outcome)
            }
            () = tokio::time::sleep(left.unwrap_or_default()), if left.is_some() => Wakeup::Time,
        }
    }

    fn observe_pod_event(&mut self, event: Delta<UntypedPod>) {
        let now = self.clock.now();
        let listed = matches!(event, Delta::ListDone);
        for change in self.pods.apply(event) {
            match (change.new, change.old) {
                (Some(pod), _) => self.machine.observe(now, Event::Pod(pod)),
                (None, Some(pod)) => self.machine.observe(now, Event::PodGone(key_of(&*pod))),
                (None, None) => {}
            }
        }
        if listed {
            self.machine.observe(now, Event::PodsListed);
        }
    }
}

fn until(now: Timestamp, time: Timestamp) -> Duration {
    Duration::try_from(time.duration_since(now)).unwrap_or_default()
}
