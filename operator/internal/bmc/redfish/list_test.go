package redfish

import (
	"encoding/json"
	"strings"
	"testing"
)

// Members are counted while they are decoded.
func TestMembersAreBounded(t *testing.T) {
	t.Parallel()
	for members, isTaken := range map[int]bool{0: true, 1: true, maxMembers: true, maxMembers + 1: false, maxBody / 4: false} {
		text := `{"Members": [` + strings.TrimSuffix(strings.Repeat("{},", members), ",") + `]}`
		var page struct{ Members list[link] }
		if err := json.Unmarshal([]byte(text), &page); (err == nil) != isTaken {
			t.Errorf("%d members: %v", members, err)
		}
		if isTaken && len(page.Members) != members || cap(page.Members) > 2*maxMembers {
			t.Errorf("of %d members, %d are kept in %d places", members, len(page.Members), cap(page.Members))
		}
	}
	for text, isTaken := range map[string]bool{"null": true, `{"a": 1}`: false, `"x"`: false, `[1]`: false} {
		var members list[link]
		if err := json.Unmarshal([]byte(text), &members); (err == nil) != isTaken || len(members) > 0 {
			t.Errorf("%s: %v, %v", text, members, err)
		}
	}
}
