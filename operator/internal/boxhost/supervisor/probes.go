package supervisor

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// firstPatience and longestPatience bound how long a service may take to answer one query: a query that came too early, while the service
// was being started, is lost.
const firstPatience, longestPatience = 500 * time.Millisecond, 4 * time.Second

// probe asks one service a real query.
type probe struct {
	name string
	ask  func(ctx context.Context) error
}

// probesOf are the queries that are to be answered before a box host is ready.
func probesOf(d *boxhost.Desired, r *boxhost.Rendering, p *boxhost.Place) []probe {
	own := p.Address.Addr()
	at := func(port uint16) string { return netip.AddrPortFrom(own, port).String() }
	all := []probe{
		{unitFirewall, firewallIsThere},
		{"DNS", func(ctx context.Context) error {
			return resolves(ctx, at(boxhost.PortDNS), r.VersionName+"."+d.Domain, own)
		}},
		{"HTTP", func(ctx context.Context) error { return httpAnswers(ctx, "http://"+at(boxhost.PortHTTP)+pathHealth) }},
	}
	if !r.IsMaintenance {
		all = append(all, probe{"TFTP", func(ctx context.Context) error {
			return tftpAnswers(ctx, at(boxhost.PortTFTP), boxhost.BIOSProgram)
		}})
	}
	if r.SSH {
		all = append(all, probe{"SSH", func(ctx context.Context) error { return sshAnswers(ctx, at(boxhost.PortSSH)) }})
	}
	if r.NFS {
		for _, export := range d.Exports {
			all = append(all, probe{"NFS", func(ctx context.Context) error { return nfsAnswers(ctx, at(boxhost.PortNFS), export.Name) }})
		}
	}
	if r.NIS {
		all = append(all, probe{"NIS", func(ctx context.Context) error { return nisAnswers(ctx, own, d.NIS.Domain, r.VersionName) }})
	}
	return all
}

// askAll gives why a box host is not ready; nil once every service has answered. All are asked together.
func askAll(ctx context.Context, probes []probe, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	errs := make([]error, len(probes))
	var asked sync.WaitGroup
	for i, of := range probes {
		asked.Go(func() {
			if err := of.ask(ctx); err != nil {
				errs[i] = fmt.Errorf("%s does not answer: %w", of.name, err)
			}
		})
	}
	asked.Wait()
	return errors.Join(errs...)
}

func firewallIsThere(ctx context.Context) error {
	output, err := exec.CommandContext(ctx, "nft", "list", "table", "inet", boxhost.Table).CombinedOutput() //nolint:gosec // a constant
	if err != nil {
		return fmt.Errorf("nft list table inet %s: %w: %.200s", boxhost.Table, err, bytes.TrimSpace(output))
	}
	return nil
}

// resolves: the name that only this rendering has leads to the box host.
func resolves(ctx context.Context, server, name string, want netip.Addr) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	found, err := resolver.LookupNetIP(ctx, "ip4", name+".")
	if err != nil {
		return fmt.Errorf("ask for %s: %w", name, err)
	}
	if !slices.ContainsFunc(found, func(a netip.Addr) bool { return a.Unmap() == want }) {
		return fmt.Errorf("%s leads to %v, not to %s", name, found, want)
	}
	return nil
}

// Operations of TFTP (RFC 1350, 2347).
const (
	tftpRead, tftpData, tftpOptions = 1, 3, 6
)

