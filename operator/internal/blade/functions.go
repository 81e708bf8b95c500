package blade

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path"
	"strconv"
	"strings"
)

// VirtualFunctions has ports of a driver divided into virtual functions (SR-IOV), which vfio-pci takes for programs that drive them.
type VirtualFunctions struct {
	// Driver of the ports, such as igb.
	Driver string `json:"driver"`
	// Port is the only one that is divided, such as eth1; empty: each port of the driver.
	Port string `json:"port,omitempty"`
	// Count of functions of each port.
	Count int `json:"count"`
}

// Kernel is what virtual functions are made by, beside the files that are read.
type Kernel interface {
	// Write writes to a file of sysfs.
	Write(name, text string) error
	// SetUp switches a port on: functions of a port that is off receive nothing.
	SetUp(ctx context.Context, port string) error
	// SetFunction gives a function its MAC address, and has the port drop frames that it sends from another address.
	SetFunction(ctx context.Context, port string, index int, mac net.HardwareAddr) error
}

const (
	netFolder    = "sys/class/net"
	pciFolder    = "sys/bus/pci"
	driverOfVFs  = "vfio-pci"
	mostVFs      = 64
	addressBytes = 6
)

// errFunctions is wrapped by errors of ports that do not have the functions that they should.
var errFunctions = errors.New("virtual functions")

// MakeFunctions divides the ports of this machine as the settings say, and returns those ports. The error names each port that could not be
// divided; the others are. Ports that have as many functions already keep them.
func MakeFunctions(ctx context.Context, root fs.FS, kernel Kernel, settings Settings) (made []string, err error) {
	wanted, err := settings.functionsOf(root)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, of := range wanted {
		if err := of.make(ctx, root, kernel); err != nil {
			errs = append(errs, fmt.Errorf("%w of %s: %w", errFunctions, of.name, err))
			continue
		}
		made = append(made, of.name)
	}
	return made, errors.Join(errs...)
}

// dividedPort is a port that is to have functions.
type dividedPort struct {
	name, mac string
	count     int
}

// functionsOf are the ports of this machine that the settings name. If several settings name a port, the first counts.
func (s Settings) functionsOf(root fs.FS) ([]dividedPort, error) {
	if len(s.VirtualFunctions) == 0 {
		return nil, nil
	}
	ports, err := readPorts(root)
	if err != nil {
		return nil, err
	}
	var all []dividedPort
	for _, port := range ports {
		for _, wanted := range s.VirtualFunctions {
			if wanted.Driver == port.Driver && (wanted.Port == "" || wanted.Port == port.Name) {
				all = append(all, dividedPort{port.Name, port.MAC, wanted.Count})
				break
			}
		}
	}
	return all, nil
}

func (p *dividedPort) file(elements ...string) string {
	return path.Join(append([]string{netFolder, p.name, "device"}, elements...)...)
}

func (p *dividedPort) make(ctx context.Context, root fs.FS, kernel Kernel) error {
	if err := p.divide(root, kernel); err != nil {
		return err
	}
	if err := kernel.SetUp(ctx, p.name); err != nil {
		return err
	}
	own, err := net.ParseMAC(p.mac)
	if err != nil {
		return fmt.Errorf("the port has no MAC address: %w", err)
	}
	for index := range p.count {
		if err := p.hand(ctx, root, kernel, index, own); err != nil {
			return fmt.Errorf("function %d: %w", index, err)
		}
	}
	return p.check(root)
}

// divide makes functions that the kernel's own driver does not take.
func (p *dividedPort) divide(root fs.FS, kernel Kernel) error {
	if total, err := number(root, p.file("sriov_totalvfs")); err != nil || total < p.count {
		return fmt.Errorf("the port can have %d, and the settings want %d", total, p.count)
	}
	switch current, err := number(root, p.file("sriov_numvfs")); {
	case err != nil:
		return err
	case current == p.count:
		return nil
	case current != 0:
		return fmt.Errorf("the port has %d, which pods may use, and the settings want %d: restart the blade", current, p.count)
	}
	if err := kernel.Write(p.file("sriov_drivers_autoprobe"), "0"); err != nil {
		return err
	}
	return kernel.Write(p.file("sriov_numvfs"), strconv.Itoa(p.count))
}

