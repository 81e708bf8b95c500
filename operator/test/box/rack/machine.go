package rack

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Machine is what a blade is made of that QEMU emulates: processors, memory, a disk, and a port. Its BMC is the one of its slot: that gives
// it power and takes it, says what it starts from, and has its serial port.
type Machine struct {
	// Dir has the disk, which outlives the rack, and logs of the console and of the emulator.
	Dir string
	// Tap is the network device of its first port, which is there already.
	Tap                   string
	Processors, MemoryMiB int
	DiskBytes             int64
	// IsDividable has the second port be Intel's igb, which has virtual functions (SR-IOV), behind an IOMMU.
	IsDividable bool
	// Emulator is the program and its first arguments, without which Debian's is used. That one knows no igb.
	Emulator []string
}

// Like a BIOS, a machine tries its disk first, then the network, unless its BMC says that this one start is from the network.
const (
	bootDiskFirst    = "order=cn"
	bootNetworkOnce  = "order=cn,once=n"
	toldPXE          = "pxe"
	qmpPatience      = 10 * time.Second
	eventsFile       = "events"
	eventOn          = "power 1"
	eventOff         = "power 0"
	eventReset       = "reset"
	consoleLog       = "console"
	defaultEmulator  = "qemu-system-x86_64"
	niceOfEmulators  = "10" // an emulated processor takes all that it gets of a real one
	pollOfMachine    = 50 * time.Millisecond
	commandPowerdown = "system_powerdown"
	commandReset     = "system_reset"
)

var errEmulator = errors.New("the emulator")

// machine is a Machine in its slot.
type machine struct {
	*Machine
	rack    *Rack
	chassis string
	slot    *Slot
	serial  *Serial
	// read is how much of the events is.
	read int

	mutex   sync.Mutex
	process *exec.Cmd
	ended   chan struct{}
}

// powerMachine makes the disk of a blade, if there is none, and does from then on what its BMC says.
func (r *Rack) powerMachine(ctx context.Context, chassis *Chassis, slot *Slot) error {
	m := &machine{Machine: slot.Machine, rack: r, chassis: chassis.Name, slot: slot, serial: r.Serial(chassis.Name, slot.Number)}
	if err := m.makeDisk(); err != nil {
		return err
	}
	if err := m.serial.lead(ctx, m.socket("serial")); err != nil {
		return err
	}
	r.machines[place{chassis.Name, slot.Number}] = m
	r.wait.Go(func() {
		defer m.cut()
		for m.step(ctx) {
			select {
			case <-ctx.Done():
				return
			case <-time.After(pollOfMachine):
			}
		}
	})
	return nil
}

