#!/bin/sh
# The power of emulated blades, as ipmi_sim asks for it.
#
# usage: power.sh CHASSIS_DIR SLOT|manager-N|none get PARAMETER... | set PARAMETER VALUE...
# Commands about power are kept in CHASSIS_DIR/given-SLOT and given-manager-N, one a line.
#
# It runs for each question about the power of a blade, many times a second, and
# so asks with what the shell has of its own, without another process.
dir=$1 controller=$2 verb=$3
shift 3
case $controller in manager-*) whom=all ;; *) whom=$controller ;; esac
cd "$dir/slots" || exit 1
if [ "$whom" = all ]; then blades=$(ls); else blades=$whom; fi

replace() {
	echo "$2" >"$1.new$$" && mv "$1.new$$" "$1"
}

# is_deaf BLADE: its controller lies, or says yes and does nothing.
is_deaf() {
	[ -e "$1/keep" ] || { [ -e "$1/lie" ] && [ "$whom" != all ]; }
}

# switch BLADE POWER: both what is so and what is drawn.
switch() {
	is_deaf "$1" && return
	replace "$1/power" "$2"
	echo "power $2" >>"$1/events"
	if [ "$2" = 1 ]; then replace "$1/watts" 22; else replace "$1/watts" 2; fi
}

# is_on BLADE
is_on() {
	is=
	read -r is <"$1/power"
	[ "$is" = 1 ]
}

# power: sets $is to what is said of it.
power() {
	for blade in $blades; do
		if [ -e "$blade/lie" ] && [ "$whom" != all ]; then
			read -r is <"$blade/lie"
			return
		fi
		if is_on "$blade"; then
			return
		fi
	done
	is=0
}

case $verb in
get)
	for parameter in "$@"; do
		case $parameter in
		power)
			power
			echo "power:$is"
			;;
		boot)
			is=default
			[ ! -e "$whom/boot" ] || read -r is <"$whom/boot"
			echo "boot:$is"
			;;
		*) exit 1 ;;
		esac
	done
	;;
set)
	case $1 in power | shutdown | reset) echo "$1 $2" >>"../given-$controller" ;; esac
	[ -e "$whom/refuse" ] && exit 1
	while [ $# -gt 1 ]; do
		for blade in $blades; do
			case $1 in
			power) switch "$blade" "$2" ;;
			boot) [ -e "$blade/keep" ] || replace "$blade/boot" "$2" ;;
			shutdown) if is_on "$blade" && [ ! -e "$blade/keep" ] && [ ! -e "$blade/lie" ]; then echo "$blade" >>../requests; fi ;;
			reset) if is_on "$blade"; then echo reset >>"$blade/events"; fi ;;
			identify) replace "$blade/identify" "$2" ;;
			*) exit 1 ;;
			esac
		done
		shift 2
	done
	;;
*) exit 1 ;;
esac
exit 0
