//! Host ports and their conflicts.

use serde::{Deserialize, Serialize};

/// The transport protocol of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

/// A host port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostPort {
    /// The address it is bound to; `None` is every address of the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The protocol.
    pub protocol: Protocol,
    /// 1 to 65535.
    pub port: u16,
}

impl HostPort {
    /// Whether both cannot be used on one host.
    pub fn conflicts_with(&self, other: &Self) -> bool {
        self.port == other.port
            && self.protocol == other.protocol
            && (self.address.is_none() || other.address.is_none() || self.address == other.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_on_every_address_conflicts_with_port_on_one_address() {
        let port =
            |address: Option<&str>, protocol, port| HostPort { address: address.map(Into::into), protocol, port };
        let any = port(None, Protocol::Tcp, 80);
        let one = port(Some("10.0.0.1"), Protocol::Tcp, 80);
        let two = port(Some("10.0.0.2"), Protocol::Tcp, 80);
        assert!(any.conflicts_with(&any) && any.conflicts_with(&one) && one.conflicts_with(&any));
        assert!(one.conflicts_with(&one) && !one.conflicts_with(&two));
        assert!(!any.conflicts_with(&port(None, Protocol::Udp, 80)));
        assert!(!any.conflicts_with(&port(None, Protocol::Tcp, 81)));
    }
}
