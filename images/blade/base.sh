#!/usr/bin/env bash
# Makes the parts of a blade's image that no program of ours is in: Debian's root file system and kernel, the kubelet, CNI plugins, and the
# pause image. They take long, and change seldom.
#
# usage: images/blade/base.sh FOLDER [PACKAGE...]
# Writes FOLDER/{root.tar,kernel/,bin/,images/}. Needs root, mmdebstrap, umoci and Go. The packages are those that are wanted beyond the
# list here.
set -euo pipefail
# shellcheck source=../../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../hack/lib.sh"

FOLDER=$1
shift
NODE=$ROOT/images/node
PACKAGES=(systemd systemd-sysv systemd-resolved udev kmod procps iproute2 iputils-ping ethtool busybox-static e2fsprogs ca-certificates
	containerd runc iptables nftables conntrack libseccomp2 openssh-server ipmitool pci.ids "$@")
# What a server has no use for is a large part of a kernel's modules.
NO_MODULES=(sound drivers/{gpu,media,staging,isdn,bluetooth,iio,input,hid,usb/{gadget,serial,misc},platform,power,parport,pcmcia,mmc,mtd,video}
	drivers/net/{wireless,can,hamradio,wan,usb,arcnet,fddi,appletalk,ieee802154,plip,ppp,slip} net/{bluetooth,mac80211,wireless,can,nfc,ax25}
	fs/{btrfs,xfs,ocfs2,gfs2,reiserfs,jfs,ubifs,f2fs,ntfs3,ntfs,afs,coda,hfs,hfsplus,nilfs2,cifs,smb,ceph,jffs2,orangefs})

common=(--quiet --aptopt='APT::Install-Recommends "false"')

root_file_system() {
	local include
	include=$(IFS=, && echo "${PACKAGES[*]}")
	mmdebstrap "${common[@]}" --variant=minbase --include="$include" \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		"$DEBIAN_SUITE" "$FOLDER/root.tar"
}

# kernel: the image and its modules, unpacked and not set up: setting up would make an initrd that nobody wants.
kernel() {
	local options=(--dpkgopt='path-exclude=/*' --dpkgopt='path-include=/boot/vmlinuz-*' --dpkgopt='path-include=/lib/modules/*') folder
	for folder in "${NO_MODULES[@]}"; do
		options+=(--dpkgopt="path-exclude=/lib/modules/*/kernel/$folder/*")
	done
	mmdebstrap "${common[@]}" --variant=extract --include=linux-image-amd64 "${options[@]}" "$DEBIAN_SUITE" "$FOLDER/unpacked"
	mkdir -p "$FOLDER/kernel/lib"
	mv "$FOLDER"/unpacked/boot/vmlinuz-* "$FOLDER/kernel/vmlinuz"
	mv "$FOLDER/unpacked/lib/modules" "$FOLDER/kernel/lib/"
	rm -rf "$FOLDER/unpacked"
}

programs() {
	cd "$NODE"
	go build -ldflags "$(kubernetes_ldflags)" -o "$FOLDER/bin/" k8s.io/kubernetes/cmd/kubelet
	go build -ldflags '-s -w' -o "$FOLDER/bin/" ./pause
	go build -ldflags '-s -w' -o "$FOLDER/bin/cni/" \
		github.com/containernetworking/plugins/plugins/{main/loopback,main/ptp,meta/portmap,ipam/host-local}
}

# pause_image: as an OCI archive under the name that containerd's configuration gives.
pause_image() {
	local layout=$FOLDER/layout name
	name=$(sed -n 's/.*sandbox_image = "\(.*\)"/\1/p' "$ROOT/images/blade/files/etc/containerd/config.toml")
	umoci init --layout "$layout"
	umoci new --image "$layout:pause"
	umoci insert --rootless --image "$layout:pause" "$FOLDER/bin/pause" /pause
	umoci config --image "$layout:pause" --config.entrypoint /pause --no-history
	umoci gc --layout "$layout"
	mkdir -p "$FOLDER/images"
	# Containerd names an image by this annotation.
	jq --arg name "$name" '.manifests[0].annotations = {"io.containerd.image.name": $name}' "$layout/index.json" >"$layout/index"
	mv "$layout/index" "$layout/index.json"
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$layout" -cf "$FOLDER/images/pause.tar" .
	rm -rf "$layout"
}

mkdir -p "$FOLDER/bin/cni"
step "blade: Debian's root file system" root_file_system
step "blade: Debian's kernel" kernel
step "blade: kubelet and CNI plugins" programs
step "blade: the pause image" pause_image
