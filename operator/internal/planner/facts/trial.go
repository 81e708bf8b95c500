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

// TrialKey names the trial of the pod that takes the place of a present one, and is made from these inputs.
func TrialKey(inPlaceOf *Pod, inputs resources.Inputs) (string, error) {
	text, err := inputs.Encode()
	if err != nil {
		return "", err
	}
	digest := sha256.Sum256([]byte(inPlaceOf.UID + " " + inPlaceOf.Component + " " + text))
	return hex.EncodeToString(digest[:]), nil
}
