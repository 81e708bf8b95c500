#!/usr/bin/env bash
# Collects what programs that use DPDK need to run, beside a C library: DPDK's libraries,
# drivers of NICs and of what stands in for them, and what these need in turn. From this
# machine, since programs run with the very libraries that they were linked with.
#
# usage: hack/collect-dpdk.sh FOLDER PROGRAM...
# Files get the same paths below FOLDER. Copyright notices come along where dpkg knows them.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

FOLDER=$1
shift

# DPDK loads every driver that it finds when it starts, so there are no others: those that
# need no NIC, those of virtual machines, and Intel's and NVIDIA's NICs with their VFs.
DRIVERS=(
	mempool_ring
	net_memif net_af_packet net_af_xdp net_tap net_null net_ring
	net_virtio net_vhost net_vmxnet3 net_ena
	net_e1000 net_igc net_ixgbe net_i40e net_iavf net_ice
	net_mlx4 net_mlx5
)
# What every base image has.
BASE='^(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|util|resolv|gcc_s))\.so'

# copy FILE: with the links that lead to it. The base image's /lib may be a link to /usr/lib: nothing is put through it.
copy() {
	local file=$1 target
	while :; do
		file=$(realpath "$(dirname "$file")")/$(basename "$file")
		mkdir -p "$FOLDER$(dirname "$file")"
		cp -P "$file" "$FOLDER$file"
		[[ -L $file ]] || break
		target=$(readlink "$file")
		[[ $target == /* ]] || target=$(dirname "$file")/$target
		file=$target
	done
	echo "$file"
}

# notices FILE...: those of the packages that the files are from.
notices() {
	local package
	while read -r package; do
		[[ -e /usr/share/doc/$package/copyright ]] || continue
		mkdir -p "$FOLDER/usr/share/doc/$package"
		cp -L "/usr/share/doc/$package/copyright" "$FOLDER/usr/share/doc/$package/"
	done < <({ dpkg-query -S "$@" 2>/dev/null || true; } | sed 's/[:,].*//' | sort -u)
}

# needed FILE...: the libraries that they load, as paths.
needed() {
	local missing
	missing=$(ldd "$@" | grep "not found" || true)
	[[ -z $missing ]] || die "libraries are missing on this machine: $missing"
	ldd "$@" | awk '$2 == "=>" { print $1, $3 }' | grep -vE "$BASE" | awk '{ print $2 }' | sort -u
}

main() {
	local libraries driver plugin plugins=() files=()
	libraries=$(realpath "$(pkg-config --variable=libdir libdpdk)")
	for driver in "${DRIVERS[@]}"; do
		plugin=$(find "$libraries"/dpdk/pmds-* -name "librte_$driver.so.[0-9]*" -type l)
		[[ -n $plugin ]] || die "DPDK's driver $driver is not there; install libdpdk-dev, or the driver's own package"
		plugins+=("$plugin")
	done
	# libibverbs loads these by what is written in /etc.
	for driver in mlx4 mlx5; do
		plugins+=("$(find "$libraries/libibverbs" -name "lib$driver-rdmav*.so")")
		mkdir -p "$FOLDER/etc/libibverbs.d"
		cp "/etc/libibverbs.d/$driver.driver" "$FOLDER/etc/libibverbs.d/"
	done
	mapfile -t files < <(needed "$@" "${plugins[@]}")
	mapfile -t files < <(printf '%s\n' "${plugins[@]}" "${files[@]}" | while read -r plugin; do copy "$plugin"; done)
	notices "${files[@]}"
}

(($#)) || die "usage: hack/collect-dpdk.sh FOLDER PROGRAM..."
main "$@"
