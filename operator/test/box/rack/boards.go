package rack

import (
	"fmt"
	"path/filepath"
)

// uplinks of a switch board: each board has as many of the chassis' QSFP ports.
const uplinksOfBoard = 2

// links calls with the number and name of each sensor of a switch board, counted from 1. Links of servers have none, to be light.
func links(board int, call func(sensor byte, name string)) {
	for n := range uplinksOfBoard {
		call(byte(n+1), fmt.Sprintf("QSFP %d Link", (board-1)*uplinksOfBoard+n+1))
	}
}

// Link has a link of the nth switch board of a chassis, by the name of its sensor, be up or down.
func (r *Rack) Link(name string, board int, link string, isUp bool) error {
	chassis := r.chassis(name)
	if chassis == nil {
		return fmt.Errorf("there is no chassis %s", name)
	}
	value := "0"
	if isUp {
		value = "1"
	}
	return replace(r.link(chassis, board, link), value)
}

func (r *Rack) link(chassis *Chassis, board int, link string) string {
	return filepath.Join(r.dir(chassis), fmt.Sprintf("board-%d %s", board, link))
}
