// Command sbom writes a bill of materials (CycloneDX, JSON) of programs: of Go ones what is noted in them, of Rust ones what their
// lock file resolves to for the machine that they are built for.
//
//	sbom -name operator -version 0.1.0 -go .build/operator/manager >operator.cdx.json
//	cargo metadata --format-version 1 --locked | sbom -name store -version 0.1.0 -cargo >store.cdx.json
package main

import (
	"cmp"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "sbom: %v\n", err)
		os.Exit(1)
	}
}

func run(arguments []string, input io.Reader, output io.Writer) error {
	flags := flag.NewFlagSet("sbom", flag.ContinueOnError)
	name := flags.String("name", "", "what the programs are called")
	version := flags.String("version", "", "their version")
	goProgram := flags.String("go", "", "a Go program's file")
	cargo := flags.Bool("cargo", false, "read what cargo metadata says from standard input")
	if err := flags.Parse(arguments); err != nil {
		return fmt.Errorf("read the arguments: %w", err)
	}
	var components []cdx.Component
	var err error
	switch {
	case *goProgram != "":
		components, err = ofGo(*goProgram)
	case *cargo:
		components, err = ofCargo(input)
	default:
		err = errors.New("say -go FILE or -cargo")
	}
	if err != nil {
		return err
	}
	slices.SortFunc(components, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{Type: cdx.ComponentTypeApplication, Name: *name, Version: *version}}
	bom.Components = &components
	if err := cdx.NewBOMEncoder(output, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return fmt.Errorf("write the bill: %w", err)
	}
	return nil
}

func component(kind, name, version, license string) cdx.Component {
	purl := fmt.Sprintf("pkg:%s/%s@%s", kind, name, version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, BOMRef: purl, Name: name, Version: version, PackageURL: purl}
	if license != "" {
		// Older crates write "MIT/Apache-2.0".
		c.Licenses = &cdx.Licenses{{Expression: strings.ReplaceAll(license, "/", " OR ")}}
	}
	return c
}

func ofGo(file string) ([]cdx.Component, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read what %s is made of: %w", file, err)
	}
	components := []cdx.Component{component("golang", "std", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		components = append(components, component("golang", module.Path, module.Version, ""))
	}
	return components, nil
}

func ofCargo(input io.Reader) ([]cdx.Component, error) {
	var metadata struct {
		Packages []struct{ ID, Name, Version, License, Source string }
		Resolve  struct {
			Nodes []struct {
				ID   string
				Deps []struct {
					Pkg      string
					DepKinds []struct{ Kind string } `json:"dep_kinds"` //nolint:tagliatelle // cargo's name
				}
			}
		}
		WorkspaceMembers []string `json:"workspace_members"` //nolint:tagliatelle // cargo's name
	}
	if err := json.NewDecoder(input).Decode(&metadata); err != nil {
		return nil, fmt.Errorf("read what cargo metadata says: %w", err)
	}
	// What is in the programs: what members need, and what that needs, but for tests and for builds.
	needs := map[string][]string{}
	for _, node := range metadata.Resolve.Nodes {
		for _, dep := range node.Deps {
			if slices.ContainsFunc(dep.DepKinds, func(kind struct{ Kind string }) bool { return kind.Kind == "" }) {
				needs[node.ID] = append(needs[node.ID], dep.Pkg)
			}
		}
	}
	found, left := map[string]bool{}, slices.Clone(metadata.WorkspaceMembers)
	for len(left) > 0 {
		id := left[len(left)-1]
		left = left[:len(left)-1]
		if !found[id] {
			found[id] = true
			left = append(left, needs[id]...)
		}
	}
	var components []cdx.Component
	for _, one := range metadata.Packages {
		if found[one.ID] && one.Source != "" {
			components = append(components, component("cargo", one.Name, one.Version, one.License))
		}
	}
	return components, nil
}
