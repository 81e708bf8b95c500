package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/model"
	"rcbox.dev/rcbox/operator/internal/box/names"
	"rcbox.dev/rcbox/operator/internal/box/vlan"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// defaultSeparate is the VLAN that the BMCs of the first three chassis came with.
const defaultSeparate = 4092

type vlanOptions struct {
	to       int
	config   string
	separate int
	moved    string
}

func (p *plugin) vlanCommand() *cobra.Command {
	var options vlanOptions
	command := &cobra.Command{
		Use:   "vlan CHASSIS",
		Short: "Show and change the VLAN of the BMCs of a chassis",
		Long: `Shows in which VLAN each BMC of a chassis says that it is, and what comes next. With --to, it writes spec.management.vlan:
the box controller then moves the BMCs of the servers, a few at a time. Once all have moved, the switch boards come next:
--config noVLAN prints what they must be told. Before that it is refused, for it would cut off the BMCs that have not moved.`,
		Example: `  kubectl rcbox vlan mercury1
  kubectl rcbox vlan mercury1 --to 1
  kubectl rcbox vlan mercury1 --config noVLAN
  kubectl rcbox vlan mercury1 --moved atom007`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			return options.run(command.Context(), cluster, command.OutOrStdout(), arguments[0])
		},
	}
	flags := command.Flags()
	flags.IntVar(&options.to, "to", 0, "the VLAN that all BMCs are to be in; 1: their frames have no tag")
	flags.StringVar(&options.config, "config", "", "print a configuration of the switch boards: "+strings.Join(vlan.Configs, ", "))
	flags.IntVar(&options.separate, "separate", defaultSeparate, "the VLAN that the BMCs were in at first, for --config")
	flags.StringVar(&options.moved, "moved", "", "servers whose silent BMCs you have seen in the wanted VLAN through the chassis manager")
	command.MarkFlagsMutuallyExclusive("to", "config", "moved")
	return command
}

func (o *vlanOptions) run(ctx context.Context, cluster *access.Cluster, out io.Writer, name string) error {
	chassis := &v1alpha1.Chassis{}
	if err := cluster.Get(ctx, client.ObjectKey{Name: name}, chassis); err != nil {
		return fmt.Errorf("read Chassis %s (get on chassis): %w", name, err)
	}
	switch {
	case o.to != 0:
		before := chassis.DeepCopy()
		chassis.Spec.Management.VLAN = int32(o.to) //nolint:gosec // the schema has bounds
		if err := cluster.Patch(ctx, chassis, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("write the VLAN of Chassis %s (patch on chassis): %w", name, err)
		}
		_, err := fmt.Fprintf(out, "Chassis %s: the BMCs are moved to VLAN %d; kubectl rcbox vlan %s shows how far they are\n",
			name, o.to, name)
		return wrote(err)
	case o.config != "":
		return o.print(out, chassis)
	case o.moved != "":
		return o.confirm(ctx, cluster, out, chassis)
	}
	return showVLANs(ctx, cluster, out, chassis)
}

// print prints a configuration of switch boards, unless it would come too early.
func (o *vlanOptions) print(out io.Writer, chassis *v1alpha1.Chassis) error {
	status := chassis.Status.VLAN
	if o.config == vlan.NoVLAN {
		switch {
		case chassis.Spec.Management.VLAN != vlan.Native:
			return fmt.Errorf("the BMCs of Chassis %s were not moved: kubectl rcbox vlan %s --to %d first. A switch board with VLAN %d "+
				"alone cuts off each BMC in another one", chassis.Name, chassis.Name, vlan.Native, vlan.Native)
		case status == nil || status.Wanted != chassis.Spec.Management.VLAN:
			return fmt.Errorf("the box controller has not looked at the BMCs of Chassis %s yet: try again in a minute", chassis.Name)
		case status.Phase != string(vlan.PhaseSwitch) && status.Phase != string(vlan.PhaseDone):
			return fmt.Errorf("not all BMCs of Chassis %s have moved: %s", chassis.Name, status.Message)
		}
	}
	found, err := model.Of(&chassis.Spec)
	if err != nil {
		return fmt.Errorf("model of Chassis %s: %w", chassis.Name, err)
	}
	config, err := vlan.Render(chassis, int(found.SwitchBoards.Uplinks), o.config, o.separate)
	if err != nil {
		return fmt.Errorf("configuration of the switch boards of Chassis %s: %w", chassis.Name, err)
	}
	_, err = io.WriteString(out, config.Text())
	return wrote(err)
}

// confirm puts somebody's word on record.
func (o *vlanOptions) confirm(ctx context.Context, cluster *access.Cluster, out io.Writer, chassis *v1alpha1.Chassis) error {
	if chassis.Spec.Management.VLAN == 0 {
		return errors.New("spec.management.vlan of the Chassis names no VLAN: there is nothing to confirm")
	}
	servers, err := selected(ctx, cluster, o.moved)
	if err != nil {
		return err
	}
	wanted := strconv.Itoa(int(chassis.Spec.Management.VLAN))
	for _, server := range servers {
		if !slices.ContainsFunc(names.Places(chassis), func(place names.Place) bool { return place.Name == server.Name }) {
			return fmt.Errorf("the Server %s is not in Chassis %s", server.Name, chassis.Name)
		}
		before := server.DeepCopy()
		if server.Annotations == nil {
			server.Annotations = map[string]string{}
		}
		server.Annotations[v1alpha1.AnnotationVLANMoved] = wanted
		if err := cluster.Patch(ctx, server, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("confirm the VLAN of Server %s (patch on servers): %w", server.Name, err)
		}
		if _, err := fmt.Fprintf(out, "%s: its BMC is in VLAN %s, by your word\n", server.Name, wanted); err != nil {
			return wrote(err)
		}
	}
	return nil
}

func showVLANs(ctx context.Context, cluster *access.Cluster, out io.Writer, chassis *v1alpha1.Chassis) error {
	servers := &v1alpha1.ServerList{}
	if err := cluster.List(ctx, servers); err != nil {
		return fmt.Errorf("list Servers: %w", err)
	}
	there := map[string]*v1alpha1.Server{}
	for i := range servers.Items {
		there[servers.Items[i].Name] = &servers.Items[i]
	}
	table := tabwriter.NewWriter(out, 0, 0, columnGap, ' ', 0)
	_, _ = fmt.Fprintln(table, "SERVER\tBMC\tVLAN\tSTAGE") // Flush says what went wrong
	for _, place := range names.Places(chassis) {
		reported, stage := "", ""
		if server := there[place.Name]; server != nil && server.Status.MMC.VLAN != nil {
			of := server.Status.MMC.VLAN
			stage = string(of.Stage)
			if of.Reported != 0 {
				reported = strconv.Itoa(int(of.Reported))
			}
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", place.Name, place.MMC, or(reported), or(stage))
	}
	if err := table.Flush(); err != nil {
		return wrote(err)
	}
	text := "no VLAN is wanted: kubectl rcbox vlan " + chassis.Name + " --to N"
	if status := chassis.Status.VLAN; status != nil {
		text = status.Phase + ": " + status.Message
	}
	_, err := fmt.Fprintf(out, "\n%s\n", text)
	return wrote(err)
}

func wrote(err error) error {
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
