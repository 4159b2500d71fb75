# Its health is on a fixed port of all addresses, which may be taken.
s|Addr: *fmt.Sprintf(":%d", healthCheckPort)|Addr: os.Getenv("HEALTH_ADDRESS")|
