//! Leader election against the API: performs the elector's steps and moves the fence.
//!
//! Its task has the only `FenceKeeper`. Requests are cancelled at the elector's deadline; a cancelled request may still
//! take effect, and the elector accounts for that.
//! Must not depend on what a leader does, and decides nothing itself.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use muster_clock::Clock;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::elector::{Elector, End, LeaseState, ReadOutcome, Step, Write, WriteOutcome};
use super::{LeaseError, LeaseSettings};
use crate::fence::{Fence, FenceKeeper};

/// A candidate for the lease, or its holder. Dropping it is a crash: the lease is held until it expires.
#[derive(Debug)]
pub struct Leadership {
    fence: Fence,
    stage: watch::Receiver<Stage>,
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    Standby,
    Leading,
    Ended(End),
}

impl Leadership {
    /// Starts to compete for the lease. `identity` must be unique to this process.
    pub fn start(
        client: kube::Client,
        settings: LeaseSettings,
        identity: &str,
        clock: Clock,
    ) -> Result<Self, LeaseError> {
        settings.validate()?;
        let (keeper, fence) = Fence::kept();
        let (stage_sender, stage) = watch::channel(Stage::Standby);
        let (stop, stopped) = watch::channel(false);
        let driver = Driver {
            api: Api::namespaced(client, &settings.namespace),
            name: settings.name.clone(),
            elector: Elector::new(identity, settings),
            clock,
            keeper,
            stage: stage_sender,
            origin: Instant::now(),
            object: None,
        };
        Ok(Self { fence, stage, stop, task: tokio::spawn(driver.run(stopped)) })
    }

    /// The fence that this leadership moves: closed until it leads.
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Waits until this process leads; an error if it never will.
    pub async fn wait_until_leading(&self) -> Result<(), End> {
        match self.wait_for(|stage| *stage != Stage::Standby).await {
            Stage::Ended(end) => Err(end),
            Stage::Standby | Stage::Leading => Ok(()),
        }
    }

    /// Waits until this process no longer leads, which is final.
    pub async fn lost(&self) -> End {
        match self.wait_for(|stage| matches!(stage, Stage::Ended(_))).await {
            Stage::Ended(end) => end,
            Stage::Standby | Stage::Leading => End::DeadlinePassed,
        }
    }

    /// Closes the fence and releases the lease, so that another process can take it at once. No write that the fence
    /// guards should be in flight.
    pub async fn release(self) -> End {
        self.stop.send_replace(true);
        self.lost().await
    }

