package controller

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/planner/facts"
)

// A coordinator takes fewer copies only from who says that fewer are meant, and knows how many there are.
func TestFewerCopiesAreSaidToBeMeant(t *testing.T) {
	store := &v1alpha1.Store{ObjectMeta: metav1.ObjectMeta{UID: "uid", Generation: 7}}
	number := func(n int32) *int32 { return &n }
	for name, test := range map[string]struct {
		have, want facts.Settings
		expected   *adminv1.FewerCopies
	}{
		"more": {
			have: facts.Settings{Replicas: number(2), Min: number(1)},
			want: facts.Settings{Replicas: number(3), Min: number(2)},
		},
		"left out": {have: facts.Settings{Replicas: number(2), Min: number(1)}},
		"as many as were started with": {
			want: facts.Settings{Replicas: number(2), Min: number(1)},
		},
		"fewer": {
			have:     facts.Settings{Replicas: number(3), Min: number(2)},
			want:     facts.Settings{Replicas: number(2), Min: number(1)},
			expected: &adminv1.FewerCopies{ExpectedReplicas: 3},
		},
		"a lower least number": {
			have:     facts.Settings{Replicas: number(3), Min: number(3)},
			want:     facts.Settings{Replicas: number(3), Min: number(2)},
			expected: &adminv1.FewerCopies{ExpectedReplicas: 3},
		},
		"fewer than were started with": {
			want:     facts.Settings{Replicas: number(1), Min: number(1)},
			expected: &adminv1.FewerCopies{ExpectedReplicas: 2},
		},
	} {
		cluster := &facts.Cluster{Settings: &test.have, Members: []facts.MemberReport{{Copies: 0}, {Copies: 2}}}
		request := settingsRequest(store, cluster, test.want)
		if by := request.GetAskedBy(); by.GetUid() != "uid" || by.GetGeneration() != 7 {
			t.Errorf("%s: asked by %v", name, by)
		}
		if fewer := request.GetFewerCopies(); (fewer == nil) != (test.expected == nil) ||
			fewer.GetExpectedReplicas() != test.expected.GetExpectedReplicas() {
			t.Errorf("%s: %v, want %v", name, fewer, test.expected)
		}
	}
}
