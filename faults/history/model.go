package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// register is one key: a value with a version that grows with every change, across removals as well.
type register struct {
	isThere bool
	value   int64
	// version is the present one, or that of the last object that was there.
	version uint64
	// isLater: nobody saw the version that the last change made; it is later than version.
	isLater bool
}

// hasVersion is whether the object may have this version.
func (r register) hasVersion(version uint64) bool {
	if r.isLater {
		return version > r.version
	}
	return version == r.version
}

// known is the register once its version was seen.
func (r register) known(version uint64) register {
	return register{isThere: r.isThere, value: r.value, version: version}
}

// changed is the register after a change that made version, which 0 says nobody saw.
func (r register) changed(value int64, version uint64) (bool, register) {
	if version == 0 {
		return true, register{isThere: true, value: value, version: r.version, isLater: true}
	}
	return version > r.version, register{isThere: true, value: value, version: version}
}

// step is whether an operation can have had its outcome here, and what it leaves.
func (r register) step(o Operation) (bool, register) {
	switch o.Outcome {
	case Done:
		return r.done(o)
	case Absent:
		return !r.isThere && (o.Kind == Read || o.Kind == Replace), r
	case Exists:
		return o.Kind == Create && r.isThere && (o.Version == 0 || r.hasVersion(o.Version)), r.seen(o.Version)
	case Changed:
		return o.Kind == Replace && r.isThere && o.Version != o.Given && r.hasVersion(o.Version), r.seen(o.Version)
	case Unknown:
		return true, r.perhaps(o)
	}
	return false, r
}

func (r register) seen(version uint64) register {
	if version == 0 {
		return r
	}
	return r.known(version)
}

// done is step for an operation that was carried out.
func (r register) done(o Operation) (bool, register) {
	switch o.Kind {
	case Read:
		return r.isThere && r.value == o.Value && r.hasVersion(o.Version), r.known(o.Version)
	case Write:
		return only(o.Version != 0, r, o.Argument, o.Version)
	case Create:
		return only(o.Version != 0 && !r.isThere, r, o.Argument, o.Version)
	case Replace:
		return only(o.Version > o.Given && r.isThere && r.hasVersion(o.Given), r.known(o.Given), o.Argument, o.Version)
	case Increment:
		return only(o.Version != 0 && r.sum(o) == o.Value, r, o.Value, o.Version)
	case Remove:
		if o.Version == 0 {
			return !r.isThere, r
		}
		return r.isThere && r.hasVersion(o.Version), register{version: o.Version}
	}
	return false, r
}

func only(condition bool, r register, value int64, version uint64) (bool, register) {
	if !condition {
		return false, r
	}
	return r.changed(value, version)
}

// sum is the value after an increment.
func (r register) sum(o Operation) int64 {
	if !r.isThere {
		return o.Argument
	}
	return r.value + o.Argument
}

// perhaps is what an operation leaves of which nobody knows whether it took effect. That it did not is the same as that it took
// effect after everything else, and that is among the orders that are tried.
func (r register) perhaps(o Operation) register {
	after := r
	switch o.Kind {
	case Write:
		_, after = r.changed(o.Argument, 0)
	case Create:
		if !r.isThere {
			_, after = r.changed(o.Argument, 0)
		}
	case Replace:
		// A version that nobody has seen cannot have been asked for, so one that is later than what was seen is another one.
		if r.isThere && !r.isLater && r.version == o.Given {
			_, after = r.changed(o.Argument, 0)
		}
	case Increment:
		_, after = r.changed(r.sum(o), 0)
	case Remove:
		after.isThere, after.value = false, 0
	case Read:
	}
	return after
}

func model() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, input, _ any) (bool, any) {
			before, isRegister := state.(register)
			operation, isOperation := input.(Operation)
			if !isRegister || !isOperation {
				return false, state
			}
			return before.step(operation)
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprint(input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// byKey sorts a history by its keys. What was only looked for and not found out is left out.
func byKey(history []Operation) map[string][]Operation {
	keys := map[string][]Operation{}
	for _, operation := range history {
		if operation.Kind == Read && !operation.IsKnown() {
			continue
		}
		keys[operation.Key] = append(keys[operation.Key], operation)
	}
	return keys
}

// Check is an error if no order of the operations explains what the clients saw; each operation takes effect once, somewhere between
// its call and its return.
func Check(history []Operation, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	keys := byKey(history)
	for key, operations := range keys {
		var checked []porcupine.Operation
		for _, operation := range operations {
			checked = append(checked, porcupine.Operation{
				ClientId: operation.Client, Input: operation, Call: operation.Call, Return: operation.end(),
			})
		}
		result, info := porcupine.CheckOperationsVerbose(model(), checked, max(time.Until(deadline), time.Millisecond))
		switch result {
		case porcupine.Ok:
		case porcupine.Unknown:
			return fmt.Errorf("key %s: %d operations could not be checked within %v", key, len(operations), limit)
		case porcupine.Illegal:
			return fmt.Errorf("key %s: no order of its %d operations explains what clients saw; %s",
				key, len(operations), explain(operations, info))
		}
	}
	return nil
}

// explain tells how far an order could be found, and what is not in it.
func explain(operations []Operation, info porcupine.LinearizationInfo) string {
	const shown = 8
	var longest []int
	for _, partial := range info.PartialLinearizations()[0] {
		if len(partial) > len(longest) {
			longest = partial
		}
	}
	// Partial linearizations hold positions in the history.
	isIn := map[int]bool{}
	for _, at := range longest {
		isIn[at] = true
	}
	var text strings.Builder
	fmt.Fprintf(&text, "an order was found for %d of them, ending with", len(longest))
	for _, at := range longest[max(0, len(longest)-shown):] {
		fmt.Fprintf(&text, "\n  %s", line(operations[at]))
	}
	text.WriteString("\nand not for, among others,")
	var left []Operation
	for at, operation := range operations {
		if !isIn[at] {
			left = append(left, operation)
		}
	}
	slices.SortFunc(left, func(a, b Operation) int { return int(min(1, max(-1, a.end()-b.end()))) })
	for _, operation := range left[:min(shown, len(left))] {
		fmt.Fprintf(&text, "\n  %s", line(operation))
	}
	return text.String()
}

func line(o Operation) string {
	return fmt.Sprintf("[%.6f to %.6f s] %v", float64(o.Call)/1e9, float64(o.Return)/1e9, o)
}
