package layout_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/layout"
)

// connect lays a cable between two chassis.
func connect(a, b *v1alpha1.Chassis) {
	for _, end := range []struct{ of, to *v1alpha1.Chassis }{{a, b}, {b, a}} {
		if end.of.Spec.Chain == nil {
			end.of.Spec.Chain = &v1alpha1.ChassisChain{Role: v1alpha1.ChainLeaf}
		}
		chain := end.of.Spec.Chain
		chain.Uplinks = append(chain.Uplinks, v1alpha1.ChassisUplink{
			QSFP: int32(len(chain.Uplinks) + 1), Mode: v1alpha1.Uplink1x40G, Peer: end.to.Name,
		})
	}
}

// rootAndLeafs are the three chassis of the machines' own documents: two cables lead from the root to each leaf.
func rootAndLeafs() []v1alpha1.Chassis {
	all := []v1alpha1.Chassis{chassis(1), chassis(2), chassis(3)}
	for _, leaf := range []int{1, 2} {
		connect(&all[0], &all[leaf])
		connect(&all[0], &all[leaf])
	}
	all[0].Spec.Chain.Role = v1alpha1.ChainRoot
	return all
}

func TestChains(t *testing.T) {
	for name, test := range map[string]struct {
		change func(all []v1alpha1.Chassis)
		says   []string
	}{
		"a root and two leafs": {func([]v1alpha1.Chassis) {}, []string{
			"Connected: it is the root of 3 Chassis", "Connected: it is one of 3 Chassis, with mercury1 as the root",
			"Connected: it is one of 3 Chassis, with mercury1 as the root",
		}},
		"no chain": {func(all []v1alpha1.Chassis) {
			for i := range all {
				all[i].Spec.Chain = nil
			}
		}, []string{"", "", ""}},
		"a root alone": {func(all []v1alpha1.Chassis) {
			all[0].Spec.Chain.Uplinks, all[1].Spec.Chain, all[2].Spec.Chain = nil, nil, nil
		}, []string{"Connected: it is the root, and no cable leads to another Chassis", "", ""}},
		"a leaf alone": {func(all []v1alpha1.Chassis) {
			all[0].Spec.Chain, all[1].Spec.Chain.Uplinks, all[2].Spec.Chain = nil, nil, nil
		}, []string{"", "NoRoot: spec.chain.role is Leaf, and no cable leads to another Chassis: name its uplinks, or set role: Root", ""}},
		"a cable to an external switch": {func(all []v1alpha1.Chassis) {
			all[0].Spec.Chain.Uplinks = append(all[0].Spec.Chain.Uplinks, v1alpha1.ChassisUplink{QSFP: 8})
			all[0].Spec.Model = "Generic"
		}, []string{"Connected: it is the root of 3", "Connected", "Connected"}},
		"a peer that does not exist": {func(all []v1alpha1.Chassis) { all[1].Spec.Chain.Uplinks[0].Peer = "mercury9" }, []string{
			"OneEnd: 2 cables lead to mercury2, which has 1 cable back: name each cable in spec.chain.uplinks of both",
			"NoSuchPeer: QSFP 1 leads to mercury9, and there is no Chassis of that name",
			"Connected",
		}},
		"one end only": {func(all []v1alpha1.Chassis) { all[1].Spec.Chain = nil }, []string{
			"OneEnd: 2 cables lead to mercury2, which has 0 cables back", "OneEnd: 0 cables lead to mercury1, which has 2 cables back",
			"Connected",
		}},
		"modes that differ": {func(all []v1alpha1.Chassis) { all[2].Spec.Chain.Uplinks[1].Mode = v1alpha1.Uplink4x10G }, []string{
			"ModesDiffer: the cables to mercury3 are 1x40G and 1x40G here, and 1x40G and 4x10G there", "Connected", "ModesDiffer",
		}},
		"a port that the model does not have": {func(all []v1alpha1.Chassis) { all[2].Spec.Chain.Uplinks[1].QSFP = 7 }, []string{
			"Connected", "Connected", "NoSuchPort: spec.chain.uplinks names QSFP 7, and model MicroModularServer has QSFP 1 to",
		}},
		"back to itself": {func(all []v1alpha1.Chassis) { all[2].Spec.Chain.Uplinks[1].Peer = "mercury3" }, []string{
			"OneEnd", "Connected", "Loop: QSFP 2 leads back to mercury3 itself",
		}},
		"a loop": {func(all []v1alpha1.Chassis) { connect(&all[1], &all[2]) }, []string{
			"Loop: cables connect mercury1, mercury2 and mercury3 in a loop, in which frames would go round without end", "Loop", "Loop",
		}},
		"no root": {func(all []v1alpha1.Chassis) { all[0].Spec.Chain.Role = v1alpha1.ChainLeaf }, []string{
			"NoRoot: mercury1, mercury2 and mercury3 have no root: set spec.chain.role: Root for one of them", "NoRoot", "NoRoot",
		}},
		"two roots": {func(all []v1alpha1.Chassis) { all[2].Spec.Chain.Role = v1alpha1.ChainRoot }, []string{
			"TwoRoots: mercury1 and mercury3 are connected, and each has spec.chain.role: Root", "TwoRoots", "TwoRoots",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			all := rootAndLeafs()
			test.change(all)
			layouts := layout.Of(all)
			for i, says := range test.says {
				chain := layouts[all[i].Name].Chain
				text := ""
				if chain.Reason != "" {
					text = chain.Reason + ": " + chain.Text
				}
				if !strings.HasPrefix(text, says) || says == "" && text != "" {
					t.Errorf("%s: %q does not begin with %q", all[i].Name, text, says)
				}
				if chain.IsSound != strings.HasPrefix(says, "Connected") {
					t.Errorf("%s: %+v", all[i].Name, chain)
				}
				if len(chain.Text) > 300 {
					t.Errorf("%d bytes: %s", len(chain.Text), chain.Text)
				}
			}
		})
	}
}

// Any tree with one root is sound, and with one more cable it has a loop, all of whose members are named if there is room.
func TestTreesAndLoops(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 16).Draw(t, "chassis")
		all := make([]v1alpha1.Chassis, n)
		parents := make([]int, n)
		for i := range all {
			all[i] = chassis(1)
			all[i].Name, all[i].Spec.Model = fmt.Sprintf("mercury%02d", i), "Generic"
			if i > 0 {
				parents[i] = rapid.IntRange(0, i-1).Draw(t, "parent")
			}
		}
		for i := 1; i < n; i++ {
			connect(&all[i], &all[parents[i]])
		}
		all[rapid.IntRange(0, n-1).Draw(t, "root")].Spec.Chain.Role = v1alpha1.ChainRoot
		for name, l := range layout.Of(all) {
			if !l.Chain.IsSound {
				t.Fatalf("%s: %+v", name, l.Chain)
			}
		}
		a := rapid.IntRange(1, n-1).Draw(t, "one end")
		b := rapid.IntRange(0, a-1).Draw(t, "other end")
		if parents[a] == b {
			return // one more cable between the same two
		}
		connect(&all[a], &all[b])
		for name, l := range layout.Of(all) {
			if l.Chain.Reason != layout.ChainLoop {
				t.Fatalf("with a cable from %s to %s, %s: %+v", all[a].Name, all[b].Name, name, l.Chain)
			}
		}
	})
}
