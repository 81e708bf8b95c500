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
	"rcbox.dev/rcbox/operator/internal/blade/hardware"
	"rcbox.dev/rcbox/operator/internal/plugin/access"
	"rcbox.dev/rcbox/operator/internal/plugin/plain"
)

// columnGap is what is between two columns of a table.
const columnGap = 3

func (p *plugin) inventoryCommand() *cobra.Command {
	var format string
	command := &cobra.Command{
		Use:   "inventory SERVERS",
		Short: "List what is in the slots of a chassis, as the BMCs and the blades say",
		Long: `Shows what the box controller has read from the BMC of each server of a list: who made it, serial number, firmware,
the ports with their addresses, sensors, rounded, and the newest event of its log (-o json: up to 8). Nothing is asked of the BMCs:
identities are read every 5 minutes and after a BMC was silent, sensors and logs every minute. Below the table are sums of
processors, memory and disks of each chassis, as the kubelets of its nodes report them: of a server that runs no node they are not known.
A blade that was installed by rcbox reports at each start what its system has found: -o wide shows processors, memory and disks, and
-o json and -o csv show all. Where that differs from what the BMC reports, and where two blades have the same MAC address, a line below
the table says so.
Machines that asked box hosts for an address, and are no server, are listed last, as unknown.

` + listHelp,
		Example: `  kubectl rcbox inventory mercury1
  kubectl rcbox inventory mercury1 -o wide
  kubectl rcbox inventory 1-132 -o csv > servers.csv
  kubectl rcbox inventory atom007 -o json`,
		Args: cobra.ExactArgs(1),
		RunE: func(command *cobra.Command, arguments []string) error {
			write := map[string]func(io.Writer, *listing) error{
				"": writeItems, "wide": writeItemsWide, "json": writeItemsJSON, "csv": writeItemsCSV,
			}[format]
			if write == nil {
				return usage(command, fmt.Errorf("--output is %q: write wide, json or csv, or leave it out", format))
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
	command.Flags().StringVarP(&format, "output", "o", "", "wide, or for scripts json or csv")
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
	// Found is what the system of the blade has found at its last start; absent: its node has no report.
	Found *hardware.Inventory `json:"found,omitempty"`
	// Differs says where Found is not what BMCs report, or what other blades have, too; or that the report is not usable.
	Differs []string `json:"differs,omitempty"`
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
	nodes, missing, err := nodesByName(ctx, cluster)
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
			Node: status.Node, itemSize: sizeOf(nodes[status.Node]), AsRecorded: notAsRecorded(server),
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
		items[i].addFound(nodes[status.Node])
	}
	nameDoubled(items)
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

func writeItems(out io.Writer, found *listing) error     { return writeTable(out, found, nil) }
func writeItemsWide(out io.Writer, found *listing) error { return writeTable(out, found, foundColumns) }

// writeTable writes a table with further columns, below the table the faults of servers, and then the sums.
func writeTable(out io.Writer, found *listing, further []foundColumn) error {
	items := found.Servers
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, columnGap, ' ', 0)
	heads := []string{"SERVER", "CHASSIS", "SLOT", "MANUFACTURER", "PRODUCT", "SERIAL", "FIRMWARE", "BMC", "PORTS", "SENSORS", "LAST EVENT"}
	for _, column := range further {
		heads = append(heads, column.head)
	}
	_, _ = fmt.Fprintln(table, strings.Join(heads, "\t"))
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
		cells := []string{
			of.Server, of.Chassis, strconv.Itoa(int(of.Slot)), of.Manufacturer, of.Product, of.Serial, of.BMC.Firmware, of.BMC.Address,
			strings.Join(ports, " "), strings.Join(sensors, ", "), of.last(),
		}
		for _, column := range further {
			cells = append(cells, column.of(of.Found))
		}
		for n := range cells {
			cells[n] = or(cells[n])
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	for i := range items {
		if items[i].AsRecorded != "" {
			fmt.Fprintf(&text, "\n%s: %s", items[i].Server, items[i].AsRecorded)
		}
		for _, difference := range items[i].Differs {
			fmt.Fprintf(&text, "\n%s: %s", items[i].Server, difference)
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
	heads := []string{"chassis", "slot", "server", "port", "nic", "mac", "address", "bmc", "serial", "foundPort"}
	for _, column := range foundColumns {
		heads = append(heads, strings.ToLower(column.head))
	}
	lines := [][]string{heads}
	for i := range found.Servers {
		of := &found.Servers[i]
		for _, port := range of.Ports {
			cells := []string{
				of.Chassis, strconv.Itoa(int(of.Slot)), of.Server, port.Name, strconv.Itoa(int(port.NIC)), port.MAC, port.Address,
				of.BMC.Address, of.Serial, foundPort(of.Found, port.MAC),
			}
			for _, column := range foundColumns {
				cells = append(cells, column.of(of.Found))
			}
			lines = append(lines, cells)
		}
	}
	if err := table.WriteAll(lines); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}
