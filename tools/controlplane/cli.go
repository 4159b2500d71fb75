// The commands up, down, start and stop.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

func init() {
	applets["up"] = applet{about: "start a control plane: --folder DIR (up --help for more)", run: asApplet(up)}
	applets["down"] = applet{about: "stop it and remove its folder: --folder DIR", run: asApplet(down)}
	applets["stop"] = applet{about: "stop one program: --folder DIR NAME [--kill]", run: asApplet(stop)}
	applets["start"] = applet{about: "start it again, as it was: --folder DIR NAME", run: asApplet(start)}
}

// The programs of every plane, in the order of their start, and the optional ones.
var (
	always   = []string{"etcd", "kube-apiserver", "kube-controller-manager"}
	optional = append([]string{"kube-scheduler"}, managers...)
)

func asApplet(run func([]string) error) func([]string) int {
	return func(args []string) int {
		err := run(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return 0
		case err != nil:
			return fail(err)
		}
		return 0
	}
}

// upOptions are the parsed arguments of `up`.
type upOptions struct {
	folder, profile, gates string
	with, objects          []string
	fsync                  bool
	flags                  moreFlags
}

func parseUpOptions(args []string) (*upOptions, error) {
	w := &upOptions{flags: moreFlags{}}
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	flags.StringVar(&w.folder, "folder", "", "`DIR`: where everything is kept; empty, or of an earlier up, which is removed")
	flags.StringVar(&w.profile, "profile", "gates", "gates: with the scheduling API of this version; stock: without")
	flags.StringVar(&w.gates, "gates", "", "more feature gates, as `NAME=true,NAME=false`")
	flags.BoolVar(&w.fsync, "etcd-fsync", false, "make every write of etcd durable")
	flags.Var(w.flags, "flag", "a flag of a program, instead of ours of that name, as `PROGRAM=--flag=value`; may be given often")
	flags.Func("with", "more programs, as `NAME,NAME`: "+strings.Join(optional, ", "), func(names string) error {
		w.with = append(w.with, strings.Split(names, ",")...)
		return nil
	})
	objects := "a `PATH`, file or folder, of objects to create before the optional programs start; may be given often"
	flags.Func("objects", objects, func(path string) error {
		w.objects = append(w.objects, path)
		return nil
	})
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if w.folder == "" || flags.NArg() > 0 {
		return nil, fmt.Errorf("up: --folder DIR is needed, and no other words: got %q", args)
	}
	for _, name := range w.with {
		if !slices.Contains(optional, name) {
			return nil, fmt.Errorf("up: --with %q: there is %s", name, strings.Join(optional, ", "))
		}
	}
	return w, nil
}

func up(args []string) error {
	begin := time.Now()
	options, err := parseUpOptions(args)
	if err != nil {
		return err
	}
	p, err := newPlane(options)
	if err != nil {
		return err
	}
	if err := p.startAll(options.objects); err != nil {
		// The folder stays, so that the logs can be read; the processes do not.
		for _, program := range p.Programs {
			err = errors.Join(err, p.stop(program, true))
		}
		return err
	}
	fmt.Printf("Kubernetes %s, profile %s, is ready after %.1f s: %s\n",
		p.Version, p.Profile, time.Since(begin).Seconds(), strings.Join(p.Programs, ", "))
	fmt.Printf("export KUBECONFIG=%s\n", p.path("kubeconfig"))
	return nil
}

