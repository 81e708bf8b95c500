package rack

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
)

// place is a slot of a chassis.
type place struct {
	chassis string
	slot    int
}

// Serial is a stand-in for the serial port of a blade, and for what runs there: it shows what is typed, and at the end of a line that it
// has got that line. Its BMC, which gives the console to others, is the real ipmi_sim.
//
// Of a machine that is emulated, it is only the wire between the machine and its BMC.
type Serial struct {
	listener net.Listener
	// machines is where the emulator of a machine connects to; nil: a stand-in.
	machines net.Listener

	mutex      sync.Mutex
	machine    net.Conn
	connection net.Conn
	line       strings.Builder
	typed      strings.Builder
}

// Serial is the port of a blade.
func (r *Rack) Serial(chassis string, slot int) *Serial { return r.ports[place{chassis, slot}] }

// openSerial makes the ports of a chassis. They are there before the BMCs, which connect to them.
func (r *Rack) openSerial(chassis *Chassis) error {
	if r.ports == nil {
		r.ports = map[place]*Serial{}
	}
	for i := range chassis.Slots {
		listener, err := new(net.ListenConfig).Listen(r.ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("make the serial port of slot %d of %s: %w", chassis.Slots[i].Number, chassis.Name, err)
		}
		port := &Serial{listener: listener}
		r.ports[place{chassis.Name, chassis.Slots[i].Number}] = port
		r.wait.Go(port.serve)
	}
	return nil
}

func (r *Rack) closeSerial() {
	for _, port := range r.ports {
		port.close()
	}
}

func (s *Serial) address() string { return s.listener.Addr().String() }

func (s *Serial) serve() {
	for {
		connection, err := s.listener.Accept()
		if err != nil {
			return // it was closed
		}
		s.mutex.Lock()
		s.connection = connection
		s.mutex.Unlock()
		s.read(connection)
	}
}

func (s *Serial) read(connection net.Conn) {
	const atOnce = 256
	buffer := make([]byte, atOnce)
	for {
		n, err := connection.Read(buffer)
		for _, key := range buffer[:n] {
			s.key(key)
		}
		if err != nil {
			return
		}
	}
}

// lead has the wire end at a machine, whose emulator connects to a socket at each start.
func (s *Serial) lead(ctx context.Context, path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) { // of an earlier rack
		return fmt.Errorf("lead a serial port to a machine: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("lead a serial port to a machine: %w", err)
	}
	s.machines = listener
	go func() {
		for {
			machine, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			s.mutex.Lock()
			s.machine = machine
			s.mutex.Unlock()
			s.carry(machine)
		}
	}()
	return nil
}

// carry brings what a machine prints to its BMC, until the machine has no power any more.
func (s *Serial) carry(machine net.Conn) {
	const atOnce = 4096
	buffer := make([]byte, atOnce)
	for {
		n, err := machine.Read(buffer)
		s.mutex.Lock()
		s.print(string(buffer[:n]))
		if err != nil {
			s.machine = nil
		}
		s.mutex.Unlock()
		if err != nil {
			_ = machine.Close() // its other end is gone
			return
		}
	}
}

// key takes one that was typed.
func (s *Serial) key(key byte) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.typed.WriteByte(key)
	if s.machines != nil {
		if s.machine != nil {
			_, _ = s.machine.Write([]byte{key}) // a machine that has no power reads nothing
		}
		return
	}
	if key != '\r' {
		s.line.WriteByte(key)
		s.print(string(key))
		return
	}
	s.print(fmt.Sprintf("\r\ngot %q\r\n# ", s.line.String()))
	s.line.Reset()
}

// Print is what the blade prints by itself.
func (s *Serial) Print(text string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.print(text)
}

func (s *Serial) print(text string) {
	if s.connection != nil {
		_, _ = s.connection.Write([]byte(text)) // a port has no other end until its BMC runs
	}
}

// Typed is all that was typed.
func (s *Serial) Typed() string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.typed.String()
}

func (s *Serial) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	_ = s.listener.Close()
	if s.machines != nil {
		_ = s.machines.Close()
	}
	if s.machine != nil {
		_ = s.machine.Close()
	}
	if s.connection != nil {
		_ = s.connection.Close()
	}
}
