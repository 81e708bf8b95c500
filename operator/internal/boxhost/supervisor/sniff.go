package supervisor

import (
	"context"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// sniff calls seen for each packet at an interface that asks for an address, until the context ends. dnsmasq does not say in a form that is
// made for programs whom it has ignored, so this looks at the wire.
func sniff(ctx context.Context, name string, seen func(mac string)) error {
	device, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("find interface %s: %w", name, err)
	}
	const protocol = unix.ETH_P_IP<<8 | unix.ETH_P_IP>>8&0xff // in the order of the network
	socket, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open a packet socket (it takes the capability NET_RAW): %w", err)
	}
	file := os.NewFile(uintptr(socket), "packets of "+name)
	defer func() { _ = file.Close() }()
	if err := filterRequests(socket); err != nil {
		return err
	}
	// Bound only now, so that nothing comes in that the filter has not seen.
	if err := unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: protocol & 0xffff, Ifindex: device.Index}); err != nil {
		return fmt.Errorf("listen at interface %s: %w", name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = file.Close() })
	defer stop()
	packet := make([]byte, 2048)
	for {
		size, err := file.Read(packet)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("read packets of interface %s: %w", name, err)
		}
		if mac, isOne := askerOf(packet[:size]); isOne {
			seen(mac)
		}
	}
}

// filterRequests has the kernel drop whatever is no whole UDP datagram to the port of DHCP servers.
func filterRequests(socket int) error {
	const accepted = 2048
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: offsetProtocol, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: protocolUDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4}, // a later fragment
		bpf.LoadMemShift{Off: 0},
		bpf.LoadIndirect{Off: offsetDestination, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: boxhost.PortDHCP, SkipTrue: 1},
		bpf.RetConstant{Val: accepted},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return fmt.Errorf("make a filter of packets: %w", err)
	}
	instructions := make([]unix.SockFilter, len(program))
	for i, of := range program {
		instructions[i] = unix.SockFilter{Code: of.Op, Jt: of.Jt, Jf: of.Jf, K: of.K}
	}
	err = unix.SetsockoptSockFprog(socket, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(instructions)), Filter: &instructions[0], //nolint:gosec // nine
	})
	if err != nil {
		return fmt.Errorf("filter packets: %w", err)
	}
	return nil
}
