package admin

import "fmt"

// ServerID prints a server id as index.generation.
func ServerID(id uint64) string { return fmt.Sprintf("%d.%d", uint32(id), id>>32) } //nolint:gosec // the lower half is meant

// ClusterID prints a cluster id as 16 hexadecimal digits.
func ClusterID(id uint64) string { return fmt.Sprintf("%016x", id) }
