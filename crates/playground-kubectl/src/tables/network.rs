//! Rows of services, endpoints and endpoint slices.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell_text::{NONE, UNSET, first_few, joined, labels, list, name, number, text, text_or};
use super::{AGE, NAME, TablePrinter, age, text as column, wide};

pub(super) static SERVICES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("Type", "How the service is reached."),
        column("Cluster-IP", "The service's address inside the cluster."),
        column("External-IP", "The service's addresses outside the cluster."),
        column("Port(s)", "The ports of the service, with those of the nodes."),
        AGE,
        wide("Selector", "Which pods serve, by their labels."),
    ],
    service,
);

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let spec = &service["spec"];
    let port = |port: &Value| {
        let (own, protocol) = (number(&port["port"]), text(&port["protocol"]));
        match number(&port["nodePort"]) {
            0 => format!("{own}/{protocol}"),
            of_node => format!("{own}:{of_node}/{protocol}"),
        }
    };
    let ports = list(&spec["ports"]).iter().map(port).collect::<Vec<_>>().join(",");
    vec![
        name(service),
        json!(text(&spec["type"])),
        json!(text_or(&spec["clusterIPs"][0], NONE)),
        json!(external(service)),
        json!(if ports.is_empty() { NONE.to_owned() } else { ports }),
        age::of(service, now),
        json!(labels(&spec["selector"])),
    ]
}

fn external(service: &Value) -> String {
    let spec = &service["spec"];
    let written = joined(&spec["externalIPs"]);
    let of_balancer = list(&service["status"]["loadBalancer"]["ingress"]).iter();
    let of_balancer: BTreeSet<&str> =
        of_balancer.map(|ingress| text_or(&ingress["ip"], text(&ingress["hostname"]))).collect();
    let of_balancer = of_balancer.into_iter().filter(|address| !address.is_empty()).collect::<Vec<_>>().join(",");
    match (text(&spec["type"]), &*of_balancer, &*written) {
        ("ClusterIP" | "NodePort", _, "") => NONE.to_owned(),
        ("LoadBalancer", "", "") => "<pending>".to_owned(),
        ("ClusterIP" | "NodePort", _, _) | ("LoadBalancer", "", _) => written,
        ("LoadBalancer", _, "") => of_balancer,
        ("LoadBalancer", _, _) => format!("{of_balancer},{written}"),
        ("ExternalName", _, _) => text(&spec["externalName"]).to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

pub(super) static ENDPOINTS: TablePrinter =
    TablePrinter::new(&[NAME, column("Endpoints", "The addresses that serve."), AGE], |object, now| {
        let mut all = Vec::new();
        for subset in list(&object["subsets"]) {
            let ports = list(&subset["ports"]);
            let addresses = || list(&subset["addresses"]).iter().map(|address| text(&address["ip"]));
            if ports.is_empty() {
                all.extend(addresses().map(str::to_owned));
            }
            for port in ports {
                let port = number(&port["port"]);
                all.extend(
                    addresses()
                        .map(|ip| if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }),
                );
            }
        }
        let absent = if list(&object["subsets"]).is_empty() { NONE } else { "" };
        vec![name(object), json!(first_few(&all, absent)), age::of(object, now)]
    });

pub(super) static SLICES: TablePrinter = TablePrinter::new(
    &[
        NAME,
        column("AddressType", "What kind of addresses the slice has."),
        column("Ports", "The ports of the endpoints."),
        column("Endpoints", "The addresses of the endpoints."),
        AGE,
    ],
    |slice, now| {
        let port = |port: &Value| {
            port["port"].as_i64().map_or_else(|| text_or(&port["name"], "*").to_owned(), |port| port.to_string())
        };
        let ports: Vec<String> = list(&slice["ports"]).iter().map(port).collect();
        let addresses = list(&slice["endpoints"]).iter().flat_map(|endpoint| list(&endpoint["addresses"]));
        let addresses: Vec<String> = addresses.map(|address| text(address).to_owned()).collect();
        vec![
            name(slice),
            json!(text(&slice["addressType"])),
            json!(first_few(&ports, UNSET)),
            json!(first_few(&addresses, UNSET)),
            age::of(slice, now),
        ]
    },
);

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(printer: &TablePrinter, object: &Value) -> Vec<Value> {
        (printer.cells)(object, "2026-01-01T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn services_by_type() {
        let outside = |kind: &str, more: Value, balancer: Value| {
            let mut service = json!({"spec": {"type": kind}, "status": {"loadBalancer": {"ingress": balancer}}});
            service["spec"]["externalIPs"] = more;
            external(&service)
        };
        assert_eq!(outside("ClusterIP", json!([]), json!([])), "<none>");
        assert_eq!(outside("NodePort", json!(["9.9.9.9"]), json!([])), "9.9.9.9");
        assert_eq!(outside("LoadBalancer", json!([]), json!([])), "<pending>");
        assert_eq!(outside("LoadBalancer", json!(["::1"]), json!([])), "::1");
        assert_eq!(outside("LoadBalancer", json!(["9.9.9.9"]), json!([{"hostname": "h"}])), "h,9.9.9.9");
        let service = json!({
            "metadata": {"name": "s"},
            "spec": {
                "type": "NodePort", "clusterIPs": ["10.0.0.1"], "selector": {"a": "b"},
                "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000}, {"port": 53, "protocol": "UDP"}],
            },
        });
        let cells = ["s", "NodePort", "10.0.0.1", "<none>", "80:30000/TCP,53/UDP", "<unknown>", "a=b"];
        assert_eq!(shown(&SERVICES, &service), cells);
    }

    #[test]
    fn endpoints_are_cut_after_three() {
        let addresses: Vec<Value> = (1..=5).map(|last| json!({"ip": format!("10.0.0.{last}")})).collect();
        let endpoints =
            json!({"metadata": {"name": "e"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]});
        let cells = ["e", "10.0.0.1:80,10.0.0.2:80,10.0.0.3:80 + 2 more...", "<unknown>"];
        assert_eq!(shown(&ENDPOINTS, &endpoints), cells);
        let slice = json!({
            "metadata": {"name": "s"}, "addressType": "IPv4", "ports": [{"name": "http"}, {}],
            "endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2"]}],
        });
        assert_eq!(shown(&SLICES, &slice), ["s", "IPv4", "http,*", "10.0.0.1,10.0.0.2", "<unknown>"]);
    }
}
