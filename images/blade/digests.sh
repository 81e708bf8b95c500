#!/usr/bin/env bash
# Prints the name and the digest of each image in archives, as containerd shows them after an import: the index of the archive says both.
#
# usage: images/blade/digests.sh ARCHIVE...
set -euo pipefail

# index ARCHIVE: tar and umoci write names with ./, Docker without.
index() { tar -xOf "$1" ./index.json 2>/dev/null || tar -xOf "$1" index.json 2>/dev/null; }

for archive in "$@"; do
	if ! text=$(index "$archive"); then
		echo "$archive has no index.json, so nobody knows the digest of its image: export it by containerd, or save it with Docker 25 or later" >&2
		exit 1
	fi
	jq -er 'if (.manifests | length) == 0 then error("it has no image") else .manifests[] end |
		if .annotations["io.containerd.image.name"] then .annotations["io.containerd.image.name"] + " " + .digest
		else error("an image in it has no name") end' <<<"$text" || {
		echo "$archive: its index.json is not usable (see above)" >&2
		exit 1
	}
done
