// Package docs_test holds the documents against the tree that they describe.
package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

const root = ".."

var (
	fence    = regexp.MustCompile("(?ms)^ *```.*?^ *```")
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *$`)
	linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// pages are README.md, docs and the READMEs of the images, by their paths from the root.
func pages(t *testing.T) map[string]string {
	t.Helper()
	list := map[string]string{}
	for _, pattern := range []string{"README.md", "docs/*.md", "images/*/README.md", "charts/*/README.md"} {
		paths, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			name, err := filepath.Rel(root, path)
			if err != nil {
				t.Fatal(err)
			}
			list[name] = string(text)
		}
	}
	if len(list) < 40 {
		t.Fatalf("only %d pages found", len(list))
	}
	return list
}

// anchor is what a heading is called in an address: lower case, words joined by hyphens, punctuation left out.
func anchor(heading string) string {
	heading = linkText.ReplaceAllString(heading, "$1")
	var name strings.Builder
	for _, letter := range strings.ToLower(heading) {
		switch {
		case letter == ' ':
			name.WriteByte('-')
		case letter == '-' || letter == '_' || unicode.IsLetter(letter) || unicode.IsDigit(letter):
			name.WriteRune(letter)
		}
	}
	return name.String()
}

func anchors(page string) []string {
	var list []string
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(page, ""), -1) {
		list = append(list, anchor(match[1]))
	}
	return list
}

// TestLinks follows every link to a file or heading of this tree.
func TestLinks(t *testing.T) {
	all := pages(t)
	headings := map[string][]string{}
	for name, text := range all {
		headings[name] = anchors(text)
	}
	followed := 0
	for name, text := range all {
		for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target := match[1]
			if strings.Contains(target, "://") {
				continue
			}
			followed++
			path, heading, _ := strings.Cut(target, "#")
			file := name
			if path != "" {
				file = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s links to %s: there is no such file", name, target)
				continue
			}
			if heading != "" && !slices.Contains(headings[file], heading) {
				t.Errorf("%s links to %s: there is no such heading", name, target)
			}
		}
	}
	if followed < 300 {
		t.Errorf("only %d links found", followed)
	}
}

// TestMakeTargets: whoever types a command of the documents finds its target.
func TestMakeTargets(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?:`|\\$ )make ([a-z][a-z0-9-]*)")
	for name, text := range pages(t) {
		for _, match := range command.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+match[1]+":") {
				t.Errorf("%s says `make %s`: the Makefile has no such target", name, match[1])
			}
		}
	}
}

// matches are the first groups of all matches, each once.
func matches(pattern *regexp.Regexp, text string) []string {
	var list []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		if !slices.Contains(list, match[1]) {
			list = append(list, match[1])
		}
	}
	return list
}

// functions are the tests of Go files in the folders below these.
func functions(t *testing.T, folders ...string) []string {
	t.Helper()
	function := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	var list []string
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			list = append(list, matches(function, string(text))...)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestNamesOfTests: a test that a page names is there under this name.
func TestNamesOfTests(t *testing.T) {
	known := functions(t, "api", "charts", "config", "docs", "e2e", "faults", "hack", "images/network", "images/node", "operator")
	name := regexp.MustCompile("`(Test[A-Z]\\w*)`")
	named := 0
	for page, text := range pages(t) {
		for _, test := range matches(name, text) {
			named++
			if !slices.Contains(known, test) {
				t.Errorf("%s names %s: there is no such test", page, test)
			}
		}
	}
	if named < 40 {
		t.Errorf("only %d names of tests found", named)
	}
}

// TestFaultTests: the page of fault tests has all of them.
func TestFaultTests(t *testing.T) {
	page := pages(t)["docs/faults.md"]
	tests := functions(t, "faults")
	// Of the checker itself, which the page describes as a whole.
	checker := functions(t, "faults/history")
	for _, test := range tests {
		if !slices.Contains(checker, test) && !strings.Contains(page, "\n| `"+test+"` |") {
			t.Errorf("docs/faults.md has no row for %s", test)
		}
	}
	if len(tests) < 30 {
		t.Errorf("only %d tests found", len(tests))
	}
}

// TestArchitecture: the map of the project has every crate of the store, and leads to every page.
func TestArchitecture(t *testing.T) {
	text := pages(t)["docs/architecture.md"]
	crates, err := os.ReadDir(filepath.Join(root, "images/store/crates"))
	if err != nil || len(crates) < 20 {
		t.Fatalf("%d crates: %v", len(crates), err)
	}
	for _, crate := range crates {
		if !strings.Contains(text, "\n| `"+crate.Name()+"` |") {
			t.Errorf("docs/architecture.md does not have the crate %s", crate.Name())
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\| (?:yes|no|to its users) \\|")
	for _, name := range matches(rows, text) {
		if _, err := os.Stat(filepath.Join(root, "images/store/crates", name)); err != nil {
			t.Errorf("docs/architecture.md has a crate %s that is not there", name)
		}
	}
	for page := range pages(t) {
		folder, name := filepath.Split(page)
		if folder == "docs/" && name != "architecture.md" && !strings.Contains(text, "]("+name+")") {
			t.Errorf("docs/architecture.md does not lead to %s", name)
		}
	}
}

// TestPaths: scripts and sources that pages name are there.
func TestPaths(t *testing.T) {
	folders := `(?:hack|images/[a-z]+|operator|faults|e2e|api|config|charts|crates|[a-z-]+/(?:src|tests))/`
	name := regexp.MustCompile("`(" + folders + `[\w./-]+\.(?:sh|rs|go|proto|txt|yaml|md))` + "[`:]")
	named := 0
	for page, text := range pages(t) {
		for _, path := range matches(name, text) {
			named++
			found := false
			for _, folder := range []string{"", "images/store", "images/store/crates"} {
				_, err := os.Stat(filepath.Join(root, folder, path))
				found = found || err == nil
			}
			if !found {
				t.Errorf("%s names %s: there is no such file", page, path)
			}
		}
	}
	if named < 80 {
		t.Errorf("only %d paths found", named)
	}
}
