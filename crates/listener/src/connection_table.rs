//! The open connections of a listener: which new ones are accepted, and which old ones close for them.
//!
//! A connection that waits for its client gives way to a new one. First those that have never sent a complete request;
//! of these, those of the IP address with the most connections; of these, the one that has waited longest. So a client
//! that opens many connections only displaces its own. Must not depend on how connections are served.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Limits;
use crate::activity::{Connection, Phase};

#[derive(Debug)]
pub(crate) struct ConnectionTable {
    connections_max: usize,
    connections_per_peer_max: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    next_id: u64,
    connections: BTreeMap<u64, Arc<Connection>>,
}

/// The place of an open connection; dropping it makes room.
#[derive(Debug)]
pub(crate) struct Slot {
    table: Arc<ConnectionTable>,
    id: u64,
    pub(crate) connection: Arc<Connection>,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.table.lock().connections.remove(&self.id);
    }
}

/// The answer for a new connection.
#[derive(Debug)]
pub(crate) enum Admission {
    /// There was room.
    Admitted(Slot),
    /// It takes the place of another connection, of this IP address.
    Replaces(Slot, IpAddr),
    /// All connections that could give way are being answered.
    Refused,
}

impl ConnectionTable {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        Arc::new(Self {
            connections_max: limits.connections_max,
            connections_per_peer_max: limits.connections_per_peer_max,
            open: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides about a new connection.
    pub(crate) fn admit(self: &Arc<Self>, peer: IpAddr) -> Admission {
        let mut open = self.lock();
        let of_peer = open.connections.values().filter(|connection| connection.peer == peer).count();
        let replaced = if of_peer >= self.connections_per_peer_max {
            open.evict(|connection| connection.peer == peer)
        } else if open.connections.len() >= self.connections_max {
            open.evict(|_| true)
        } else {
            return Admission::Admitted(self.insert(&mut open, peer));
        };
        match replaced {
            Some(replaced) => Admission::Replaces(self.insert(&mut open, peer), replaced),
            None => Admission::Refused,
        }
    }

    /// Closes a connection that waits for its client, if there is one.
    pub(crate) fn evict_one(&self) -> Option<IpAddr> {
        self.lock().evict(|_| true)
    }

    fn insert(self: &Arc<Self>, open: &mut Open, peer: IpAddr) -> Slot {
        let (id, connection) = (open.next_id, Arc::new(Connection::new(peer)));
        open.next_id += 1;
        open.connections.insert(id, Arc::clone(&connection));
        Slot { table: Arc::clone(self), id, connection }
    }
}

impl Open {
    /// Closes the connection that gives way first, of those that may; returns its IP address.
    fn evict(&mut self, may: impl Fn(&Connection) -> bool) -> Option<IpAddr> {
        let mut per_peer: HashMap<IpAddr, usize> = HashMap::new();
        for connection in self.connections.values() {
            *per_peer.entry(connection.peer).or_default() += 1;
        }
        let waiting =
            self.connections.iter().filter(|(_, connection)| may(connection)).filter_map(|(id, connection)| {
                let activity = connection.activity();
                let count = per_peer[&connection.peer];
                let rank = (activity.has_completed, usize::MAX - count, activity.since, *id);
                (activity.phase != Phase::Answering).then_some(rank)
            });
        let (.., id) = waiting.min()?;
        let connection = self.connections.remove(&id)?;
        connection.enter(Phase::Evicted);
        Some(connection.peer)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;
    use crate::tests::limits;

    fn peer(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn admitted(table: &Arc<ConnectionTable>, from: u8) -> Slot {
        match table.admit(peer(from)) {
            Admission::Admitted(slot) => slot,
            other => panic!("{other:?}"),
        }
    }

    /// Admits a connection that has to replace another.
    fn replacing(table: &Arc<ConnectionTable>, from: u8) -> Slot {
        match table.admit(peer(from)) {
            Admission::Replaces(slot, _) => slot,
            other => panic!("{other:?}"),
        }
    }

    fn table(connections_max: usize, connections_per_peer_max: usize) -> Arc<ConnectionTable> {
        ConnectionTable::new(&Limits { connections_max, connections_per_peer_max, ..limits() })
    }

    fn is_evicted(slot: &Slot) -> bool {
        slot.connection.activity().phase == Phase::Evicted
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_waited_longest_for_its_first_request_gives_way() {
        let table = table(3, 3);
        let known = admitted(&table, 1);
        known.connection.enter(Phase::Answering);
        known.connection.enter(Phase::Idle);
        advance(Duration::from_secs(1)).await;
        let (older, newer) = (admitted(&table, 2), {
            advance(Duration::from_secs(1)).await;
            admitted(&table, 3)
        });
        let _fourth = replacing(&table, 4);
        assert!(is_evicted(&older) && !is_evicted(&newer) && !is_evicted(&known));
    }

    #[tokio::test(start_paused = true)]
    async fn peer_with_most_connections_gives_way() {
        let table = table(4, 4);
        let honest = admitted(&table, 1);
        advance(Duration::from_secs(1)).await;
        let hostile: Vec<Slot> = (0..3).map(|_| admitted(&table, 2)).collect();
        let _third = replacing(&table, 3);
        assert!(is_evicted(&hostile[0]) && !is_evicted(&honest), "although it has waited for longer");
    }

    #[tokio::test(start_paused = true)]
    async fn peer_at_its_limit_displaces_only_itself() {
        let table = table(10, 2);
        let other = admitted(&table, 1);
        let (first, second) = (admitted(&table, 2), admitted(&table, 2));
        let _third = replacing(&table, 2);
        assert!(is_evicted(&first) && !is_evicted(&second) && !is_evicted(&other));
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_is_being_answered_keeps_its_connection() {
        let table = table(1, 1);
        let busy = admitted(&table, 1);
        busy.connection.enter(Phase::Answering);
        assert!(matches!(table.admit(peer(2)), Admission::Refused));
        assert!(matches!(table.admit(peer(1)), Admission::Refused));
        assert!(!is_evicted(&busy));
        drop(busy);
        admitted(&table, 2);
    }
}
