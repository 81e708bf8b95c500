#!/bin/sh
# mmdebstrap extract hook of the base image: what packages' scripts would do, and the user.
set -eu
cd "$1"
mkdir -p etc/ssl/certs usr/local/bin tmp
chmod 1777 tmp
cat usr/share/ca-certificates/mozilla/*.crt >etc/ssl/certs/ca-certificates.crt
printf 'root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n' >etc/passwd
printf 'root:x:0:\nnonroot:x:65532:\n' >etc/group
echo 'hosts: files dns' >etc/nsswitch.conf
