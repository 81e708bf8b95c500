package main

import (
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"rcbox.dev/rcbox/operator/internal/blade"
)

// foundColumn is what the system of a blade has found in it: a column of the wide table and of CSV.
type foundColumn struct {
	head string
	cell func(*blade.Inventory) string
}

// of is empty for a server without a report.
func (c foundColumn) of(found *blade.Inventory) string {
	if found == nil {
		return ""
	}
	return c.cell(found)
}

var foundColumns = []foundColumn{
	{"CPU", func(i *blade.Inventory) string { return i.CPU.Model }},
	{"CORES", func(i *blade.Inventory) string { return strconv.Itoa(i.CPU.Cores) }},
	{"FLAGS", func(i *blade.Inventory) string { return flagsOf(i.CPU) }},
	{"MEMORY", memoryOf},
	{"DISKS", func(i *blade.Inventory) string {
		var all []string
		for _, disk := range i.Disks {
			all = append(all, disk.Name+" "+gibibytes(disk.Bytes))
		}
		return strings.Join(all, ", ")
	}},
}

// flagsOf names those that a store gains most from as the kernel does.
func flagsOf(processor blade.Processor) string {
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
func memoryOf(inventory *blade.Inventory) string {
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

// foundPort is the name and the driver of the port with a MAC address.
func foundPort(found *blade.Inventory, mac string) string {
	if found == nil || mac == "" {
		return ""
	}
	for _, port := range found.Ports {
		if strings.EqualFold(port.MAC, mac) {
			return strings.TrimSpace(port.Name + " " + port.Driver)
		}
	}
	return ""
}

// addFound reads what the blade has reported, and compares that with what its BMC reports.
func (i *item) addFound(node *corev1.Node) {
	if node == nil || node.Annotations[blade.AnnotationInventory] == "" {
		return
	}
	found, err := blade.ParseInventory(node.Annotations[blade.AnnotationInventory])
	if err != nil {
		i.Differs = []string{fmt.Sprintf("annotation %s of node %s: %v", blade.AnnotationInventory, node.Name, err)}
		return
	}
	i.Found = &found
	ports := make([]blade.RecordedPort, len(i.Ports))
	for n, port := range i.Ports {
		ports[n] = blade.RecordedPort{Name: port.Name, MAC: port.MAC}
	}
	i.Differs = found.Differences(i.Serial, ports)
}

// nameDoubled names MAC addresses that two blades have found in themselves.
func nameDoubled(items []item) {
	first := map[string]*item{}
	for n := range items {
		of := &items[n]
		if of.Found == nil {
			continue
		}
		for _, port := range of.Found.Ports {
			mac := strings.ToLower(port.MAC)
			switch other := first[mac]; {
			case mac == "", other == of:
			case other == nil:
				first[mac] = of
			default:
				of.Differs = append(of.Differs,
					fmt.Sprintf("the MAC address %s of its port %s is one of %s, too", mac, port.Name, other.Server))
			}
		}
	}
}
