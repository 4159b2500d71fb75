// Starting and stopping one program of a plane. NAME.cmd has its command line, one argument a line, NAME.pid its
// process id, NAME.log its output.
//
// A process is ours only if its command line is the recorded one: process ids are reused.
package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	pollEvery     = 20 * time.Millisecond
	stopMax       = 5 * time.Second
	killMax       = 20 * time.Second
	becomeMax     = 5 * time.Second
	logTailLines  = 15
	logTailBytes  = 64 << 10
	processFolder = "/proc"
)

// launch starts a program in its own session, so that it outlives us and our terminal.
func (p *plane) launch(program string) error {
	command, err := p.command(program)
	if err != nil {
		return err
	}
	if _, running := p.running(program); running {
		return fmt.Errorf("%s runs already in %s", program, p.Folder)
	}
	log, err := os.OpenFile(p.path(program+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(command[0], command[1:]...)
	process.Dir = p.Folder
	process.Env = append(os.Environ(), p.Environment[program]...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("%s: %w", program, err)
	}
	// Reaps a child that ends while we still run, so that it does not look alive.
	go func() { _ = process.Wait() }()
	return os.WriteFile(p.path(program+".pid"), []byte(strconv.Itoa(process.Process.Pid)+"\n"), 0o600)
}

// stop ends a program and waits until it is gone. A program that does not run is stopped already. One that does not end
// in time is killed, as a kubelet does: an API server waits for its watchers for up to a minute.
func (p *plane) stop(program string, kill bool) error {
	pid, running := p.running(program)
	if !running {
		return nil
	}
	if !kill {
		gone, err := p.signal(program, pid, syscall.SIGTERM, stopMax)
		if gone || err != nil {
			return err
		}
		fmt.Fprintf(os.Stderr, "%s did not end within %s: killed\n", program, stopMax)
	}
	gone, err := p.signal(program, pid, syscall.SIGKILL, killMax)
	if !gone && err == nil {
		err = fmt.Errorf("%s, process %d, still runs %s after it was killed", program, pid, killMax)
	}
	return err
}

// signal returns whether the program was gone in time.
func (p *plane) signal(program string, pid int, signal syscall.Signal, wait time.Duration) (gone bool, err error) {
	if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return false, fmt.Errorf("%s, process %d: %w", program, pid, err)
	}
	for deadline := time.Now().Add(wait); time.Now().Before(deadline); time.Sleep(pollEvery) {
		if _, running := p.running(program); !running {
			return true, nil
		}
	}
	return false, nil
}

// running returns whether the recorded process exists and is the one that we started.
func (p *plane) running(program string) (pid int, running bool) {
	text, err := os.ReadFile(p.path(program + ".pid"))
	if err != nil {
		return 0, false
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return 0, false
	}
	command, err := p.command(program)
	if err != nil {
		return 0, false
	}
	return pid, commandLine(pid) == strings.Join(command, "\x00")+"\x00"
}

// commandLine returns a process's command line, each argument ended by a zero; empty if the process does not exist or
// is a zombie. It is also empty for a moment during exec, and for longer if the program is read from a slow disk: that
// is waited for.
func commandLine(pid int) string {
	folder := filepath.Join(processFolder, strconv.Itoa(pid))
	for deadline := time.Now().Add(becomeMax); ; time.Sleep(pollEvery) {
		line, err := os.ReadFile(filepath.Join(folder, "cmdline"))
		if err != nil || len(line) > 0 || hasEnded(folder) || time.Now().After(deadline) {
			return string(line)
		}
	}
}

// hasEnded returns whether the process is a zombie.
func hasEnded(folder string) bool {
	text, err := os.ReadFile(filepath.Join(folder, "stat"))
	// The state follows the name, which is in parentheses and may contain parentheses.
	fields := strings.Fields(string(text)[strings.LastIndex(string(text), ")")+1:])
	return err != nil || len(fields) == 0 || fields[0] == "Z" || fields[0] == "X"
}

func (p *plane) command(program string) ([]string, error) {
	text, err := os.ReadFile(p.path(program + ".cmd"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s has no program %q: it has %s", p.Folder, program, strings.Join(p.Programs, ", "))
	}
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n"), nil
}

func (p *plane) writeCommand(program string, command []string) error {
	for _, argument := range command {
		if strings.Contains(argument, "\n") {
			return fmt.Errorf("%s: the argument %q has more than one line", program, argument)
		}
	}
	return os.WriteFile(p.path(program+".cmd"), []byte(strings.Join(command, "\n")+"\n"), 0o600)
}

// logTail returns the end of a program's log, for an error message.
func (p *plane) logTail(program string) string {
	path := p.path(program + ".log")
	text, err := os.ReadFile(path)
	if err != nil {
		return "\n  (no log: " + err.Error() + ")"
	}
	if len(text) > logTailBytes {
		text = text[len(text)-logTailBytes:]
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if len(lines) > logTailLines {
		lines = lines[len(lines)-logTailLines:]
	}
	return "\n  the end of " + path + ":\n  | " + strings.Join(lines, "\n  | ")
}
