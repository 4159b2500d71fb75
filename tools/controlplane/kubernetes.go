// The programs of Kubernetes, as their own main packages start them.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs name time zones, and a test machine may have no list of them

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlerrors "k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

func init() {
	applets["kube-apiserver"] = applet{about: "the API server", run: func(args []string) int {
		named("kube-apiserver", args)
		return cli.Run(apiserver.NewAPIServerCommand())
	}}
	applets["kube-controller-manager"] = applet{about: "the controllers", run: func(args []string) int {
		named("kube-controller-manager", args)
		return cli.Run(controllers.NewControllerManagerCommand())
	}}
	applets["kube-scheduler"] = applet{about: "the scheduler", run: func(args []string) int {
		named("kube-scheduler", args)
		return cli.Run(scheduler.NewSchedulerCommand())
	}}
	applets["kubectl"] = applet{about: "the client", run: runKubectl}
}

// named sets the arguments as if the program were a separate binary. The user agent, and with it the field manager, is
// derived from the first of them.
func named(name string, args []string) {
	os.Args = append([]string{name}, args...)
}

func runKubectl(args []string) int {
	named("kubectl", args)
	// kubectl logs before it has parsed its flags. It rejects invalid ones later, by name.
	_, _ = logs.GlogSetter(kubectl.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		kubectlerrors.CheckErr(err) // exits
	}
	return 0
}

// kubernetesVersion is what the build stamped, such as v1.37.1.
func kubernetesVersion() string {
	return version.Get().GitVersion
}
