package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"rcbox.dev/rcbox/operator/internal/resources"
)

// trialsPause is the longest pause within one series of trials without an answer: a failed one is repeated within half a minute.
const trialsPause = time.Minute

// Trial is what the API server said of a pod that it was to admit, and not to keep.
type Trial struct {
	// At is when it answered last; zero if it never has.
	At time.Time
	// Refused is why it admits no such pod, in its words; empty if it does.
	Refused string
	// VainSince and VainAt are when it was first and last asked without an answer, since it answered; zero if it was not.
	VainSince, VainAt time.Time
}

// InVain is the trial once the API server was asked again, and has not answered. What it said before stays.
func (t Trial) InVain(at time.Time) Trial {
	if t.UnansweredFor(at) == 0 {
		t.VainSince = at
	}
	t.VainAt = at
	return t
}

// UnansweredFor is how long the API server is being asked without an answer; 0 if it has answered, or was not asked lately.
func (t Trial) UnansweredFor(now time.Time) time.Duration {
	if t.VainSince.IsZero() || now.Sub(t.VainAt) > trialsPause {
		return 0
	}
	return now.Sub(t.VainSince)
}

// LastAsked is when the API server was asked last.
func (t Trial) LastAsked() time.Time {
	if t.VainAt.After(t.At) {
		return t.VainAt
	}
	return t.At
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
