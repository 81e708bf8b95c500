#!/usr/bin/env bash
# Tests of the Box against an emulated rack: chassis whose management controllers
# are OpenIPMI's ipmi_sim, in a network namespace of their own, and one whose
# controller is the Redfish emulator of sushy-tools; and blades that QEMU emulates,
# which start from nothing. No hardware. What the front
# panel looks like in a browser is kept in .build/pictures.
#
# usage: hack/box.sh [GO_TEST_OPTION...]
#        hack/box.sh --prepare     only build what takes long: the image that blades boot
# One test: hack/box.sh -run '^TestRackIsWhatOthersSee$'
# The tests' output, in the form of `go test -json`, goes to .build/logs/box.json.
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

REQUIREMENTS=$ROOT/operator/test/box/requirements.txt

# An emulator of an exact version, once per machine and version of Python.
make_venv() {
	[[ ! -e $VENV/complete ]] || return 0
	rm -rf "$VENV"
	python3 -m venv "$VENV"
	"$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$REQUIREMENTS"
	touch "$VENV/complete"
}

# blade_image: with what a slow emulated processor needs, and a network of pods for a cluster that has none.
blade_image() { RCBOX_BLADE_ARGUMENTS="no_timer_check mitigations=off" RCBOX_BLADE_CNI=local "$ROOT/hack/blade-image.sh"; }

"$ROOT/hack/setup.sh" box python
if [[ ${1:-} == --prepare ]]; then
	[[ $EUID != 0 ]] || blade_image >/dev/null
	exit
fi
VENV=$CACHE/box-$(hash_of "$REQUIREMENTS" "$(python3 -VV)" "$(command -v python3)")
if [[ -e $VENV/complete ]] || step "install the Redfish emulator" with_lock box make_venv; then
	export RCBOX_SUSHY_EMULATOR=$VENV/bin/sushy-emulator
else
	warn "the Redfish emulator cannot be installed: tests that need it are SKIPPED"
fi
if [[ $EUID != 0 ]]; then
	warn "only root can make a network namespace: these tests are SKIPPED"
else
	export RCBOX_BOX_NETWORK=192.168.0.0/21
	if folder=$(blade_image); then
		export RCBOX_BLADE_IMAGE=$folder
	else
		warn "the image of blades cannot be built (see above): tests that start blades are SKIPPED"
	fi
fi
if folder=$("$ROOT/hack/control-plane.sh"); then
	export RCBOX_CONTROL_PLANE=$folder
else
	warn "there is no Kubernetes control plane to test against (see above): tests that need one are SKIPPED"
fi
RCBOX_CHROMIUM=$(command -v chromium) || warn "there is no chromium: tests of the front panel are SKIPPED"
export RCBOX_CHROMIUM RCBOX_PICTURES=$BUILD/pictures
RCBOX_KUBECTL=$("$ROOT/hack/tool.sh" kubectl)
RCBOX_HELM=$("$ROOT/hack/tool.sh" helm)
export RCBOX_KUBECTL RCBOX_HELM
# -parallel: tests that run side by side wait for clocks.
exec "$ROOT/hack/go-test.sh" box . -timeout 60m -parallel 32 -exec "$ROOT/hack/in-network.sh" "$@" ./operator/test/box/...
