// Package blade is the blade's side of booting from the network: it takes inventory, verifies a signed image, installs it so that a power
// cut never leaves half of one, and joins the cluster. It decides and computes; disks, networks and files of the machine come in through
// small interfaces, and program rcbox-blade supplies them.
package blade
