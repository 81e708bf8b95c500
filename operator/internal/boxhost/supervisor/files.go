package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// checkPatience bounds how long a program may check a file.
const checkPatience = 20 * time.Second

// next is the folder of files that are being checked, in the folder Place.Run.
const next = "next"

// check has the real programs judge what was rendered. nfs-ganesha has no way to do so: it is judged by its answers.
func (s *Supervisor) check(ctx context.Context, r *boxhost.Rendering) error {
	folder := filepath.Join(s.Run, next)
	if err := os.RemoveAll(folder); err != nil {
		return fmt.Errorf("clear folder %s: %w", folder, err)
	}
	if err := os.Mkdir(folder, 0o755); err != nil { //nolint:gosec // as the folder that it is in
		return fmt.Errorf("make folder %s: %w", folder, err)
	}
	const checkedHosts = "dhcp-hosts.conf"
	files := map[string]string{checkedHosts: boxhost.CheckedHosts(r.Files[boxhost.DHCPHosts])}
	maps.Copy(files, r.Files)
	if err := writeFiles(folder, files); err != nil {
		return err
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	errs := []error{
		s.run(ctx, "nft", "--check", "-f", in(boxhost.FirewallFile)),
		s.run(ctx, "dnsmasq", "--test", "--conf-file="+in(boxhost.DnsmasqConf)),
		s.run(ctx, "dnsmasq", "--test", "--conf-file="+in(checkedHosts)),
	}
	if r.SSH {
		errs = append(errs, s.run(ctx, "/usr/sbin/sshd", "-t", "-f", in(boxhost.SSHDConfig)))
	}
	if r.NIS {
		errs = append(errs, s.makeMaps(ctx, folder))
	}
	return errors.Join(errs...)
}

// run runs a program that ends by itself.
func (s *Supervisor) run(ctx context.Context, name string, arguments ...string) error {
	ctx, cancel := context.WithTimeout(ctx, checkPatience)
	defer cancel()
	output, err := exec.CommandContext(ctx, name, arguments...).CombinedOutput() //nolint:gosec // of this package
	if err != nil {
		return fmt.Errorf("%s %s: %w: %.300s", filepath.Base(name), arguments[0], err, bytes.TrimSpace(output))
	}
	return nil
}

// makeFolders makes what is exported and where NFS keeps its clients.
func (s *Supervisor) makeFolders(d *boxhost.Desired) error {
	folders := []string{filepath.Join(s.State, boxhost.NFSRecovery)}
	for _, export := range d.Exports {
		folders = append(folders, filepath.Join(s.State, boxhost.Exports, export.Name))
	}
	for _, folder := range folders {
		if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // servers' users read there
			return fmt.Errorf("make folder %s: %w", folder, err)
		}
	}
	return nil
}

// makeHostKey makes the key by which clients of SSH know this host, once.
func (s *Supervisor) makeHostKey(ctx context.Context) error {
	path := filepath.Join(s.State, boxhost.HostKey)
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return s.run(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "rcbox box host", "-f", path)
}

// writeFiles writes files into a folder.
func writeFiles(folder string, files map[string]string) error {
	for name, text := range files {
		if err := writeFile(filepath.Join(folder, name), []byte(text)); err != nil {
			return err
		}
	}
	return nil
}

// moveFiles moves files into a folder that have been written and checked in another one of the same file system, and removes those that are
// not wanted any more. It needs no room, and reads nothing.
func moveFiles(from, to string, files map[string]string) error {
	for name := range files {
		if err := os.Rename(filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return fmt.Errorf("put %s in place: %w", name, err)
		}
	}
	known := []string{
		boxhost.DnsmasqConf, boxhost.DHCPHosts, boxhost.HostsFile, boxhost.FirewallFile, boxhost.GaneshaConf, boxhost.SSHDConfig,
		boxhost.AuthorizedKeys,
	}
	known = append(known, nisFiles()...)
	for _, name := range slices.DeleteFunc(known, func(name string) bool { _, isThere := files[name]; return isThere }) {
		if err := os.Remove(filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove %s: %w", name, err)
		}
	}
	return nil
}

// writeFile writes a file in one step, with the rights that dnsmasq and sshd need to read it.
func writeFile(path string, data []byte) error {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, data) { //nolint:gosec // a path of this package
		return nil
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, data, 0o644); err != nil { //nolint:gosec // nothing secret, and read by other users
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// addressOf is the first IPv4 address of an interface.
func addressOf(name string) (netip.Prefix, error) {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("find interface %s: %w", name, err)
	}
	if device.Flags&net.FlagUp == 0 {
		return netip.Prefix{}, fmt.Errorf("interface %s is down: set it up", name)
	}
	addresses, err := device.Addrs()
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("read the addresses of interface %s: %w", name, err)
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() {
			return prefix, nil
		}
	}
	return netip.Prefix{}, fmt.Errorf("interface %s has no IPv4 address: give it one of the network of its Chassis", name)
}
