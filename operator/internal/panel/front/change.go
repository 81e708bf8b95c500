package front

import (
	"encoding/json"
	"fmt"
	"maps"
)

// Picture is the parts as they are sent: each in JSON, which is also how two of them are compared.
type Picture map[string]json.RawMessage

// Draw makes what is sent of parts.
func Draw(parts Parts) (Picture, error) {
	picture := make(Picture, len(parts))
	for _, name := range parts.sortedKeys() {
		text, err := json.Marshal(parts[name])
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", name, err)
		}
		picture[name] = text
	}
	return picture, nil
}

// Change is what makes one picture out of another.
type Change struct {
	// Set are parts that are new, or look different.
	Set Picture `json:"set,omitempty"`
	// Gone are parts that are not there any more.
	Gone []string `json:"gone,omitempty"`
}

// IsNothing says whether both are the same.
func (c Change) IsNothing() bool { return len(c.Set) == 0 && len(c.Gone) == 0 }

// Since is the way from a picture to this one. From none, it is all of it.
func (p Picture) Since(before Picture) Change {
	change := Change{Set: Picture{}}
	for name, text := range p {
		if old, isThere := before[name]; !isThere || string(old) != string(text) {
			change.Set[name] = text
		}
	}
	for name := range before {
		if _, isThere := p[name]; !isThere {
			change.Gone = append(change.Gone, name)
		}
	}
	return change
}

// With is the picture after a change.
func (p Picture) With(change Change) Picture {
	after := make(Picture, len(p)+len(change.Set))
	maps.Copy(after, p)
	maps.Copy(after, change.Set)
	for _, name := range change.Gone {
		delete(after, name)
	}
	return after
}
