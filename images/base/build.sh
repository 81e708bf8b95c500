#!/usr/bin/env bash
# Builds the base image of our own programs from Debian packages: the C library,
# libgcc and the certificates of public authorities, and no shell.
#
# usage: images/base/build.sh TAG WORK_FOLDER
# Needs root (mmdebstrap) and a Docker engine.
set -euo pipefail
# shellcheck source=../../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../hack/lib.sh"

TAG=$1
WORK=$2
HERE=$ROOT/images/base

# Dependencies come along; of all packages only what the list includes is extracted.
mmdebstrap --quiet --variant=extract --aptopt='APT::Install-Recommends "false"' \
	--include=libc6,libgcc-s1,ca-certificates \
	--dpkgopt='path-exclude=/*' \
	--dpkgopt='path-include=/lib/*/*' \
	--dpkgopt='path-include=/lib64/*' \
	--dpkgopt='path-include=/usr/share/ca-certificates/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--extract-hook="$HERE/hook.sh" \
	"$DEBIAN_SUITE" "$WORK/base"
# Without what the packager leaves behind, and what a container gets from its host.
tar -C "$WORK/base" --exclude=./etc/apt --exclude=./etc/dpkg --exclude=./var --exclude=./dev \
	--exclude=./etc/hostname --exclude=./etc/resolv.conf -c . |
	docker import --change 'USER 65532:65532' --change 'WORKDIR /' --change 'ENV PATH=/usr/local/bin:/usr/bin:/bin' - "$TAG"
