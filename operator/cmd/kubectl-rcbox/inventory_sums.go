package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

// itemSize is the processors, memory and disk of a server, as the kubelet of its node reports them. BMCs do not report them.
type itemSize struct {
	Processors  int64 `json:"processors,omitempty"`
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
	// DiskBytes is the size of the file system that the kubelet gives pods.
	DiskBytes int64 `json:"diskBytes,omitempty"`
}

// itemSum sums a chassis, or all servers that the user named.
type itemSum struct {
	Chassis string `json:"chassis,omitempty"`
	Servers int    `json:"servers"`
	// Nodes is the number of servers that run a node. Only these count in the sums.
	Nodes int `json:"nodes"`
	itemSize
}

func (s *itemSum) add(of *item) {
	s.Servers++
	if of.itemSize == (itemSize{}) {
		return
	}
	s.Nodes++
	s.Processors += of.Processors
	s.MemoryBytes += of.MemoryBytes
	s.DiskBytes += of.DiskBytes
}

// listing is the servers that the user named, and their sums.
type listing struct {
	Servers []item    `json:"servers"`
	Chassis []itemSum `json:"chassis"`
	Total   itemSum   `json:"total"`
	// Unknown are machines that asked box hosts for an address in a network of these chassis, and are no server.
	Unknown []itemUnknown `json:"unknown,omitempty"`
	// sizesMissing says why no sizes are known; empty: the sizes of all servers that run nodes are known.
	sizesMissing string
}

// itemUnknown is a machine that no server is known by.
type itemUnknown struct {
	MAC     string `json:"mac"`
	Network string `json:"network"`
	Since   string `json:"since"`
}

// addUnknown takes down the strangers of the chassis that are listed, each once.
func (l *listing) addUnknown(ctx context.Context, cluster *access.Cluster) error {
	chassis := &v1alpha1.ChassisList{}
	if err := cluster.List(ctx, chassis); err != nil {
		return fmt.Errorf("list Chassis: %w", err)
	}
	seen := map[string]bool{}
	for i := range chassis.Items {
		of := &chassis.Items[i]
		if !slices.ContainsFunc(l.Servers, func(s item) bool { return s.Chassis == of.Name }) {
			continue
		}
		for _, stranger := range of.Status.Strangers {
			if !seen[stranger.MAC] {
				seen[stranger.MAC] = true
				l.Unknown = append(l.Unknown, itemUnknown{
					MAC: stranger.MAC, Network: stranger.Network, Since: stranger.Since.UTC().Format(time.RFC3339),
				})
			}
		}
	}
	plain.Clean(&l.Unknown, plain.Text)
	return nil
}

// sum computes the sums, with chassis in the order of the servers.
func (l *listing) sum() {
	at := map[string]int{}
	for i := range l.Servers {
		of := &l.Servers[i]
		n, is := at[of.Chassis]
		if !is {
			n = len(l.Chassis)
			at[of.Chassis] = n
			l.Chassis = append(l.Chassis, itemSum{Chassis: of.Chassis})
		}
		l.Chassis[n].add(of)
		l.Total.add(of)
	}
}

// nodesByName returns all nodes. If the user may not list nodes, it returns none, and the reason.
func nodesByName(ctx context.Context, cluster *access.Cluster) (map[string]*corev1.Node, string, error) {
	nodes := &corev1.NodeList{}
	switch err := cluster.List(ctx, nodes); {
	case apierrors.IsForbidden(err):
		return nil, "you may not list nodes", nil
	case err != nil:
		return nil, "", fmt.Errorf("list nodes: %w", err)
	}
	all := make(map[string]*corev1.Node, len(nodes.Items))
	for i := range nodes.Items {
		all[nodes.Items[i].Name] = &nodes.Items[i]
	}
	return all, "", nil
}

func sizeOf(node *corev1.Node) itemSize {
	if node == nil {
		return itemSize{}
	}
	capacity := node.Status.Capacity
	return itemSize{
		Processors: capacity.Cpu().Value(), MemoryBytes: capacity.Memory().Value(), DiskBytes: capacity.StorageEphemeral().Value(),
	}
}

// describe writes a line for each chassis, and a line with the total if there are several chassis.
func (l *listing) describe(text *strings.Builder) {
	line := func(what string, sum *itemSum) {
		fmt.Fprintf(text, "\n%s: %s", what, plural(sum.Servers, "server"))
		switch {
		case l.sizesMissing != "":
			fmt.Fprintf(text, "; processors, memory and disks are not known: %s", l.sizesMissing)
		case sum.Nodes == 0:
			text.WriteString("; processors, memory and disks are not known, since no node runs there")
		default:
			fmt.Fprintf(text, "; %s with %s, %s of memory and %s of disk", plural(sum.Nodes, "node"),
				plural(int(sum.Processors), "processor"), gibibytes(sum.MemoryBytes), gibibytes(sum.DiskBytes))
		}
	}
	text.WriteString("\n")
	for i := range l.Chassis {
		line(or(l.Chassis[i].Chassis), &l.Chassis[i])
	}
	if len(l.Chassis) > 1 {
		line("total", &l.Total)
	}
	for _, of := range l.Unknown {
		fmt.Fprintf(text, "\nunknown: %s asked for an address in %s; first seen %s", of.MAC, of.Network, of.Since)
	}
}

func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func gibibytes(n int64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }
