package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

const (
	keyPlace = "/etc/rcbox/image.pub"
	// reportedStep is how often progress is printed.
	reportedStep = 128 << 20
	// memoryForRest stays free of the image while it is verified.
	memoryForRest = 192 << 20
	mebi          = 1 << 20
	systemMiB     = 8192
)

type installOptions struct {
	hosts, key, mac, disk string
	systemMiB             int64
	wipe                  bool
}

func installCommand() *cobra.Command {
	var options installOptions
	command := &cobra.Command{
		Use:   "install",
		Short: "Download the image of a box host, verify it, and install it on the disk of this machine",
		Long: `Downloads the image, verifies its signature and checksums in memory, and only then writes to the disk. The disk cannot be
started from until all is written and read back. The backup partition of an earlier installation stays as it is, unless --wipe is given.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return install(command.Context(), command.OutOrStdout(), options)
		},
	}
	flags := command.Flags()
	flags.StringVar(&options.hosts, "hosts", "", "addresses of box hosts, such as 192.168.3.253,192.168.3.254")
	flags.StringVar(&options.key, "key", keyPlace, "file of the public key that the image must be signed with")
	flags.StringVar(&options.mac, "mac", "", "MAC of the port that this machine was started from")
	flags.StringVar(&options.disk, "disk", "", "path of the disk; default: the one that rcbox is on, or the first empty one")
	flags.Int64Var(&options.systemMiB, "system-mib", systemMiB, "size of the system partition of a disk that is laid out anew")
	flags.BoolVar(&options.wipe, "wipe", false, "lay the disk out anew: all that is on it is lost, backups included")
	return command
}

func install(ctx context.Context, out io.Writer, options installOptions) error {
	hosts, err := blade.ParseHosts(options.hosts)
	if err != nil {
		return fmt.Errorf("--hosts is required: %w", err)
	}
	if _, err := net.ParseMAC(options.mac); err != nil {
		return fmt.Errorf("--mac is required: the port that this machine was started from: %w", err)
	}
	text, err := os.ReadFile(options.key)
	if err != nil {
		return fmt.Errorf("read the key of images: %w", err)
	}
	key, err := blade.ParsePublicKey(text)
	if err != nil {
		return fmt.Errorf("%s: %w", options.key, err)
	}
	root := os.DirFS("/")
	wish := blade.Wish{SystemBytes: options.systemMiB * mebi, Wipe: options.wipe}
	path, err := choose(out, root, options.disk, wish)
	if err != nil {
		return err
	}
	available, err := blade.AvailableMemory(root)
	if err != nil {
		return fmt.Errorf("find out how much memory is free: %w", err)
	}
	printer := progress{out: out}
	_, _ = fmt.Fprintf(out, "download the image from %s\n", options.hosts)
	image, err := blade.GetImage(ctx, fetcher(out, hosts), key, available-memoryForRest, printer.report)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "image %s is verified\n", image.Manifest.Version)
	wish.ImageBytes = image.Manifest.Disk.RawSize
	return installTo(ctx, out, path, image, wish, blade.Record{
		Version: image.Manifest.Version, Manifest: image.Digest, Hosts: hosts, MAC: options.mac,
	})
}

// choose is the path of the disk to install to.
func choose(out io.Writer, root fs.FS, given string, wish blade.Wish) (string, error) {
	if given != "" {
		return given, nil
	}
	candidates, macs := disks(out, root)
	name, err := blade.ChooseDisk(candidates, macs, wish)
	if err != nil {
		return "", err
	}
	return filepath.Join("/dev", name), nil
}

// disks are those of this machine that can be read; and the MACs of its ports.
func disks(notes io.Writer, root fs.FS) (candidates []blade.Candidate, macs []string) {
	inventory := blade.TakeInventory(root)
	for _, port := range inventory.Ports {
		macs = append(macs, port.MAC)
	}
	note := func(err error) { _, _ = fmt.Fprintln(notes, "leave a disk out:", err) }
	return machine.Candidates(inventory.Disks, note), macs
}

func rootCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "root",
		Short: "Print the partition that this machine's system is on",
		Long: `Looks for the disk that rcbox was installed on. Of several such disks, it is the one that was installed through a port of
this machine: another one may come from another machine, and have the credentials of that one's node.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			candidates, macs := disks(command.ErrOrStderr(), os.DirFS("/"))
			name, err := blade.OwnDisk(candidates, macs)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintln(command.OutOrStdout(), blade.SystemPartition(name))
			return nil
		},
	}
}

func installTo(ctx context.Context, out io.Writer, path string, image blade.Download, wish blade.Wish, record blade.Record) (err error) {
	device, err := machine.OpenDevice(path, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	head, err := blade.Head(device)
	if err != nil {
		return err
	}
	layout, err := blade.PlanLayout(device.Size(), head, wish)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, _ = fmt.Fprintf(out, "install on %s: system %d MiB, backups %d MiB (kept: %t)\n", path, layout.System.Bytes/mebi,
		layout.Backup.Bytes/mebi, layout.KeepsBackup)
	content, err := blade.Unpack(image.Disk)
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }() // nothing is left to be read
	stages := progress{out: out}
	if err := blade.Install(ctx, device, blade.Image{Content: content, Bytes: wish.ImageBytes}, layout, record, stages.stage); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, _ = fmt.Fprintf(out, "image %s is installed\n", record.Version)
	return nil
}

// progress prints a line for each stage, and for each reportedStep of bytes.
type progress struct {
	out      io.Writer
	of       blade.Stage
	reported int64
}

func (p *progress) report(bytes int64) { p.stage("download", bytes) }

func (p *progress) stage(stage blade.Stage, bytes int64) {
	if stage != p.of {
		p.of, p.reported = stage, 0
		_, _ = fmt.Fprintf(p.out, "%s\n", stage)
	}
	if bytes >= p.reported+reportedStep {
		p.reported = bytes
		_, _ = fmt.Fprintf(p.out, "%s: %d MiB\n", stage, bytes/mebi)
	}
}

func fetcher(out io.Writer, hosts []string) *blade.Fetcher {
	const answerTime = 20 * time.Second
	return &blade.Fetcher{
		Hosts:  hosts,
		Client: boxHostClient(answerTime),
		Wait: func(ctx context.Context, pause time.Duration) error {
			select {
			case <-ctx.Done():
				return fmt.Errorf("told to end: %w", ctx.Err())
			case <-time.After(pause):
				return nil
			}
		},
		Report: func(err error) { _, _ = fmt.Fprintln(out, "try again:", err) },
	}
}

// boxHostClient asks box hosts: by their address, through no proxy, and not those that they would send it to.
func boxHostClient(answerTime time.Duration) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext: (&net.Dialer{Timeout: answerTime}).DialContext, ResponseHeaderTimeout: answerTime, DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
