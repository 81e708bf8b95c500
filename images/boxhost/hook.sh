#!/bin/sh
# mmdebstrap extract hook of a box host's image: the users, links and folders that packages' scripts would make. Packages are extracted
# there, not configured.
set -eu
cd "$1"
# From inside the image, so that only its own busybox is asked.
for applet in $(chroot . /bin/busybox --list); do
	[ -e "bin/$applet" ] || [ -e "sbin/$applet" ] || [ -e "usr/bin/$applet" ] || [ -e "usr/sbin/$applet" ] ||
		ln -s busybox "bin/$applet"
done
mkdir -p etc home/box root run/sshd run/rcbox-boxhost srv/rcbox-image tmp usr/local/bin var/lib/misc var/lib/rcbox-boxhost
# As everywhere in Debian: programs of RPC look for rpcbind's socket there.
rm -rf var/run
ln -s /run var/run
chmod 1777 tmp
chown 1000:1000 home/box
# sshd keeps who logs in away from the rest; box is that user.
cat >etc/passwd <<-'USERS'
	root:x:0:0:root:/root:/bin/sh
	box:x:1000:1000:who logs in by SSH:/home/box:/bin/sh
	sshd:x:998:65534:sshd:/run/sshd:/usr/sbin/nologin
	dnsmasq:x:999:65534:dnsmasq:/var/lib/misc:/usr/sbin/nologin
	_rpc:x:997:65534:rpcbind:/run/rpcbind:/usr/sbin/nologin
	nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
USERS
printf 'root:x:0:\nbox:x:1000:\ntty:x:5:\nnogroup:x:65534:\n' >etc/group
# The supervisor writes maps of NIS there. ypserv gives none to other servers of NIS, and asks no DNS.
rm -rf var/yp
ln -s /run/rcbox-boxhost/yp var/yp
printf 'dns: no\nxfr_check_port: yes\n' >etc/ypserv.conf
printf 'sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\n' >etc/services
# Nobody has a password; a star, unlike an exclamation mark, lets a user log in by key.
sed 's/:.*/:*:19000:0:99999:7:::/' etc/passwd >etc/shadow
chmod 600 etc/shadow
echo 'hosts: files dns' >etc/nsswitch.conf
