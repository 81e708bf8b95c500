#!/usr/bin/env bash
# Makes the image that blades boot from the network available, and prints its folder: kernel, initrd, disk, manifest.json, manifest.sig and
# image.pub. It is kept in the cache under a hash of all that it is made from. The first time takes about 10 minutes.
#
# usage: hack/blade-image.sh
#   RCBOX_BLADE_KEY=FILE        the private key that signs it (rcbox-blade keygen); default: one of this machine, made at the first use
#   RCBOX_BLADE_PACKAGES="..."  further packages of Debian
#   RCBOX_BLADE_EXTRA="compile nis"  groups of them: a compile environment; NIS and NFS
#   and those of images/blade/build.sh
# Progress goes to standard error.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

BLADE=$ROOT/images/blade
PLACE=$CACHE/blade
KEY=${RCBOX_BLADE_KEY:-$PLACE/key}

packages() {
	local group
	printf '%s\n' "${RCBOX_BLADE_PACKAGES:-}"
	for group in ${RCBOX_BLADE_EXTRA:-}; do
		case $group in
		compile) echo gcc g++ make pkg-config gdb git libdpdk-dev linux-libc-dev ;;
		nis) echo ypbind-mt yp-tools libnss-nis nfs-common autofs ;;
		*) die "RCBOX_BLADE_EXTRA: unknown group '$group'; groups: compile nis" ;;
		esac
	done
}

# make_part FOLDER COMMAND...: into a folder that is there only once all of it is. Folders that nobody has asked for since ten hours go:
# another checkout may use one that differs.
make_part() {
	local folder=$1
	shift
	if [[ ! -e $folder ]]; then
		rm -rf "$folder.new"
		mkdir -p "$folder.new"
		"$@"
		mv "$folder.new" "$folder"
	fi
	touch "$folder"
	find "$PLACE" -mindepth 1 -maxdepth 1 -type d -mmin +600 -exec rm -rf {} +
}

build_program() { cd "$ROOT" && go build -ldflags '-s -w' -o "$1" ./operator/cmd/rcbox-blade; }

# built: prints the folder. The program counts by what it is, not by its sources: most changes of go.mod do not change it.
built() {
	local base image wanted program=$PLACE/rcbox-blade carried=""
	read -ra wanted < <(packages | xargs)
	base=$PLACE/base-$(hash_of "$DEBIAN_SUITE" "$(go env GOVERSION GOARCH)" "$BLADE/base.sh" "$BLADE/files/etc/containerd/config.toml" \
		"$ROOT"/images/node/{go.mod,go.sum,pause} "${wanted[*]}")
	make_part "$base" "$BLADE/base.sh" "$base.new" "${wanted[@]}" >&2
	step "blade: our program" build_program "$program" >&2
	[[ -e $KEY ]] || "$program" keygen "$KEY"
	# shellcheck disable=SC2086 # a list of names
	[[ -z ${RCBOX_BLADE_IMAGES:-} ]] || carried=$(docker image inspect --format '{{.Id}}' $RCBOX_BLADE_IMAGES)
	# shellcheck disable=SC2086 # a list of files
	image=$PLACE/image-$(hash_of "$(basename "$base")" "$BLADE" "$program" "$KEY.pub" "${RCBOX_BLADE_ARGUMENTS:-}" \
		"${RCBOX_BLADE_SSH_KEYS:-}" "$carried" ${RCBOX_BLADE_ARCHIVES:-} "${RCBOX_BLADE_SETTINGS:-}" "${RCBOX_BLADE_CA:-}" "${RCBOX_BLADE_CNI:-}")
	make_part "$image" "$BLADE/build.sh" "$base" "$image.new" "$KEY" "$program" >&2
	echo "$image"
}

"$ROOT/hack/setup.sh" blade >&2
as_root "building a blade's image"
mkdir -p "$PLACE"
with_lock blade-image built
