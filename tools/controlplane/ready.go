// Waiting until a program can be used.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

const (
	readyMax   = 180 * time.Second
	requestMax = 5 * time.Second
)

// awaitReady returns when a program is ready, or with the end of its log as soon as it has ended.
func (p *plane) awaitReady(program string) error {
	client, err := p.httpClient()
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(readyMax)
	for _, url := range p.Ready[program] {
		for {
			problem := get(client, url)
			if problem == nil {
				break
			}
			if _, running := p.running(program); !running {
				return fmt.Errorf("%s has ended%s", program, p.logTail(program))
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not ready after %s: %w%s", program, readyMax, problem, p.logTail(program))
			}
			time.Sleep(pollEvery)
		}
	}
	return nil
}

// readyURLs answer with 200 once a program of Kubernetes can be used. Those of a manager are added with its webhooks.
func (p *plane) readyURLs(program string, more []string) []string {
	own := fmt.Sprintf("https://127.0.0.1:%d", p.Ports[program])
	switch program {
	case "etcd":
		return []string{p.etcdURL() + "/health"}
	case "kube-apiserver":
		return []string{own + "/readyz"}
	case "kube-controller-manager":
		if slices.ContainsFunc(more, func(flag string) bool { return strings.HasPrefix(flag, "--controllers=") }) {
			// A caller that selects the controllers may have disabled the one of service accounts.
			return []string{own + "/healthz"}
		}
		// A namespace rejects pods until its default service account exists.
		return []string{own + "/healthz", p.server() + "/api/v1/namespaces/default/serviceaccounts/default"}
	case "kube-scheduler":
		return []string{own + "/readyz"}
	}
	return nil
}

// httpClient returns a client of the admin, which trusts only this plane.
func (p *plane) httpClient() (*http.Client, error) {
	own, err := tls.LoadX509KeyPair(p.cert("admin.crt"), p.cert("admin.key"))
	if err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(p.cert("ca.crt"))
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	settings := &tls.Config{Certificates: []tls.Certificate{own}, RootCAs: trusted, MinVersion: tls.VersionTLS12}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: settings, Proxy: nil}}, nil
}

func get(client *http.Client, url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), requestMax)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 4<<10))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s: %s", url, response.Status, strings.TrimSpace(string(body)))
	}
	return nil
}
