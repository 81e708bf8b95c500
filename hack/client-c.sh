#!/usr/bin/env bash
# The client for C: builds the library, and gathers what a program in C needs in .build/client-c.
#
# usage: hack/client-c.sh            build
#        hack/client-c.sh --header   write include/rcbox.h of the crate from its sources (a test checks it)
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CRATE=$ROOT/images/store/crates/client-c
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/images/store/target}")
OUT=$BUILD/client-c

# A profile of its own: in it a panic unwinds, and comes back as an error.
compile() { cargo build --manifest-path "$ROOT/images/store/Cargo.toml" --locked --profile client-c -p rcbox-client-c; }

write_header() {
	RCBOX_WRITE_HEADER=1 cargo test --manifest-path "$ROOT/images/store/Cargo.toml" --locked -p rcbox-client-c --test integration header
}

# defined NAME: a number that the header defines.
defined() { awk -v name="RCBOX_$1" '$1 == "#define" && $2 == name { print $3 }' "$CRATE/include/rcbox.h"; }

# The archive's other names are made local: a program may have other libraries that were written in Rust.
hide_other_names() {
	local parts=$OUT/parts.o
	ld -r --whole-archive "$1" -o "$parts"
	# What the compiler keeps for itself goes, too: some versions of ar stumble over it.
	objcopy --wildcard --keep-global-symbol='rcbox_*' --strip-debug --remove-section=.llvmbc --remove-section=.llvmcmd "$parts"
	rm -f "$2"
	ar rcs "$2" "$parts"
	rm "$parts"
}

gather() {
	local version abi full
	version=$(defined VERSION_MAJOR).$(defined VERSION_MINOR).$(defined VERSION_PATCH)
	abi=$(defined ABI)
	full=librcbox.so.$abi.$version
	rm -rf "$OUT"
	mkdir -p "$OUT"/{include,lib/pkgconfig,examples}
	cp "$CRATE/include/rcbox.h" "$OUT/include/"
	cp "$CRATE"/examples/*.c "$OUT/examples/"
	cp "$TARGET/client-c/librcbox.so" "$OUT/lib/$full"
	strip --strip-unneeded "$OUT/lib/$full"
	ln -s "$full" "$OUT/lib/librcbox.so.$abi"
	ln -s "librcbox.so.$abi" "$OUT/lib/librcbox.so"
	hide_other_names "$TARGET/client-c/librcbox.a" "$OUT/lib/librcbox.a"
	cat >"$OUT/lib/pkgconfig/rcbox.pc" <<-PC
		prefix=\${pcfiledir}/../..
		includedir=\${prefix}/include
		libdir=\${prefix}/lib

		Name: rcbox
		Description: Client of an rcbox store
		Version: $version
		Cflags: -I\${includedir}
		Libs: -L\${libdir} -lrcbox
		Libs.private: -lgcc_s -lpthread -lm -ldl -lc
	PC
}

# What was gathered serves a program, both ways.
try() {
	local flags kind
	export PKG_CONFIG_PATH=$OUT/lib/pkgconfig
	for kind in "" --static; do
		read -ra flags <<<"$(pkg-config $kind --cflags --libs rcbox)"
		[[ -z $kind ]] || flags=("${flags[@]/#-lrcbox/-l:librcbox.a}")
		cc -std=c11 -Wall -Wextra -Werror "$OUT/examples/hello.c" "${flags[@]}" -o "$OUT/hello"
		# Without a store it says how it is used.
		(LD_LIBRARY_PATH=$OUT/lib "$OUT/hello" 2>&1 || true) | grep -q '^usage: '
		rm "$OUT/hello"
	done
}

"$ROOT/hack/setup.sh" store
case ${1-} in
'') ;;
--header)
	step "write the header of the client for C" write_header
	exit
	;;
*) die "usage: hack/client-c.sh [--header]" ;;
esac
step "compile the client for C" compile
step "gather the client for C" gather
step "compile a program in C with it" try
info "$OUT: include, lib, examples; PKG_CONFIG_PATH=$OUT/lib/pkgconfig"
