package resources_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/resources"
)

// TestServersHaveRoomForBuffers: what the operator leaves of a master's memory is what the server wants for its buffers. A test of the
// server holds its side to the same lines.
func TestServersHaveRoomForBuffers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "images", "store", "testdata", "masters-memory.txt"))
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		count++
		var memoryMiB, packetsMiB, want int64
		var cores, copies int32
		if _, err := fmt.Sscan(line, &memoryMiB, &cores, &copies, &packetsMiB, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		inputs := resources.Inputs{Memory: resource.NewQuantity(memoryMiB<<20, resource.BinarySI), Cores: cores}
		if copies > 0 {
			inputs.Replication = &resources.Replication{Factor: copies, Storage: v1alpha1.StorageVolume}
		}
		if packetsMiB > 0 {
			inputs.Network = &resources.Network{Transport: v1alpha1.TransportDPDK}
		}
		if got := resources.StoreMemoryMiB(inputs); got != want {
			t.Errorf("%q: logs and hash tables get %d MiB", strings.TrimSpace(line), got)
		}
	}
	if count < 20 {
		t.Errorf("only %d lines", count)
	}
}
