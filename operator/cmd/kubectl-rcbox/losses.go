package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// sayLosses says what forced orders may cost Stores, before they are given. They are given in any case: that is what force is for.
func sayLosses(ctx context.Context, cluster *access.Cluster, out io.Writer, servers []*v1alpha1.Server) error {
	leaving, err := departures(ctx, cluster, nodesOf(servers))
	if err != nil {
		return writeText(out, fmt.Sprintf("what Stores lose is not known: %v\n", err))
	}
	var text strings.Builder
	for _, of := range leaving {
		text.WriteString(of.loss() + "\n")
	}
	var unknown []string
	for _, server := range servers {
		if server.Status.Node == "" && server.Status.Power.State != v1alpha1.PowerOff {
			unknown = append(unknown, server.Name)
		}
	}
	if len(unknown) > 0 {
		fmt.Fprintf(&text, "whether members of Stores run on %s is not known: no node is known to run there\n", someOf(unknown))
	}
	return writeText(out, text.String())
}

// loss says what a Store loses if the servers are switched off as things are.
func (d *departure) loss() string {
	copies := int(d.store.Copies())
	isStored := d.store.Spec.Backups.Storage.Type == v1alpha1.StorageVolume
	switch {
	case d.losesTables():
		return fmt.Sprintf("Store %s loses every table: its coordinator runs there with its state in memory", d.name())
	case len(d.members) == 0 && d.store.Status.Coordinator.State == v1alpha1.StateVolume:
		return fmt.Sprintf("Store %s loses no data: %s ends, and nobody can use the Store before its volume can be used again", d.name(),
			strings.Join(d.all(), ", "))
	case len(d.members) == 0:
		return fmt.Sprintf("Store %s loses no data: %s ends, and another process takes its place", d.name(), strings.Join(d.all(), ", "))
	case copies == 0:
		return fmt.Sprintf("Store %s loses what %s holds: it has no copies", d.name(), d.masters())
	case !isStored && len(d.members) > copies:
		return fmt.Sprintf("Store %s may lose data: %s end at once, and it keeps %d copies, in memory alone", d.name(), d.masters(), copies)
	case len(d.members) > copies:
		return fmt.Sprintf("Store %s loses no data that its volumes keep, but may not serve it until servers are back: %s end at once, "+
			"and it keeps %d copies", d.name(), d.masters(), copies)
	}
	return fmt.Sprintf("Store %s loses no data while all of its copies are there: %s ends without being drained", d.name(), d.masters())
}
