package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"rcbox.dev/rcbox/faults/contain"
)

// ordinaryMiB is what DPDK may have for packets in ordinary pages of a master's container, and portsMiB the least with that.
const ordinaryMiB, portsMiB = 256, masterMiB + ordinaryMiB

// forger is a host on a rail that sends frames in the names of others, and looks for frames that come to it for them.
type forger struct {
	t       *testing.T
	socket  int
	station net.HardwareAddr
	// stolen counts the frames.
	stolen atomic.Int64
}

func (r rail) stationOf(host string) net.HardwareAddr {
	r.t.Helper()
	var found *net.Interface
	err := inNamespace(r.host(host).namespace, func() (err error) {
		found, err = net.InterfaceByName(fmt.Sprintf("port%d", r.number))
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return found.HardwareAddr
}

// addressOf is the address of a host's port.
func (r rail) addressOf(host string) netip.Addr {
	_, last, _ := strings.Cut(r.host(host).address, "10.77.0.")
	return netip.MustParseAddr(fmt.Sprintf("10.78.%d.%s", r.number, last))
}

// newForger is a host that has a port on a rail without DPDK. It takes frames off the cable until the test ends.
func newForger(r rail, name string) *forger {
	r.t.Helper()
	const allProtocols = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8
	r.attach(name)
	f := &forger{t: r.t, station: r.stationOf(name)}
	err := inNamespace(r.host(name).namespace, func() error {
		port, err := net.InterfaceByName(fmt.Sprintf("port%d", r.number))
		if err != nil {
			return err
		}
		if f.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, allProtocols); err != nil {
			return err
		}
		wait := unix.NsecToTimeval(repeatAfter.Nanoseconds())
		if err := unix.SetsockoptTimeval(f.socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait); err != nil {
			return err
		}
		return unix.Bind(f.socket, &unix.SockaddrLinklayer{Protocol: allProtocols, Ifindex: port.Index})
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(r.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() { f.look(ctx) })
	r.t.Cleanup(func() {
		stop()
		reading.Wait()
		_ = unix.Close(f.socket)
	})
	return f
}

// look counts datagrams that are sent to the forger's station: nobody has a reason to.
func (f *forger) look(ctx context.Context) {
	frame := make([]byte, 1<<16)
	for ctx.Err() == nil {
		length, err := unix.Read(f.socket, frame)
		if err != nil || length < 34 || string(frame[:6]) != string(f.station) {
			continue
		}
		if string(frame[12:14]) == "\x08\x00" && frame[23] == unix.IPPROTO_UDP {
			f.stolen.Add(1)
		}
	}
}

// forge says to `to` on a rail, in four ways, that the address of `of` is at the forger's station.
func (f *forger) forge(r rail, to, of string) {
	f.t.Helper()
	station, us, them := r.stationOf(to), r.addressOf(to).AsSlice(), r.addressOf(of).AsSlice()
	ethernet := func(kind uint16) []byte {
		return binary.BigEndian.AppendUint16(append(append([]byte{}, station...), f.station...), kind)
	}
	for _, port := range []uint16{fastPort, peerPort} {
		// A datagram in another one's name. Its checksum is left out, as it may be.
		payload := packetOfNobody()
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(payload)))
		ip = append(append(ip, them...), us...)
		binary.BigEndian.PutUint16(ip[10:], internetSum(ip))
		udp := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, port), port)
		udp = append(binary.BigEndian.AppendUint16(udp, uint16(8+len(payload))), 0, 0)
		f.put(append(append(append(ethernet(0x0800), ip...), udp...), payload...))
	}
	for _, operation := range []byte{1, 2} {
		// ARP: a question in that name, and an answer that nobody asked for.
		arp := append(ethernet(0x0806), 0, 1, 8, 0, 6, 4, 0, operation)
		arp = append(append(arp, f.station...), them...)
		arp = append(append(arp, station...), us...)
		f.put(arp)
	}
}

func packetOfNobody() []byte { return datagram{kind: packetReset}.bytes() }

func internetSum(header []byte) uint16 {
	sum := uint32(0)
	for at := 0; at < len(header); at += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[at:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func (f *forger) put(frame []byte) {
	f.t.Helper()
	// A full queue takes the next one.
	if _, err := unix.Write(f.socket, frame); err != nil && err != unix.ENOBUFS {
		f.t.Error(err)
	}
}

// TestForgedNeighbours: somebody on both rails says again and again, to each server, that the others' addresses are at his station. No
// frame of the store comes to him, copies go on by the ports, and no process reaches the end of its memory.
func TestForgedNeighbours(t *testing.T) {
	n := newNetwork(t)
	containers := map[string]*contain.Group{"coordinator": contain.New(t, "coordinator", coordinatorMiB<<20)}
	for _, member := range []string{"m0", "m1", "m2"} {
		containers[member] = contain.New(t, member, portsMiB<<20)
	}
	s, rails := portsOn(n, 3, containers, "-t", storeMiB(t, portsMiB, 2, ordinaryMiB))
	for member := range s.servers {
		s.waitByPorts(member)
	}
	clients := record(t, s.locator, n.at("clients", usual))
	forgers := []*forger{newForger(rails[0], "evil0"), newForger(rails[1], "evil1")}
	ctx, stop := context.WithCancel(t.Context())
	var forging sync.WaitGroup
	for i, f := range forgers {
		forging.Go(func() {
			for ctx.Err() == nil {
				for _, pair := range [][2]string{{"m0", "m1"}, {"m0", "m2"}, {"m1", "m0"}, {"m1", "m2"}, {"m2", "m0"}, {"m2", "m1"}} {
					f.forge(rails[i], pair[0], pair[1])
				}
				select {
				case <-ctx.Done():
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	clients.waitProgress(usual.keys, 50)
	for member := range s.servers {
		s.waitByPorts(member)
	}
	stop()
	forging.Wait()
	for i, f := range forgers {
		if stolen := f.stolen.Load(); stolen > 0 {
			t.Errorf("%d datagrams on rail %d came to whoever said that he has their addresses", stolen, i)
		}
	}
	if s.coordinator.logged("is dead") != "" {
		t.Error("somebody was declared dead")
	}
	s.survive()
	judge(t, usual.keys, clients)
}
