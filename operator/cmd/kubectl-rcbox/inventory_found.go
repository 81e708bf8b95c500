package main

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// foundColumn is what the system of a blade has found in it: a column of the wide table and of CSV.
type foundColumn struct {
	head string
	cell func(*hardware.Inventory) string
}

// of is empty for a server without a report.
func (c foundColumn) of(found *hardware.Inventory) string {
	if found == nil {
		return ""
	}
	return c.cell(found)
}

var foundColumns = []foundColumn{
	{"CPU", func(i *hardware.Inventory) string { return i.CPU.Model }},
	{"CORES", func(i *hardware.Inventory) string { return strconv.Itoa(i.CPU.Cores) }},
	{"FLAGS", func(i *hardware.Inventory) string { return flagsOf(i.CPU) }},
	{"MEMORY", memoryOf},
	{"DISKS", func(i *hardware.Inventory) string {
		var all []string
		for _, disk := range i.Disks {
			all = append(all, disk.Name+" "+gibibytes(disk.Bytes))
		}
		return strings.Join(all, ", ")
	}},
	{"CHECKSUM", rateOf(func(m *hardware.Measured) int64 { return m.ChecksumMBps })},
	{"COPY", rateOf(func(m *hardware.Measured) int64 { return m.CopyMBps })},
	{"READ", rateOf(func(m *hardware.Measured) int64 { return m.ReadMBps })},
}

// rateOf is what was measured at the start of the blade; empty if it was not.
func rateOf(rate func(*hardware.Measured) int64) func(*hardware.Inventory) string {
	return func(inventory *hardware.Inventory) string {
		if inventory.Measured == nil || rate(inventory.Measured) <= 0 {
			return ""
		}
		return fmt.Sprintf("%d MB/s", rate(inventory.Measured))
	}
}

// flagsOf names those that a store gains most from as the kernel does.
func flagsOf(processor hardware.Processor) string {
	var all []string
	for _, flag := range []struct {
		is   bool
		name string
	}{{processor.CRC32, "sse4_2"}, {processor.Pages1G, "pdpe1gb"}, {processor.AES, "aes"}} {
		if flag.is {
			all = append(all, flag.name)
		}
	}
	return strings.Join(all, " ")
}

// memoryOf has the memory of each channel and its clock, or what the kernel may use if the firmware names no channels.
func memoryOf(inventory *hardware.Inventory) string {
	var all []string
	for _, channel := range inventory.Channels {
		text := fmt.Sprintf("%s %s", channel.Name, gibibytes(channel.Bytes))
		if channel.MHz > 0 {
			text += fmt.Sprintf(" at %d MHz", channel.MHz)
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return gibibytes(inventory.MemoryBytes)
	}
	return strings.Join(all, ", ")
}

// foundPort is the name, the driver and the virtual functions of the port with a MAC address.
func foundPort(found *hardware.Inventory, mac string) string {
	if found == nil || mac == "" {
		return ""
	}
	for _, port := range found.Ports {
		if strings.EqualFold(port.MAC, mac) {
			text := strings.TrimSpace(port.Name + " " + port.Driver)
			if port.VirtualFunctions > 0 {
				text += fmt.Sprintf(", %d virtual functions", port.VirtualFunctions)
			}
			return text
		}
	}
	return ""
}

// addFound reads what the blade has reported, and compares that with what its BMC reports.
func (i *item) addFound(node *corev1.Node) {
	if node == nil || node.Annotations[hardware.Annotation] == "" {
		return
	}
	found, err := hardware.Parse(node.Annotations[hardware.Annotation])
	if err != nil {
		i.Differs = []string{fmt.Sprintf("annotation %s of node %s: %v", hardware.Annotation, node.Name, err)}
		return
	}
	i.Found = &found
	i.Differs = append(found.Differences(i.Serial, i.recorded()), found.Unapplied...)
}

// recorded are the ports as the BMC reports them.
func (i *item) recorded() []hardware.RecordedPort {
	ports := make([]hardware.RecordedPort, len(i.Ports))
	for n, port := range i.Ports {
		ports[n] = hardware.RecordedPort{Name: port.Name, MAC: port.MAC}
	}
	return ports
}

// nameDoubled names MAC addresses that two blades have found in themselves.
func nameDoubled(items []item) {
	index := hardware.Index{}
	for n := range items {
		if of := &items[n]; of.Found != nil {
			index.Add(of.Server, of.Found.Ports)
		}
	}
	for n := range items {
		if of := &items[n]; of.Found != nil {
			of.Differs = append(of.Differs, index.Doubled(of.Server, of.Found.Ports, of.recorded())...)
		}
	}
}
