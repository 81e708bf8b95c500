package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// OverridesError means that what a Chassis says of its hardware contradicts itself or its model.
type OverridesError struct {
	Model    string
	Problems []string
}

func (e *OverridesError) Error() string {
	return fmt.Sprintf("with these figures, model %s is wrong: %s", e.Model, strings.Join(e.Problems, "; "))
}

// Of is the model of a Chassis, with the figures that the Chassis has in place of the model's. They are checked as a model's are.
func Of(spec *v1alpha1.ChassisSpec) (*Model, error) {
	found, err := Get(spec.Model)
	if err != nil || spec.ModelOverrides == nil {
		return found, err
	}
	return found.with(spec.ModelOverrides)
}

// with is a copy of the model with other figures: their fields are called as the model's, so that one can be read over the other.
func (m *Model) with(overrides *v1alpha1.ModelOverrides) (*Model, error) {
	own, err := json.Marshal(m)
	figures, errFigures := json.Marshal(overrides)
	if err := errors.Join(err, errFigures); err != nil {
		return nil, fmt.Errorf("write model %s: %w", m.Name, err)
	}
	next, fields := &Model{}, map[string]any{}
	err = errors.Join(json.Unmarshal(own, next), json.Unmarshal(figures, next), json.Unmarshal(figures, &fields))
	if err != nil {
		return nil, fmt.Errorf("read model %s: %w", m.Name, err)
	}
	if problems := next.problems(); len(problems) > 0 {
		return nil, &OverridesError{Model: m.Name, Problems: problems}
	}
	next.Confirm = slices.DeleteFunc(next.Confirm, func(q Question) bool { return has(fields, strings.Split(q.Field, ".")) })
	return next, nil
}

// Setting is the field of a Chassis that overrides a figure of the model, such as spec.modelOverrides.server.watts for server.watts. It is
// empty if there is no such field, because nothing depends on the figure.
func Setting(field string) string {
	of := reflect.TypeFor[v1alpha1.ModelOverrides]()
	for name := range strings.SplitSeq(field, ".") {
		if of.Kind() == reflect.Pointer {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return ""
		}
		at := slices.IndexFunc(reflect.VisibleFields(of), func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name
		})
		if at < 0 {
			return ""
		}
		of = of.Field(at).Type
	}
	return "spec.modelOverrides." + field
}

// has says whether there is a field with that path.
func has(fields map[string]any, path []string) bool {
	value, isThere := fields[path[0]]
	if !isThere || len(path) == 1 {
		return isThere
	}
	inner, isObject := value.(map[string]any)
	return isObject && has(inner, path[1:])
}
