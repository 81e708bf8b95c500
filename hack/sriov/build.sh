#!/usr/bin/env bash
# Builds from Debian packages what the test of SR-IOV runs in.
#
# usage: hack/sriov/build.sh emulator FOLDER    QEMU with Intel's igb: a folder of its own, nothing is installed
#        hack/sriov/build.sh guest FOLDER       a kernel (vmlinuz), a file system in memory (root.cpio), and all modules
#        hack/sriov/build.sh disk FOLDER GUEST IMAGE
#                                               a disk with the root file system of a kind node, and that guest's modules
# Needs root, mmdebstrap and cpio; for a disk e2fsprogs and a Docker engine.
set -euo pipefail
# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

MIRROR=http://deb.debian.org/debian
GUEST_PACKAGES=linux-image-amd64,bash,coreutils,findutils,grep,iproute2,kmod,mawk,mount,procps,sed,util-linux
# Of a kernel's 4000 modules these, and what they need: NIC, vfio, disks.
MODULES=(igb vfio-pci vfio_iommu_type1 virtio_pci virtio_blk ext4)
# Of which a run uses less than half; the file is no larger than what is written.
DISK_SIZE=8G

# packages FOLDER INCLUDE [SOURCE-OR-OPTION...]: unpacks packages and what they need; nothing of them is run, nothing is set up.
packages() {
	local folder=$1 include=$2
	shift 2
	mmdebstrap --quiet --variant=extract --format=directory --include="$include" --aptopt='APT::Install-Recommends "false"' \
		"$DEBIAN_SUITE" "$folder" "deb $MIRROR $DEBIAN_SUITE main" "$@"
}

# igb came with QEMU 8; the release's own is older. Backports need the release beside them.
emulator() {
	packages "$1" qemu-system-x86 "deb $MIRROR $DEBIAN_SUITE-backports main" \
		--aptopt="APT::Default-Release \"$DEBIAN_SUITE-backports\""
}

guest() {
	local folder=$1 root=$1/root kernel
	mkdir -p "$folder"
	packages "$root" "$GUEST_PACKAGES" \
		--dpkgopt='path-exclude=/usr/share/*' --dpkgopt='path-exclude=/usr/lib/*/gconv/*' --dpkgopt='path-exclude=/lib/udev/hwdb.d/*'
	kernel=$(basename "$root"/lib/modules/*)
	mv "$root/boot/vmlinuz-$kernel" "$folder/vmlinuz"
	rm -r "${root:?}/boot"
	mkdir "$folder/modules"
	keep_modules "$root" "$kernel" "$folder/modules/$kernel"
	(cd "$root" && find . | cpio --create --format newc --owner 0:0 --quiet) >"$folder/root.cpio"
	rm -rf "$root"
}

# keep_modules ROOT KERNEL ALL: moves them all to the folder ALL, and puts the few in their place.
keep_modules() {
	local root=$1 kernel=$2 everything=$3 module
	local all=$root/lib/modules/$kernel kept=$root/lib/modules/kept
	chroot "$root" depmod "$kernel"
	mkdir "$kept"
	cp "$all"/modules.{order,builtin,builtin.modinfo} "$kept/"
	for module in "${MODULES[@]}"; do
		chroot "$root" modprobe --set-version "$kernel" --show-depends "$module"
	done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r module; do
		install -D -m 644 "$root$module" "$kept${module#"/lib/modules/$kernel"}"
	done
	mv "$all" "$everything"
	mv "$kept" "$all"
	chroot "$root" depmod "$kernel"
}

disk() {
	local folder=$1 guest=$2 image=$3 root=$1/root container
	mkdir -p "$root"
	container=$(docker create "$image")
	docker export "$container" | tar --extract --directory "$root"
	docker rm "$container"
	cp -r "$guest/modules" "$root/lib/"
	# The device plugin looks names of vendors up.
	packages "$folder/more" pci.ids
	install -D -m 644 -t "$root/usr/share/misc" "$folder/more/usr/share/misc/pci.ids"
	mke2fs -q -t ext4 -d "$root" "$folder/disk" "$DISK_SIZE"
	rm -rf "$root" "$folder/more"
}

(($# >= 2)) || die "usage: hack/sriov/build.sh emulator|guest|disk FOLDER [GUEST IMAGE]"
as_root "building from Debian packages"
"$@"
