package plan

import "rcbox.dev/rcbox/api/v1alpha1"

// mebi is what sizes of volumes are rounded down to.
const mebi = 1 << 20

// Volume is the partition for backups of a server's node, as a PersistentVolume is to be made of it.
type Volume struct {
	Server, Node, Class string
	Slot                int32
	Bytes               int64
}

// volumes are made of servers that have become nodes, which their own reports show to have such a partition.
func (p *planning) volumes() []Volume {
	class := p.Chassis.Spec.Boot.StorageClassName
	if class == "" || len(p.Layout.Problems) > 0 {
		return nil
	}
	var all []Volume
	for _, m := range p.machines {
		isJoined := m.Object.Status.Join != nil && m.Object.Status.Join.State == v1alpha1.JoinJoined
		if !isJoined || m.node == nil || m.node.Name != m.name() || m.node.Found == nil || m.node.Found.BackupBytes < mebi {
			continue
		}
		all = append(all, Volume{
			Server: m.name(), Node: m.node.Name, Class: class, Slot: m.layout.Slot,
			Bytes: m.node.Found.BackupBytes / mebi * mebi,
		})
	}
	return all
}
