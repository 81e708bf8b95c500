package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/resources"
	"rcbox.dev/rcbox/operator/proxy"
	"rcbox.dev/rcbox/operator/proxy/wire"
)

const (
	loopback = "127.0.0.1"
	// adminOffset is where clients look for the port for administrators, unless the locator says otherwise.
	adminOffset = resources.CoordinatorAdminPort - resources.CoordinatorClientPort
)

type proxyOptions struct {
	address string
	port    uint16
}

func (p *plugin) proxyCommand() *cobra.Command {
	var options proxyOptions
	var form output
	command := &cobra.Command{
		Use:   "proxy [STORE]",
		Short: "Let clients of this machine use a Store",
		Long: `Lets clients of this machine use a Store, through the API server, with your rights: one local port for the
coordinator that leads, and one for each shard of each master. Any RAMCloud client works with the locator that it
prints, for each address that the store gives to a client is replaced by a local one.

It follows leaders that change and pods that are replaced. A connection to a process that ends is closed, as without
the proxy, and clients connect again. It runs until Ctrl-C.

Who can connect to these ports can read and delete the store's data. So they are open to this machine only, unless
--address says otherwise. Everything goes through the API server: it is for development and for a look, not for load.`,
		Example: `  kubectl rcbox proxy box
  rcbox -C tcp:host=127.0.0.1,port=11100 get fruit apple          # in another terminal

  kubectl rcbox proxy box --port 0 -o json                        # any free port; for scripts
  kubectl rcbox proxy box -o json | head -n 1 | jq -r .locator`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := form.check(command); err != nil {
				return err
			}
			if options.address == "localhost" {
				options.address = loopback
			}
			address, err := netip.ParseAddr(options.address)
			if err != nil || !address.Is4() {
				return usage(command, fmt.Errorf("--address %s: give an IPv4 address of this machine, such as 127.0.0.1", options.address))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return serveProxy(command.Context(), command, cluster, argument(arguments, 0), address, options.port, form)
		},
	}
	command.Flags().StringVar(&options.address, "address", loopback,
		"IPv4 address of this machine at which clients connect; 0.0.0.0: all of them")
	command.Flags().Uint16Var(&options.port, "port", resources.CoordinatorClientPort, "port of the coordinator; 0: any that is free")
	form.bind(command)
	return command
}

// ProxyDocument is what is printed, on one line, when clients can connect. Fields may be added, none is renamed.
type ProxyDocument struct {
	Namespace string         `json:"namespace"`
	Name      string         `json:"name"`
	Locator   string         `json:"locator"`
	Processes []ProxyProcess `json:"processes"`
}

// ProxyProcess is a port of this machine.
type ProxyProcess struct {
	Port    int    `json:"port"`
	Process string `json:"process"`
	// Member and PodPort are where the port leads; the member of the coordinator that leads is empty.
	Member  string `json:"member"`
	PodPort int    `json:"podPort"`
}

func serveProxy(
	ctx context.Context, command *cobra.Command, cluster *access.Cluster, name string, address netip.Addr, port uint16, form output,
) error {
	snapshot, coordinator, err := ask(ctx, cluster, name)
	if err != nil {
		return err
	}
	coordinator.Close()
	out, errs := command.OutOrStdout(), command.ErrOrStderr()
	var reporting sync.Mutex
	report := func(text string) {
		reporting.Lock()
		defer reporting.Unlock()
		_ = writeText(errs, text+"\n") // nobody is left to tell
	}
	if !address.IsLoopback() {
		report(fmt.Sprintf("warning: whoever reaches %s can read and delete the data of Store %s/%s, with your rights",
			address, snapshot.Store.Namespace, snapshot.Store.Name))
	}
	processes := cluster.Processes(snapshot.Store)
	p := &proxy.Proxy{Address: address, Directory: processes, Report: report}
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		p.Wait()
	}()
	if err := p.Start(ctx, int(port), access.ClientTarget(), access.AdministratorTarget()); err != nil {
		return err
	}
	if err := openPorts(ctx, p, processes, snapshot); err != nil {
		return err
	}
	document, err := describeProxy(p, snapshot, address)
	if err != nil {
		return err
	}
	text := document.text()
	if form.isJSON() {
		if text, err = jsonLine(document); err != nil {
			return err
		}
	}
	if err := writeText(out, text); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// openPorts for the servers that there are. Those that come later get theirs when a client is told of them.
func openPorts(ctx context.Context, p *proxy.Proxy, processes *access.Processes, snapshot *view.Snapshot) error {
	for _, member := range snapshot.Cluster.GetMembers() {
		for _, shard := range member.GetShards() {
			at, err := wire.ParseLocators(shard.GetLocator())
			if err != nil {
				return fmt.Errorf("where %s is: %w", member.GetName(), err)
			}
			target, err := processes.Find(ctx, at)
			if err != nil {
				continue // it is on its way out, or in
			}
			if _, err := p.Local(target); err != nil {
				return err
			}
		}
	}
	return nil
}

func describeProxy(p *proxy.Proxy, snapshot *view.Snapshot, address netip.Addr) (*ProxyDocument, error) {
	document := &ProxyDocument{Namespace: snapshot.Store.Namespace, Name: snapshot.Store.Name}
	host := address
	if address.IsUnspecified() {
		host = netip.MustParseAddr(loopback)
	}
	var clients, administrators int
	for _, target := range p.Targets() {
		port, err := p.Local(target)
		if err != nil {
			return nil, err
		}
		process := fmt.Sprintf("%s, shard %d", target.Member, target.Port-resources.MasterClientPort)
		switch target {
		case access.ClientTarget():
			process, clients = "the coordinator that leads", port
		case access.AdministratorTarget():
			process, administrators = "the coordinator that leads, for administrators", port
		}
		document.Processes = append(document.Processes, ProxyProcess{
			Port: port, Process: process, Member: target.Member, PodPort: target.Port,
		})
	}
	document.Locator = wire.Address{Host: host.String(), Port: uint16(clients)}.Locator()
	if administrators != clients+adminOffset {
		document.Locator += fmt.Sprintf(",adminPort=%d", administrators)
	}
	if clients == 0 || administrators == 0 {
		return nil, errors.New("the coordinator has no port")
	}
	return document, nil
}

func (d *ProxyDocument) text() string {
	text := &strings.Builder{}
	fmt.Fprintf(text, "Clients of this machine reach Store %s/%s at\n\n  %s\n\n", d.Namespace, d.Name, d.Locator)
	for _, process := range d.Processes {
		fmt.Fprintf(text, "  %5d  %s\n", process.Port, process.Process)
	}
	fmt.Fprintf(text, "\nTry: rcbox -C %s status\nCtrl-C ends it.\n", d.Locator)
	return text.String()
}
