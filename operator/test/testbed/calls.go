package testbed

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Calls are those of the operator, as the API server's audit log has them.
type Calls struct {
	t    *testing.T
	path string
}

// Call is a kind of call.
type Call struct {
	Verb     string `json:"verb"`
	Resource string `json:"resource"` // with its subresource
}

// Looks are the Leases in which the operator notes when it has looked at each Store, by the clock.
const Looks = "leases of looks"

// IsWrite says whether the call changes anything.
func (c Call) IsWrite() bool {
	return !slices.Contains([]string{"get", "list", "watch"}, c.Verb)
}

// Count is how many of each there were between two moments.
func (c *Calls) Count(from, to time.Time) map[Call]int {
	c.t.Helper()
	counts := map[Call]int{}
	file, err := os.Open(c.path)
	if errors.Is(err, fs.ErrNotExist) {
		return counts
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer func() { _ = file.Close() }() // read only
	const longest = 1 << 20
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, longest)
	for lines.Scan() {
		event := &auditv1.Event{}
		if err := json.Unmarshal(lines.Bytes(), event); err != nil {
			break // the last line is being written
		}
		at := event.RequestReceivedTimestamp.Time
		if event.ObjectRef == nil || at.Before(from) || at.After(to) {
			continue
		}
		call := Call{Verb: event.Verb, Resource: event.ObjectRef.Resource}
		if call.Resource == "leases" && strings.HasSuffix(event.ObjectRef.Name, v1alpha1.LookLease("")) {
			call.Resource = Looks
		}
		if event.ObjectRef.Subresource != "" {
			call.Resource += "/" + event.ObjectRef.Subresource
		}
		counts[call]++
	}
	return counts
}

// WritesBut are the calls between two moments that changed anything, but for those about one resource.
func (c *Calls) WritesBut(from, to time.Time, resource string) map[Call]int {
	c.t.Helper()
	writes := c.Count(from, to)
	maps.DeleteFunc(writes, func(call Call, _ int) bool {
		return !call.IsWrite() || call.Resource == resource || call.Resource == Looks
	})
	return writes
}
