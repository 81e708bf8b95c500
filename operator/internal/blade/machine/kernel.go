package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Kernel is this machine's; see blade.Kernel.
type Kernel struct{}

// linkPatience is for a command of ip. A port's driver may take seconds to set its hardware up.
const linkPatience = time.Minute

// Write writes to a file of sysfs, by a name relative to the root.
func (Kernel) Write(name, text string) error {
	file, err := os.OpenFile("/"+name, os.O_WRONLY, 0) //nolint:gosec // of the caller
	if err != nil {
		return fmt.Errorf("write %q: %w", text, err)
	}
	_, err = file.WriteString(text)
	if closed := file.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write %q: %w", text, err)
	}
	return nil
}

// SetUp switches a port on.
func (Kernel) SetUp(ctx context.Context, port string) error {
	return ip(ctx, "link", "set", "dev", port, "up")
}

// SetFunction gives a virtual function its MAC address, and no right to send from another one.
func (Kernel) SetFunction(ctx context.Context, port string, index int, mac net.HardwareAddr) error {
	return ip(ctx, "link", "set", "dev", port, "vf", strconv.Itoa(index), "mac", mac.String(), "spoofchk", "on")
}

func ip(ctx context.Context, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, linkPatience)
	defer cancel()
	output, err := exec.CommandContext(ctx, "ip", arguments...).CombinedOutput() //nolint:gosec // names of the kernel
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(arguments, " "), err, strings.TrimSpace(string(output)))
	}
	return nil
}
