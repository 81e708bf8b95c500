#!/usr/bin/env bash
# Builds what a box host's image consists of besides our own program: dnsmasq, nftables, nfs-ganesha, ypserv, OpenSSH and iPXE from Debian
# packages, and busybox as the shell of who logs in. No package manager.
#
# usage: images/boxhost/build.sh TAG WORK_FOLDER
# Needs root (mmdebstrap) and a Docker engine.
set -euo pipefail
# shellcheck source=../../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../hack/lib.sh"

TAG=$1
WORK=$2
HERE=$ROOT/images/boxhost

mmdebstrap --quiet --variant=extract --aptopt='APT::Install-Recommends "false"' \
	--include=dnsmasq-base,nftables,nfs-ganesha-vfs,rpcbind,ypserv,openssh-server,ipmitool,ipxe,iproute2,busybox-static,tini \
	--dpkgopt='path-exclude=/usr/share/*' \
	--dpkgopt='path-include=/usr/share/doc/*/copyright' \
	--dpkgopt='path-include=/usr/share/iproute2/*' \
	--dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
	--dpkgopt='path-exclude=/usr/lib/systemd/*' \
	--dpkgopt='path-exclude=/lib/systemd/*' \
	--dpkgopt='path-exclude=/usr/lib/ipxe/qemu/*' \
	--extract-hook="$HERE/hook.sh" \
	"$DEBIAN_SUITE" "$WORK/root"
# Without what the packager leaves behind, and what a container gets from its host.
tar -C "$WORK/root" --exclude=./etc/apt --exclude=./etc/dpkg --exclude=./dev --exclude=./etc/hostname --exclude=./etc/resolv.conf \
	--exclude=./var/lib/apt --exclude=./var/lib/dpkg --exclude=./var/cache --exclude=./var/log -c . |
	docker import --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$TAG"
