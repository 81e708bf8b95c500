#!/usr/bin/env bash
# Makes the image of box hosts available to the Docker engine, and prints its name. Progress goes to standard error.
#
# usage: hack/boxhost-image.sh
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

CONTEXT=$BUILD/images/boxhost

programs() {
	local tag work
	tag=rcbox/boxhost-programs:$(hash_of "$DEBIAN_SUITE" "$ROOT/images/boxhost/build.sh" "$ROOT/images/boxhost/hook.sh")
	if ! image_exists "$tag"; then
		"$ROOT/hack/setup.sh" node >&2
		as_root "building the image of box hosts"
		work=$(mktemp -d "$CACHE/boxhost.XXXXXX")
		step "build the programs of box hosts" "$ROOT/images/boxhost/build.sh" "$tag" "$work" >&2
		rm -rf "$work"
	fi
	echo "$tag"
}

compile() {
	cd "$ROOT"
	mkdir -p "$CONTEXT"
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$CONTEXT/boxhost" ./operator/cmd/boxhost
	cp images/boxhost/Dockerfile "$CONTEXT/"
}

# runs IMAGE: each program finds its libraries in the image.
runs() {
	# shellcheck disable=SC2016 # for the shell in the container
	docker run --rm --network none --read-only --tmpfs /run --entrypoint /bin/sh "$1" -euc '
		boxhost --help >/dev/null
		dnsmasq --version | head -n 1
		nft --version
		ganesha.nfsd -v
		ssh-keygen -q -t ed25519 -N "" -f /run/key
		mkdir -p /run/sshd /run/ganesha /run/rpcbind /run/rcbox-boxhost/yp/box
		echo "alice alice:*:2000:2000::/home/alice:/bin/bash" | /usr/lib/yp/makedbm - /var/yp/box/passwd.byname
		rpcbind -f &
		for try in $(seq 100); do ! rpcinfo -p 127.0.0.1 >/dev/null 2>&1 || break; sleep 0.1; done
		ypserv -f -p 834 &
		for try in $(seq 100); do ! rpcinfo -t 127.0.0.1 100004 2 >/dev/null 2>&1 || break; sleep 0.1; done
		rpcinfo -t 127.0.0.1 100004 2
		printf "HostKey /run/key\nUsePAM no\n" >/run/sshd_config
		/usr/sbin/sshd -t -f /run/sshd_config
		test -e /usr/lib/ipxe/undionly.kpxe
		test -e /usr/lib/ipxe/snponly.efi
	'
}

build() {
	local base tag
	base=$(programs)
	step "compile the supervisor of box hosts" compile >&2
	tag=rcbox/boxhost:$(hash_of "$CONTEXT" "$base")
	if ! image_exists "$tag"; then
		step "build image rcbox/boxhost" docker build --quiet --build-arg "BASE=$base" --tag "$tag" "$CONTEXT" >&2
		step "run the programs in their image" runs "$tag" >&2
	fi
	echo "$tag"
}

"$ROOT/hack/setup.sh" cluster >&2
"$ROOT/hack/engine.sh" up >&2
with_lock boxhost-image build
