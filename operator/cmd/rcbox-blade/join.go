package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
	"rcbox.dev/rcbox/operator/internal/blade/machine"
)

func joinCommand() *cobra.Command {
	var root string
	command := &cobra.Command{
		Use:   "join",
		Short: "Ask the box host for a name and a token, and write the files of a node",
		Long: `Asks each box host that this blade was installed from, once, and writes the files of a node. A blade whose kubelet has a
valid certificate does not ask. If no box host gives a token, the files of an earlier answer are kept: the kubelet tries
that token once more. To have a blade ask again, delete /var/lib/kubelet/kubeconfig and restart kubelet.service.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return join(command.Context(), command.OutOrStdout(), root)
		},
	}
	command.Flags().StringVar(&root, "root", "/", "folder that files are written below")
	return command
}

const (
	// leasePatience is for DHCP, and answerPatience for one box host. Each has its own: a token that was given and did not arrive is lost.
	leasePatience  = time.Minute
	answerPatience = 10 * time.Second
)

func join(ctx context.Context, out io.Writer, root string) error {
	files := os.DirFS(root)
	if blade.HasCertificate(files, time.Now()) {
		_, _ = fmt.Fprintln(out, "this blade is a node already: its kubelet has a certificate")
		return nil
	}
	path, err := machine.DiskOf("/")
	if err != nil {
		return err
	}
	record, err := recordOf(path)
	if err != nil {
		return err
	}
	ask := func() ([]blade.File, error) {
		leaseContext, cancel := context.WithTimeout(ctx, leasePatience)
		defer cancel()
		lease, err := awaitLease(leaseContext, record.MAC)
		if err != nil {
			return nil, err
		}
		who := blade.JoinRequest{MAC: record.MAC, UUID: blade.TakeInventory(os.DirFS("/")).UUID}
		// Another box host first each time: one that is ill does not keep this blade from the others.
		first := rand.IntN(len(record.Hosts)) //nolint:gosec // no secret
		hosts := slices.Concat(record.Hosts[first:], record.Hosts[:first])
		answer, err := blade.Join(ctx, boxHostClient(answerPatience), hosts, answerPatience, who)
		if err != nil {
			return nil, err
		}
		if err := checkAuthority(root, answer); err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(out, "this blade is %s, image %s\n", answer.Node, record.Version)
		return blade.NodeFiles(answer, lease)
	}
	return renew(out, root, ask)
}

func checkAuthority(root string, answer blade.JoinAnswer) error {
	trusted, err := os.ReadFile(filepath.Join(root, blade.TrustedAuthorities)) //nolint:gosec // of the image
	if errors.Is(err, fs.ErrNotExist) {
		return nil // docs/blade.md says what that means
	}
	if err != nil {
		return fmt.Errorf("read the authorities that the image trusts: %w", err)
	}
	return blade.CheckAuthority(answer, trusted)
}

// renew writes the files of a new answer. Without one, those of an earlier answer do, if they are whole.
func renew(out io.Writer, root string, ask func() ([]blade.File, error)) error {
	answered := filepath.Join(root, blade.KubeletEnvironment) // of an answer's files, it is written last
	files, err := ask()
	if err != nil {
		if _, missing := os.Stat(answered); missing != nil {
			return err
		}
		_, _ = fmt.Fprintln(out, "go on with the token that this blade has:", err)
		return nil
	}
	if err := os.Remove(answered); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give up the files of an earlier answer: %w", err)
	}
	return machine.WriteFiles(root, files)
}

// awaitLease waits until DHCP has given the port an address.
func awaitLease(ctx context.Context, mac string) (blade.Lease, error) {
	const poll = 200 * time.Millisecond
	for {
		lease, err := machine.LeaseOf(mac)
		if !errors.Is(err, machine.ErrNoLease) {
			return lease, err
		}
		select {
		case <-ctx.Done():
			return blade.Lease{}, err
		case <-time.After(poll):
		}
	}
}

func recordOf(path string) (record blade.Record, err error) {
	device, err := machine.OpenDevice(path, false)
	if err != nil {
		return blade.Record{}, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	record, err = blade.ReadRecord(device)
	if err != nil {
		return blade.Record{}, fmt.Errorf("%s: %w", path, err)
	}
	return record, nil
}
