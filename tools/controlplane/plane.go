// One control plane: its folder, its ports, and the command line of each of its programs.
//
// Its whole state is in the folder, so that a later command (start, stop, down) finds it.
package main

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	marker    = "controlplane.json"
	serviceIP = "10.0.0.1"
	// The name by which the API server authenticates to aggregated API servers.
	frontProxy = "front-proxy-client"
)

type plane struct {
	Folder  string         `json:"folder"`
	Version string         `json:"version"`
	Profile string         `json:"profile"`
	Ports   map[string]int `json:"ports"` // by program; etcd-peer is of etcd too
	// In the order of their start.
	Programs []string `json:"programs"`
	// By program, the URLs that answer with success once it can be used.
	Ready map[string][]string `json:"ready"`
	// By program, what it has in its environment besides ours, as NAME=VALUE.
	Environment map[string][]string `json:"environment"`

	authority *authority // only while the folder is filled
}

// openPlane opens the control plane of a folder. A folder without one gives os.ErrNotExist.
func openPlane(folder string) (*plane, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(folder, marker))
	if err != nil {
		return nil, err
	}
	opened := &plane{}
	if err := json.Unmarshal(text, opened); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(folder, marker), err)
	}
	// The folder may have been moved, or be accessed by another path.
	if opened.Folder != folder {
		return nil, fmt.Errorf("%s is the control plane of %s: use that name", folder, opened.Folder)
	}
	return opened, nil
}

func (p *plane) save() error {
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.path(marker), append(text, '\n'), 0o600)
}

// emptyFolder creates the folder, or takes it over from an earlier control plane, which is stopped and removed. Other
// files are left alone.
func emptyFolder(folder string) (string, error) {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	earlier, err := openPlane(folder)
	switch {
	case err == nil:
		if err := earlier.remove(); err != nil {
			return "", err
		}
	case !errors.Is(err, os.ErrNotExist):
		return "", err
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return "", err
	}
	if len(files) > 0 {
		return "", fmt.Errorf("--folder %s is neither empty nor of a control plane: it has %s", folder, files[0].Name())
	}
	return folder, nil
}

// remove kills all programs and removes the folder.
func (p *plane) remove() error {
	for i := len(p.Programs) - 1; i >= 0; i-- {
		if err := p.stop(p.Programs[i], true); err != nil {
			return err
		}
	}
	return os.RemoveAll(p.Folder)
}

func (p *plane) path(name string) string { return filepath.Join(p.Folder, name) }
func (p *plane) cert(name string) string { return filepath.Join(p.Folder, "certificates", name) }
func (p *plane) server() string {
	return fmt.Sprintf("https://127.0.0.1:%d", p.Ports["kube-apiserver"])
}
func (p *plane) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", p.Ports["etcd"]) }

// writeCertificates creates the keys, and a kubeconfig for each client.
func (p *plane) writeCertificates() error {
	ca, err := newAuthority(filepath.Dir(p.cert("ca.crt")))
	if err != nil {
		return err
	}
	p.authority = ca
	if err := ca.server("server", serviceIP); err != nil {
		return err
	}
	if err := newSigningKey(ca.dir, "service-accounts"); err != nil {
		return err
	}
	clients := []struct{ user, file, kubeconfig, group string }{
		{"kubernetes-admin", "admin", "kubeconfig", "system:masters"},
		{"system:kube-controller-manager", "kube-controller-manager", "kube-controller-manager.kubeconfig", ""},
		{"system:kube-scheduler", "kube-scheduler", "kube-scheduler.kubeconfig", ""},
		{frontProxy, frontProxy, "", ""},
	}
	for _, client := range clients {
		var groups []string
		if client.group != "" {
			groups = []string{client.group}
		}
		if err := ca.client(client.file, client.user, groups...); err != nil {
			return err
		}
		if client.kubeconfig == "" {
			continue
		}
		if err := p.writeKubeconfig(client.kubeconfig, client.file); err != nil {
			return err
		}
	}
	return nil
}

// writeKubeconfig embeds all keys in the file, so that it can be copied. JSON is valid YAML.
func (p *plane) writeKubeconfig(name, client string) error {
	data := map[string]string{}
	for _, file := range []string{"ca.crt", client + ".crt", client + ".key"} {
		text, err := os.ReadFile(p.cert(file))
		if err != nil {
			return err
		}
		data[file] = base64.StdEncoding.EncodeToString(text)
	}
	text, err := json.MarshalIndent(object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []object{{"name": "controlplane", "cluster": object{
			"server": p.server(), "certificate-authority-data": data["ca.crt"],
		}}},
		"users": []object{{"name": client, "user": object{
			"client-certificate-data": data[client+".crt"], "client-key-data": data[client+".key"],
		}}},
		"contexts":        []object{{"name": "controlplane", "context": object{"cluster": "controlplane", "user": client}}},
		"current-context": "controlplane",
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(p.path(name), append(text, '\n'), 0o600)
}
