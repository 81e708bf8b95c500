package plan

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/bmc"
)

const (
	// memoryWindow is how long an error of memory speaks against a server.
	memoryWindow = 24 * time.Hour
	// maxCorrected corrected errors within that time are more than chance. No more than the newest bmc.MaxLog records are known.
	maxCorrected = 10
)

// hadMemoryErrors says whether the log had some when it was last read.
func (m *machine) hadMemoryErrors() bool {
	before := meta.FindStatusCondition(m.next.Conditions, v1alpha1.ConditionHealthy)
	return before != nil && before.Reason == string(v1alpha1.UnhealthyMemoryErrors)
}

// memoryErrors names the memory errors in the log of the server's BMC; empty if there are none. A record without a time counts: the BMC's
// clock was not set, and nobody knows how old the record is.
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
	return found
}
