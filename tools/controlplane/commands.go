// The command line of each program. All other flags have the program's own default, as on a stock cluster.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// Clients of a test cluster must not wait for rate limits that protect a large one.
const (
	clientQPS   = 5000
	clientBurst = 10000
)

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection: {kubeconfig: %q, qps: %d, burst: %d}
leaderElection: {leaderElect: false}
`

// commandOf returns the whole command line of one program of the plane, and writes the files that it names.
func (p *plane) commandOf(program string, chosen profile, fsync bool) ([]string, error) {
	if slices.Contains(managers, program) {
		return p.addManager(program)
	}
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var arguments []string
	switch program {
	case "etcd":
		arguments = p.etcdArguments(fsync)
	case "kube-apiserver":
		arguments = p.apiserverArguments(chosen)
	case "kube-controller-manager":
		arguments = p.controllerArguments(chosen)
	case "kube-scheduler":
		arguments, err = p.schedulerArguments(chosen)
	default:
		err = fmt.Errorf("there is no program %q in a control plane", program)
	}
	return append([]string{binary, program}, arguments...), err
}

func (p *plane) etcdArguments(fsync bool) []string {
	args := []string{
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
		"--etcd-servers=" + p.etcdURL(),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", p.Ports["kube-apiserver"]),
		"--cert-dir=" + p.path("certificates"),
		"--tls-cert-file=" + p.cert("server.crt"),
		"--tls-private-key-file=" + p.cert("server.key"),
		"--client-ca-file=" + p.cert("ca.crt"),
		"--requestheader-client-ca-file=" + p.cert("ca.crt"),
		"--requestheader-allowed-names=" + frontProxy,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + p.cert(frontProxy+".crt"),
		"--proxy-client-key-file=" + p.cert(frontProxy+".key"),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + p.cert("service-accounts.pub"),
		"--service-account-signing-key-file=" + p.cert("service-accounts.key"),
		"--service-cluster-ip-range=10.0.0.0/16",
		// An Endpoints object must not have a loopback address, so the server could never write its own.
		"--endpoint-reconciler-type=none",
	}
	return append(append(args, chosen.gateFlags()...), chosen.runtimeFlags()...)
}

func (p *plane) controllerArguments(chosen profile) []string {
	args := []string{
		// As on a real cluster: clients that look for its lease find it.
		"--leader-elect=true",
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
	args := append([]string{"--config=" + config}, p.clientArguments("kube-scheduler")...)
	return append(args, chosen.gateFlags()...), nil
}

// clientArguments returns the flags shared by the two programs that are clients of the API server and serve their
// health and metrics with authorization.
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

// moreFlags are the caller's additional flags of programs, as PROGRAM=FLAG.
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

// addTo replaces our flags by the caller's flags of the same name: most lists would grow otherwise.
func (m moreFlags) addTo(program string, command []string) []string {
	kept := slices.DeleteFunc(command, func(ours string) bool {
		return slices.ContainsFunc(m[program], func(theirs string) bool { return flagName(theirs) == flagName(ours) })
	})
	return append(kept, m[program]...)
}

func flagName(argument string) string {
	name, _, _ := strings.Cut(argument, "=")
	return name
}
