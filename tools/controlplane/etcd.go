// etcd as a single member on loopback, for disposable data.
package main

import (
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

const (
	etcdStartMax   = 60 * time.Second
	etcdQuotaBytes = 8 << 30
)

func init() {
	applets["etcd"] = applet{about: "etcd: --data-dir DIR --client-url URL --peer-url URL [--fsync]", run: runEtcd}
}

func runEtcd(args []string) int {
	config, err := etcdConfig(args)
	if err != nil {
		return fail(fmt.Errorf("etcd: %w", err))
	}
	member, err := embed.StartEtcd(config)
	if err != nil {
		return fail(fmt.Errorf("etcd: %w", err))
	}
	defer member.Close()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-member.Server.ReadyNotify():
	case <-stop:
		return 0
	case <-time.After(etcdStartMax):
		return fail(fmt.Errorf("etcd: not ready after %s", etcdStartMax))
	}
	select {
	case <-stop:
		return 0
	case err := <-member.Err():
		return fail(fmt.Errorf("etcd: %w", err))
	}
}

func etcdConfig(args []string) (*embed.Config, error) {
	flags := flag.NewFlagSet("etcd", flag.ContinueOnError)
	dir := flags.String("data-dir", "", "where the data is")
	clientURL := flags.String("client-url", "", "where clients connect")
	peerURL := flags.String("peer-url", "", "where other members would connect")
	fsync := flags.Bool("fsync", false, "make every write durable")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *dir == "" || *clientURL == "" || *peerURL == "" || flags.NArg() > 0 {
		return nil, fmt.Errorf("--data-dir, --client-url and --peer-url are needed, and nothing else: got %q", args)
	}
	client, err := url.Parse(*clientURL)
	if err != nil {
		return nil, err
	}
	peer, err := url.Parse(*peerURL)
	if err != nil {
		return nil, err
	}
	config := embed.NewConfig()
	config.Name = "controlplane"
	config.Dir = *dir
	config.LogLevel = "warn"
	// Writes still reach the kernel in order: only a crash of the machine loses any, not one of the process.
	config.UnsafeNoFsync = !*fsync
	config.QuotaBackendBytes = etcdQuotaBytes
	config.ListenClientUrls = []url.URL{*client}
	config.AdvertiseClientUrls = config.ListenClientUrls
	config.ListenPeerUrls = []url.URL{*peer}
	config.AdvertisePeerUrls = config.ListenPeerUrls
	config.InitialCluster = config.InitialClusterFromName(config.Name)
	return config, nil
}
