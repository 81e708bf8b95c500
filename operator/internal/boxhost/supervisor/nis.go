package supervisor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// makedbm makes a map of NIS from a text.
const makedbm = "/usr/lib/yp/makedbm"

// nisFiles are the rendered files of NIS.
func nisFiles() []string {
	files := []string{boxhost.NISFile(boxhost.Securenets)}
	for _, name := range boxhost.NISMaps() {
		files = append(files, boxhost.NISFile(name))
	}
	return files
}

// makeMaps makes maps in the folder of files that are being checked.
func (s *Supervisor) makeMaps(ctx context.Context, folder string) error {
	maps := filepath.Join(folder, boxhost.NISFolder)
	if err := os.Mkdir(maps, 0o755); err != nil { //nolint:gosec // as the folder that it is in
		return fmt.Errorf("make folder %s: %w", maps, err)
	}
	var errs []error
	for _, name := range boxhost.NISMaps() {
		errs = append(errs, s.run(ctx, makedbm, filepath.Join(folder, boxhost.NISFile(name)), filepath.Join(maps, name)))
	}
	return errors.Join(errs...)
}

// placeMaps puts maps and networks where ypserv looks: /var/yp, which leads to the folder here. Each map is replaced in one step, so that
// no query finds none. Maps of another domain are removed, and all of them if NIS is off.
func (s *Supervisor) placeMaps(r *boxhost.Rendering) error {
	folder := filepath.Join(s.Run, boxhost.NISFolder)
	found, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("read folder %s: %w", folder, err)
	}
	for _, entry := range found {
		if entry.IsDir() && (!r.NIS || entry.Name() != r.NISDomain) {
			if err := os.RemoveAll(filepath.Join(folder, entry.Name())); err != nil {
				return fmt.Errorf("remove the maps of another domain: %w", err)
			}
		}
	}
	if !r.NIS {
		return nil
	}
	domain := filepath.Join(folder, r.NISDomain)
	if err := os.MkdirAll(domain, 0o755); err != nil { //nolint:gosec // nothing secret
		return fmt.Errorf("make folder %s: %w", domain, err)
	}
	for _, name := range boxhost.NISMaps() {
		from := filepath.Join(s.Run, next, boxhost.NISFolder, name)
		if err := os.Rename(from, filepath.Join(domain, name)); err != nil { //nolint:gosec // the domain's form was checked
			return fmt.Errorf("put a map in place: %w", err)
		}
	}
	return writeFile(filepath.Join(folder, boxhost.Securenets), []byte(r.Files[boxhost.NISFile(boxhost.Securenets)]))
}

// waitForRPC waits until rpcbind answers: ypserv ends at once without it.
func waitForRPC(ctx context.Context, own netip.Addr) {
	for ctx.Err() == nil {
		connection, err := dial(ctx, netip.AddrPortFrom(own, boxhost.PortRPC).String())
		if err == nil {
			_ = connection.Close()
			return
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// Programs and procedures of rpcbind (RFC 1833, version 2) and of NIS.
const (
	programPortmap, versionPortmap, procedureGetPort = 100000, 2, 3
	programNIS, versionNIS, procedureMatch           = 100004, 2, 3
	overTCP, overUDP                                 = 6, 17
	foundNIS                                         = 1
)

// nisAnswers asks as a client does: rpcbind for the port of ypserv, and ypserv for the name that only this rendering has.
func nisAnswers(ctx context.Context, own netip.Addr, domain, name string) error {
	var port uint16
	for _, protocol := range []uint32{overUDP, overTCP} {
		body := words(programNIS, versionNIS, protocol, 0)
		answer, err := callRPC(ctx, netip.AddrPortFrom(own, boxhost.PortRPC), programPortmap, versionPortmap, procedureGetPort, body)
		if err != nil {
			return fmt.Errorf("ask rpcbind for ypserv: %w", err)
		}
		if port, err = portOfNIS(answer); err != nil {
			return err
		}
	}
	body := append(append(counted(domain), counted(boxhost.NISHosts)...), counted(name)...)
	answer, err := callRPC(ctx, netip.AddrPortFrom(own, port), programNIS, versionNIS, procedureMatch, body)
	if err != nil {
		return fmt.Errorf("ask ypserv for %s: %w", name, err)
	}
	want := append(words(foundNIS), counted(own.String())...)
	if string(answer) != string(want) {
		return fmt.Errorf("ypserv says %q of %s, not %s", answer, name, own)
	}
	return nil
}

// portOfNIS is the port that rpcbind knows of ypserv; the firewall is open at no other.
func portOfNIS(answer []byte) (uint16, error) {
	if len(answer) != 4 {
		return 0, fmt.Errorf("rpcbind says %x of ypserv, which is no port", answer)
	}
	port := binary.BigEndian.Uint32(answer)
	if port < boxhost.PortNIS || port > boxhost.LastPortNIS {
		return 0, fmt.Errorf("rpcbind says that ypserv has port %d, not one from %d to %d", port, boxhost.PortNIS, boxhost.LastPortNIS)
	}
	return uint16(port), nil
}

func words(all ...uint32) []byte {
	var data []byte
	for _, word := range all {
		data = binary.BigEndian.AppendUint32(data, word)
	}
	return data
}

// counted is a text of XDR: its length, and the text in whole words.
func counted(text string) []byte {
	return append(append(words(uint32(len(text))), text...), strings.Repeat("\x00", -len(text)&3)...) //nolint:gosec // short names
}

// maxAnswer bounds an answer of RPC.
const maxAnswer = 4096

// callRPC calls a procedure by TCP, as nobody, and gives what follows the head of a successful answer.
func callRPC(ctx context.Context, server netip.AddrPort, program, version, procedure uint32, body []byte) ([]byte, error) {
	connection, err := dial(ctx, server.String())
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }()
	const id = 0x72636278
	call := append(words(id, rpcCall, rpcVersion, program, version, procedure, 0, 0, 0, 0), body...)
	call = append(words(lastFragment|uint32(len(call))), call...) //nolint:gosec // short
	if _, err := connection.Write(call); err != nil {
		return nil, fmt.Errorf("call: %w", err)
	}
	head := make([]byte, 4)
	if _, err := io.ReadFull(connection, head); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	size := binary.BigEndian.Uint32(head) &^ lastFragment
	if size > maxAnswer {
		return nil, fmt.Errorf("the answer is to have %d bytes", size)
	}
	answer := make([]byte, size)
	if _, err := io.ReadFull(connection, answer); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	// Id, answer, accepted, no verifier (two words), success.
	want := words(id, 1, 0, 0, 0, 0)
	if len(answer) < len(want) || string(answer[:len(want)]) != string(want) {
		return nil, fmt.Errorf("it refuses: %x", answer)
	}
	return answer[len(want):], nil
}
