// The managers of JobSet, LeaderWorkerSet and of the projects that Muster works with, as processes next to the plane
// instead of pods.
//
// Each has a bundle, built by managers/build: its binary, and the manifests of its module. One overlay of them is
// installed, except what only a pod needs; the webhooks are called by URL instead of by service.
package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

var managers = []string{"jobset", "lws", "kueue", "trainer", "kuberay", "mpi-operator"}

// overlays are the folders in the bundles that are installed, of those that have it elsewhere.
var overlays = map[string]string{
	"trainer":      "manifests/overlays/manager",
	"mpi-operator": "manifests/overlays/standalone",
}

// settingsKey is the key of a manager's configuration file in its ConfigMap.
const settingsKey = "controller_manager_config.yaml"

type object = map[string]any

// manifests are the objects of a bundle's config, by how they are used.
type manifests struct {
	objects  []object // to be there before the manager
	webhooks []object // to be there only when it can answer: without it they refuse everything
	account  object   // the manager's service account
	settings object   // its configuration file, if it has one
}

func managerPort(name string) string { return name + "-webhook" }

// bundle returns the folder of a manager, next to our own binary.
func bundle(name string) (string, error) {
	binary, err := os.Executable()
	if err != nil {
		return "", err
	}
	folder, err := filepath.EvalSymlinks(filepath.Join(filepath.Dir(binary), "manager-"+name))
	if err != nil {
		return "", fmt.Errorf("--with %s: it is not built, tools/controlplane/managers/build %s does it (%w)", name, name, err)
	}
	return folder, nil
}

// addManager writes all files of a manager and returns its command line.
func (p *plane) addManager(name string) ([]string, error) {
	folder, err := bundle(name)
	if err != nil {
		return nil, err
	}
	overlay, elsewhere := overlays[name]
	if !elsewhere {
		overlay = "config/default"
	}
	text, err := p.kubectl("kustomize", filepath.Join(folder, overlay))
	if err != nil {
		return nil, err
	}
	found, err := sortManifests(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	if err := p.pointWebhooksHere(name, found.webhooks); err != nil {
		return nil, err
	}
	if err := p.writeAccount(name, found.account); err != nil {
		return nil, err
	}
	flags := p.flags(name)
	files := map[string]any{
		name + ".objects.json": object{"apiVersion": "v1", "kind": "List", "items": found.objects},
	}
	if len(found.webhooks) > 0 {
		files[name+".webhooks.json"] = object{"apiVersion": "v1", "kind": "List", "items": found.webhooks}
	}
	if found.settings != nil {
		p.settle(name, found.settings)
		file := name + ".settings.json"
		files[file] = found.settings
		flags = append(flags, "--config="+p.path(file))
	}
	for file, value := range files {
		text, err := json.MarshalIndent(value, "", " ")
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(p.path(file), text, 0o600); err != nil {
			return nil, err
		}
	}
	return append([]string{filepath.Join(folder, "manager")}, flags...), nil
}

func sortManifests(text []byte) (*manifests, error) {
	found := &manifests{}
	for _, document := range strings.Split(string(text), "\n---\n") {
		one := object{}
		if err := yaml.Unmarshal([]byte(document), &one); err != nil {
			return nil, err
		}
		switch kind := one["kind"]; kind {
		case "CustomResourceDefinition":
			// Only the version that is stored is used, and the conversion webhook's service would not answer.
			delete(one["spec"].(object), "conversion")
			found.objects = append(found.objects, one)
		case "ServiceAccount":
			found.account = one
			found.objects = append(found.objects, one)
		case "Namespace", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding":
			found.objects = append(found.objects, one)
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			found.webhooks = append(found.webhooks, one)
		case "ConfigMap":
			settings := at(one, "data", settingsKey)
			if settings == "" {
				found.objects = append(found.objects, one)
			} else if err := yaml.Unmarshal([]byte(settings), &found.settings); err != nil {
				return nil, err
			}
		case "Deployment", "Service", "Secret": // the process and its files take their place
		case "APIService": // Kueue's view of its queues, which is off
		default:
			return nil, fmt.Errorf("an object of kind %v: nothing is known of it here", kind)
		}
	}
	if found.account == nil {
		return nil, fmt.Errorf("no service account in it")
	}
	if (found.settings == nil) != (len(found.webhooks) == 0) {
		return nil, fmt.Errorf("only one of a configuration and webhooks in it: how to configure the webhooks is unknown")
	}
	return found, nil
}

// at returns the text at a path of keys, empty if it is absent.
func at(one object, keys ...string) string {
	for _, key := range keys[:len(keys)-1] {
		one, _ = one[key].(object)
	}
	text, _ := one[keys[len(keys)-1]].(string)
	return text
}

// pointWebhooksHere replaces each service by a URL, and registers the URL as a readiness check.
func (p *plane) pointWebhooksHere(name string, configurations []object) error {
	authority, err := os.ReadFile(p.cert("ca.crt"))
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		for _, webhook := range configuration["webhooks"].([]any) {
			client := webhook.(object)["clientConfig"].(object)
			url := fmt.Sprintf("https://127.0.0.1:%d%s", p.Ports[managerPort(name)], at(client, "service", "path"))
			webhook.(object)["clientConfig"] = object{
				"url": url, "caBundle": base64.StdEncoding.EncodeToString(authority),
			}
			// A handler of this path answers even an empty request with success.
			p.Ready[name] = append(p.Ready[name], url)
		}
	}
	return nil
}

