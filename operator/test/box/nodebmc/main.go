// Command nodebmc lets the nodes of a kind cluster be servers of a chassis: each has a stand-in for a management controller that kills and
// starts the node's container, and a stand-in for the chassis manager shows what Docker says is so. The others are slots without a node,
// which are off. What the chassis manager shows, it has from Docker alone, so it is a witness beside the controllers.
//
// usage: NODEBMC_PASSWORD=... nodebmc --first 172.18.250.1 --manager 172.18.250.200 --port 6230 --docker docker [NAME=GUID | GUID]...
//
// It reads commands from standard input until that ends: "silence NAME" and "hear NAME", where a NAME is a node's, or "manager".
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc/standin"
)

const (
	username = "admin"
	managed  = "manager"
	wattsOn  = 22
	// pause between two looks at what was ordered, and at what is so.
	pause = 50 * time.Millisecond
)

// blade is a slot with a stand-in for its controller.
type blade struct {
	*standin.BMC

	// node is the container; empty: there is none.
	node string
}

type rack struct {
	docker  string
	manager *standin.BMC
	blades  []blade
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "nodebmc:", err)
		os.Exit(1)
	}
}

func run() error {
	first := flag.String("first", "", "address of the controller in the first slot; the others follow")
	manager := flag.String("manager", "", "address of the chassis manager")
	var port uint16
	flag.Func("port", "port of all", func(text string) error {
		number, err := strconv.ParseUint(text, 10, 16)
		port = uint16(number)
		return err //nolint:wrapcheck // flag says which
	})
	docker := flag.String("docker", "docker", "Docker's command")
	flag.Parse()
	r := &rack{docker: *docker}
	if err := r.start(*first, *manager, port, flag.Args()); err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	for i := range r.blades {
		if r.blades[i].node != "" {
			go r.follow(ctx, i)
		}
	}
	_, _ = fmt.Fprintln(os.Stdout, "ready")
	return r.obey()
}

// start starts all controllers.
func (r *rack) start(first, manager string, port uint16, slots []string) error {
	address, err := netip.ParseAddr(first)
	of, err2 := netip.ParseAddr(manager)
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("addresses: %w", err)
	}
	config := standin.Config{
		Username: username, Password: os.Getenv("NODEBMC_PASSWORD"), Address: netip.AddrPortFrom(of, port),
		Sensors: []standin.Sensor{{Name: "In Charge", Count: 1}},
	}
	for i := range slots {
		config.Sensors = append(config.Sensors, standin.Sensor{
			Name: sensorOf(i), Type: types.SensorTypeOtherUnitsbased, Unit: types.SensorUnitType_Watts,
		})
	}
	if r.manager, err = standin.Start(config); err != nil {
		return fmt.Errorf("start the chassis manager: %w", err)
	}
	for i, slot := range slots {
		node, guid, hasNode := strings.Cut(slot, "=")
		if !hasNode {
			node, guid = "", slot
		}
		started, err := standin.Start(standin.Config{
			Username: username, Password: os.Getenv("NODEBMC_PASSWORD"), SystemGUID: guid, Serial: fmt.Sprint("SLOT", i+1), On: hasNode,
			Address: netip.AddrPortFrom(address, port), Custom: []string{fmt.Sprintf("SLOT=%d", i+1)},
		})
		if err != nil {
			return fmt.Errorf("start the controller in slot %d: %w", i+1, err)
		}
		r.blades = append(r.blades, blade{started, node})
		address = address.Next()
	}
	return nil
}

func sensorOf(index int) string { return fmt.Sprintf("Slot %02d Power", index+1) }

// follow does to a container what its controller was told, and has the chassis manager show what Docker says of it.
func (r *rack) follow(ctx context.Context, index int) {
	of := r.blades[index]
	was := true
	for ctx.Err() == nil {
		if on := of.On(); on != was {
			verb := "start"
			if !on {
				verb = "kill"
				r.cutOff(ctx, of.node)
			}
			out, err := r.call(ctx, r.docker, verb, of.node)
			_, _ = fmt.Fprintf(os.Stdout, "%s %s: %v %s\n", verb, of.node, err, out)
			was = on
		}
		out, err := r.call(ctx, r.docker, "inspect", "-f", "{{.State.Running}}", of.node)
		r.manager.SetSensor(sensorOf(index), func(s *standin.Sensor) {
			s.Unavailable, s.Count = err != nil, 0
			if strings.TrimSpace(string(out)) == "true" { // a paused one runs, too
				s.Count = wattsOn
			}
		})
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// call runs a command on what whoever started this program has named.
func (*rack) call(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput() //nolint:gosec // see above
	if err != nil {
		return nil, fmt.Errorf("%s %v: %w: %s", name, arguments, err, out)
	}
	return out, nil
}

// cutOff takes a node's link down before its processes end: to kill a container that stands still, Docker lets it go on. A machine
// without power says nothing.
func (r *rack) cutOff(ctx context.Context, node string) {
	process, err := r.call(ctx, r.docker, "inspect", "-f", "{{.State.Pid}}", node)
	if err == nil {
		process = bytes.TrimSpace(process)
		_, err = r.call(ctx, "nsenter", "-t", string(process), "-n", "ip", "link", "set", "eth0", "down")
	}
	_, _ = fmt.Fprintf(os.Stdout, "cut off %s: %v\n", node, err)
}

// obey carries out commands until there are no more.
func (r *rack) obey() error {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		verb, name, _ := strings.Cut(lines.Text(), " ")
		for _, of := range append(r.blades, blade{r.manager, managed}) {
			if of.node == name {
				of.Fault(func(f *standin.Faults) { f.Frozen = verb == "silence" })
			}
		}
		_, _ = fmt.Fprintln(os.Stdout, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("read commands: %w", err)
	}
	return nil
}