// hand gives a function its address and its driver. The address is set first: whoever drives the function asks the port for it.
func (p *dividedPort) hand(ctx context.Context, root fs.FS, kernel Kernel, index int, own net.HardwareAddr) error {
	device, err := p.function(root, index)
	if err != nil {
		return err
	}
	if driverOf(root, device) == driverOfVFs {
		return nil // a pod may use it
	}
	if err := kernel.SetFunction(ctx, p.name, index, addressOf(own, index)); err != nil {
		return err
	}
	if err := kernel.Write(path.Join(pciFolder, "devices", device, "driver_override"), driverOfVFs); err != nil {
		return err
	}
	return kernel.Write(path.Join(pciFolder, "drivers_probe"), device)
}

// check reads back what was made: a write that the kernel takes proves little.
func (p *dividedPort) check(root fs.FS) error {
	if current, err := number(root, p.file("sriov_numvfs")); err != nil || current != p.count {
		return fmt.Errorf("the port has %d, not %d", current, p.count)
	}
	for index := range p.count {
		device, err := p.function(root, index)
		if err != nil {
			return fmt.Errorf("function %d: %w", index, err)
		}
		if driver := driverOf(root, device); driver != driverOfVFs {
			return fmt.Errorf("function %d (%s) is driven by %q, not by %s: is the IOMMU on, in the BIOS and by intel_iommu=on?",
				index, device, driver, driverOfVFs)
		}
	}
	return nil
}

// function is the PCI address of a function.
func (p *dividedPort) function(root fs.FS, index int) (string, error) {
	target, err := fs.ReadLink(root, p.file("virtfn"+strconv.Itoa(index)))
	if err != nil {
		return "", fmt.Errorf("find its device: %w", err)
	}
	return path.Base(target), nil
}

// driverOf is empty for a device without a driver.
func driverOf(root fs.FS, device string) string {
	target, err := fs.ReadLink(root, path.Join(pciFolder, "devices", device, "driver"))
	if err != nil {
		return ""
	}
	return path.Base(target)
}

func number(root fs.FS, name string) (int, error) {
	text, err := readBounded(root, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s has no number: %w", name, err)
	}
	return n, nil
}

// addressOf is the same at each start, and another one for each function of each port: an address that somebody has made up (its bit for
// local ones is set), from the port's own, which its maker has given to no other port.
func addressOf(own net.HardwareAddr, index int) net.HardwareAddr {
	const local, group = 0x02, 0x01
	sum := sha256.Sum256([]byte(own.String() + "/" + strconv.Itoa(index)))
	address := net.HardwareAddr(sum[:addressBytes])
	address[0] = address[0]&^group | local
	return address
}

// Unapplied says which settings this machine does not have, and why as far as that can be told.
func (s Settings) Unapplied(root fs.FS) []string {
	var all []string
	total, err := memoryField(root, "MemTotal")
	if pages, has := s.HugePages(total), hugePages(root); err == nil && has < pages {
		all = append(all, fmt.Sprintf("huge pages: there are %d, and the settings want %d: the kernel found no more memory in one piece",
			has, pages))
	}
	wanted, err := s.functionsOf(root)
	if err != nil {
		return append(all, fmt.Sprintf("%v: %v", errFunctions, err))
	}
	for _, of := range wanted {
		if err := of.check(root); err != nil {
			all = append(all, fmt.Sprintf("%v of %s: %v", errFunctions, of.name, err))
		}
	}
	return append(all, s.notTaken(root)...)
}

// hugePages are those of 2 MiB that the kernel has set aside.
func hugePages(root fs.FS) int64 {
	text, err := readBounded(root, "proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == "HugePages_Total" {
			pages, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			if err != nil {
				return 0
			}
			return pages
		}
	}
	return 0
}

// notTaken names devices with one of the PCI ids of the settings that vfio-pci does not drive.
func (s Settings) notTaken(root fs.FS) []string {
	if len(s.VFIO) == 0 {
		return nil
	}
	devices, err := names(root, path.Join(pciFolder, "devices"))
	if err != nil {
		return []string{fmt.Sprintf("vfio: %v", err)}
	}
	var all []string
	for _, device := range devices {
		folder := path.Join(pciFolder, "devices", device)
		id := strings.TrimPrefix(value(root, folder, "vendor"), "0x") + ":" + strings.TrimPrefix(value(root, folder, "device"), "0x")
		for _, wanted := range s.VFIO {
			if driver := driverOf(root, device); id == wanted && driver != driverOfVFs {
				all = append(all, fmt.Sprintf("vfio: device %s (%s) is driven by %q, not by %s", device, id, driver, driverOfVFs))
			}
		}
	}
	return all
}
