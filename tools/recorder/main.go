// One binary with three programs in it: etcd, kube-apiserver and
// kube-controller-manager.  The first argument says which one to run.
package main

import (
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	manager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: controlplane etcd DATADIR CLIENTURL PEERURL | kube-apiserver FLAGS | kube-controller-manager FLAGS")
		os.Exit(2)
	}
	name := os.Args[1]
	switch name {
	case "etcd":
		etcd(os.Args[2:])
	case "kube-apiserver":
		os.Args = append([]string{name}, os.Args[2:]...)
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Args = append([]string{name}, os.Args[2:]...)
		os.Exit(cli.Run(manager.NewControllerManagerCommand()))
	default:
		fmt.Fprintln(os.Stderr, "unknown program:", name)
		os.Exit(2)
	}
}

func etcd(args []string) {
	if len(args) != 3 {
		fmt.Fprintln(os.Stderr, "etcd needs DATADIR CLIENTURL PEERURL")
		os.Exit(2)
	}
	client, err := url.Parse(args[1])
	check(err)
	peer, err := url.Parse(args[2])
	check(err)
	cfg := embed.NewConfig()
	cfg.Dir = args[0]
	cfg.LogLevel = "warn"
	cfg.UnsafeNoFsync = true // scratch data only
	cfg.ListenClientUrls = []url.URL{*client}
	cfg.AdvertiseClientUrls = []url.URL{*client}
	cfg.ListenPeerUrls = []url.URL{*peer}
	cfg.AdvertisePeerUrls = []url.URL{*peer}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	check(err)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(60 * time.Second):
		fmt.Fprintln(os.Stderr, "etcd did not start in 60 s")
		os.Exit(1)
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	select {
	case <-stop:
	case err = <-e.Err():
		fmt.Fprintln(os.Stderr, err)
	}
	e.Close()
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
