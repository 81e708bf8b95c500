# shellcheck shell=bash
# Makes virtual functions, in the guest: two ports of a NIC with two of them each, all on one wire.

# Physical functions.
PFS=(0000:01:00.0 0000:02:00.0)
VFS_EACH=2

device() { echo "/sys/bus/pci/devices/$1"; }
interface() { basename "$(device "$1")"/net/*; }
# vf PORT NUMBER: its PCI address.
vf() { basename "$(readlink "$(device "${PFS[$1]}")/virtfn$2")"; }
group() { basename "$(readlink "$(device "$1")/iommu_group")"; }
carrier() { [[ $(<"$(device "${PFS[0]}")/net/$(interface "${PFS[0]}")/carrier") == "$1" ]]; }

# has_low_registers DEVICE: QEMU 10.0 has registers of a function whose address is above 4 GiB at the lower half of that address, over
# whatever is there; a driver reads zeros. Firmware uses addresses above 4 GiB as soon as there is memory.
has_low_registers() {
	local first _
	read -r first _ <"$(device "$1")/resource"
	((first < 1 << 32)) && return
	echo "the registers of $1 are at $first: this machine has too much memory for this emulator"
	return 1
}

has_iommu() {
	modprobe vfio-pci && modprobe vfio_iommu_type1 && modprobe igb
	ls /sys/class/iommu
	[[ -n $(ls /sys/class/iommu) && -c /dev/vfio/vfio ]]
}

makes_vfs() {
	local pf
	for pf in "${PFS[@]}"; do
		# No driver of the kernel for them.
		echo 0 >"$(device "$pf")/sriov_drivers_autoprobe"
		echo "$VFS_EACH" >"$(device "$pf")/sriov_numvfs"
		ip link set "$(interface "$pf")" up
		[[ $(find "$(device "$pf")/" -name 'virtfn*' | wc -l) == "$VFS_EACH" ]] || return 1
	done
	await 60 carrier 1
}

binds_vfs() {
	local port number address
	for port in 0 1; do
		for ((number = 0; number < VFS_EACH; number++)); do
			address=$(vf "$port" "$number")
			has_low_registers "$address" || return 1
			echo vfio-pci >"$(device "$address")/driver_override"
			echo "$address" >/sys/bus/pci/drivers_probe
			echo "$address $(<"$(device "$address")/vendor"):$(<"$(device "$address")/device") group $(group "$address")"
			[[ $(basename "$(readlink "$(device "$address")/driver")") == vfio-pci ]] || return 1
			# Alone in its group, whose file is there.
			[[ $(ls "$(device "$address")/iommu_group/devices") == "$address" && -c /dev/vfio/$(group "$address") ]] || return 1
		done
	done
}
