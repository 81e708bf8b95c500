package rack

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Controller is the name that power.sh uses for a management controller of a chassis.
type Controller string

// BladeIn is the controller of the blade in a slot.
func BladeIn(slot int) Controller { return Controller(strconv.Itoa(slot)) }

// Manager is the nth chassis manager, counted from 1.
func Manager(n int) Controller { return Controller(fmt.Sprintf("manager-%d", n)) }

// Given returns the power commands that a controller received, first to last, also those without effect: "power 1", "power 0", "shutdown 1"
// or "reset 1". A cycle is recorded as two commands.
func (r *Rack) Given(chassis string, to Controller) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(r.options.Dir, chassis, "given-"+string(to))) //nolint:gosec // of this package
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the commands of controller %s of %s: %w", to, chassis, err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), nil
}
