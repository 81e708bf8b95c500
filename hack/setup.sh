#!/usr/bin/env bash
# Installs the Debian packages that a part of the build needs and this machine lacks.
#
# usage: hack/setup.sh PART...
#   store     to build the store: a C toolchain, pkg-config and DPDK
#   python    to build and test its Python package: an interpreter with venv
#   faults    to run the fault tests: what makes network namespaces
#   network   to test what goes over networks: namespaces, and what reads captures
#   cluster   to run kind: a Docker engine and what it needs
#   node      to build node and base image without a container registry
#   sriov     to make a virtual machine whose NICs are emulated
#   box       to test against an emulated rack
#   blade     to build the image that blades boot from the network
#   lint      shellcheck
#   generate  protoc
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# Debian's way to forbid that installing a package starts a service.
POLICY=/usr/sbin/policy-rc.d

# needs PART: lines "path-or-command package": the package is wanted when the first is not there.
needs() {
	case $1 in
	store) cat <<-'LIST' ;;
		gcc gcc
		g++ g++
		/usr/include/stdio.h libc6-dev
		pkg-config pkg-config
		/usr/include/dpdk/rte_ethdev.h libdpdk-dev
	LIST
	python)
		echo "python3 python3"
		# Debian has what makes virtual environments in a package of its own.
		python3 -c 'import ensurepip, venv' 2>/dev/null || echo "/no/such/path python3-venv"
		;;
	faults) cat <<-'LIST' ;;
		ip iproute2
		jq jq
	LIST
	network) cat <<-'LIST' ;;
		ip iproute2
		ethtool ethtool
		tshark tshark
	LIST
	box) cat <<-'LIST' ;;
		ip iproute2
		ipmi_sim openipmi
		ipmitool ipmitool
		ipmipower freeipmi-tools
		nft nftables
		dnsmasq dnsmasq-base
		ganesha.nfsd nfs-ganesha-vfs
		nfs-ls libnfs-utils
		/usr/sbin/sshd openssh-server
		ssh openssh-client
		busybox busybox
		ypserv ypserv
		ypcat yp-tools
		ypbind ypbind-mt
		/usr/lib/x86_64-linux-gnu/libnss_nis.so.2 libnss-nis
		snmpd snmpd
		/usr/lib/ipxe/undionly.kpxe ipxe
		ovs-vsctl openvswitch-switch
		qemu-system-x86_64 qemu-system-x86
		/usr/lib/ipxe/qemu/efi-virtio.rom ipxe-qemu
		chromium chromium
		/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf fonts-dejavu-core
	LIST
	cluster)
		cat <<-'LIST'
			jq jq
			flock util-linux
		LIST
		# Any running engine serves; without one, Debian's.
		if ! docker info >/dev/null 2>&1; then
			cat <<-'LIST'
				/usr/sbin/dockerd docker.io
				iptables iptables
				setsid util-linux
				sysctl procps
			LIST
		fi
		;;
	node) cat <<-'LIST' ;;
		mmdebstrap mmdebstrap
		zstd zstd
		/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
	LIST
	sriov) cat <<-'LIST' ;;
		mmdebstrap mmdebstrap
		cpio cpio
		strip binutils
		/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
	LIST
	blade) cat <<-'LIST' ;;
		mmdebstrap mmdebstrap
		/usr/share/keyrings/debian-archive-keyring.gpg debian-archive-keyring
		cpio cpio
		depmod kmod
		grub-mkimage grub-common
		/usr/lib/grub/i386-pc/boot.img grub-pc-bin
		jq jq
		mke2fs e2fsprogs
		skopeo skopeo
		umoci umoci
		zstd zstd
	LIST
	lint) echo "shellcheck shellcheck" ;;
	generate) echo "protoc protobuf-compiler" ;;
	*) die "hack/setup.sh: unknown part '$1'" ;;
	esac
}

# missing PART...: the packages that are wanted and not there.
missing() {
	local part path package
	for part in "$@"; do
		while read -r path package; do
			command -v "$path" >/dev/null || [[ -e $path ]] || echo "$package"
		done < <(needs "$part")
	done | sort -u
}

install_packages() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -q
	if [[ " $* " =~ " openssh-server "|" nfs-ganesha-vfs "|" ypserv "|" ypbind-mt "|" snmpd " && ! -e $POLICY ]]; then
		# Tests start these in namespaces of their own; installing them must open no port of this machine.
		trap 'rm -f "$POLICY"' EXIT
		printf '#!/bin/sh\nexit 101\n' >"$POLICY"
		chmod +x "$POLICY"
	fi
	apt-get install -qy --no-install-recommends "$@" 9>&- # what it starts must not keep the lock
}

main() {
	local part
	for part in "$@"; do
		needs "$part" >/dev/null # here, where an unknown part ends the script
	done
	[[ -z $(missing "$@") ]] || with_lock setup install_missing "$@"
}

# install_missing PART...: another script, beside this one, may just have done so.
install_missing() {
	local packages
	mapfile -t packages < <(missing "$@")
	((${#packages[@]})) || return 0
	command -v apt-get >/dev/null ||
		die "this machine lacks: ${packages[*]} (names as in Debian), and has no apt-get; please install them"
	((EUID == 0)) ||
		die "this machine lacks some packages; please run: sudo apt-get install --no-install-recommends ${packages[*]}"
	step "install ${#packages[@]} packages of Debian" install_packages "${packages[@]}"
}

# Go and Rust come from their own installers, which we leave to the user.
command -v go >/dev/null || die "Go is not on the PATH; rcbox needs Go 1.26 or newer"
command -v cargo >/dev/null || die "Rust (cargo) is not on the PATH; rcbox needs the stable toolchain"

main "$@"
