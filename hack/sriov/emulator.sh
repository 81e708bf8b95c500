# shellcheck shell=bash
# Where the emulator of a NIC with virtual functions comes from, and the other parts that hack/sriov/build.sh makes.

SRIOV=$ROOT/hack/sriov

# part NAME HASHED BUILD_ARGUMENT...: builds what is not there yet; sets FOLDER.
part() {
	local name=$1 hashed=$2
	shift 2
	FOLDER=$CACHE/sriov/$name-$(hash_of "$DEBIAN_SUITE" "$SRIOV/build.sh" "$hashed")
	[[ -e $FOLDER ]] || with_lock "sriov-$name" build_part "$name" "$@"
}
build_part() {
	[[ ! -e $FOLDER ]] || return 0
	mkdir -p "$CACHE/sriov"
	# Former ones, which nobody asks for any more; those of others are small.
	[[ $1 != disk ]] || rm -rf "$CACHE/sriov/disk"-*
	step "sriov: make the $1" "$SRIOV/build.sh" "$1" "$FOLDER.new" "${@:2}"
	mv "$FOLDER.new" "$FOLDER"
}

# An emulator of this machine that knows the NIC, else one from newer packages.
# shellcheck disable=SC2034 # EMULATOR is for those who source this
find_emulator() {
	if qemu-system-x86_64 -device help 2>/dev/null | grep -q '^name "igb"'; then
		EMULATOR=(qemu-system-x86_64)
		return
	fi
	part emulator ""
	local libraries=usr/lib/x86_64-linux-gnu
	EMULATOR=("$FOLDER/lib64/ld-linux-x86-64.so.2" --library-path "$FOLDER/$libraries:$FOLDER/lib/x86_64-linux-gnu"
		"$FOLDER/usr/bin/qemu-system-x86_64" -L "$FOLDER/usr/share/qemu" -L "$FOLDER/usr/share/seabios")
}
