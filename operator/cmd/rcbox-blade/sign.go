package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/blade"
)

// Names of the files of an image, as a box host serves them.
const (
	kernelName    = "kernel"
	initrdName    = "initrd"
	diskName      = "disk"
	manifestName  = "manifest.json"
	signatureName = "manifest.sig"
)

const (
	publicMode  = 0o644
	privateMode = 0o600
)

func keygenCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "keygen FILE",
		Short: "Make a key to sign images with: FILE, and FILE.pub for initrds",
		Long: `Makes an Ed25519 key as PEM. An existing file is not replaced: blades whose initrd carries its public half would refuse every
image that is signed with another key.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			private, public, err := blade.GenerateKey(rand.Reader)
			if err != nil {
				return err
			}
			if err := writeNew(arguments[0], private, privateMode); err != nil {
				return err
			}
			return writeNew(arguments[0]+".pub", public, publicMode)
		},
	}
}

func writeNew(path string, content []byte, mode os.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode) //nolint:gosec // the user's
	if err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	_, err = file.Write(content)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("write the key: %w", err)
	}
	return nil
}

func signCommand() *cobra.Command {
	var key, version string
	var rawBytes int64
	command := &cobra.Command{
		Use:   "sign FOLDER",
		Short: "Write and sign the manifest of the files kernel, initrd and disk in a folder",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, arguments []string) error {
			return sign(arguments[0], key, version, rawBytes)
		},
	}
	flags := command.Flags()
	flags.StringVar(&key, "key", "", "file of the private key")
	flags.StringVar(&version, "version", "", "version of the image")
	flags.Int64Var(&rawBytes, "raw-bytes", 0, "size of disk before it was compressed")
	return command
}

func sign(folder, key, version string, rawBytes int64) error {
	text, err := os.ReadFile(key) //nolint:gosec // the user's
	if err != nil {
		return fmt.Errorf("read the private key (--key): %w", err)
	}
	private, err := blade.ParsePrivateKey(text)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	manifest := blade.Manifest{Version: version}
	for name, piece := range pieces(&manifest) {
		if *piece, err = measure(filepath.Join(folder, name)); err != nil {
			return err
		}
	}
	manifest.Disk.RawSize = rawBytes
	printed, signature, err := blade.Sign(private, manifest)
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{manifestName: printed, signatureName: signature} {
		if err := os.WriteFile(filepath.Join(folder, name), content, publicMode); err != nil {
			return fmt.Errorf("write the manifest: %w", err)
		}
	}
	return nil
}

func pieces(manifest *blade.Manifest) map[string]*blade.Piece {
	return map[string]*blade.Piece{kernelName: &manifest.Kernel, initrdName: &manifest.Initrd, diskName: &manifest.Disk}
}

func measure(path string) (piece blade.Piece, err error) {
	file, err := os.Open(path) //nolint:gosec // the user's
	if err != nil {
		return blade.Piece{}, fmt.Errorf("read a piece of the image: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return blade.Measure(file)
}

func verifyCommand() *cobra.Command {
	var key string
	command := &cobra.Command{
		Use:   "verify FOLDER",
		Short: "Verify the signature of an image in a folder, and the checksum of each piece",
		Args:  cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			return verify(command.OutOrStdout(), arguments[0], key)
		},
	}
	command.Flags().StringVar(&key, "key", keyPlace, "file of the public key")
	return command
}

func verify(out io.Writer, folder, key string) error {
	var contents [3][]byte
	for i, path := range []string{key, filepath.Join(folder, manifestName), filepath.Join(folder, signatureName)} {
		content, err := os.ReadFile(path) //nolint:gosec // the user's
		if err != nil {
			return fmt.Errorf("verify an image: %w", err)
		}
		contents[i] = content
	}
	public, err := blade.ParsePublicKey(contents[0])
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	manifest, err := blade.OpenManifest(public, contents[1], contents[2])
	if err != nil {
		return err
	}
	for name, piece := range pieces(&manifest) {
		found, err := measure(filepath.Join(folder, name))
		if err != nil {
			return err
		}
		if found.SHA256 != piece.SHA256 || found.Size != piece.Size {
			return fmt.Errorf("%w: %s has %d bytes with SHA-256 %s, and its manifest says %d and %s", blade.ErrCorrupt, name,
				found.Size, found.SHA256, piece.Size, piece.SHA256)
		}
	}
	_, _ = fmt.Fprintf(out, "image %s is signed, and whole\n", manifest.Version)
	return nil
}
