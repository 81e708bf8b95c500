// Package resources builds the Kubernetes objects of a Store. It is pure: the same Store always gives the same objects.
package resources

import (
	"crypto/sha256"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"rcbox.dev/rcbox/api/v1alpha1"
)

// Ports of a store's containers. Those of the coordinator derive from its client port as its programs derive them.
const (
	CoordinatorClientPort = 11100
	CoordinatorMemberPort = 11200
	CoordinatorAdminPort  = 11300
	CoordinatorHTTPPort   = 11400
	// MasterClientPort is that of the first shard; shard i has MasterClientPort + i.
	MasterClientPort = 12100
	MasterHTTPPort   = 12400
	// MasterPeerPort is that of the first shard for other masters, which send copies to it and read tablets that leave it; shard i has
	// MasterPeerPort + i.
	MasterPeerPort = 12200
	// MasterFastPort is that of the first shard for the fast protocol, over UDP; shard i has MasterFastPort + i.
	MasterFastPort = 12300
	// MasterFastPeerPort is the same for other masters: servers derive it from MasterFastPort.
	MasterFastPeerPort = 12400
	// MaxShards is how many shards, hence ports, a master can have.
	MaxShards = 64
)

const (
	suffixLength = 5
	// No vowels and nothing that looks like one, so that no suffix spells a word.
	suffixAlphabet = "bcdfghjklmnpqrstvwxz2456789"
)

// PodName of the numberth pod of a member. Deterministic, so that an operator that has forgotten (or whose cache has not yet
// seen) that it made this pod makes it again under the same name, which is no pod more; and different for each number and for
// each Store of the same name, so that no name is used twice.
func PodName(store types.UID, member string, number int64) string {
	digest := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", store, member, number))
	suffix := make([]byte, suffixLength)
	for i := range suffix {
		suffix[i] = suffixAlphabet[int(digest[i])%len(suffixAlphabet)]
	}
	return member + "-" + string(suffix)
}

// What the names of volume claims end with.
const (
	stateClaim  = "-state"
	copiesClaim = "-copies"
)

// ClaimName is that of a member's first volume claim.
func ClaimName(member, component string) string {
	if component == v1alpha1.ComponentCoordinator {
		return member + stateClaim
	}
	return member + copiesClaim
}

// MasterClaimAt is the name of a master's numberth volume claim, from 1: it gets another one when its node is lost with the volume.
func MasterClaimAt(member string, number int) string {
	name := ClaimName(member, v1alpha1.ComponentMaster)
	if number > 1 {
		name += "-" + strconv.Itoa(number)
	}
	return name
}

// ParseMasterClaim is the inverse of MasterClaimAt; false for any other name.
func ParseMasterClaim(claim string) (member string, number int, ok bool) {
	at := strings.LastIndex(claim, copiesClaim)
	if at <= 0 {
		return "", 0, false
	}
	member, number = claim[:at], 1
	if digits, found := strings.CutPrefix(claim[at+len(copiesClaim):], "-"); found {
		parsed, err := strconv.Atoi(digits)
		if err != nil {
			return "", 0, false
		}
		number = parsed
	}
	return member, number, number >= 1 && MasterClaimAt(member, number) == claim
}

// ClientService is the name of the Service that clients connect to.
func ClientService(store *v1alpha1.Store) string { return store.Name }

// InternalService is the name of the Service for members and administrators.
func InternalService(store *v1alpha1.Store) string { return v1alpha1.CoordinatorMember(store.Name) }

// Locator is what a client of the Store connects to.
func Locator(store *v1alpha1.Store) string {
	return fmt.Sprintf("tcp:host=%s.%s.svc,port=%d", ClientService(store), store.Namespace, CoordinatorClientPort)
}

// StoreLabels are on every object of the Store.
func StoreLabels(store string) map[string]string {
	return map[string]string{
		v1alpha1.LabelName:      v1alpha1.NameValue,
		v1alpha1.LabelInstance:  store,
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue,
		v1alpha1.LabelStore:     store,
	}
}

// ComponentLabels select the pods of one component.
func ComponentLabels(store, component string) map[string]string {
	return map[string]string{
		v1alpha1.LabelStore:     store,
		v1alpha1.LabelComponent: component,
	}
}
