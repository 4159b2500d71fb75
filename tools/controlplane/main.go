// One binary with all programs of a Kubernetes control plane, and with the commands that start and stop them.
//
// The first argument selects the program, or the name by which the binary was called: a link named `kubectl` is
// kubectl. This file has only the list; each applet is registered next to its code.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// An applet gets its arguments without its own name and returns the exit status.
type applet struct {
	run   func(args []string) int
	about string
}

// By name. Filled by the init functions of the files that have an applet.
var applets = map[string]applet{}

func main() {
	called := filepath.Base(os.Args[0])
	for name, applet := range applets {
		// Also a name with its version, such as kubectl-v1.37.1.
		if called == name || strings.HasPrefix(called, name+"-v") {
			os.Exit(applet.run(os.Args[1:]))
		}
	}
	if len(os.Args) < 2 {
		usage()
		os.Exit(2)
	}
	applet, known := applets[os.Args[1]]
	if !known {
		fmt.Fprintf(os.Stderr, "controlplane: there is no program %q in here\n", os.Args[1])
		usage()
		os.Exit(2)
	}
	os.Exit(applet.run(os.Args[2:]))
}

func usage() {
	fmt.Fprintf(os.Stderr, "usage: controlplane PROGRAM [ARGUMENT]... (Kubernetes %s)\n", kubernetesVersion())
	names := make([]string, 0, len(applets))
	for name := range applets {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(os.Stderr, "  %-24s %s\n", name, applets[name].about)
	}
}

// fail prints the error at the end of an applet.
func fail(err error) int {
	fmt.Fprintln(os.Stderr, "controlplane:", err)
	return 1
}
