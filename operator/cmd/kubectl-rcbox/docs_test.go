package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"rcbox.dev/rcbox/operator/internal/plugin/access"
)

// docs/kubectl-rcbox.md has every command, as it is used, and names no flag that a command does not have.
func TestPageHasCommands(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubectl-rcbox.md")
	if err != nil {
		t.Fatal(err)
	}
	// A bar in a table is escaped.
	page := strings.ReplaceAll(string(text), `\|`, "|")
	flag := regexp.MustCompile("`[^`]*?--([a-z-]+)")
	found := 0
	var check func(command *cobra.Command, prefix string)
	check = func(command *cobra.Command, prefix string) {
		for _, below := range command.Commands() {
			use := prefix + below.Use
			check(below, prefix+below.Name()+" ")
			_, row, isThere := strings.Cut(page, "\n| `"+use)
			if !isThere {
				t.Errorf("docs/kubectl-rcbox.md has no row for %q", use)
				continue
			}
			found++
			row, _, _ = strings.Cut("`"+row, "\n")
			for _, match := range flag.FindAllStringSubmatch(row, -1) {
				if below.Flags().Lookup(match[1]) == nil {
					t.Errorf("docs/kubectl-rcbox.md says that %s has --%s", below.Name(), match[1])
				}
			}
		}
	}
	check(rootCommand((*access.Flags).Connect), "")
	if found < 14 {
		t.Errorf("only %d commands found", found)
	}
}