    async fn wait_for(&self, matches: impl FnMut(&Stage) -> bool) -> Stage {
        // Without its task a leadership renews nothing.
        self.stage.clone().wait_for(matches).await.map_or(Stage::Ended(End::DeadlinePassed), |stage| stage.clone())
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Driver {
    api: Api<Lease>,
    name: String,
    elector: Elector,
    clock: Clock,
    keeper: FenceKeeper,
    stage: watch::Sender<Stage>,
    /// The origin of the elector's time.
    origin: Instant,
    /// The lease as it was last seen, with the fields that others wrote.
    object: Option<Lease>,
}

impl Driver {
    async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        let (mut stops, mut logged) = (false, false);
        loop {
            let step = self.elector.next(self.now());
            self.publish();
            if let Step::Wait { .. } = step
                && !logged
                && *self.stage.borrow() == Stage::Standby
            {
                logged = true;
                tracing::info!(lease = self.name, "this process stands by until the lease is free");
            }
            if let Step::End(end) = step {
                tracing::info!(lease = self.name, "leadership ends: {end}");
                self.stage.send_replace(Stage::Ended(end));
                return;
            }
            tokio::select! {
                biased;
                _ = stopped.wait_for(|stop| *stop), if !stops => {
                    stops = true;
                    self.elector.release(self.now());
                }
                () = self.perform(step) => {}
            }
        }
    }

    fn now(&self) -> Duration {
        self.origin.elapsed()
    }

    /// Moves the fence and publishes the stage.
    fn publish(&mut self) {
        let Some(write_until) = self.elector.write_until() else {
            self.keeper.close();
            return;
        };
        self.keeper.open_until(self.origin + write_until);
        if *self.stage.borrow() == Stage::Standby {
            tracing::info!(lease = self.name, "this process leads");
            self.stage.send_replace(Stage::Leading);
        }
    }

    async fn perform(&mut self, step: Step) {
        match step {
            Step::Wait { until } => sleep_until(self.origin + until).await,
            Step::Read { give_up_at } => {
                let outcome = self.read(self.origin + give_up_at).await;
                self.elector.on_read(self.now(), outcome);
            }
            Step::Write { write, give_up_at } => {
                let started = self.now();
                let outcome = self.write(&write, self.origin + give_up_at).await;
                self.elector.on_written(self.now(), started, outcome);
            }
            Step::End(_) => {}
        }
    }

    async fn read(&mut self, give_up_at: Instant) -> ReadOutcome {
        match timeout_at(give_up_at, self.api.get_opt(&self.name)).await {
            Ok(Ok(Some(lease))) => ReadOutcome::Found(self.on_lease(lease)),
            Ok(Ok(None)) => {
                self.object = None;
                ReadOutcome::Missing
            }
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, "reading the lease: {error}");
                ReadOutcome::Failed
            }
            Err(_) => {
                tracing::warn!(lease = self.name, "reading the lease: no response in time");
                ReadOutcome::Failed
            }
        }
    }

    async fn write(&mut self, write: &Write, give_up_at: Instant) -> WriteOutcome {
        let params = PostParams::default();
        let lease = self.body(write);
        let request = async {
            match write.resource_version {
                None => self.api.create(&params, &lease).await,
                Some(_) => self.api.replace(&self.name, &params, &lease).await,
            }
        };
        match timeout_at(give_up_at, request).await {
            Ok(Ok(lease)) => WriteOutcome::Done(self.on_lease(lease)),
            Ok(Err(error)) => {
                tracing::warn!(lease = self.name, "writing the lease: {}", describe(&error));
                WriteOutcome::Unsure
            }
            Err(_) => {
                tracing::warn!(lease = self.name, "writing the lease: no response in time");
                WriteOutcome::Unsure
            }
        }
    }

    /// The lease to send: the known object with our spec.
    fn body(&self, write: &Write) -> Lease {
        let known = if write.resource_version.is_some() { self.object.clone() } else { None };
        let mut lease = known.unwrap_or_default();
        let now = MicroTime(self.clock.now());
        let spec = lease.spec.take().unwrap_or_default();
        let acquire_time = if write.acquires { Some(now.clone()) } else { spec.acquire_time.clone() };
        lease.metadata = ObjectMeta {
            name: Some(self.name.clone()),
            resource_version: write.resource_version.clone(),
            ..lease.metadata
        };
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(write.holder.clone()),
            lease_duration_seconds: Some(write.duration_seconds),
            lease_transitions: Some(write.transitions),
            acquire_time,
            renew_time: Some(now),
            ..spec
        });
        lease
    }

    fn on_lease(&mut self, lease: Lease) -> LeaseState {
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let seen = LeaseState {
            resource_version: lease.metadata.resource_version.clone().unwrap_or_default(),
            holder: spec.holder_identity.unwrap_or_default(),
            duration: seconds.map(Duration::from_secs),
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        self.object = Some(lease);
        seen
    }
}