// tftpAnswers asks for the first block of a file.
func tftpAnswers(ctx context.Context, server, file string) error {
	connection, err := net.ListenUDP("udp4", nil) // the answer comes from another port
	if err != nil {
		return fmt.Errorf("open a socket: %w", err)
	}
	defer func() { _ = connection.Close() }()
	to, err := net.ResolveUDPAddr("udp4", server)
	if err != nil {
		return fmt.Errorf("ask %s: %w", server, err)
	}
	request := slices.Concat([]byte{0, tftpRead}, []byte(file), []byte{0}, []byte("octet"), []byte{0})
	if _, err := connection.WriteToUDP(request, to); err != nil {
		return fmt.Errorf("ask %s: %w", server, err)
	}
	deadline, _ := ctx.Deadline()
	_ = connection.SetReadDeadline(deadline)
	answer := make([]byte, 1024)
	size, from, err := connection.ReadFromUDP(answer)
	if err != nil {
		return fmt.Errorf("read %s from %s: %w", file, server, err)
	}
	if size < 4 || answer[1] != tftpData && answer[1] != tftpOptions {
		return fmt.Errorf("read %s: %q", file, answer[:size])
	}
	// An error ends the transfer (RFC 1350, section 2).
	_, _ = connection.WriteToUDP([]byte{0, 5, 0, 0, 0}, from)
	return nil
}

func httpAnswers(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	transport := &http.Transport{DisableKeepAlives: true} // with no proxy
	response, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("ask %s: %w", url, err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s: %s", url, response.Status)
	}
	return nil
}

// dial connects, with the deadline of the context for everything that follows.
func dial(ctx context.Context, server string) (net.Conn, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	deadline, _ := ctx.Deadline()
	_ = connection.SetDeadline(deadline)
	return connection, nil
}

func sshAnswers(ctx context.Context, server string) error {
	connection, err := dial(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	const greeting = "SSH-2.0-"
	answer := make([]byte, len(greeting))
	if _, err := io.ReadFull(connection, answer); err != nil || string(answer) != greeting {
		return fmt.Errorf("it greets with %q (%w)", answer, err)
	}
	return nil
}

// What a call of RPC (RFC 5531) and its answer consist of, and operations of NFSv4 (RFC 7530).
const (
	lastFragment             = 1 << 31
	rpcCall, rpcVersion      = 0, 2
	programNFS, versionNFS   = 100003, 4
	procedureCompound        = 1
	authSys                  = 1
	putRoot, lookUp          = 24, 15
	nobody                   = 65534
	sizeRPCAnswer, sizeOfNFS = 7, 1
)

// nfsAnswers looks an exported folder up, as a client does that mounts it. A server that merely answers may have failed to export it.
func nfsAnswers(ctx context.Context, server, export string) error {
	connection, err := dial(ctx, server)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	const id = 0x72636278
	name := strings.TrimPrefix(export, "/")
	words := []uint32{
		id, rpcCall, rpcVersion, programNFS, versionNFS, procedureCompound,
		authSys, 20, 0, 0, nobody, nobody, 0, // at no time, at no machine, as nobody, without groups
		0, 0, // no verifier
		0, 0, 2, putRoot, lookUp, uint32(len(name)), //nolint:gosec // at most 63
	}
	call := []byte{}
	for _, word := range words {
		call = binary.BigEndian.AppendUint32(call, word)
	}
	call = append(call, name...)
	call = append(call, make([]byte, -len(name)&3)...)
	call = append(binary.BigEndian.AppendUint32(nil, lastFragment|uint32(len(call))), call...) //nolint:gosec // less than 200
	if _, err := connection.Write(call); err != nil {
		return fmt.Errorf("look up %s: %w", export, err)
	}
	answer := make([]byte, 4*(sizeRPCAnswer+sizeOfNFS))
	if _, err := io.ReadFull(connection, answer); err != nil {
		return fmt.Errorf("look up %s: %w", export, err)
	}
	// After the length: id, answer, accepted, no verifier (two words), success, and the status of NFS.
	for at, want := range []uint32{id, 1, 0, 0, 0, 0, 0} {
		if got := binary.BigEndian.Uint32(answer[4*at+4:]); got != want {
			return fmt.Errorf("look up %s: word %d of the answer is %d, not %d; nfs-ganesha's output says why", export, at, got, want)
		}
	}
	return nil
}
