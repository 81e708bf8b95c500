#!/usr/bin/env bash
# Makes the image of a blade from the parts of base.sh and our own program: kernel, initrd, and disk (the first bytes of a disk: boot loader
# and the system's file system, compressed), with a signed manifest. No file system is mounted, and no boot loader is run to install itself.
#
# usage: images/blade/build.sh BASE FOLDER KEY PROGRAM
# KEY is the file of the private key; KEY.pub is its public half; PROGRAM is rcbox-blade. Needs root (owners of files), mke2fs, cpio, zstd and grub-mkimage.
#   RCBOX_BLADE_ARGUMENTS   further arguments of the kernel
#   RCBOX_BLADE_SSH_KEYS    file of the keys that may log in as root; without it, there is no SSH server
#   RCBOX_BLADE_IMAGES      names of images of the Docker engine that the blade carries, too
#   RCBOX_BLADE_ARCHIVES    archives of images (OCI, or docker save) that the blade carries, too
#   RCBOX_BLADE_SETTINGS    file of the machine's settings (docs/blade.md)
#   RCBOX_BLADE_CA          file of the cluster's certificate authorities, as PEM: blades join no other cluster
#   RCBOX_BLADE_CNI=local   a network of pods that ends at each blade, for clusters that have no network plugin
set -euo pipefail
# shellcheck source=../../hack/lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../../hack/lib.sh"

BASE=$1
OUT=$2
KEY=$3
PROGRAM=$4
VERSION=$(basename "$OUT")
VERSION=${VERSION%.new}
HERE=$ROOT/images/blade
WORK=$OUT/work
TREE=$WORK/root
GRUB=/usr/lib/grub/i386-pc
SECTOR=512
BOOT_AREA=$((1 << 20))
RECORD=4096
SYSTEM_LABEL=rcbox-system
# net.ifnames=0: ports are eth0, eth1, as the names of servers' ports count them.
ARGUMENTS="net.ifnames=0 intel_iommu=on iommu=pt panic=10 console=tty0 console=ttyS0,115200 ${RCBOX_BLADE_ARGUMENTS:-}"
# Drivers of an initrd: disks, network ports, and what they need. The system on the disk has all of the base's.
INITRD_MODULES=(drivers/{ata,nvme,virtio,scsi,block/virtio_blk.ko,message/fusion} drivers/net/{virtio_net.ko,net_failover.ko,mdio}
	drivers/net/ethernet/{intel,mellanox,broadcom} fs/ext4 lib crypto arch/x86/crypto drivers/{dca,i2c/algos,ptp,pps,md/dm-mod.ko})

