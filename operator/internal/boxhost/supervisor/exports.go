package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// mountsFile says what is mounted where this process is (proc_pid_mountinfo(5)).
const mountsFile = "/proc/self/mountinfo"

// whyNotExported says why folders are not served by NFS. nfs-ganesha finds a file by a handle that the client sends, and does not check
// that the file is below the folder that it exports: a client that forges handles reads the whole file system. So a folder is exported only
// from a file system of its own, mounted there or at the folder of all exports.
func whyNotExported(mounts, state string, exports []boxhost.Export) error {
	all := filepath.Join(state, boxhost.Exports)
	roots := rootsOf(mounts)
	for _, export := range exports {
		folder := filepath.Join(all, export.Name)
		root, isMounted := roots[folder]
		if !isMounted {
			root, isMounted = roots[all]
		}
		switch {
		case !isMounted:
			return fmt.Errorf("no folder is served by NFS: %s is in the same file system as other files of the node, which NFS would give "+
				"away: mount a file system of its own at box.host.exportFolder of this node", folder)
		case root != "/":
			return fmt.Errorf("no folder is served by NFS: %s is the folder %.200s of a larger file system, and NFS would give the rest "+
				"away: mount a file system of its own at box.host.exportFolder of this node", folder, root)
		}
	}
	return nil
}

// rootsOf has, by mount point, which folder of its file system is mounted there. The last line about a mount point is the one that is seen.
func rootsOf(mounts string) map[string]string {
	roots := map[string]string{}
	for line := range strings.Lines(mounts) {
		// Mount, parent, device, root, mount point.
		if fields := strings.Fields(line); len(fields) >= 5 {
			roots[fields[4]] = fields[3]
		}
	}
	return roots
}

// whyNotExported reads what is mounted.
func (s *Supervisor) whyNotExported(d *boxhost.Desired) error {
	if len(d.Exports) == 0 {
		return nil
	}
	mounts, err := os.ReadFile(mountsFile)
	if err != nil {
		return fmt.Errorf("no folder is served by NFS: what is mounted cannot be read: %w", err)
	}
	return whyNotExported(string(mounts), s.State, d.Exports)
}
