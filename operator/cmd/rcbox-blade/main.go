// Program rcbox-blade runs on a blade: in the initrd that the network gives it, where it installs the image, and on the installed system,
// where it joins the cluster. It also makes the keys and the manifest of an image.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command().ExecuteContext(ctx)
	stop()
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "rcbox-blade:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:   "rcbox-blade",
		Short: "Take inventory of a blade, install it, have it join the cluster; sign images of blades",
		// Errors are printed once, by main.
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(inventoryCommand(), installCommand(), rootCommand(), joinCommand(), reportCommand(), measureCommand(),
		settingsCommand(), functionsCommand(), keygenCommand(), signCommand(), verifyCommand())
	return root
}

func inventoryCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inventory",
		Short: "Print what this machine is made of, as JSON",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			encoder := json.NewEncoder(command.OutOrStdout())
			encoder.SetIndent("", "  ")
			if err := encoder.Encode(blade.TakeInventory(os.DirFS("/"))); err != nil {
				return fmt.Errorf("print the inventory: %w", err)
			}
			return nil
		},
	}
}

const (
	ofMachine     = "machine"
	ofNobody      = "none"
	settingsPlace = "/etc/rcbox/settings.json"
)

func settingsCommand() *cobra.Command {
	var root, memory string
	command := &cobra.Command{
		Use:   "settings",
		Short: "Write the files of the machine's settings: igb, huge pages, vfio",
		Long: `With --memory machine, links /dev/rcbox/backups to the partition for backups.
Virtual functions are made by rcbox-blade virtual-functions.
Writes files for modprobe, sysctl and systemd, from /etc/rcbox/settings.json below --root, or from defaults without it.
Programs that read them must be told: sysctl --load, or a restart of the blade.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return writeSettings(command.OutOrStdout(), root, memory)
		},
	}
	command.Flags().StringVar(&root, "root", "/", "folder that they are written below")
	command.Flags().StringVar(&memory, "memory", ofNobody, "of which memory huge pages are a share: "+ofMachine+", or "+ofNobody)
	return command
}

// readSettings reads those below a root.
func readSettings(root string) (blade.Settings, error) {
	text, err := os.ReadFile(strings.TrimSuffix(root, "/") + settingsPlace)
	if os.IsNotExist(err) {
		return blade.DefaultSettings(), nil
	}
	if err != nil {
		return blade.Settings{}, fmt.Errorf("read settings: %w", err)
	}
	settings, err := blade.ParseSettings(text)
	if err != nil {
		return blade.Settings{}, fmt.Errorf("%s: %w", settingsPlace, err)
	}
	return settings, nil
}

func writeSettings(out io.Writer, root, memory string) error {
	settings, err := readSettings(root)
	if err != nil {
		return err
	}
	var bytes int64
	switch memory {
	case ofMachine:
		inventory := blade.TakeInventory(os.DirFS("/"))
		if bytes = inventory.MemoryBytes; bytes == 0 {
			return fmt.Errorf("the size of the memory is not known: %s", strings.Join(inventory.Missing, "; "))
		}
		if inventory.Backups != nil {
			if err := machine.LinkDevice(hardware.BackupsDevice, "/dev/"+inventory.Backups.Name); err != nil {
				return err
			}
			_, _ = fmt.Fprintln(out, "link", hardware.BackupsDevice)
		}
	case ofNobody:
	default:
		return fmt.Errorf("--memory is %q, not %s or %s", memory, ofMachine, ofNobody)
	}
	files := settings.Files(bytes)
	for _, file := range files {
		_, _ = fmt.Fprintln(out, "write", file.Path)
	}
	return machine.WriteFiles(root, files)
}
