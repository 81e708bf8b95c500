# shellcheck shell=bash
# The virtual machine of hack/test-sriov.sh, for the scripts of both its phases: what it is made of, how it starts and ends.
#
#   RCBOX_SRIOV_MINUTES      after which it is ended [20; node: 40]
#   RCBOX_SRIOV_CPUS         its processors [those of this machine, 2 to 4]
#   RCBOX_SRIOV_TRACE        what the emulator tells in emulator.log, such as 'igb_set_*' for the mailboxes between functions [nothing]

# shellcheck source=emulator.sh
source "$(dirname "${BASH_SOURCE[0]}")/emulator.sh"

MINUTES=${RCBOX_SRIOV_MINUTES:-20}
CORES=$(nproc)
CPUS=${RCBOX_SRIOV_CPUS:-$((CORES < 2 ? 2 : CORES > 4 ? 4 : CORES))}
EMULATOR_PID=

# use_folder NAME: for all that is written while the machine runs. What the guest says comes out of two serial ports.
use_folder() {
	WORK=$BUILD/sriov/$1
	CONSOLE=$WORK/console.log
	RESULTS=$WORK/results.log
	mkdir -p "$WORK"
}

# start_machine GUEST MEMORY_MB OPTION...: with two NICs on one wire. No KVM, also where there is one: this is about
# function, and shall be the same everywhere.
start_machine() {
	local guest=$1 memory_mb=$2 port
	shift 2
	local options=(
		-accel "tcg,thread=multi" -cpu max -smp "$CPUS" -m "$memory_mb"
		-machine "q35,kernel-irqchip=split" -device "intel-iommu,intremap=on"
		-nodefaults -display none -no-reboot -nic none
		-kernel "$guest/vmlinuz" -initrd "$WORK/initrd"
		# no_timer_check: the kernel's look at the timer fails now and then on a busy machine.
		-append "console=ttyS0 rdinit=/init net.ifnames=0 intel_iommu=on iommu=pt mitigations=off no_timer_check panic=-1"
		-serial "file:$CONSOLE" -serial "file:$RESULTS"
		-chardev "pipe,id=monitor,path=$WORK/monitor" -mon chardev=monitor
	)
	[[ -z ${RCBOX_SRIOV_TRACE:-} ]] || options+=(-trace "$RCBOX_SRIOV_TRACE" -msg timestamp=on)
	for port in 1 2; do
		options+=(-netdev "hubport,id=wire$port,hubid=0"
			-device "pcie-root-port,id=slot$port,chassis=$port,slot=$port"
			-device "igb,id=nic$port,netdev=wire$port,bus=slot$port,mac=52:54:00:00:00:0$port")
	done
	rm -f "$WORK"/monitor.{in,out} "$CONSOLE" "$RESULTS"
	mkfifo "$WORK"/monitor.{in,out}
	: >"$RESULTS"
	timeout --kill-after=10 $((MINUTES * 60)) "${EMULATOR[@]}" "${options[@]}" "$@" >"$WORK/emulator.log" 2>&1 &
	EMULATOR_PID=$!
	# Both ends of both pipes are open here, so that nobody waits for another.
	exec 5<>"$WORK/monitor.in" 6<>"$WORK/monitor.out"
}

# cable on|off PORT: pulls or plugs it.
cable() { echo "set_link wire$2 $1" >&5; }

machine_runs() { kill -0 "$EMULATOR_PID" 2>/dev/null; }

end_machine() {
	[[ -z $EMULATOR_PID ]] || kill "$EMULATOR_PID" 2>/dev/null || true # it may have ended by itself
	wait
	EMULATOR_PID=
}

# relative PATH: as people see it from where they are.
relative() { echo "${1#"$PWD"/}"; }
