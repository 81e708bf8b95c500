package supervisor

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"rcbox.dev/rcbox/operator/internal/boxhost"
)

// maxManifest bounds what is read of a boot image.
const maxManifest = 64 << 10

// imageVersion is what the manifest in a folder says, for people and for the condition of a Chassis; empty if there is none. Blades verify
// the signature themselves.
func imageVersion(folder string) string {
	file, err := os.Open(filepath.Join(folder, "manifest.json")) //nolint:gosec // a folder of the command line
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }() // read only
	text, err := io.ReadAll(io.LimitReader(file, maxManifest))
	var manifest struct {
		Version string `json:"version"`
	}
	if err != nil || json.Unmarshal(text, &manifest) != nil || len(manifest.Version) > boxhost.MaxImage {
		return ""
	}
	return manifest.Version
}
