package e2e

import "testing"

// TestSideBySide: Stores that do not know of each other, in one cluster, at the same time. Nothing happens to nodes or to the operator.
func TestSideBySide(t *testing.T) {
	namespacesAreThere(t)
	operatorRuns(t)
	for name, test := range map[string]func(*testing.T){
		"ScaleIn": storeScalesIn, "Drill": storeIsDrilled, "Samples": samplesForm,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}
