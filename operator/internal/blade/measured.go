package blade

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"

	"rcbox.dev/rcbox/operator/internal/blade/hardware"
)

// MeasuredFile has what rcbox-blade measure has measured since the system was started. It is gone with the next start.
const MeasuredFile = "/run/rcbox/measured.json"

// AddMeasured enters into an inventory what was measured at this start; nothing if nothing was measured.
func AddMeasured(root fs.FS, inventory *hardware.Inventory) {
	text, err := readBounded(root, MeasuredFile[1:])
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var measured hardware.Measured
	if err == nil {
		err = json.Unmarshal(text, &measured)
	}
	if err != nil {
		measured = hardware.Measured{Failed: []string{fmt.Sprintf("%s: %v", MeasuredFile, err)}}
	}
	inventory.Measured = &measured
}
