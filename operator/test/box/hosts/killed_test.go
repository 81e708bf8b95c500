package hosts

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// Points of a boot at which a box host is killed.
const (
	beforeAddress = iota
	beforeProgram
	beforeSecondAddress
	beforeScript
	beforeKernel
	beforeInitrd
	inImage
	beforeJoin
	points
)

// beginsAnew says that the firmware begins anew: at these points, the ROM and iPXE know one host only.
func beginsAnew(point int) bool { return point == beforeProgram || point == beforeScript }

var errFirmware = errors.New("the firmware begins anew")

// killedWhileBooting kills each host at each point of a boot: the host that the blade uses at that point, and the other one.
func (l *lab) killedWhileBooting() {
	l.imageFor()
	for point := range points {
		for _, isUsed := range []bool{true, false} {
			b := &booting{lab: l, point: point, killsUsed: isUsed}
			b.boot()
			if b.killed == nil {
				l.Fatalf("point %d: nobody was killed", point)
			}
			b.killed.start()
			l.waitServed(b.killed)
		}
	}
}

const pieceBytes = 4 << 20

// imageFor makes a disk image of noise, which takes more than one read.
func (l *lab) imageFor() {
	l.Helper()
	folder := filepath.Join(filepath.Dir(l.hosts[0].desired), "image")
	noise := bytes.Repeat([]byte("rcbox..."), pieceBytes/8)
	for i := range noise {
		noise[i] += byte(i >> 12)
	}
	for name, content := range map[string][]byte{"initrd": []byte("the initrd\n"), "disk": noise} {
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o644); err != nil {
			l.Fatal(err)
		}
	}
}

// booting is a blade that boots. Its ROM and iPXE are stand-ins, since both need a machine: busybox' clients of DHCP and TFTP, and a
// function that follows the script as iPXE does. The blade's own code installs and joins.
type booting struct {
	*lab
	point     int
	killsUsed bool
	killed    *host
}

func (b *booting) boot() {
	b.Helper()
	for attempt := 1; ; attempt++ {
		err := b.once()
		switch {
		case err == nil:
			return
		case !errors.Is(err, errFirmware) || !b.killsUsed || !beginsAnew(b.point) || attempt > 1:
			b.Fatalf("point %d, the host in use is killed: %t, attempt %d: %v", b.point, b.killsUsed, attempt, err)
		}
	}
}

// once goes through all points.
func (b *booting) once() error {
	b.reach(beforeAddress, b.hosts[0].address)
	rom, err := b.dhcp()
	if err != nil {
		return err
	}
	b.reach(beforeProgram, rom["siaddr"])
	if err := b.program(rom); err != nil {
		return err
	}
	b.reach(beforeSecondAddress, rom["siaddr"])
	ipxe, err := b.dhcp("-x", "0xaf:010100") // encapsulated options of iPXE
	if err != nil {
		return err
	}
	url := strings.ReplaceAll(ipxe["boot_file"], "${netX/mac:hexhyp}", strings.ReplaceAll(macBlade, ":", "-"))
	b.reach(beforeScript, ipxe["siaddr"])
	script, err := b.get(url)
	if err != nil {
		return fmt.Errorf("%w: %w", errFirmware, err)
	}
	arguments, err := b.follow(script)
	if err != nil {
		return err
	}
	return b.install(arguments)
}

// reach kills a host if this is the point: that with the address, or the other one.
func (b *booting) reach(point int, used string) {
	b.Helper()
	if point != b.point || b.killed != nil {
		return
	}
	at := slices.IndexFunc(b.hosts[:], func(h *host) bool { return h.address == used })
	if at < 0 {
		b.Fatalf("point %d: %q is no box host", point, used)
	}
	if !b.killsUsed {
		at = 1 - at
	}
	b.killed = b.hosts[at]
	b.killed.kill()
}

// dhcp asks for an address, which must always be the same, and gives what else was answered.
func (b *booting) dhcp(arguments ...string) (map[string]string, error) {
	b.Helper()
	b.be(macBlade)
	script := filepath.Join(filepath.Dir(b.hosts[0].desired), "answer.sh")
	const text = "#!/bin/sh\n[ \"$1\" != bound ] || env\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return nil, fmt.Errorf("write the script of the DHCP client: %w", err)
	}
	output, err := b.blade.try(append([]string{
		"busybox", "udhcpc", "-i", "eth1", "-n", "-q", "-t", "5", "-T", "1", "-s", script, "-O", "bootfile",
	}, arguments...)...)
	if err != nil {
		return nil, fmt.Errorf("no address: %w: %s", err, output)
	}
	answer := map[string]string{}
	for line := range strings.SplitSeq(output, "\n") {
		if name, value, found := strings.Cut(line, "="); found {
			answer[name] = value
		}
	}
	if answer["boot_file"] == "" { // the header's field; with much to say, a server uses the option
		answer["boot_file"] = answer["bootfile"]
	}
	if answer["ip"] != "192.168.3.1" {
		return nil, fmt.Errorf("the address is %q: %s", answer["ip"], output)
	}
	b.blade.sh("ip address add 192.168.3.1/24 dev eth1")
	return answer, nil
}

