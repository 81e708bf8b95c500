package structure_test

import (
	"slices"
	"testing"

	"rcbox.dev/rcbox/operator/internal/structure"
)

// pure are the packages whose files must have no circle between them.
var pure = []string{
	"rcbox.dev/rcbox/operator/internal/planner/...",
	"rcbox.dev/rcbox/operator/internal/structure",
}

// leastArrows is fewer than there are: a search that finds none would find no circle.
const leastArrows = 100

func TestNoCircles(t *testing.T) {
	packages, err := structure.Load(pure...)
	if err != nil {
		t.Fatal(err)
	}
	arrows := 0
	for _, one := range packages {
		t.Logf("%s: %d arrows", one.Path, len(one.Arrows))
		arrows += len(one.Arrows)
		for _, arrow := range one.Circle() {
			t.Errorf("%s: in a circle: %s", one.Path, arrow)
		}
	}
	if arrows < leastArrows {
		t.Errorf("only %d arrows were found", arrows)
	}
}

// A circle that is found, and a file beside it is not blamed.
func TestFindsCircle(t *testing.T) {
	packages, err := structure.Load("./testdata/circle")
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) != 1 || len(packages[0].Arrows) != 5 {
		t.Fatalf("found %+v", packages)
	}
	want := []structure.Arrow{
		{From: "first.go", To: "second.go", Symbol: "second"},
		{From: "second.go", To: "third.go", Symbol: "third"},
		{From: "third.go", To: "first.go", Symbol: "newThing"},
	}
	if got := packages[0].Circle(); !slices.Equal(got, want) {
		t.Errorf("the circle is %v", got)
	}
}
