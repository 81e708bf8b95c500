// Emulate runs the three chassis of config/samples/chassis.yaml, emulated by ipmi_sim, until it is told to end. The addresses of their BMCs
// must be this machine's, or this network namespace's: hack/rack.sh sees to that. Blades are stand-ins, but for those of --machines, which
// QEMU emulates.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/test/box/rack"
)

// The rack of the sample.
const (
	chassisOfRack = 3
	slots         = 44
	// perChassis are the addresses of a chassis' own controllers: two managers, and two of switch boards, which are not emulated.
	perChassis   = 4
	firstManager = 201
	shutdownTime = 10 * time.Second
	gibi         = 1 << 30
)

// options are what the command line says.
type options struct {
	dir, username, passwordFile string
	// machines are how many blades of each chassis are machines, from the first slot on.
	machines []int
	machine  rack.Machine
	diskGiB  int64
	// dividable are the numbers of servers with virtual functions, and emulator is their emulator.
	dividable []int
	emulator  []string
}

func main() {
	var o options
	command := &cobra.Command{
		Use:          "emulate",
		Short:        "Run three emulated chassis until told to end",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), command.OutOrStdout(), &o)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.dir, "dir", "", "an empty folder for the state of the rack")
	flags.StringVar(&o.username, "user", "admin", "user name at the BMCs")
	flags.StringVar(&o.passwordFile, "password-file", "", "file with the password of the BMCs")
	flags.IntSliceVar(&o.machines, "machines", nil, "how many blades of each chassis are emulated by QEMU, from its first slot on: 2,1")
	flags.StringVar(&o.machine.Tap, "tap-prefix", "blade",
		"network devices of such blades, which are there already: this, and a server's number")
	flags.StringVar(&o.machine.Dir, "disks", "", "folder of disks of such blades, which outlive this program, and of what they print")
	flags.IntVar(&o.machine.Processors, "processors", 2, "processors of such a blade")
	flags.IntVar(&o.machine.MemoryMiB, "memory-mib", 2048, "memory of such a blade")
	flags.Int64Var(&o.diskGiB, "disk-gib", 20, "disk of such a blade; only what is written takes room")
	flags.IntSliceVar(&o.dividable, "virtual-functions", nil,
		"numbers of servers of which the second port is Intel's igb, with virtual functions")
	flags.StringArrayVar(&o.emulator, "emulator", nil,
		"the emulator of those: a program, and in further --emulator its first arguments; default: QEMU of this machine")
	for _, name := range []string{"dir", "password-file"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command.ExecuteContext(ctx)
	stop()
	if err != nil {
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o *options) error {
	if len(o.machines) > 0 && o.machine.Dir == "" {
		return errors.New("--machines needs --disks")
	}
	password, err := os.ReadFile(o.passwordFile)
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	emulated, err := rack.Start(ctx, rack.Options{
		Dir: o.dir, Username: o.username, Password: string(bytes.TrimRight(password, "\r\n")), ShutdownTime: shutdownTime,
		Chassis: o.describe(),
	})
	if err != nil {
		return fmt.Errorf("start the rack: %w", err)
	}
	if _, err := fmt.Fprintf(out, "%d chassis of %d blades are there\n", chassisOfRack, slots); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	<-ctx.Done()
	if err := emulated.Stop(); err != nil {
		return fmt.Errorf("stop the rack: %w", err)
	}
	return nil
}

// describe gives the chassis their names and addresses.
func (o *options) describe() []rack.Chassis {
	all := make([]rack.Chassis, chassisOfRack)
	for i := range all {
		all[i].Name = fmt.Sprintf("mercury%d", i+1)
		for n := range 2 {
			all[i].Managers = append(all[i].Managers, address(firstManager+i*perChassis+n))
			all[i].SwitchBoards = append(all[i].SwitchBoards, address(firstManager+i*perChassis+2+n))
		}
		for slot := 1; slot <= slots; slot++ {
			number := i*slots + slot
			described := rack.Slot{Number: slot, Address: address(number), Blade: rack.Blade{
				Serial: fmt.Sprintf("MMS%04d", number), GUID: fmt.Sprintf("a123456789abcdef0000%012d", number),
				MACs: []string{fmt.Sprintf("52:54:00:03:00:%02x", number), fmt.Sprintf("52:54:00:04:00:%02x", number)},
			}}
			if i < len(o.machines) && slot <= o.machines[i] {
				described.Machine = o.machineOf(number)
			}
			all[i].Slots = append(all[i].Slots, described)
		}
	}
	return all
}

// machineOf is the blade with a number.
func (o *options) machineOf(number int) *rack.Machine {
	machine := o.machine
	machine.Dir = filepath.Join(o.machine.Dir, fmt.Sprintf("atom%03d", number))
	machine.Tap = fmt.Sprintf("%s%d", o.machine.Tap, number)
	machine.DiskBytes = o.diskGiB * gibi
	if slices.Contains(o.dividable, number) {
		machine.IsDividable, machine.Emulator = true, o.emulator
	}
	return &machine
}

// address is the nth of the network of BMCs.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 5, byte(n)}) } //nolint:gosec // at most 255
