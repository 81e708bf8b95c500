// Package rack emulates chassis: one process of OpenIPMI's ipmi_sim is a chassis whose management controllers speak real IPMI. Blades are
// stand-ins: files that say whether they are on, and what they draw; or machines that QEMU emulates. It makes no network: its addresses
// must be there.
package rack

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options describe a rack.
type Options struct {
	// Dir is an empty folder for what it needs.
	Dir string
	// Username and Password are those of all controllers.
	Username, Password string
	// ShutdownTime is what the operating system of a blade takes to shut down.
	ShutdownTime time.Duration
	Chassis      []Chassis
}

// Chassis is one of them.
type Chassis struct {
	Name  string
	Slots []Slot
	// Managers are the addresses of the chassis managers; the first is in charge.
	Managers []netip.Addr
	// SwitchBoards are the addresses of the controllers of switch boards.
	SwitchBoards []netip.Addr
}

// Slot is a blade in its slot.
type Slot struct {
	Number  int
	Address netip.Addr
	Blade   Blade
	// Machine is the blade itself; nil: it is a stand-in, a file that says whether it is on.
	Machine *Machine
}

// Blade is what a controller says of its machine.
type Blade struct {
	Serial string
	// GUID is the system's, as 32 hexadecimal digits.
	GUID string
	MACs []string
}

// UUID is that of the blade's firmware, as its own system sees it: the first three parts of a GUID of IPMI begin with their last byte.
func (b Blade) UUID() string {
	raw, err := hex.DecodeString(b.GUID)
	if err != nil || len(raw) != sizeGUID {
		return b.GUID // QEMU refuses it, and says so
	}
	slices.Reverse(raw[0:4])
	slices.Reverse(raw[4:6])
	slices.Reverse(raw[6:8])
	return fmt.Sprintf("%x-%x-%x-%x-%x", raw[0:4], raw[4:6], raw[6:8], raw[8:10], raw[10:])
}

// Ipmi_sim gives an MC of a chassis an address of one byte, even, and has room for these.
const (
	managerMC   = 0x20
	firstBoard  = 0x30
	firstBlade  = 0x42
	stepOfMC    = 2
	maxSlots    = 46
	pollOfRack  = 20 * time.Millisecond
	filesAreFor = 0o600
	dirsAreFor  = 0o700
	sizeGUID    = 16
)

// Rack is an emulated rack that runs.
type Rack struct {
	options Options
	// processes by the name of their chassis.
	processes map[string]*exec.Cmd
	ctx       context.Context //nolint:containedctx // it ends with the rack
	stop      context.CancelFunc
	wait      sync.WaitGroup

	// ports are the serial ports of blades.
	ports map[place]*Serial
	// machines are blades that are emulated.
	machines map[place]*machine

	mutex sync.Mutex
	err   error
}

// Start writes the configuration of each chassis and starts its process.
func Start(ctx context.Context, options Options) (*Rack, error) {
	ctx, stop := context.WithCancel(ctx)
	rack := &Rack{options: options, processes: map[string]*exec.Cmd{}, machines: map[place]*machine{}, ctx: ctx, stop: stop}
	for i := range options.Chassis {
		if err := rack.start(ctx, &options.Chassis[i]); err != nil {
			return nil, errors.Join(err, rack.Stop())
		}
	}
	return rack, nil
}

func (r *Rack) start(ctx context.Context, chassis *Chassis) error {
	if len(chassis.Slots) == 0 || len(chassis.Slots) > maxSlots {
		return fmt.Errorf("chassis %s has %d slots, not 1 to %d", chassis.Name, len(chassis.Slots), maxSlots)
	}
	if err := r.write(chassis); err != nil {
		return err
	}
	if err := r.boot(chassis); err != nil {
		return err
	}
	for i := range chassis.Slots {
		if chassis.Slots[i].Machine == nil {
			continue
		}
		if err := r.powerMachine(ctx, chassis, &chassis.Slots[i]); err != nil {
			return err
		}
	}
	r.wait.Go(func() {
		r.live(ctx, chassis)
	})
	return nil
}

