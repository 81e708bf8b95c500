package brief

import (
	"fmt"
	"strings"
)

// List names the first of the parts, at most so many, and says how many more there are.
func List(parts []string, most int) string {
	if more := len(parts) - most; more > 0 {
		parts = append(append([]string{}, parts[:most]...), fmt.Sprintf("%d more", more))
	}
	return strings.Join(parts, ", ")
}
