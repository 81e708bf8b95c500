#!/usr/bin/env bash
# The client's Python package: builds it, or tests it against real processes.
#
# usage: hack/python.sh              linters, type checks and tests
#        hack/python.sh --wheel DIR  an optimised wheel in DIR, for pip
set -euo pipefail
# shellcheck source=lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PACKAGE=$ROOT/images/store/python
TARGET=$(realpath -m "${CARGO_TARGET_DIR:-$ROOT/images/store/target}")
WHEEL=$BUILD/python-wheel
INSTALLED=$BUILD/python-installed # as the tests see it

# Tools of exact versions, once per machine and version of Python.
make_venv() {
	[[ ! -e $VENV/complete ]] || return 0
	rm -rf "$VENV"
	python3 -m venv "$VENV"
	"$VENV/bin/pip" install --quiet --disable-pip-version-check -r "$PACKAGE/requirements.txt"
	touch "$VENV/complete"
}

# build_wheel PROFILE: the one wheel of $WHEEL.
build_wheel() {
	rm -rf "$WHEEL"
	cd "$PACKAGE"
	PATH=$VENV/bin:$PATH maturin build --locked --profile "$1" --target-dir "$TARGET/python" --out "$WHEEL"
}

# Beside what is installed on this machine, and other than by the sources' folder: as users have it.
install_package() {
	build_wheel dev
	rm -rf "$INSTALLED"
	"$VENV/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-compile --target "$INSTALLED" "$WHEEL"/*.whl
}

run_tests() {
	cd "$PACKAGE"
	RCBOX_PROGRAMS=$TARGET/debug PYTHONPATH=$INSTALLED "$VENV/bin/pytest" -p no:cacheprovider
}

check_style() {
	cd "$PACKAGE"
	"$VENV/bin/ruff" format --no-cache --check
	"$VENV/bin/ruff" check --no-cache
}

check_types() {
	cd "$PACKAGE"
	"$VENV/bin/mypy" --cache-dir "$BUILD/mypy"
}

case ${1:-} in
"") (($# == 0)) || die "hack/python.sh: an empty argument" ;;
--wheel) (($# == 2)) || die "usage: hack/python.sh --wheel DIR" ;;
*) die "hack/python.sh: unknown argument '$1'; see the first lines of the script" ;;
esac

"$ROOT/hack/setup.sh" store python
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' ||
	die "$(python3 --version) is too old; the Python package needs 3.10 or newer"
VENV=$CACHE/python-$(hash_of "$PACKAGE/requirements.txt" "$(python3 -VV)" "$(command -v python3)")
[[ -e $VENV/complete ]] || step "install Python tools" with_lock python make_venv

if [[ ${1:-} == --wheel ]]; then
	step "compile the Python package" build_wheel release
	wheel=("$WHEEL"/*.whl)
	mkdir -p "$2"
	cp "${wheel[0]}" "$2/"
	info "pip install $2/${wheel[0]##*/}"
	exit
fi

"$ROOT/hack/test-programs.sh"
step "compile and install the Python package" install_package
step "clippy of the Python package" cargo clippy --manifest-path "$PACKAGE/Cargo.toml" --target-dir "$TARGET/python" --locked -- -D warnings
step "ruff" check_style
step "mypy" check_types
step "Python: tests against real processes" run_tests