// boot starts the controllers of a chassis.
func (r *Rack) boot(chassis *Chassis) error {
	dir := r.dir(chassis)
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, filesAreFor) //nolint:gosec // of this package
	if err != nil {
		return fmt.Errorf("start chassis %s: %w", chassis.Name, err)
	}
	//nolint:gosec // of this package
	process := exec.CommandContext(r.ctx, "ipmi_sim", "-c", filepath.Join(dir, "lan.conf"), "-f", filepath.Join(dir, "commands"), "-s",
		filepath.Join(dir, "state"), "-n")
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return errors.Join(fmt.Errorf("start chassis %s: %w", chassis.Name, err), log.Close())
	}
	r.processes[chassis.Name] = process
	if err := log.Close(); err != nil {
		return fmt.Errorf("start chassis %s: %w", chassis.Name, err)
	}
	return nil
}

// Reboot restarts all controllers of a chassis: they forget their sessions, and tell nobody. Blades stay as they are.
func (r *Rack) Reboot(name string) error {
	chassis, process := r.chassis(name), r.processes[name]
	if chassis == nil || process == nil {
		return fmt.Errorf("there is no chassis %s", name)
	}
	if err := process.Process.Kill(); err != nil {
		return fmt.Errorf("restart the controllers of chassis %s: %w", name, err)
	}
	_ = process.Wait() // it was killed
	return r.boot(chassis)
}

func (r *Rack) chassis(name string) *Chassis {
	for i := range r.options.Chassis {
		if r.options.Chassis[i].Name == name {
			return &r.options.Chassis[i]
		}
	}
	return nil
}

// Stop ends everything, and says what went wrong meanwhile.
func (r *Rack) Stop() error {
	r.stop()
	r.closeSerial()
	for _, process := range r.processes {
		_ = process.Wait() // it was killed
	}
	r.wait.Wait()
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return r.err
}

// live does what operating systems of blades do: those that are told to shut down do so, and take their time.
func (r *Rack) live(ctx context.Context, chassis *Chassis) {
	requests := filepath.Join(r.dir(chassis), "requests")
	ends := map[int]time.Time{}
	read := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pollOfRack):
		}
		text, err := os.ReadFile(requests) //nolint:gosec // of this package
		if err != nil {
			r.fail(err)
			return
		}
		for line := range strings.Lines(string(text[read:])) {
			if !strings.HasSuffix(line, "\n") {
				break
			}
			read += len(line)
			slot, err := strconv.Atoi(strings.TrimSpace(line))
			if machine := r.machines[place{chassis.Name, slot}]; err == nil && machine != nil {
				r.wait.Go(func() {
					if err := machine.tell(ctx, commandPowerdown); err != nil && ctx.Err() == nil {
						r.fail(err)
					}
				})
			} else if err == nil {
				ends[slot] = time.Now().Add(r.options.ShutdownTime)
			}
		}
		for slot, at := range ends {
			if time.Now().Before(at) {
				continue
			}
			delete(ends, slot)
			if err := r.Set(chassis.Name, slot, Off); err != nil {
				r.fail(err)
			}
		}
	}
}

func (r *Rack) fail(err error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.err = errors.Join(r.err, err)
}

func (r *Rack) dir(chassis *Chassis) string { return filepath.Join(r.options.Dir, chassis.Name) }

func (r *Rack) file(chassis string, slot int, name string) string {
	return filepath.Join(r.options.Dir, chassis, "slots", strconv.Itoa(slot), name)
}

// Power is whether a blade is on in truth, whatever its controller says.
type Power string

// States of blades.
const (
	Off Power = "0"
	On  Power = "1"
)

// What slots draw, in watts.
const (
	wattsNone = "0"
	wattsOff  = "2" // its controller's
	wattsOn   = "22"
)

// Set switches a blade, as if by its button.
func (r *Rack) Set(chassis string, slot int, power Power) error {
	return errors.Join(r.setFiles(chassis, slot, power), r.note(chassis, slot, "power "+string(power)))
}

