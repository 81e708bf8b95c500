package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"rcbox.dev/rcbox/operator/internal/resources"
)

// Trial is what the API server said of a pod that it was to admit, and not to keep.
type Trial struct {
	// At is when it was asked.
	At time.Time
	// Refused is why it admits no such pod, in its words; empty if it does.
	Refused string
}

// TrialKey tells pods apart of which one may be admitted and another one not: those of different components, or made from different inputs.
func TrialKey(component string, inputs resources.Inputs) (string, error) {
	text, err := inputs.Encode()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(component + " " + text))
	return hex.EncodeToString(digest[:]), nil
}
