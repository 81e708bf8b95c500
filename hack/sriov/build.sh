#!/usr/bin/env bash
# Builds from Debian packages what the test of SR-IOV runs in.
#
# usage: hack/sriov/build.sh emulator FOLDER    QEMU with Intel's igb: a folder of its own, nothing is installed
#        hack/sriov/build.sh guest FOLDER       a kernel (vmlinuz) and a file system in memory (root.cpio)
# Needs root, mmdebstrap and cpio.
set -euo pipefail
# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

MIRROR=http://deb.debian.org/debian
GUEST_PACKAGES=linux-image-amd64,bash,coreutils,findutils,grep,iproute2,kmod,mawk,mount,procps,sed,util-linux
# Of a kernel's 4000 modules these, and what they need.
MODULES=(igb vfio-pci vfio_iommu_type1)

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
	keep_modules "$root" "$kernel"
	(cd "$root" && find . | cpio --create --format newc --owner 0:0 --quiet) >"$folder/root.cpio"
	rm -rf "$root"
}

# keep_modules ROOT KERNEL: deletes all others.
keep_modules() {
	local root=$1 kernel=$2 module
	local all=$root/lib/modules/$kernel kept=$root/lib/modules/kept
	chroot "$root" depmod "$kernel"
	mkdir "$kept"
	mv "$all"/modules.{order,builtin,builtin.modinfo} "$kept/"
	for module in "${MODULES[@]}"; do
		chroot "$root" modprobe --set-version "$kernel" --show-depends "$module"
	done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r module; do
		install -D -m 644 "$root$module" "$kept${module#"/lib/modules/$kernel"}"
	done
	rm -r "$all"
	mv "$kept" "$all"
	chroot "$root" depmod "$kernel"
}

(($# == 2)) || die "usage: hack/sriov/build.sh emulator|guest FOLDER"
as_root "building from Debian packages"
"$@"