/// The message of an error, without the details of the response.
fn describe(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 => {
            let message = &status.message;
            format!("{message}: apply what `muster manifests` prints, or use --leader-elect=false")
        }
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use muster_playground_server::Server;
    use muster_playground_server::faults::{Fault, Faults, Plan, ServerError};
    use tokio::time::sleep;

    use super::*;

    fn settings() -> LeaseSettings {
        LeaseSettings { namespace: "default".to_owned(), ..LeaseSettings::default() }
    }

    fn candidate(client: kube::Client, identity: &str) -> Leadership {
        Leadership::start(client, settings(), identity, Clock::real()).unwrap()
    }

    fn server() -> Server {
        Server::start(muster_playground_server::Settings::default())
    }

    fn may_write(leadership: &Leadership) -> bool {
        leadership.fence().deadline(Instant::now()).is_some()
    }

    async fn spec(server: &Server) -> LeaseSpec {
        let api: Api<Lease> = Api::namespaced(server.client(), "default");
        api.get("muster").await.unwrap().spec.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn one_leads_and_when_it_is_killed_the_other_takes_over() {
        let server = server();
        let first = candidate(server.client(), "first");
        first.wait_until_leading().await.unwrap();
        let second = candidate(server.client(), "second");
        sleep(Duration::from_secs(3600)).await;
        assert!(may_write(&first) && !may_write(&second));
        let (held, fence) = (spec(&server).await, first.fence());
        assert_eq!((held.holder_identity.as_deref(), held.lease_duration_seconds), (Some("first"), Some(15)));

        let killed_at = Instant::now();
        drop(first);
        second.wait_until_leading().await.unwrap();
        assert!(fence.deadline(Instant::now()).is_none(), "the dead one's fence is closed");
        assert!(killed_at.elapsed() <= Duration::from_secs(17), "{:?}", killed_at.elapsed());
        let taken = spec(&server).await;
        assert_eq!((taken.holder_identity.as_deref(), taken.lease_transitions), (Some("second"), Some(1)));
        assert!(taken.acquire_time > held.acquire_time);
    }

    #[tokio::test(start_paused = true)]
    async fn a_released_lease_is_taken_at_the_next_read() {
        let server = server();
        let first = candidate(server.client(), "first");
        first.wait_until_leading().await.unwrap();
        let second = candidate(server.client(), "second");
        sleep(Duration::from_secs(9)).await;
        let (fence, released_at) = (first.fence(), Instant::now());
        assert_eq!(first.release().await, End::Released);
        assert!(fence.deadline(Instant::now()).is_none());
        let free = spec(&server).await;
        assert_eq!((free.holder_identity.as_deref(), free.lease_duration_seconds), (Some(""), Some(1)));
        second.wait_until_leading().await.unwrap();
        assert!(released_at.elapsed() <= Duration::from_secs(2));
        assert_eq!(candidate(server.client(), "third").release().await, End::Released, "it held no lease");
        assert_eq!(spec(&server).await.holder_identity.as_deref(), Some("second"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_cannot_renew_stops_before_another_starts() {
        let server = server();
        let faults = Faults::new(1, Plan::default());
        let first = candidate(server.client_with(&faults), "first");
        first.wait_until_leading().await.unwrap();
        let second = candidate(server.client(), "second");
        sleep(Duration::from_secs(5)).await;
        for _ in 0..100 {
            faults.schedule(Method::PUT, "/leases/", Fault::Failed(ServerError::Unavailable));
        }
        assert_eq!(first.lost().await, End::DeadlinePassed);
        assert!(!may_write(&first) && !may_write(&second));
        second.wait_until_leading().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewal_without_response_is_read_and_repeated() {
        let server = server();
        let faults = Faults::new(1, Plan::default());
        let first = candidate(server.client_with(&faults), "first");
        first.wait_until_leading().await.unwrap();
        for fault in
            [Fault::ResponseLost, Fault::ResponseTimedOut, Fault::Conflict, Fault::Delay(Duration::from_secs(60))]
        {
            faults.schedule(Method::PUT, "/leases/", fault);
            sleep(Duration::from_secs(15)).await;
            assert!(may_write(&first), "{fault:?}");
        }
        assert_eq!(faults.pending(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_others_take_or_delete_is_lost() {
        let server = server();
        let api: Api<Lease> = Api::namespaced(server.client(), "default");
        let first = candidate(server.client(), "first");
        first.wait_until_leading().await.unwrap();
        let patch = serde_json::json!({"spec": {"holderIdentity": "thief"}});
        api.patch("muster", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        assert_eq!(first.lost().await, End::TakenBy("thief".to_owned()));

        let second = candidate(server.client(), "second");
        second.wait_until_leading().await.unwrap();
        api.delete("muster", &DeleteParams::default()).await.unwrap();
        assert_eq!(second.lost().await, End::Deleted);
    }

    #[tokio::test(start_paused = true)]
    async fn fields_that_others_wrote_on_the_lease_stay() {
        let server = server();
        let api: Api<Lease> = Api::namespaced(server.client(), "default");
        let first = candidate(server.client(), "first");
        first.wait_until_leading().await.unwrap();
        let patch = serde_json::json!({"metadata": {"labels": {"team": "ml"}}});
        api.patch("muster", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        sleep(Duration::from_secs(60)).await;
        assert!(may_write(&first));
        assert_eq!(api.get("muster").await.unwrap().metadata.labels.unwrap()["team"], "ml");
    }

    #[tokio::test(start_paused = true)]
    async fn under_random_faults_there_is_never_more_than_one_leader() {
        for seed in 0..20 {
            let server = server();
            let faults = Faults::new(seed, Plan::STORM);
            let mut all: Vec<Leadership> =
                (0..3).map(|number| candidate(server.client_with(&faults), &format!("c{number}"))).collect();
            for round in 0..600 {
                sleep(Duration::from_millis(500)).await;
                let open = all.iter().filter(|leadership| may_write(leadership)).count();
                assert!(open <= 1, "seed {seed}, round {round}");
                for (number, leadership) in all.iter_mut().enumerate() {
                    if matches!(*leadership.stage.borrow(), Stage::Ended(_)) {
                        *leadership = candidate(server.client_with(&faults), &format!("c{number}-{round}"));
                    }
                }
            }
            assert!(spec(&server).await.lease_transitions.is_some());
        }
    }
}
