// Package circle has three files that need each other, one that needs them, and one that they need.
package circle

type thing struct{ field int }

func newThing() *thing { return &thing{field: second() + base} }
