package machine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"rcbox.dev/rcbox/operator/internal/blade"
)

const folderMode = 0o755

// WriteFiles writes files below a folder, in their order: each is there whole or as it was before, whenever the power fails.
func WriteFiles(root string, files []blade.File) error {
	for _, file := range files {
		if err := writeFile(filepath.Join(root, file.Path), file); err != nil {
			return fmt.Errorf("write %s: %w", file.Path, err)
		}
	}
	return nil
}

func writeFile(path string, file blade.File) (err error) {
	folder := filepath.Dir(path)
	if err := os.MkdirAll(folder, folderMode); err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	part, err := os.CreateTemp(folder, ".rcbox-*")
	if err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part.Name()))
		}
	}()
	_, written := part.WriteString(file.Content)
	if err := errors.Join(written, part.Chmod(fs.FileMode(file.Mode)), part.Sync(), part.Close()); err != nil {
		return err
	}
	if err := os.Rename(part.Name(), path); err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	return syncFolder(folder)
}

func syncFolder(path string) error {
	folder, err := os.Open(path) //nolint:gosec // of the caller
	if err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// LinkDevice makes a link below /dev to a device, in place of one that is there. The links go with the next start of the machine.
func LinkDevice(link, device string) error {
	err := os.MkdirAll(filepath.Dir(link), 0o755) //nolint:gosec // as /dev is
	if err == nil {
		err = os.Remove(link)
	}
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Symlink(device, link)
	}
	if err != nil {
		return fmt.Errorf("link %s to %s: %w", link, device, err)
	}
	return nil
}