func (m *machine) makeDisk() error {
	if err := os.MkdirAll(m.Dir, dirsAreFor); err != nil {
		return fmt.Errorf("make the folder of a blade: %w", err)
	}
	disk, err := os.OpenFile(m.disk(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, filesAreFor)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err == nil {
		err = errors.Join(disk.Truncate(m.DiskBytes), disk.Close())
	}
	if err != nil {
		return fmt.Errorf("make the disk of a blade: %w", err)
	}
	return nil
}

func (m *machine) disk() string              { return filepath.Join(m.Dir, "disk") }
func (m *machine) socket(name string) string { return filepath.Join(m.Dir, name+".socket") }

// step does what was asked of the machine since the last one; it is false when the rack cannot go on.
func (m *machine) step(ctx context.Context) bool {
	text, err := os.ReadFile(m.rack.file(m.chassis, m.slot.Number, eventsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.rack.fail(err)
		return false
	}
	for line := range strings.Lines(string(text[m.read:])) {
		if !strings.HasSuffix(line, "\n") {
			break
		}
		m.read += len(line)
		var err error
		switch strings.TrimSpace(line) {
		case eventOn:
			err = m.start()
		case eventOff:
			m.cut()
		case eventReset:
			err = m.tell(ctx, commandReset)
		}
		if err != nil {
			m.rack.fail(fmt.Errorf("slot %d of %s: %w", m.slot.Number, m.chassis, err))
		}
	}
	return true
}

// start gives it power.
func (m *machine) start() error {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.process != nil {
		return nil
	}
	log, err := os.OpenFile(filepath.Join(m.Dir, "emulator.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, filesAreFor)
	if err != nil {
		return fmt.Errorf("start the emulator: %w", err)
	}
	defer func() { _ = log.Close() }() // the process has its own
	arguments := append([]string{"-n", niceOfEmulators}, m.arguments(m.bootOrder())...)
	process := exec.CommandContext(m.rack.ctx, "nice", arguments...) //nolint:gosec // of tests
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := process.Start(); err != nil {
		return errors.Join(fmt.Errorf("start the emulator: %w", err), m.rack.setFiles(m.chassis, m.slot.Number, Off))
	}
	ended := make(chan struct{})
	m.process, m.ended = process, ended
	go func() {
		_ = process.Wait() // its system has shut down, or it was killed
		defer close(ended)
		m.mutex.Lock()
		defer m.mutex.Unlock()
		if m.process != process {
			return // its power was taken, or given again
		}
		m.process = nil
		if m.rack.ctx.Err() == nil {
			m.rack.fail(m.rack.setFiles(m.chassis, m.slot.Number, Off))
		}
	}()
	return nil
}

// bootOrder is what its BMC says of this start, which is forgotten then.
func (m *machine) bootOrder() string {
	told, err := m.rack.Told(m.chassis, m.slot.Number, "boot")
	if err != nil || told != toldPXE {
		return bootDiskFirst
	}
	if err := os.Remove(m.rack.file(m.chassis, m.slot.Number, "boot")); err != nil {
		m.rack.fail(err)
	}
	return bootNetworkOnce
}

func (m *machine) arguments(boot string) []string {
	emulator := m.Emulator
	if len(emulator) == 0 {
		emulator = []string{defaultEmulator}
	}
	arguments := append(slices.Clone(emulator), "-name", fmt.Sprintf("%s-%d", m.chassis, m.slot.Number),
		// No KVM, also where there is one: this is about function, and shall be the same everywhere.
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", strconv.Itoa(m.Processors), "-m", strconv.Itoa(m.MemoryMiB),
		"-display", "none", "-nodefaults", "-uuid", m.slot.Blade.UUID(),
		"-netdev", "tap,id=port,script=no,downscript=no,ifname="+m.Tap,
		"-device", "virtio-net-pci,netdev=port,mac="+m.slot.Blade.MACs[0],
		"-drive", "file="+m.disk()+",if=none,id=disk,format=raw,cache=unsafe", "-device", "virtio-blk-pci,drive=disk",
		"-chardev", "socket,id=console,path="+m.socket("serial")+",logfile="+filepath.Join(m.Dir, consoleLog)+",logappend=on",
		"-serial", "chardev:console", "-qmp", "unix:"+m.socket("qmp")+",server=on,wait=off", "-boot", boot)
	machine, driver, bus := "pc,graphics=off", "virtio-net-pci", ""
	if m.IsDividable {
		machine, driver, bus = "q35,graphics=off,kernel-irqchip=split", "igb", ",bus=dividable"
		arguments = append(arguments, "-device", "intel-iommu,intremap=on", "-device", "pcie-root-port,id=dividable,chassis=1,slot=1")
	}
	arguments = append(arguments, "-machine", machine)
	for i, mac := range m.slot.Blade.MACs[1:] { // ports that no cable is plugged into; nothing is booted from them
		arguments = append(arguments, "-netdev", fmt.Sprintf("hubport,id=other%d,hubid=%d", i, i),
			"-device", fmt.Sprintf("%s,netdev=other%d,mac=%s,romfile=%s", driver, i, mac, bus))
		driver, bus = "virtio-net-pci", ""
	}
	return arguments
}

// cut takes its power.
func (m *machine) cut() {
	m.mutex.Lock()
	process, ended := m.process, m.ended
	m.process = nil
	m.mutex.Unlock()
	if process != nil {
		_ = process.Process.Kill() // it may have ended
		<-ended
	}
}

// tell gives the emulator a command, if it runs.
func (m *machine) tell(ctx context.Context, command string) error {
	m.mutex.Lock()
	isOn := m.process != nil
	m.mutex.Unlock()
	if !isOn {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, qmpPatience)
	defer cancel()
	connection, err := new(net.Dialer).DialContext(ctx, "unix", m.socket("qmp"))
	for err != nil && ctx.Err() == nil { // one that has just been started does not listen yet
		<-time.After(pollOfMachine)
		connection, err = new(net.Dialer).DialContext(ctx, "unix", m.socket("qmp"))
	}
	if err != nil {
		return fmt.Errorf("tell the emulator %s: %w", command, err)
	}
	defer func() { _ = connection.Close() }() // all was said
	if err := connection.SetDeadline(time.Now().Add(qmpPatience)); err != nil {
		return fmt.Errorf("tell the emulator %s: %w", command, err)
	}
	answers := bufio.NewScanner(connection)
	for _, execute := range []string{"qmp_capabilities", command} {
		if _, err := fmt.Fprintf(connection, "{\"execute\": %q}\n", execute); err != nil {
			return fmt.Errorf("tell the emulator %s: %w", command, err)
		}
		if err := answered(answers); err != nil {
			return fmt.Errorf("tell the emulator %s: %w", command, err)
		}
	}
	return nil
}

// answered reads to the answer of a command, past the greeting and events.
func answered(answers *bufio.Scanner) error {
	for answers.Scan() {
		var answer struct {
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(answers.Bytes(), &answer); err != nil {
			return fmt.Errorf("%w answers %q: %w", errEmulator, answers.Text(), err)
		}
		if answer.Error != nil {
			return fmt.Errorf("%w says: %s", errEmulator, answer.Error.Desc)
		}
		if answer.Return != nil {
			return nil
		}
	}
	return fmt.Errorf("%w has ended: %w", errEmulator, errors.Join(answers.Err(), net.ErrClosed))
}
