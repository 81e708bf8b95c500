package join

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"time"
)

// The Secret that box hosts mount, in the operator's namespace, and its key.
const (
	SecretName = "rcbox-join-tokens" //nolint:gosec // a name
	SecretKey  = "join.json"
)

// maxFile is what a Secret may have.
const maxFile = 1 << 20

// EntryState is how far an entry is.
type EntryState string

// States of an entry. Only an offered one is given to a machine.
const (
	EntryPreparing EntryState = "Preparing"
	EntryOffered   EntryState = "Offered"
	EntryUsed      EntryState = "Used"
)

// Entry is a token, and the machine that it is for.
type Entry struct {
	// Node is the name of the Server, and of the node that it becomes.
	Node    string     `json:"node"`
	State   EntryState `json:"state"`
	TokenID string     `json:"tokenId"`
	// Secret is the secret part of the token.
	Secret string `json:"secret"`
	// UUID is the system GUID that the Server's BMC reports, and Ports are those of the Server whose hardware address is known.
	UUID      string            `json:"uuid"`
	Ports     []Port            `json:"ports"`
	Labels    map[string]string `json:"labels,omitempty"`
	ExpiresAt time.Time         `json:"expiresAt"`
}

// Port is a port of a machine.
type Port struct {
	MAC string `json:"mac"`
	// Address is empty if the Chassis gives this port none.
	Address string `json:"address,omitempty"`
}

// port finds a port by its hardware address; nil if the machine has none.
func (e *Entry) port(mac string) *Port {
	at := slices.IndexFunc(e.Ports, func(p Port) bool { return p.MAC == mac })
	if at < 0 {
		return nil
	}
	return &e.Ports[at]
}

// Token is the whole token.
func (e *Entry) Token() string { return e.TokenID + "." + e.Secret }

// File is the content of the Secret.
type File struct {
	// APIServer is the URL at which nodes reach the API server, and CA who vouches for it, as PEM.
	APIServer string `json:"apiServer"`
	CA        string `json:"ca"`
	// ClusterDNS are the resolvers of pods on these nodes; empty: nobody knows them.
	ClusterDNS []string `json:"clusterDNS,omitempty"` //nolint:tagliatelle // as the kubelet has it
	Entries    []Entry  `json:"entries"`
}

// ParseFile reads a File.
func ParseFile(text []byte) (*File, error) {
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s has more than %d bytes", SecretKey, maxFile)
	}
	file := &File{}
	if err := json.Unmarshal(text, file); err != nil {
		return nil, fmt.Errorf("read %s: %w", SecretKey, err)
	}
	return file, nil
}

// Text writes a File.
func (f *File) Text() ([]byte, error) {
	text, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", SecretKey, err)
	}
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s would have more than %d bytes: %d servers boot from the network at once; start fewer",
			SecretKey, maxFile, len(f.Entries))
	}
	return text, nil
}

// Find is the entry of a token; nil if there is none.
func (f *File) Find(id string) *Entry {
	for i := range f.Entries {
		if f.Entries[i].TokenID == id {
			return &f.Entries[i]
		}
	}
	return nil
}

// parseMAC gives a hardware address of Ethernet in lower case with colons.
func parseMAC(text string) (string, bool) {
	const sizeMAC = 6
	mac, err := net.ParseMAC(text)
	if err != nil || len(mac) != sizeMAC {
		return "", false
	}
	return mac.String(), true
}
