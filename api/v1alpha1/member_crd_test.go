package v1alpha1_test

import (
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"rcbox.dev/rcbox/api/v1alpha1"
)

const memberCRDFile = "../../config/crd/bases/rcbox.dev_storemembers.yaml"

func memberManifest(store string) string {
	return "apiVersion: rcbox.dev/v1alpha1\nkind: StoreMember\nmetadata: {name: box-master-0, namespace: default}\n" +
		"spec: {storeRef: {name: " + store + "}}\nrecord: {podNumber: 3}\nstatus: {state: Up, node: atom001}\n"
}

// A StoreMember is created with its record in one write, and stays its Store's.
func TestMembers(t *testing.T) {
	server := newAPIServerOf(t, memberCRDFile)
	member := &v1alpha1.StoreMember{}
	if errs := server.createInto(t, memberManifest("box"), member); errs != nil {
		t.Fatalf("refused: %v", errs)
	}
	if member.Record.PodNumber != 3 || member.Status.State != v1alpha1.MemberUp || member.Status.Node != "atom001" {
		t.Errorf("created: %+v", member)
	}
	if errs := server.update(t, memberManifest("box"), memberManifest("box")); errs != nil {
		t.Errorf("the same is refused: %v", errs)
	}
	errs := strings.Join(server.update(t, memberManifest("box"), memberManifest("other")), "\n")
	if !strings.Contains(errs, "spec.storeRef cannot be changed") {
		t.Errorf("another Store: %q", errs)
	}
	crd := definitionIn(t, memberCRDFile)
	for _, of := range []*apiextensions.CustomResourceSubresources{crd.Spec.Subresources, crd.Spec.Versions[0].Subresources} {
		if of != nil && of.Status != nil {
			t.Error("there is a status subresource: a StoreMember would be created without its record")
		}
	}
	if description := schemaOf(crd).OpenAPIV3Schema.Description; !strings.Contains(description, "Only the operator writes StoreMembers.") {
		t.Errorf("kubectl explain does not say who writes: %s", description)
	}
}