// newPlane fills the folder; nothing runs yet.
func newPlane(w *upOptions) (*plane, error) {
	chosen, err := profileNamed(w.profile, w.gates)
	if err != nil {
		return nil, err
	}
	programs := slices.Clone(always)
	for _, name := range w.with {
		if !slices.Contains(programs, name) {
			programs = append(programs, name)
		}
	}
	// Checked before an earlier plane is removed.
	for _, name := range w.with {
		if slices.Contains(managers, name) {
			if _, err := bundle(name); err != nil {
				return nil, err
			}
		}
	}
	for name := range w.flags {
		if !slices.Contains(programs, name) {
			return nil, fmt.Errorf("up: --flag %s=...: the programs are %s", name, strings.Join(programs, ", "))
		}
	}
	p := &plane{Version: kubernetesVersion(), Profile: w.profile, Programs: programs,
		Ready: map[string][]string{}, Environment: map[string][]string{}}
	if p.Ports, err = freePorts(portNames(programs)); err != nil {
		return nil, err
	}
	if p.Folder, err = emptyFolder(w.folder); err != nil {
		return nil, err
	}
	// First of all, so that even an incomplete plane is recognized.
	if err := p.save(); err != nil {
		return nil, err
	}
	if err := p.writeCertificates(); err != nil {
		return nil, err
	}
	for _, program := range programs {
		p.Ready[program] = p.readyURLs(program, w.flags[program])
		command, err := p.commandOf(program, chosen, w.fsync)
		if err != nil {
			return nil, err
		}
		if err := p.writeCommand(program, w.flags.addTo(program, command)); err != nil {
			return nil, err
		}
	}
	return p, p.save()
}

// portNames are the programs and all other listeners.
func portNames(programs []string) []string {
	names := append(slices.Clone(programs), "etcd-peer")
	for _, manager := range managers {
		if slices.Contains(programs, manager) {
			names = append(names, managerPort(manager))
		}
	}
	return names
}

// startAll starts each program when the previous one can be used, the optional ones when the objects are there too.
func (p *plane) startAll(objects []string) error {
	if err := p.startEach(p.Programs[:len(always)]); err != nil {
		return err
	}
	for _, path := range objects {
		if err := p.apply(path); err != nil {
			return err
		}
	}
	return p.startEach(p.Programs[len(always):])
}

func (p *plane) startEach(programs []string) error {
	for _, program := range programs {
		for _, step := range []func(string) error{p.beforeStart, p.launch, p.awaitReady, p.afterStart} {
			if err := step(program); err != nil {
				return err
			}
		}
	}
	return nil
}

func down(args []string) error {
	flags := flag.NewFlagSet("down", flag.ContinueOnError)
	folder := flags.String("folder", "", "`DIR`: that of up")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *folder == "" || flags.NArg() > 0 {
		return fmt.Errorf("down: --folder DIR is needed, and no other words: got %q", args)
	}
	p, err := openPlane(*folder)
	if errors.Is(err, os.ErrNotExist) {
		fmt.Printf("there is no control plane in %s\n", *folder)
		return nil
	}
	if err != nil {
		return err
	}
	return p.remove()
}

func stop(args []string) error {
	p, program, kill, err := oneProgram("stop", args)
	if err != nil {
		return err
	}
	if _, running := p.running(program); !running {
		return fmt.Errorf("stop: %s does not run in %s%s", program, p.Folder, p.logTail(program))
	}
	return p.stop(program, kill)
}

func start(args []string) error {
	p, program, _, err := oneProgram("start", args)
	if err != nil {
		return err
	}
	if err := p.launch(program); err != nil {
		return err
	}
	if err := p.awaitReady(program); err != nil {
		return err
	}
	// Some programs end when the API server is down for longer than their lease duration.
	for _, other := range p.Programs {
		if _, running := p.running(other); !running {
			fmt.Fprintf(os.Stderr, "%s does not run: start it too, or see the end of %s\n", other, p.path(other+".log"))
		}
	}
	return nil
}

// oneProgram parses `--folder DIR NAME [--kill]`; the flags may also follow the name.
func oneProgram(command string, args []string) (p *plane, program string, kill bool, err error) {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	folder := flags.String("folder", "", "`DIR`: that of up")
	if command == "stop" {
		flags.BoolVar(&kill, "kill", false, "without a chance to end well (SIGKILL)")
	}
	var names []string
	for rest := args; ; {
		if err := flags.Parse(rest); err != nil {
			return nil, "", false, err
		}
		if flags.NArg() == 0 {
			break
		}
		names = append(names, flags.Arg(0))
		rest = flags.Args()[1:]
	}
	if *folder == "" || len(names) != 1 {
		return nil, "", false, fmt.Errorf("%s: --folder DIR and one NAME are needed: got %q", command, args)
	}
	if p, err = openPlane(*folder); err != nil {
		return nil, "", false, err
	}
	if _, err := p.command(names[0]); err != nil {
		return nil, "", false, err
	}
	return p, names[0], kill, nil
}
