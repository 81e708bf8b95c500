package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

// columnGap is what is between two columns of a table.
const columnGap = 3

func (p *plugin) inventoryCommand() *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "inventory SERVERS",
		Short: "List what is in the slots of a chassis, as the BMCs say",
		Long: `Shows what the box controller has read from the BMC of each server of a list: who made it, serial number, firmware,
the ports with their addresses, sensors, rounded, and the newest event of its log (-o json: up to 8). Nothing is asked of the BMCs:
identities are read every 5 minutes and after a BMC was silent, sensors and logs every minute. Below the table are sums of
processors, memory and disks of each chassis, as the kubelets of its nodes report them: of a server that runs no node they are not known.
Machines that asked box hosts for an address, and are no server, are listed last, as unknown.

` + listHelp,
		Example: `  kubectl rcbox inventory mercury1
  kubectl rcbox inventory 1-132 -o csv > servers.csv
  kubectl rcbox inventory atom007 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			write := map[string]func(io.Writer, *listing) error{"": writeItems, "json": writeItemsJSON, "csv": writeItemsCSV}[format]
			if write == nil {
				return usage(command, fmt.Errorf("--output is %q: write json or csv, or leave it out", format))
			}
			cluster, err := p.connect(&p.flags)
			if err != nil {
				return err
			}
			found, err := inventory(command.Context(), cluster, arguments[0])
			if err != nil {
				return err
			}
			return write(command.OutOrStdout(), found)
		},
	}
	command.Flags().StringVarP(&format, "output", "o", "", "json or csv: for scripts")
	return command
}

// item is what is in a slot.
type item struct {
	Server       string     `json:"server"`
	Chassis      string     `json:"chassis"`
	Slot         int32      `json:"slot"`
	Manufacturer string     `json:"manufacturer,omitempty"`
	Product      string     `json:"product,omitempty"`
	Serial       string     `json:"serial,omitempty"`
	BMC          itemBMC    `json:"bmc"`
	Ports        []itemPort `json:"ports,omitempty"`
	Sensors      []itemRead `json:"sensors,omitempty"`
	// Events are the newest of the BMC's log, oldest first.
	Events []itemEvent `json:"events,omitempty"`
	Node   string      `json:"node,omitempty"`
	itemSize
	// AsRecorded is why the blade is not the one that was accepted; empty: it is.
	AsRecorded string `json:"notAsRecorded,omitempty"`
}

type itemBMC struct {
	Address  string `json:"address,omitempty"`
	Firmware string `json:"firmware,omitempty"`
	GUID     string `json:"guid,omitempty"`
}

type itemPort struct {
	Name    string `json:"name"`
	NIC     int32  `json:"nic"`
	MAC     string `json:"mac,omitempty"`
	Address string `json:"address,omitempty"`
}

type itemRead struct {
	Name   string `json:"name"`
	Value  string `json:"value"`
	Beyond bool   `json:"beyond,omitempty"`
}

type itemEvent struct {
	ID     int32  `json:"id"`
	At     string `json:"at,omitempty"`
	Sensor string `json:"sensor,omitempty"`
	Text   string `json:"text,omitempty"`
	Ended  bool   `json:"ended,omitempty"`
}

// last is the newest event in one line.
func (i *item) last() string {
	if len(i.Events) == 0 {
		return ""
	}
	of := &i.Events[len(i.Events)-1]
	text := of.Sensor + ": " + of.Text
	if of.Ended {
		text += " (ended)"
	}
	return strings.TrimSpace(of.At + " " + text)
}

// inventory gathers what is on record. Texts of hardware are made plain.
func inventory(ctx context.Context, cluster *access.Cluster, list string) (*listing, error) {
	servers, err := selected(ctx, cluster, list)
	if err != nil {
		return nil, err
	}
	ofNodes, missing, err := sizes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	items := make([]item, len(servers))
	for i, server := range servers {
		status := &server.Status
		items[i] = item{
			Server: server.Name, Chassis: status.Chassis, Slot: status.Slot,
			Manufacturer: status.Hardware.Manufacturer, Product: status.Hardware.Product, Serial: status.Hardware.Serial,
			BMC:  itemBMC{Address: status.MMC.Address, Firmware: status.MMC.Firmware, GUID: status.MMC.SystemGUID},
			Node: status.Node, itemSize: ofNodes[status.Node], AsRecorded: notAsRecorded(server),
		}
		for _, port := range status.Ports {
			items[i].Ports = append(items[i].Ports, itemPort{Name: port.Name, NIC: port.NIC, MAC: port.MAC, Address: port.Address})
		}
		for _, sensor := range status.Sensors {
			items[i].Sensors = append(items[i].Sensors, itemRead{Name: sensor.Name, Value: sensor.Value, Beyond: sensor.Beyond})
		}
		for _, event := range status.Events {
			read := itemEvent{ID: event.ID, Sensor: event.Sensor, Text: event.Text, Ended: event.Ended}
			if event.At != nil {
				read.At = event.At.UTC().Format(time.RFC3339)
			}
			items[i].Events = append(items[i].Events, read)
		}
	}
	plain.Clean(&items, plain.Text)
	found := &listing{Servers: items, sizesMissing: missing}
	found.sum()
	return found, found.addUnknown(ctx, cluster)
}

func notAsRecorded(server *v1alpha1.Server) string {
	for i := range server.Status.Conditions {
		if c := &server.Status.Conditions[i]; c.Type == v1alpha1.ConditionAsRecorded && c.Status == "False" {
			return c.Message
		}
	}
	return ""
}

func writeItemsJSON(out io.Writer, found *listing) error { return writeJSON(out, found) }

// writeItems writes a table, below the table the faults of servers, and then the sums.
func writeItems(out io.Writer, found *listing) error {
	items := found.Servers
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	_, _ = fmt.Fprintln(table, "SERVER\tCHASSIS\tSLOT\tMANUFACTURER\tPRODUCT\tSERIAL\tFIRMWARE\tBMC\tPORTS\tSENSORS\tLAST EVENT")
	for i := range items {
		of := &items[i]
		var ports, sensors []string
		for _, port := range of.Ports {
			ports = append(ports, strings.TrimSuffix(port.Name+"="+or(port.MAC)+"/"+port.Address, "/"))
		}
		for _, sensor := range of.Sensors {
			mark := ""
			if sensor.Beyond {
				mark = "!"
			}
			sensors = append(sensors, sensor.Name+" "+sensor.Value+mark)
		}
		_, _ = fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", of.Server, or(of.Chassis), of.Slot, or(of.Manufacturer),
			or(of.Product), or(of.Serial), or(of.BMC.Firmware), or(of.BMC.Address), or(strings.Join(ports, " ")),
			or(strings.Join(sensors, ", ")), or(of.last()))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for i := range items {
		if items[i].AsRecorded != "" {
			fmt.Fprintf(&text, "\n%s: %s", items[i].Server, items[i].AsRecorded)
		}
	}
	found.describe(&text)
	return writeText(out, strings.TrimRight(text.String(), "\n")+"\n")
}

func or(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// writeItemsCSV has a line for each port, as lists for DHCP servers and switches have: chassis, slot, server, its port, and the addresses.
func writeItemsCSV(out io.Writer, found *listing) error {
	table := csv.NewWriter(out)
	lines := [][]string{{"chassis", "slot", "server", "port", "nic", "mac", "address", "bmc", "serial"}}
	for i := range found.Servers {
		of := &found.Servers[i]
		for _, port := range of.Ports {
			lines = append(lines, []string{
				of.Chassis, strconv.Itoa(int(of.Slot)), of.Server, port.Name, strconv.Itoa(int(port.NIC)), port.MAC, port.Address,
				of.BMC.Address, of.Serial,
			})
		}
	}
	if err := table.WriteAll(lines); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
