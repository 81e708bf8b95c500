package supervisor

import (
	"strings"
	"testing"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// A folder of a file system that has other files is not exported.
func TestOnlyOwnFileSystemsAreExported(t *testing.T) {
	t.Parallel()
	const (
		node   = "22 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw\n"
		state  = "90 22 254:1 /var/lib/rcbox-boxhost /var/lib/rcbox-boxhost rw,relatime - ext4 /dev/vda1 rw\n"
		bound  = "91 90 254:1 /var/lib/rcbox-exports /var/lib/rcbox-boxhost/exports rw,relatime - ext4 /dev/vda1 rw\n"
		own    = "92 90 254:16 / /var/lib/rcbox-boxhost/exports rw,relatime master:7 - ext4 /dev/vdb rw\n"
		whole  = "93 22 254:16 / /var/lib/rcbox-boxhost rw,relatime - ext4 /dev/vdb rw\n"
		home   = "94 90 254:17 / /var/lib/rcbox-boxhost/exports/home rw,relatime - xfs /dev/vdc rw\n"
		subvol = "95 90 0:41 /exports /var/lib/rcbox-boxhost/exports rw,relatime - btrfs /dev/vdd rw\n"
		near   = "96 90 254:18 / /var/lib/rcbox-boxhost/exports2 rw,relatime - ext4 /dev/vde rw\n"
	)
	both := []boxhost.Export{{Name: "/home"}, {Name: "/software"}}
	for _, of := range []struct {
		what, mounts string
		exports      []boxhost.Export
		says         string
	}{
		{"nothing is exported", node, nil, ""},
		{"own, for all", node + state + own, both, ""},
		{"own, mounted over a bound folder", node + state + bound + own, both, ""},
		{"own, for one", node + state + home, both[:1], ""},
		{"own, for one of two", node + state + home, both, "exports/software is in the same file system"},
		{"that of the node", node + state, both, "exports/home is in the same file system"},
		{"a folder of the node's", node + state + bound, both, "folder /var/lib/rcbox-exports of a larger"},
		{"a bound folder over its own", node + state + own + bound, both, "of a larger"},
		{"that of keys and leases", node + whole, both, "is in the same file system"},
		{"a subvolume", node + state + subvol, both, "of a larger"},
		{"own, beside", node + state + near, both, "is in the same file system"},
		{"nonsense", "x\n\n" + strings.Repeat("a ", 4), both, "is in the same file system"},
	} {
		err := whyNotExported(of.mounts, "/var/lib/rcbox-boxhost", of.exports)
		if (err == nil) != (of.says == "") || err != nil && !strings.Contains(err.Error(), of.says) {
			t.Errorf("%s: %v", of.what, err)
		}
	}
}