// note has a machine do something.
func (r *Rack) note(chassis string, slot int, event string) error {
	events, err := os.OpenFile(r.file(chassis, slot, eventsFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, filesAreFor)
	if err == nil {
		_, err = fmt.Fprintln(events, event)
		err = errors.Join(err, events.Close())
	}
	if err != nil {
		return fmt.Errorf("switch the blade in slot %d of %s: %w", slot, chassis, err)
	}
	return nil
}

// setFiles says whether a blade is on.
func (r *Rack) setFiles(chassis string, slot int, power Power) error {
	watts := wattsOff
	if power == On {
		watts = wattsOn
	}
	return errors.Join(
		replace(r.file(chassis, slot, "power"), string(power)),
		replace(r.file(chassis, slot, "watts"), watts))
}

// Get tells whether a blade is on.
func (r *Rack) Get(chassis string, slot int) (Power, error) {
	text, err := os.ReadFile(r.file(chassis, slot, "power"))
	return Power(strings.TrimSpace(string(text))), err
}

// Told is what the controller of a blade was told last about boot, or identify.
func (r *Rack) Told(chassis string, slot int, what string) (string, error) {
	text, err := os.ReadFile(r.file(chassis, slot, what))
	return strings.TrimSpace(string(text)), err
}

// Lie has a controller say what it is told about its blade, and do nothing that it is asked to; an empty word ends that.
func (r *Rack) Lie(chassis string, slot int, power Power) error {
	path := r.file(chassis, slot, "lie")
	if power != "" {
		return replace(path, string(power))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("let the controller of slot %d of %s tell the truth: %w", slot, chassis, err)
	}
	return nil
}

// Keep has a controller say yes to all that it is asked to do with its blade, and do nothing.
func (r *Rack) Keep(chassis string, slot int, isSo bool) error {
	return r.mark(chassis, slot, "keep", isSo)
}

// Refuse has a controller refuse all that it is asked to do with its blade.
func (r *Rack) Refuse(chassis string, slot int, isSo bool) error {
	return r.mark(chassis, slot, "refuse", isSo)
}

func (r *Rack) mark(chassis string, slot int, name string, isSo bool) error {
	path := r.file(chassis, slot, name)
	if isSo {
		return replace(path, "1")
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("end fault %s of slot %d of %s: %w", name, slot, chassis, err)
	}
	return nil
}

// InCharge has the nth manager of a chassis be in charge, counted from 1. The others are not.
func (r *Rack) InCharge(name string, n int) error {
	chassis := r.chassis(name)
	if chassis == nil {
		return fmt.Errorf("there is no chassis %s", name)
	}
	var errs []error
	for i := range chassis.Managers {
		value := "0"
		if i+1 == n {
			value = "1"
		}
		errs = append(errs, replace(r.charge(chassis, i), value))
	}
	return errors.Join(errs...)
}

func (r *Rack) charge(chassis *Chassis, manager int) string {
	return filepath.Join(r.dir(chassis), fmt.Sprintf("charge-%d", manager+1))
}

// Insert puts another blade into a slot. It has the address of the slot, and is off.
func (r *Rack) Insert(name string, slot int, blade Blade) error {
	path := r.file(name, slot, "fru")
	if err := os.WriteFile(path, fru(&Slot{Number: slot, Blade: blade}), filesAreFor); err != nil {
		return fmt.Errorf("put a blade into slot %d of %s: %w", slot, name, err)
	}
	return r.Set(name, slot, Off)
}

// Pull takes the blade out of a slot as far as the chassis manager sees it: the slot draws nothing. That the blade's controller does not
// answer any more is for the network to do.
func (r *Rack) Pull(name string, slot int) error {
	return errors.Join(r.Set(name, slot, Off), replace(r.file(name, slot, "watts"), wattsNone))
}

// Part is a power supply or a fan of a chassis.
type Part string

// Kinds of parts, by what their sensors are called.
const (
	PowerSupply Part = "PSU"
	Fan         Part = "Fan"
)

// Break has the nth of some parts of a chassis fail, counted from 1, or work again.
func (r *Rack) Break(name string, part Part, n int, isBroken bool) error {
	chassis := r.chassis(name)
	if chassis == nil {
		return fmt.Errorf("there is no chassis %s", name)
	}
	value := working[part]
	if isBroken {
		value = "0"
	}
	return replace(r.part(chassis, part, n), value)
}

func (r *Rack) part(chassis *Chassis, part Part, n int) string {
	return filepath.Join(r.dir(chassis), fmt.Sprintf("%s-%d", part, n))
}

// replace writes a file in one step: ipmi_sim reads it at any time.
func replace(path, text string) error {
	err := os.WriteFile(path+".new", []byte(text+"\n"), filesAreFor)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		return fmt.Errorf("write a blade's state: %w", err)
	}
	return nil
}