initrd() {
	local tree=$WORK/initrd version folder modules
	version=$(basename "$BASE"/kernel/lib/modules/*)
	modules=$BASE/kernel/lib/modules/$version
	mkdir -p "$tree"/{bin,etc/rcbox,proc,sys,dev,mnt,tmp,run,"lib/modules/$version"}
	tar -xOf "$BASE/root.tar" --wildcards './*bin/busybox' >"$tree/bin/busybox"
	chmod 755 "$tree/bin/busybox"
	ln -s bin "$tree/sbin" # where the kernel looks for modprobe
	cp "$modules"/modules.{order,builtin,builtin.modinfo} "$tree/lib/modules/$version/"
	for folder in "${INITRD_MODULES[@]}"; do
		[[ -e $modules/kernel/$folder ]] || continue # a part of the kernel itself, in this version
		mkdir -p "$tree/lib/modules/$version/kernel/$(dirname "$folder")"
		cp -r "$modules/kernel/$folder" "$tree/lib/modules/$version/kernel/$folder"
	done
	needed_modules "$tree" "$version" "$modules"
	depmod -b "$tree" "$version"
	install -m 755 "$PROGRAM" "$tree/bin/"
	install -m 755 "$HERE/init" "$tree/init"
	install -m 755 "$HERE/udhcpc.script" "$tree/etc/"
	install -m 644 "$KEY.pub" "$tree/etc/rcbox/image.pub"
	(cd "$tree" && find . -print0 | LC_ALL=C sort -z | cpio --null --create --format newc --owner 0:0 --reproducible --quiet) |
		zstd -q -10 -T0 -o "$OUT/initrd"
	cp "$BASE/kernel/vmlinuz" "$OUT/kernel"
}

# needed_modules: adds modules that those in the tree need, wherever they are.
needed_modules() {
	local tree=$1 version=$2 all=$3 module
	depmod -b "$BASE/kernel" "$version"
	(cd "$tree/lib/modules/$version" && find kernel -name '*.ko*') |
		awk 'NR == FNR { split($0, part, ":"); needs[part[1]] = part[2]; next }
			{ n = split(needs[$0], wanted, " "); for (i = 1; i <= n; i++) print wanted[i] }' "$all/modules.dep" - |
		sort -u | while read -r module; do
			install -D -m 644 "$all/$module" "$tree/lib/modules/$version/$module"
		done
}

system() {
	local units=$TREE/etc/systemd/system unit
	mkdir -p "$TREE"
	tar -xf "$BASE/root.tar" -C "$TREE" --numeric-owner --exclude './dev/*'
	cp -r --no-preserve=ownership "$HERE/files/." "$TREE/"
	chmod 755 "$TREE"/usr/lib/rcbox/{import-images,nis}
	cp -r "$BASE/kernel/lib/modules" "$TREE/usr/lib/"
	install -D -m 755 -t "$TREE/usr/bin" "$BASE/bin/kubelet" "$PROGRAM"
	install -D -m 755 -t "$TREE/opt/cni/bin" "$BASE"/bin/cni/*
	install -D -m 644 "$OUT/kernel" "$TREE/boot/vmlinuz"
	install -D -m 644 "$OUT/initrd" "$TREE/boot/initrd"
	mkdir -p "$TREE/boot/grub"
	sed "s|@ARGUMENTS@|$ARGUMENTS|" "$HERE/grub.cfg" >"$TREE/boot/grub/grub.cfg"
	[[ -z ${RCBOX_BLADE_SETTINGS:-} ]] || install -D -m 644 "$RCBOX_BLADE_SETTINGS" "$TREE/etc/rcbox/settings.json"
	[[ -z ${RCBOX_BLADE_CA:-} ]] || install -D -m 644 "$RCBOX_BLADE_CA" "$TREE/etc/rcbox/cluster-ca.crt"
	"$PROGRAM" settings --root "$TREE"
	# Each blade has an identity of its own.
	rm -f "$TREE"/etc/ssh/ssh_host_*_key* "$TREE/var/lib/dbus/machine-id"
	: >"$TREE/etc/machine-id"
	rm -f "$TREE/etc/hostname"
	ln -sf /run/systemd/resolve/resolv.conf "$TREE/etc/resolv.conf"
	for unit in kubelet containerd rcbox-report rcbox-measure rcbox-settings rcbox-virtual-functions systemd-networkd systemd-resolved; do
		systemctl --root="$TREE" --quiet enable "$unit.service"
	done
	systemctl --root="$TREE" --quiet disable systemd-networkd-wait-online.service
	systemctl --root="$TREE" --quiet mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer systemd-pstore.service
	systemctl --root="$TREE" --quiet set-default multi-user.target
	[[ -d $units/multi-user.target.wants ]]
	if [[ -e $TREE/usr/sbin/ypbind ]]; then
		# They are started once the domain is known.
		systemctl --root="$TREE" --quiet disable ypbind.service rpcbind.service rpcbind.socket
		systemctl --root="$TREE" --quiet enable rcbox-nis.service
	fi
	if [[ -n ${RCBOX_BLADE_SSH_KEYS:-} ]]; then
		install -D -m 600 "$RCBOX_BLADE_SSH_KEYS" "$TREE/root/.ssh/authorized_keys"
		chmod 700 "$TREE/root/.ssh"
		systemctl --root="$TREE" --quiet enable ssh.service
	fi
	[[ ${RCBOX_BLADE_CNI:-} != local ]] || local_network
}

local_network() {
	mkdir -p "$TREE/etc/cni/net.d"
	cat >"$TREE/etc/cni/net.d/99-rcbox-local.conflist" <<-'JSON'
		{"cniVersion": "0.4.0", "name": "local", "plugins": [
		  {"type": "ptp", "ipMasq": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.255.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
		  {"type": "portmap", "capabilities": {"portMappings": true}}]}
	JSON
}

# save NAME ARCHIVE: an image of the Docker engine, with its digest. Engines older than 25 write archives that have none.
save() {
	local layout=$WORK/layout
	docker save --output "$2" "$1"
	! tar -tf "$2" index.json >/dev/null 2>&1 || return 0
	skopeo --insecure-policy copy --quiet "docker-archive:$2" "oci:$layout:image"
	# Containerd names an image by this annotation.
	jq --arg name "$(full_name "$1")" '.manifests[0].annotations = {"io.containerd.image.name": $name}' "$layout/index.json" >"$layout/index"
	mv "$layout/index" "$layout/index.json"
	tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$layout" -cf "$2" .
	rm -rf "$layout"
}

# full_name NAME: as the kubelet asks for it: with a registry, and a tag.
full_name() {
	local name=$1
	[[ ${name##*/} == *:* ]] || name+=:latest
	case $name in
	*/*) [[ ${name%%/*} == *[.:]* || ${name%%/*} == localhost ]] || name=docker.io/$name ;;
	*) name=docker.io/library/$name ;;
	esac
	printf '%s' "$name"
}

# images: archives that the blade carries, and the digest of each image in them.
images() {
	local folder=$TREE/usr/lib/rcbox/images name archive
	mkdir -p "$folder"
	cp "$BASE"/images/*.tar "$folder/"
	for name in ${RCBOX_BLADE_IMAGES:-}; do
		archive=$folder/$(tr -c '[:alnum:]\n' - <<<"$name").tar
		save "$name" "$archive"
	done
	for archive in ${RCBOX_BLADE_ARCHIVES:-}; do
		cp "$archive" "$folder/"
	done
	"$HERE/digests.sh" "$folder"/*.tar >"$folder/digests"
}

file_system() {
	local mib
	# A little more than its files: file systems need some themselves. It grows on the disk.
	mib=$(($(du -sm "$TREE" | cut -f1) * 21 / 20 + 48))
	mke2fs -q -t ext4 -L "$SYSTEM_LABEL" -O ^metadata_csum_seed,^orphan_file -E lazy_itable_init=1,lazy_journal_init=1 -m 1 \
		-d "$TREE" "$WORK/system" "${mib}M"
}

# disk: boot code, the loader behind it, and the file system at the first MiB. The loader finds its configuration on the first partition.
disk() {
	local core=$WORK/core.img size
	grub-mkimage --format=i386-pc --prefix='(hd0,msdos1)/boot/grub' --output="$core" biosdisk part_msdos ext2 linux normal serial terminal
	size=$(stat -c %s "$core")
	((SECTOR + size <= BOOT_AREA - RECORD)) || die "the boot loader has $size bytes, which do not fit before the first partition"
	head -c 440 "$GRUB/boot.img" >"$WORK/disk"
	truncate -s "$SECTOR" "$WORK/disk"
	cat "$core" >>"$WORK/disk"
	truncate -s "$BOOT_AREA" "$WORK/disk"
	cat "$WORK/system" >>"$WORK/disk"
	zstd -q -9 -T0 -o "$OUT/disk" "$WORK/disk"
}

sign() {
	"$PROGRAM" sign --key "$KEY" --version "$VERSION" --raw-bytes "$(stat -c %s "$WORK/disk")" "$OUT"
	"$PROGRAM" verify --key "$KEY.pub" "$OUT"
	cp "$KEY.pub" "$OUT/image.pub"
}

as_root "building a blade's image"
mkdir -p "$WORK"
step "blade: kernel and initrd" initrd
step "blade: the system" system
step "blade: the images that it carries" images
step "blade: the file system" file_system
step "blade: the disk" disk
step "blade: sign the image" sign
rm -rf "$WORK"
