package plan

import (
	"fmt"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// memoryWindow is how long an error of memory speaks against a server.
	memoryWindow = 24 * time.Hour
	// maxCorrected is how many corrected errors within that time are none of chance. The log of a BMC is known up to bmc.MaxLog records.
	maxCorrected = 10
)

// memoryErrors says what the log of the server's BMC says against its memory; empty if nothing. A record without a time counts: its BMC's
// clock was not set, and nobody knows how old it is.
func (m *machine) memoryErrors() string {
	corrected, uncorrected, isTooMany := 0, 0, false
	for _, entry := range m.Log {
		if !entry.Asserted || !entry.At.IsZero() && m.now.Sub(entry.At) > memoryWindow {
			continue
		}
		switch entry.Memory {
		case bmc.UncorrectedError:
			uncorrected++
		case bmc.CorrectedError:
			corrected++
		case bmc.TooManyCorrected:
			isTooMany = true
		case bmc.NoMemoryError:
		}
	}
	var found string
	switch {
	case uncorrected > 0:
		found = fmt.Sprintf("memory errors that could not be corrected: %d", uncorrected)
	case isTooMany:
		found = "so many corrected memory errors that the BMC records no more"
	case corrected >= maxCorrected:
		found = fmt.Sprintf("corrected memory errors: %d", corrected)
	default:
		return ""
	}
	return fmt.Sprintf("in the log of its BMC, of the last 24 hours: %s. To take it out of use: kubectl rcbox isolate-server %s "+
		"--reason \"memory errors\"; once it is repaired: kubectl rcbox ipmi %s sel clear", found, m.name(), m.name())
}
