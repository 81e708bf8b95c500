package hosts

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Messages of DHCP (RFC 2131) that a stranger may send besides DISCOVER, and their option.
const (
	optionMessage, optionEnd      = 53, 255
	request, decline, inform      = 3, 4, 8
	nak, release                  = 6, 7
	optionRequested, optionServer = 50, 54
)

// strangersMessages are what a machine sends that had an address elsewhere, has one by hand, or follows a server that was not asked.
func strangersMessages(mac string) [][]byte {
	address, server := []byte{192, 168, 3, 1}, []byte{192, 168, 3, 253}
	reboot := append([]byte{optionRequested, 4}, address...)
	return [][]byte{
		dhcp(mac, request, nil, reboot),
		dhcp(mac, request, nil, append([]byte{optionRequested, 4, 10, 9, 9, 9}, append([]byte{optionServer, 4}, server...)...)),
		dhcp(mac, request, address, nil), // renews
		dhcp(mac, inform, address, nil),
		dhcp(mac, decline, nil, append(append([]byte{}, reboot...), append([]byte{optionServer, 4}, server...)...)),
		dhcp(mac, release, address, append([]byte{optionServer, 4}, server...)),
		dhcp(mac, 0, nil, nil), // BOOTP
	}
}

// dhcp is a message, with headers of IP and UDP.
func dhcp(mac string, kind byte, own, options []byte) []byte {
	hardware, _ := net.ParseMAC(mac)
	message := make([]byte, 236, 400)
	message[0], message[1], message[2] = 1, 1, 6
	binary.BigEndian.PutUint32(message[4:], 0x72636200+uint32(kind))
	message[10] = 0x80 // the answer is to be a broadcast
	copy(message[12:], own)
	copy(message[28:], hardware)
	message = append(message, 99, 130, 83, 99)
	if kind > 0 {
		message = append(message, optionMessage, 1, kind)
	}
	message = append(append(message, options...), optionEnd)
	message = append(message, make([]byte, max(0, 300-len(message)))...)
	source := net.IPv4zero.To4()
	if own != nil {
		source = own
	}
	return datagram(source, net.IPv4bcast.To4(), 68, 67, message)
}

func datagram(source, destination net.IP, from, to uint16, payload []byte) []byte {
	packet := make([]byte, 28, 28+len(payload))
	packet[0], packet[8], packet[9] = 0x45, 64, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(packet[2:], uint16(28+len(payload)))
	copy(packet[12:], source)
	copy(packet[16:], destination)
	sum := uint32(0)
	for at := 0; at < 20; at += 2 {
		sum += uint32(binary.BigEndian.Uint16(packet[at:]))
	}
	binary.BigEndian.PutUint16(packet[10:], ^uint16(sum>>16+sum&0xffff))
	binary.BigEndian.PutUint16(packet[20:], from)
	binary.BigEndian.PutUint16(packet[22:], to)
	binary.BigEndian.PutUint16(packet[24:], uint16(8+len(payload))) // without a checksum, which IPv4 lets
	return append(packet, payload...)
}

// packets is a socket of packets at the blade's port.
func (l *lab) packets() (socket, index int) {
	l.Helper()
	var failed error
	l.blade.within(func() {
		device, err := net.InterfaceByName("eth1")
		if err != nil {
			failed = err
			return
		}
		index = device.Index
		socket, failed = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_IP)))
	})
	if failed != nil {
		l.Fatal(failed)
	}
	return socket, index
}

func htons(of uint16) uint16 { return of<<8 | of>>8 }

// send sends a packet to everybody at the switch.
func (l *lab) send(packet []byte) {
	l.Helper()
	socket, index := l.packets()
	defer unix.Close(socket)
	to := &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_IP), Ifindex: index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}}
	if err := unix.Sendto(socket, packet, 0, to); err != nil {
		l.Fatal(err)
	}
}

// listenForDHCP captures what comes to the blade's port from DHCP servers, and gives what is addressed to a MAC.
func (l *lab) listenForDHCP() func(mac string) [][]byte {
	l.Helper()
	socket, _ := l.packets()
	file := os.NewFile(uintptr(socket), "packets")
	var mutex sync.Mutex
	heard := map[string][][]byte{}
	go func() {
		for {
			packet := make([]byte, 2048)
			size, err := file.Read(packet)
			if err != nil && os.IsTimeout(err) || size == 0 {
				return
			}
			if errors.Is(err, unix.ENETDOWN) {
				continue // the port is set down and up
			}
			if err != nil {
				return
			}
			packet = packet[:size]
			if size < 28+236 || packet[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(packet[20:]) != 67 || packet[28] != 2 {
				continue
			}
			mac := net.HardwareAddr(packet[56:62]).String()
			mutex.Lock()
			heard[mac] = append(heard[mac], packet)
			mutex.Unlock()
		}
	}()
	l.Cleanup(func() { _ = file.SetReadDeadline(time.Now()) })
	return func(mac string) [][]byte {
		mutex.Lock()
		defer mutex.Unlock()
		return heard[mac]
	}
}