// writeAccount creates the service account that the manager's own role bindings name.
func (p *plane) writeAccount(name string, account object) error {
	namespace, own := at(account, "metadata", "namespace"), at(account, "metadata", "name")
	user := "system:serviceaccount:" + namespace + ":" + own
	if err := p.authority.client(name, user, "system:serviceaccounts", "system:serviceaccounts:"+namespace); err != nil {
		return err
	}
	if err := p.writeKubeconfig(name+".kubeconfig", name); err != nil {
		return err
	}
	// The file names are fixed.
	folder := p.certificateFolder(name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	for from, to := range map[string]string{"server.crt": "tls.crt", "server.key": "tls.key"} {
		if err := os.Symlink(p.cert(from), filepath.Join(folder, to)); err != nil {
			return err
		}
	}
	return nil
}

// certificateFolder is where a manager looks for the certificate of its webhooks.
func (p *plane) certificateFolder(name string) string {
	if name == "trainer" {
		// Its configuration has no field for it: the library's default, in TMPDIR.
		return filepath.Join(p.path(name+".tmp"), "k8s-webhook-server", "serving-certs")
	}
	return p.cert(managerPort(name))
}

func (p *plane) health(name string) string { return fmt.Sprintf("127.0.0.1:%d", p.Ports[name]) }

// flags are those that replace what a pod has from its Deployment, and the settings of a manager without a
// configuration file. Its environment is set, and its health is registered as a readiness check.
func (p *plane) flags(name string) []string {
	kubeconfig := p.path(name + ".kubeconfig")
	switch name {
	case "kuberay":
		p.Ready[name] = append(p.Ready[name], "http://"+p.health(name)+"/readyz")
		return []string{
			"--kubeconfig=" + kubeconfig,
			"--health-probe-bind-address=" + p.health(name),
			"--metrics-addr=0",
			"--enable-leader-election=false",
			fmt.Sprintf("--qps=%d", clientQPS),
			fmt.Sprintf("--burst=%d", clientBurst),
		}
	case "mpi-operator":
		// It always elects a leader; it is healthy before it is the leader. KUBECONFIG would take precedence.
		p.Environment[name] = []string{"KUBECONFIG=", "HEALTH_ADDRESS=" + p.health(name)}
		p.Ready[name] = append(p.Ready[name], "http://"+p.health(name)+"/healthz")
		return []string{
			"--kubeConfig=" + kubeconfig,
			"--lock-namespace=mpi-operator",
			fmt.Sprintf("--kube-api-qps=%d", clientQPS),
			fmt.Sprintf("--kube-api-burst=%d", clientBurst),
		}
	case "trainer":
		p.Environment[name] = []string{"TMPDIR=" + p.path(name+".tmp")}
	}
	p.Ready[name] = append(p.Ready[name], "http://"+p.health(name)+"/readyz")
	return []string{"--kubeconfig=" + kubeconfig, "--zap-log-level=info"}
}

// settle adapts the configuration file from a pod to a process on loopback.
func (p *plane) settle(name string, settings object) {
	settings["health"] = object{"healthProbeBindAddress": p.health(name)}
	settings["metrics"] = object{"bindAddress": "0"}
	settings["leaderElection"] = object{"leaderElect": false}
	settings["clientConnection"] = object{"qps": clientQPS, "burst": clientBurst}
	webhook := object{"host": "127.0.0.1", "port": p.Ports[managerPort(name)]}
	settings["webhook"] = webhook
	switch name {
	case "jobset":
		// Elastic sets: their counts can be changed while they run.
		settings["featureGates"] = object{"ElasticJobSet": true}
	case "kueue":
		// It wants its certificates in a fixed folder.
		settings["featureGates"] = object{"VisibilityOnDemand": false}
	case "trainer":
		settings["certManagement"] = object{"enable": false}
		return
	}
	settings["internalCertManagement"] = object{"enable": false}
	webhook["certDir"] = p.certificateFolder(name)
}

// beforeStart installs what a manager needs, afterStart what needs the manager.
func (p *plane) beforeStart(program string) error {
	if !slices.Contains(managers, program) {
		return nil
	}
	if err := p.apply(p.path(program + ".objects.json")); err != nil {
		return err
	}
	_, err := p.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	return err
}

func (p *plane) afterStart(program string) error {
	if !slices.Contains(managers, program) {
		return nil
	}
	webhooks := p.path(program + ".webhooks.json")
	if _, err := os.Stat(webhooks); err != nil {
		return nil // it has none
	}
	return p.apply(webhooks)
}

// apply creates the objects of a file, or of all files of a folder.
func (p *plane) apply(path string) error {
	_, err := p.kubectl("apply", "--server-side", "--filename", path)
	return err
}

// kubectl runs this binary's kubectl as the admin of this plane.
func (p *plane) kubectl(args ...string) ([]byte, error) {
	binary, err := os.Executable()
	if err != nil {
		return nil, err
	}
	mine := []string{"kubectl", "--kubeconfig", p.path("kubeconfig"), "--cache-dir", p.path("kubectl-cache")}
	command := exec.Command(binary, append(mine, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.Bytes(), nil
}
