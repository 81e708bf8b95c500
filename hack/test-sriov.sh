#!/usr/bin/env bash
# The store over virtual functions (SR-IOV) of a NIC, without the hardware: in a virtual machine whose NICs, IOMMU and
# processors are emulated. See docs/sriov.md for what that proves, and what it does not.
#
# usage: hack/test-sriov.sh
#   RCBOX_SRIOV_MINUTES=20   after which the guest is ended
#   RCBOX_SRIOV_CPUS         processors of the guest [those of this machine, 2 to 4]
# Exit code 0: every check in the guest has passed. Needs 3 GiB of memory, and root once, to unpack Debian packages.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

MINUTES=${RCBOX_SRIOV_MINUTES:-20}
CORES=$(nproc)
CPUS=${RCBOX_SRIOV_CPUS:-$((CORES < 2 ? 2 : CORES > 4 ? 4 : CORES))}
SRIOV=$ROOT/hack/sriov
WORK=$BUILD/sriov
CONSOLE=$WORK/console.log
RESULTS=$WORK/results.log
PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release
EMULATOR_PID=

# part NAME: builds what is not there yet; sets FOLDER.
part() {
	FOLDER=$CACHE/sriov/$1-$(hash_of "$DEBIAN_SUITE" "$SRIOV/build.sh")
	[[ -e $FOLDER ]] || with_lock "sriov-$1" build_part "$1"
}
build_part() {
	[[ ! -e $FOLDER ]] || return 0
	rm -rf "$FOLDER.new"
	mkdir -p "$CACHE/sriov"
	step "sriov: unpack the $1" "$SRIOV/build.sh" "$1" "$FOLDER.new"
	mv "$FOLDER.new" "$FOLDER"
}

# An emulator of this machine that knows the NIC, else one from newer packages.
find_emulator() {
	if qemu-system-x86_64 -device help 2>/dev/null | grep -q '^name "igb"'; then
		EMULATOR=(qemu-system-x86_64)
		return
	fi
	part emulator
	local libraries=usr/lib/x86_64-linux-gnu
	EMULATOR=("$FOLDER/lib64/ld-linux-x86-64.so.2" --library-path "$FOLDER/$libraries:$FOLDER/lib/x86_64-linux-gnu"
		"$FOLDER/usr/bin/qemu-system-x86_64" -L "$FOLDER/usr/share/qemu" -L "$FOLDER/usr/share/seabios")
}

# pack_programs: what the guest has beside its file system, behind it in one file.
pack_programs() {
	local guest=$1 more=$WORK/more program
	rm -rf "$more"
	mkdir -p "$more/usr/local/bin" "$more/sriov"
	for program in coordinator server clusterperf rcbox; do
		strip -o "$more/usr/local/bin/$program" "$PROGRAMS/$program"
	done
	"$ROOT/hack/collect-dpdk.sh" "$more" "$PROGRAMS"/{server,clusterperf}
	cp "$SRIOV/init" "$more/"
	cp "$SRIOV/guest.sh" "$more/sriov/"
	{
		cat "$guest/root.cpio"
		cd "$more"
		find . | cpio --create --format newc --owner 0:0 --quiet
	} >"$WORK/initrd"
}

# No KVM, also where there is one: this is about function, and shall be the same everywhere. Two NICs on one wire.
start_guest() {
	local options=(
		-accel "tcg,thread=multi" -cpu max -smp "$CPUS" -m 2560
		-machine "q35,kernel-irqchip=split" -device "intel-iommu,intremap=on"
		-nodefaults -display none -no-reboot -nic none
		-kernel "$1/vmlinuz" -initrd "$WORK/initrd"
		# no_timer_check: the kernel's look at the timer fails now and then on a busy machine.
		-append "console=ttyS0 rdinit=/init intel_iommu=on iommu=pt mitigations=off no_timer_check panic=-1"
		-serial "file:$CONSOLE" -serial "file:$RESULTS"
		-chardev "pipe,id=monitor,path=$WORK/monitor" -mon chardev=monitor
	)
	local port
	for port in 1 2; do
		options+=(-netdev "hubport,id=wire$port,hubid=0"
			-device "pcie-root-port,id=slot$port,chassis=$port,slot=$port"
			-device "igb,id=nic$port,netdev=wire$port,bus=slot$port,mac=52:54:00:00:00:0$port")
	done
	rm -f "$WORK"/monitor.{in,out} "$CONSOLE" "$RESULTS"
	mkfifo "$WORK"/monitor.{in,out}
	: >"$RESULTS"
	timeout --kill-after=10 $((MINUTES * 60)) "${EMULATOR[@]}" "${options[@]}" >"$WORK/emulator.log" 2>&1 &
	EMULATOR_PID=$!
	# Both ends of both pipes are open here, so that nobody waits for another.
	exec 5<>"$WORK/monitor.in" 6<>"$WORK/monitor.out"
}

# shellcheck disable=SC2317 # called by trap
end_guest() {
	local code=$?
	trap - EXIT INT TERM
	[[ -z $EMULATOR_PID ]] || kill "$EMULATOR_PID" 2>/dev/null || true # it may have ended by itself
	wait
	exit "$code"
}

# show_results: as they come; pulls and plugs the cable of the first port when the guest asks for it.
show_results() {
	local line
	while IFS= read -r line; do
		line=${line%$'\r'}
		case $line in
		"cable on" | "cable off") echo "set_link wire1 ${line#cable }" >&5 ;;
		*) printf '  %s\n' "$line" ;;
		esac
	done < <(tail --pid="$EMULATOR_PID" --retry --lines=+1 --follow=name --sleep-interval=0.2 "$RESULTS" 2>/dev/null)
}

main() {
	local guest
	mkdir -p "$WORK"
	"$ROOT/hack/setup.sh" sriov
	find_emulator
	part guest
	guest=$FOLDER
	"$ROOT/hack/store.sh"
	step "sriov: pack the programs" pack_programs "$guest"
	info "sriov: the guest starts; it is emulated, and slow"
	trap end_guest EXIT INT TERM
	start_guest "$guest"
	show_results
	wait "$EMULATOR_PID" || die "the emulator has ended with an error, or after $MINUTES minutes; see ${WORK#"$PWD"/}/{emulator,console}.log"
	EMULATOR_PID=
	grep -qE '^[1-9][0-9]* passed, 0 failed' "$RESULTS" || die "not everything has passed; see ${RESULTS#"$PWD"/} and ${CONSOLE#"$PWD"/}"
}

main "$@"
