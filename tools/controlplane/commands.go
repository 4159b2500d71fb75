// The command line of each program. What is not said here is the program's own default, as on a stock cluster.
package main

import (
	"fmt"
	"os"
	"strings"
)

// Clients of a test cluster must not wait for a limit that is meant to protect a large one.
const (
	clientQPS   = 5000
	clientBurst = 10000
)

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: %d, burst: %d}
leaderElection: {leaderElect: false}
`

// arguments are those of one program of the plane, after the binary's path.
func (p *plane) arguments(program string, chosen profile, fsync bool) ([]string, error) {
	switch program {
	case "etcd":
		return p.etcdArguments(fsync), nil
	case "kube-apiserver":
		return p.apiserverArguments(chosen), nil
	case "kube-controller-manager":
		return p.controllerArguments(chosen), nil
	case "kube-scheduler":
		return p.schedulerArguments(chosen)
	}
	return nil, fmt.Errorf("there is no program %q in a control plane", program)
}

func (p *plane) etcdArguments(fsync bool) []string {
	args := []string{
		"etcd",
		"--data-dir=" + p.path("etcd"),
		"--client-url=" + p.etcdURL(),
		fmt.Sprintf("--peer-url=http://127.0.0.1:%d", p.Ports["etcd-peer"]),
	}
	if fsync {
		args = append(args, "--fsync")
	}
	return args
}

func (p *plane) apiserverArguments(chosen profile) []string {
	args := []string{
		"kube-apiserver",
		"--etcd-servers=" + p.etcdURL(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.Ports["kube-apiserver"]),
		"--cert-dir=" + p.path("certificates"),
		"--tls-cert-file=" + p.cert("server.crt"),
		"--tls-private-key-file=" + p.cert("server.key"),
		"--client-ca-file=" + p.cert("ca.crt"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.cert("service-accounts.pub"),
		"--service-account-signing-key-file=" + p.cert("service-accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/16",
		// An Endpoints object must not have an address of loopback, so the server could never write its own.
		"--endpoint-reconciler-type=none",
	}
	return append(append(args, chosen.gateFlags()...), chosen.runtimeFlags()...)
}

func (p *plane) controllerArguments(chosen profile) []string {
	args := []string{
		"kube-controller-manager",
		"--leader-elect=false",
		"--use-service-account-credentials=true",
		"--service-account-private-key-file=" + p.cert("service-accounts.key"),
		"--root-ca-file=" + p.cert("ca.crt"),
		"--cluster-signing-cert-file=" + p.cert("ca.crt"),
		"--cluster-signing-key-file=" + p.cert("ca.key"),
		fmt.Sprintf("--kube-api-qps=%d", clientQPS),
		fmt.Sprintf("--kube-api-burst=%d", clientBurst),
	}
	args = append(args, p.clientArguments("kube-controller-manager")...)
	return append(args, chosen.gateFlags()...)
}

func (p *plane) schedulerArguments(chosen profile) ([]string, error) {
	config := p.path("kube-scheduler.yaml")
	text := fmt.Sprintf(schedulerConfig, p.path("kube-scheduler.kubeconfig"), clientQPS, clientBurst)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"kube-scheduler", "--config=" + config}, p.clientArguments("kube-scheduler")...)
	return append(args, chosen.gateFlags()...), nil
}

// clientArguments are what the two programs share that are clients of the API server and serve their health and
// metrics, to whoever may read them there.
func (p *plane) clientArguments(program string) []string {
	kubeconfig := p.path(program + ".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig,
		"--authentication-kubeconfig=" + kubeconfig,
		"--authorization-kubeconfig=" + kubeconfig,
		"--client-ca-file=" + p.cert("ca.crt"),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.Ports[program]),
		"--tls-cert-file=" + p.cert("server.crt"),
		"--tls-private-key-file=" + p.cert("server.key"),
	}
}

// moreFlags are the flags that the caller adds to programs, as PROGRAM=FLAG.
type moreFlags map[string][]string

func (m moreFlags) String() string { return "" }

func (m moreFlags) Set(text string) error {
	program, flag, found := strings.Cut(text, "=")
	if !found || !strings.HasPrefix(flag, "--") {
		return fmt.Errorf("%q is not PROGRAM=--flag=value", text)
	}
	m[program] = append(m[program], flag)
	return nil
}
