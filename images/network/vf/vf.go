// Package vf finds out what the kernel knows of a virtual function of a NIC.
package vf

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Devices is where the kernel lists PCI devices.
const Devices = "/sys/bus/pci/devices"

// UserDriver is the kernel's driver of functions that a process drives itself.
const UserDriver = "vfio-pci"

// Function is a virtual function.
type Function struct {
	// Port is the interface of the physical function that it belongs to.
	Port string
	// Number of the function among those of its port, from 0.
	Number int
	// Driver of the kernel that it is bound to; empty if none.
	Driver string
}

// Addresses come from outside and become a part of a path.
var pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// Find looks the function with a PCI address up in a folder like Devices.
func Find(devices, address string) (Function, error) {
	if !pciAddress.MatchString(address) {
		return Function{}, fmt.Errorf("%q is no PCI address such as 0000:01:10.0", address)
	}
	device := filepath.Join(devices, address)
	if _, err := os.Stat(device); err != nil {
		return Function{}, fmt.Errorf("there is no PCI device %s: %w", address, err)
	}
	number, err := numberOf(device, address)
	if err != nil {
		return Function{}, err
	}
	interfaces, err := os.ReadDir(filepath.Join(device, "physfn", "net"))
	if err != nil || len(interfaces) == 0 {
		return Function{}, errors.Join(fmt.Errorf("the physical function of %s has no interface; is its driver the kernel's?", address), err)
	}
	driver, err := os.Readlink(filepath.Join(device, "driver"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Function{}, fmt.Errorf("driver of %s: %w", address, err)
	}
	function := Function{Port: interfaces[0].Name(), Number: number}
	if driver != "" {
		function.Driver = filepath.Base(driver)
	}
	return function, nil
}

// numberOf is N of the link virtfnN of the physical function that leads to the device.
func numberOf(device, address string) (int, error) {
	const prefix = "virtfn"
	links, err := filepath.Glob(filepath.Join(device, "physfn", prefix+"*"))
	if err != nil {
		return 0, fmt.Errorf("functions beside %s: %w", address, err)
	}
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil || filepath.Base(target) != address {
			continue
		}
		number, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(link), prefix))
		if err != nil {
			return 0, fmt.Errorf("number of %s: %w", address, err)
		}
		return number, nil
	}
	return 0, fmt.Errorf("%s is no virtual function", address)
}
