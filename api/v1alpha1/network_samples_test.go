package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const networkSamples = "../../config/network/"

// definition is what matters here of a NetworkAttachmentDefinition.
type definition struct {
	Metadata struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Config string `json:"config"`
	} `json:"spec"`
}

// The samples fit together: Stores name definitions that there are, for the resource that the definition is for and the device plugin hands
// out; and definitions take addresses from the operator.
func TestNetworkSamplesFit(t *testing.T) {
	text, err := os.ReadFile(networkSamples + "attachments.yaml")
	if err != nil {
		t.Fatal(err)
	}
	resourceOf := map[string]string{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		d := definition{}
		if err := yaml.Unmarshal(document, &d); err != nil {
			t.Fatal(err)
		}
		config := struct {
			Capabilities map[string]bool
			IPAM         struct{ Type string }
		}{}
		if err := json.Unmarshal([]byte(d.Spec.Config), &config); err != nil {
			t.Fatalf("%s: %v", d.Metadata.Name, err)
		}
		if !config.Capabilities["mac"] || !config.Capabilities["ips"] || config.IPAM.Type != "static" {
			t.Errorf("%s does not take addresses from the operator: %s", d.Metadata.Name, d.Spec.Config)
		}
		resourceOf[d.Metadata.Name] = d.Metadata.Annotations["k8s.v1.cni.cncf.io/resourceName"]
	}
	plugin, err := os.ReadFile(networkSamples + "device-plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(networkSamples + "store-*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no Stores: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		store := v1alpha1.Store{}
		if err := yaml.Unmarshal(text, &store); err != nil {
			t.Fatal(err)
		}
		for _, attachment := range store.Spec.Network.Attachments {
			resource, found := resourceOf[attachment.NetworkAttachmentDefinition]
			if !found || resource != attachment.ResourceName {
				t.Errorf("%s: %s is for %q, not for %q", file, attachment.NetworkAttachmentDefinition, resource, attachment.ResourceName)
			}
			_, name, isExtended := strings.Cut(resource, "/")
			if isExtended && !strings.Contains(string(plugin), `"resourceName": "`+name+`"`) {
				t.Errorf("%s: the device plugin does not hand out %s", file, resource)
			}
		}
	}
}
