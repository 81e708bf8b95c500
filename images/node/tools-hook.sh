#!/bin/sh
# mmdebstrap extract hook of the tools image (build.sh): Debian's packages are
# extracted there, not configured, so the links that their scripts make are made here.
set -eu
cd "$1"
# From inside the image, so that only its own busybox is asked.
for applet in $(chroot . /bin/busybox --list); do
	[ -e "bin/$applet" ] || [ -e "sbin/$applet" ] || [ -e "usr/bin/$applet" ] || [ -e "usr/sbin/$applet" ] ||
		ln -s busybox "bin/$applet"
done
for command in iptables ip6tables; do
	for suffix in '' -save -restore; do
		ln -s xtables-nft-multi "usr/sbin/$command$suffix"
	done
done
mkdir -p etc root tmp
echo 'root:x:0:0:root:/root:/bin/sh' >etc/passwd
echo 'root:x:0:' >etc/group
echo 'hosts: files dns' >etc/nsswitch.conf
chmod 1777 tmp
