// Emulate runs the three chassis of config/samples/chassis.yaml, emulated by ipmi_sim, until it is told to end. The addresses of their BMCs
// must be this machine's, or this network namespace's: hack/rack.sh sees to that.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
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
)

func main() {
	var dir, username, passwordFile string
	command := &cobra.Command{
		Use:          "emulate",
		Short:        "Run three emulated chassis until told to end",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(command *cobra.Command, _ []string) error {
			return run(command.Context(), command.OutOrStdout(), dir, username, passwordFile)
		},
	}
	flags := command.Flags()
	flags.StringVar(&dir, "dir", "", "an empty folder for the state of the rack")
	flags.StringVar(&username, "user", "admin", "user name at the BMCs")
	flags.StringVar(&passwordFile, "password-file", "", "file with the password of the BMCs")
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

func run(ctx context.Context, out io.Writer, dir, username, passwordFile string) error {
	password, err := os.ReadFile(passwordFile) //nolint:gosec // the user's own
	if err != nil {
		return fmt.Errorf("read the password: %w", err)
	}
	emulated, err := rack.Start(ctx, rack.Options{
		Dir: dir, Username: username, Password: string(bytes.TrimRight(password, "\r\n")), ShutdownTime: shutdownTime, Chassis: describe(),
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
func describe() []rack.Chassis {
	all := make([]rack.Chassis, chassisOfRack)
	for i := range all {
		all[i].Name = fmt.Sprintf("mercury%d", i+1)
		for n := range 2 {
			all[i].Managers = append(all[i].Managers, address(firstManager+i*perChassis+n))
			all[i].SwitchBoards = append(all[i].SwitchBoards, address(firstManager+i*perChassis+2+n))
		}
		for slot := 1; slot <= slots; slot++ {
			number := i*slots + slot
			all[i].Slots = append(all[i].Slots, rack.Slot{Number: slot, Address: address(number), Blade: rack.Blade{
				Serial: fmt.Sprintf("MMS%04d", number), GUID: fmt.Sprintf("a123456789abcdef0000%012d", number),
				MACs: []string{fmt.Sprintf("52:54:00:03:00:%02x", number), fmt.Sprintf("52:54:00:04:00:%02x", number)},
			}})
		}
	}
	return all
}

// address is the nth of the network of BMCs.
func address(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 168, 5, byte(n)}) } //nolint:gosec // at most 255
