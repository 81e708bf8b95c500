// Package structure finds circles between the files of a package. The compiler allows none between packages; within a package, a file that
// needs another one, and is needed by it, can be understood only together with it.
package structure

import (
	"errors"
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/packages"
)

// Arrow is a file that uses something which another file of its package declares.
type Arrow struct {
	From, To string
	// Symbol is the first thing that is used.
	Symbol string
}

// String implements fmt.Stringer.
func (a Arrow) String() string { return fmt.Sprintf("%s uses %s of %s", a.From, a.Symbol, a.To) }

// Package is one whose files were looked at.
type Package struct {
	Path string
	// Arrows between its files, without those of tests; one for each pair.
	Arrows []Arrow
}

// Load looks at the packages that match the patterns.
func Load(patterns ...string) ([]Package, error) {
	const mode = packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedTypes |
		packages.NeedTypesInfo | packages.NeedSyntax | packages.NeedExportFile
	loaded, err := packages.Load(&packages.Config{Mode: mode}, patterns...)
	if err != nil {
		return nil, fmt.Errorf("load %v: %w", patterns, err)
	}
	var list []Package
	for _, one := range loaded {
		for _, problem := range one.Errors {
			err = errors.Join(err, problem)
		}
		list = append(list, Package{Path: one.PkgPath, Arrows: arrowsOf(one)})
	}
	return list, err
}

func arrowsOf(loaded *packages.Package) []Arrow {
	nameOf := func(object types.Object) string { return filepath.Base(loaded.Fset.Position(object.Pos()).Filename) }
	seen := map[[2]string]Arrow{}
	for _, file := range loaded.Syntax {
		from := filepath.Base(loaded.Fset.Position(file.FileStart).Filename)
		ast.Inspect(file, func(node ast.Node) bool {
			ident, isIdent := node.(*ast.Ident)
			if !isIdent {
				return true
			}
			object := loaded.TypesInfo.Uses[ident]
			if object == nil || object.Pkg() != loaded.Types || !object.Pos().IsValid() {
				return true
			}
			pair := [2]string{from, nameOf(object)}
			if _, isKnown := seen[pair]; !isKnown && pair[0] != pair[1] {
				seen[pair] = Arrow{From: pair[0], To: pair[1], Symbol: object.Name()}
			}
			return true
		})
	}
	return slices.SortedFunc(maps.Values(seen), func(a, b Arrow) int {
		return slices.Compare([]string{a.From, a.To}, []string{b.From, b.To})
	})
}

// Circle has the arrows between files that need each other, and those from one circle to another; it is empty if there is none.
func (p Package) Circle() []Arrow {
	left := slices.Clone(p.Arrows)
	for {
		isFrom, isTo := map[string]bool{}, map[string]bool{}
		for _, arrow := range left {
			isFrom[arrow.From], isTo[arrow.To] = true, true
		}
		before := len(left)
		// A file that needs no other one is in no circle, nor is a file that no other one needs.
		left = slices.DeleteFunc(left, func(arrow Arrow) bool { return !isFrom[arrow.To] || !isTo[arrow.From] })
		if len(left) == before {
			return left
		}
	}
}
