#!/usr/bin/env bash
# The store over virtual functions, as plain processes of a virtual machine that has nothing else.
#
# usage: hack/sriov/processes.sh     (settings: machine.sh)
# Exit code 0: every check in the guest has passed. Needs 3 GiB of memory, and root once, to unpack Debian packages.
set -euo pipefail
# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
# shellcheck source=machine.sh
source "$ROOT/hack/sriov/machine.sh"

PROGRAMS=${CARGO_TARGET_DIR:-$ROOT/images/store/target}/release

# pack_programs: what the guest has beside its file system, behind it in one file.
pack_programs() {
	local guest=$1 more=$WORK/more program
	rm -rf "$more"
	mkdir -p "$more/usr/local/bin" "$more/sriov"
	for program in coordinator server clusterperf rcbox; do
		strip -o "$more/usr/local/bin/$program" "$PROGRAMS/$program"
	done
	"$ROOT/hack/collect-dpdk.sh" "$more" "$PROGRAMS"/{server,clusterperf}
	cp "$SRIOV/processes/init" "$more/"
	cp "$SRIOV"/{check,vfs,processes/checks}.sh "$more/sriov/"
	{
		cat "$guest/root.cpio"
		cd "$more"
		find . | cpio --create --format newc --owner 0:0 --quiet
	} >"$WORK/initrd"
}

# shellcheck disable=SC2317 # called by trap
on_exit() {
	local code=$?
	trap - EXIT INT TERM
	end_machine
	exit "$code"
}

# show_results: as they come; pulls and plugs the cable of the first port when the guest asks for it.
show_results() {
	local line
	while IFS= read -r line; do
		line=${line%$'\r'}
		case $line in
		"cable on" | "cable off") cable "${line#cable }" 1 ;;
		*) printf '  %s\n' "$line" ;;
		esac
	done < <(tail --pid="$EMULATOR_PID" --retry --lines=+1 --follow=name --sleep-interval=0.2 "$RESULTS" 2>/dev/null)
}

main() {
	local guest
	use_folder processes
	"$ROOT/hack/setup.sh" sriov
	find_emulator
	part guest ""
	guest=$FOLDER
	step "sriov: pack the programs" pack_programs "$guest"
	info "sriov: the guest starts; it is emulated, and slow"
	trap on_exit EXIT INT TERM
	start_machine "$guest" 2560
	show_results
	wait "$EMULATOR_PID" || die "the emulator has ended with an error, or after $MINUTES minutes; see $(relative "$WORK")/{emulator,console}.log"
	EMULATOR_PID=
	grep -qE '^[1-9][0-9]* passed, 0 failed' "$RESULTS" || die "not everything has passed; see $(relative "$RESULTS") and $(relative "$CONSOLE")"
}

main
