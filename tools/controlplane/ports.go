// Ports on loopback that a program can use again after a restart.
package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
)

const (
	portFirst      = 10000
	portTries      = 1000
	ephemeralRange = "/proc/sys/net/ipv4/ip_local_port_range"
)

// freePorts returns a free port for each name.
//
// They are below the range of ephemeral ports: while an API server is down, a client that reconnects to its port
// repeatedly could otherwise be assigned that very port, and would keep it.
func freePorts(names []string) (map[string]int, error) {
	last := 32767
	if text, err := os.ReadFile(ephemeralRange); err == nil {
		if _, err := fmt.Sscan(string(text), &last); err != nil {
			return nil, fmt.Errorf("%s: %w", ephemeralRange, err)
		}
		last--
	}
	if last < portFirst+len(names) {
		return nil, fmt.Errorf("%s begins at %d: there are no ports below it", ephemeralRange, last+1)
	}
	ports := map[string]int{}
	for _, name := range names {
		// Held until all are found, so that none is found twice.
		listener, err := listenBetween(portFirst, last)
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports[name] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func listenBetween(first, last int) (net.Listener, error) {
	var err error
	for range portTries {
		var listener net.Listener
		port := first + rand.IntN(last-first+1)
		if listener, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return listener, nil
		}
	}
	return nil, fmt.Errorf("no free port between %d and %d: %w", first, last, err)
}