// program is what the ROM starts.
func (b *booting) program(rom map[string]string) error {
	into := filepath.Join(filepath.Dir(b.hosts[0].desired), "program")
	output, err := b.blade.try("timeout", "5", "busybox", "tftp", "-g", "-r", rom["boot_file"], "-l", into, rom["siaddr"])
	if err != nil {
		return fmt.Errorf("%w: TFTP of %q: %w: %s", errFirmware, rom["boot_file"], err, output)
	}
	got, err := os.ReadFile(into)
	if err != nil {
		return fmt.Errorf("what TFTP gave: %w", err)
	}
	if want, err := os.ReadFile("/usr/lib/ipxe/" + boxhost.BIOSProgram); err != nil || !bytes.Equal(got, want) {
		return fmt.Errorf("TFTP gives %d bytes, not the %d of %s: %w", len(got), len(want), rom["boot_file"], err)
	}
	return nil
}

func (b *booting) get(url string) (string, error) {
	status, text, err := b.blade.http(http.MethodGet, url, nil)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %d: %s", url, status, text)
	}
	return text, err
}

// follow does what a script of iPXE says, up to `boot`, and gives the arguments of the kernel.
func (b *booting) follow(script string) (arguments []string, err error) {
	lines := strings.Split(script, "\n")
	for at := 0; at < len(lines); at++ {
		command, otherwise, _ := strings.Cut(lines[at], " || ")
		words := strings.Fields(command)
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "kernel":
			b.reach(beforeKernel, hostOf(words[1]))
			_, err = b.get(words[1])
			arguments = words[2:]
		case "initrd":
			b.reach(beforeInitrd, hostOf(words[len(words)-1]))
			_, err = b.get(words[len(words)-1])
		case "boot":
			return arguments, nil
		default:
			continue
		}
		if err == nil {
			continue
		}
		label, isJump := strings.CutPrefix(otherwise, "goto ")
		if at = slices.Index(lines, ":"+label); !isJump || at < 0 {
			return nil, fmt.Errorf("%q leads nowhere: %w", otherwise, err)
		}
	}
	return nil, errors.New("the script boots nothing")
}

func hostOf(url string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(url, "http://"), "/")
	return host
}

// install downloads a disk image and asks to join, as the boot image does, by the same code.
func (b *booting) install(arguments []string) error {
	var list string
	for _, argument := range arguments {
		if hosts, found := strings.CutPrefix(argument, boxhost.ArgumentHosts); found {
			list = hosts
		}
	}
	hosts, err := blade.ParseHosts(list)
	if err != nil {
		return fmt.Errorf("arguments %v: %w", arguments, err)
	}
	if _, err := b.dhcp(); err != nil { // the boot image's own
		return err
	}
	client := &http.Client{Transport: &http.Transport{DialContext: b.blade.dial, DisableKeepAlives: true}}
	fetcher := &blade.Fetcher{
		Client: client, Hosts: hosts, Report: func(error) {},
		Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }, // nobody has to be spared here
	}
	noise, err := os.ReadFile(filepath.Join(filepath.Dir(b.hosts[0].desired), "image", "disk"))
	if err != nil {
		return fmt.Errorf("the image: %w", err)
	}
	sum := sha256.Sum256(noise)
	piece := blade.Piece{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(noise))}
	used := hosts[0]
	if b.killed != nil && b.killed.address == used {
		used = hosts[1]
	}
	got, err := fetcher.Piece(b.Context(), boxhost.PathImage+"disk", piece, func(so int64) {
		if so >= pieceBytes/4 {
			b.reach(inImage, used)
		}
	})
	if err != nil || !bytes.Equal(got, noise) {
		return fmt.Errorf("%d bytes of the image: %w", len(got), err)
	}
	b.reach(beforeJoin, used)
	// There is no cluster here: the host that is left says so, and that it was asked is what is tested.
	who := blade.JoinRequest{MAC: macBlade, UUID: "00000000-0000-0000-0000-000000000001"}
	_, err = blade.Join(b.Context(), client, hosts, patience, who)
	if !errors.Is(err, blade.ErrRefused) || !strings.Contains(err.Error(), "this box host lets nobody join the cluster") {
		return fmt.Errorf("nobody was asked to join: %w", err)
	}
	return nil
}
