package steps

import "iter"

// RowOf is the row of a step's kind.
func RowOf(step Step) Row { return step.row() }

// Describe says what is done and why, for events and logs.
func Describe(step Step) string { return step.row().Text }

// Of are the steps of one kind, in order.
func Of[Kind Step](all []Step) iter.Seq[Kind] {
	return func(yield func(Kind) bool) {
		for _, step := range all {
			if one, isOfKind := step.(Kind); isOfKind && !yield(one) {
				return
			}
		}
	}
}
