package bmc_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestNoProgramIsRun: libraries speak the protocols of BMCs. A program would have to be given a password, and its output would have to be
// parsed; so none is run.
func TestNoProgramIsRun(t *testing.T) {
	files := 0
	for _, folder := range []string{".", "../box", "../../cmd/manager"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, of := range parsed.Imports {
				if name, err := strconv.Unquote(of.Path.Value); err != nil || name == "os/exec" {
					t.Errorf("%s imports %s: %v", path, name, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if files < 60 {
		t.Errorf("only %d files found", files)
	}
}
