#!/usr/bin/env bash
# Tells whether a container registry serves an image: exit code 0 if it does.
#
# usage: hack/registry.sh IMAGE
# RCBOX_REGISTRY=always or never decides without asking. The answer is kept for
# an hour, so that machines without a registry do not wait at every run.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

answer_file=$BUILD/registry-$(hash_of "$1")

case ${RCBOX_REGISTRY:-auto} in
always) exit 0 ;;
never) exit 1 ;;
auto) ;;
*) die "RCBOX_REGISTRY=$RCBOX_REGISTRY is none of auto, always, never" ;;
esac

if [[ -z $(find "$answer_file" -mmin -60 2>/dev/null) ]]; then
	if timeout 10 docker manifest inspect "$1" >/dev/null 2>&1; then
		echo yes
	else
		echo no
	fi >"$answer_file"
fi
[[ $(<"$answer_file") == yes ]] || exit 1
