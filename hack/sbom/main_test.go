package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func bill(t *testing.T, input string, arguments ...string) map[string]cdx.Component {
	t.Helper()
	var output bytes.Buffer
	if err := run(append([]string{"-name", "it", "-version", "1"}, arguments...), strings.NewReader(input), &output); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&output, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.Metadata.Component.Name != "it" {
		t.Errorf("it is of %+v", bom.Metadata.Component)
	}
	found := map[string]cdx.Component{}
	for _, one := range *bom.Components {
		found[one.Name] = one
	}
	return found
}

func TestOfGo(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	found := bill(t, "", "-go", program)
	one, there := found["github.com/CycloneDX/cyclonedx-go"]
	if !there || !strings.HasPrefix(one.PackageURL, "pkg:golang/github.com/CycloneDX/cyclonedx-go@v") {
		t.Errorf("found %+v", found)
	}
}

func TestOfCargo(t *testing.T) {
	const metadata = `{
		"packages": [
			{"id": "own", "name": "server", "version": "0.1.0"},
			{"id": "a", "name": "a", "version": "1.2.3", "license": "MIT/Apache-2.0", "source": "registry"},
			{"id": "b", "name": "b", "version": "2.0.0", "license": "MIT", "source": "registry"},
			{"id": "test", "name": "test", "version": "3.0.0", "source": "registry"}],
		"workspace_members": ["own"],
		"resolve": {"nodes": [
			{"id": "own", "deps": [{"pkg": "a", "dep_kinds": [{"kind": null}]}, {"pkg": "test", "dep_kinds": [{"kind": "dev"}]}]},
			{"id": "a", "deps": [{"pkg": "b", "dep_kinds": [{"kind": null}]}, {"pkg": "test", "dep_kinds": [{"kind": "build"}]}]}]}}`
	found := bill(t, metadata, "-cargo")
	if len(found) != 2 || found["b"].PackageURL != "pkg:cargo/b@2.0.0" || (*found["a"].Licenses)[0].Expression != "MIT OR Apache-2.0" {
		t.Errorf("found %+v", found)
	}
}

func TestBadInput(t *testing.T) {
	for _, arguments := range [][]string{{}, {"-go", "/no/such/file"}, {"-cargo"}} {
		if err := run(arguments, strings.NewReader("no JSON"), &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", arguments)
		}
	}
}
