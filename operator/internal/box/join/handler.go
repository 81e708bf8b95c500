package join

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// maxQuestion is the size of what a machine may send.
const maxQuestion = 4 << 10

// Question is what a machine says of itself.
type Question struct {
	MAC  string `json:"mac"`
	UUID string `json:"uuid"`
}

// Answer is what a machine needs to become a node.
type Answer struct {
	// Node is its name.
	Node      string            `json:"node"`
	APIServer string            `json:"apiServer"`
	CA        string            `json:"ca"`
	Token     string            `json:"token"`
	Labels    map[string]string `json:"labels,omitempty"`
	// Address is that of the port that the machine has asked through.
	Address string `json:"address,omitempty"`
	// ClusterDNS are the resolvers of its pods.
	ClusterDNS []string `json:"clusterDNS,omitempty"` //nolint:tagliatelle // as the kubelet has it
}

// Handler answers POST /join: 200 with an Answer, or 403 with a text that says why not. 503 means that the handler's own files cannot be
// used.
//
// It gives a token through one port of a machine only, and gives it again there until the token has served or expired: an answer may be
// lost, and what the machine asks for may be denied because of something that passes. Two box hosts have two Handlers, each of which may
// give a token through another port. The token serves once all the same: one certificate is approved by it.
type Handler struct {
	// File is the path of the mounted key SecretKey of the Secret SecretName.
	File string
	// Claims is a folder in which the handler notes through which port it has given a token. It survives the process, and has nothing else
	// in it.
	Claims string
	Now    func() time.Time
	// Log is told of each answer, without the token; nil: nobody is.
	Log func(question Question, node string, refusal error)

	lock sync.Mutex
	// read is what the file was when it was parsed.
	read os.FileInfo
	file *File
}

// refusal is why a machine gets no token.
type refusal struct{ text string }

func (r *refusal) Error() string { return r.text }

func refuse(format string, arguments ...any) error {
	return &refusal{fmt.Sprintf(format, arguments...)}
}

// ServeHTTP answers one machine.
func (h *Handler) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	writer.Header().Set("Cache-Control", "no-store")
	if request.Method != http.MethodPost {
		writer.Header().Set("Allow", http.MethodPost)
		http.Error(writer, "only POST is served here", http.StatusMethodNotAllowed)
		return
	}
	var question Question
	body, err := io.ReadAll(http.MaxBytesReader(writer, request.Body, maxQuestion))
	if err == nil {
		err = json.Unmarshal(body, &question)
	}
	if err != nil {
		http.Error(writer, `the body must be {"mac": "...", "uuid": "..."}`, http.StatusBadRequest)
		return
	}
	answer, err := h.answer(question, request.RemoteAddr)
	if h.Log != nil {
		h.Log(question, answer.Node, err)
	}
	var text []byte
	if err == nil {
		text, err = json.Marshal(answer)
	}
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		http.Error(writer, refused.text, http.StatusForbidden)
	case err != nil:
		http.Error(writer, "the box host cannot read or note tokens now: ask again, or another box host", http.StatusServiceUnavailable)
	default:
		writer.Header().Set("Content-Type", "application/json")
		_, _ = writer.Write(text) // whoever asked has gone
	}
}

// answer finds the token of a machine, and notes that it is given before it gives it.
func (h *Handler) answer(question Question, from string) (Answer, error) {
	h.lock.Lock()
	defer h.lock.Unlock()
	mac, isMAC := parseMAC(question.MAC)
	if !isMAC {
		return Answer{}, refuse("%s is no hardware address", quoted(question.MAC))
	}
	file, err := h.load()
	if err != nil {
		return Answer{}, err
	}
	entry, err := choose(file, mac, question.UUID, h.Now())
	if err != nil {
		return Answer{}, err
	}
	port := entry.port(mac)
	if err := checkSource(entry, port, from); err != nil {
		return Answer{}, err
	}
	if err := h.claim(file, entry.TokenID, mac); err != nil {
		return Answer{}, err
	}
	return Answer{
		Node: entry.Node, APIServer: file.APIServer, CA: file.CA, Token: entry.Token(), Labels: entry.Labels, Address: port.Address,
		ClusterDNS: file.ClusterDNS,
	}, nil
}

// checkSource refuses who asks from another address than that of the port: a pod on the box host's node, or a machine that another DHCP
// server has given its address, and that would not keep the one in the answer.
func checkSource(entry *Entry, port *Port, from string) error {
	if port.Address == "" {
		return refuse("the port %s of %s has no address: start it from a port in a network for which its Chassis has a range of addresses",
			port.MAC, entry.Node)
	}
	source, err := netip.ParseAddrPort(from)
	if err != nil || source.Addr().Unmap().String() != port.Address {
		return refuse("the request comes from %s, and the address of the port %s of %s is %s: see who else answers DHCP in the "+
			"boot network", quoted(from), port.MAC, entry.Node, port.Address)
	}
	return nil
}

// choose finds the entry that this machine may have.
func choose(file *File, mac, uuid string, now time.Time) (*Entry, error) {
	err := refuse("no server with hardware address %s boots from the network now, or its token is not here yet: ask again. "+
		"If that lasts for minutes, see kubectl describe server", mac)
	for i := range file.Entries {
		entry := &file.Entries[i]
		if entry.port(mac) == nil {
			continue
		}
		switch {
		case !bmc.SameSystem(entry.UUID, uuid):
			err = refuse("the machine says that its UUID is %s, and the BMC of the server with hardware address %s reports another one",
				quoted(uuid), mac)
		case entry.State == EntryUsed:
			err = refuse("the token of %s has served already: %s", entry.Node, forAnother(entry.Node))
		case entry.State != EntryOffered:
			err = refuse("the token of %s is being made: ask again", entry.Node)
		case !now.Before(entry.ExpiresAt):
			err = refuse("the token of %s has expired: %s", entry.Node, forAnother(entry.Node))
		default:
			return entry, nil
		}
	}
	return nil, err
}

// forAnother says how a server gets another token.
func forAnother(server string) string {
	return "kubectl rcbox power " + server + " cycle has another token made"
}

// load reads the file, unless it is the one that was read last.
func (h *Handler) load() (*File, error) {
	info, err := os.Stat(h.File)
	if err != nil {
		return nil, fmt.Errorf("look at the tokens: %w", err)
	}
	if h.read != nil && os.SameFile(info, h.read) && info.ModTime().Equal(h.read.ModTime()) && info.Size() == h.read.Size() {
		return h.file, nil
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes, more than a Secret can have", h.File, info.Size())
	}
	text, err := os.ReadFile(h.File)
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	file, err := ParseFile(text)
	if err != nil {
		return nil, err
	}
	h.read, h.file = info, file
	return file, nil
}

// claim notes through which port a token is given, on the disk. Of several ports, the first one gets it.
func (h *Handler) claim(file *File, id, mac string) error {
	if !isTokenID(id) { // it becomes a file's name
		return fmt.Errorf("%s is no ID of a token", quoted(id))
	}
	h.forget(file)
	path := filepath.Join(h.Claims, id)
	first, err := os.ReadFile(path) //nolint:gosec // checked above
	if errors.Is(err, fs.ErrNotExist) {
		switch err = h.note(path, mac); {
		case err == nil:
			return h.syncClaims()
		case errors.Is(err, fs.ErrExist): // another process was faster
			first, err = os.ReadFile(path) //nolint:gosec // checked above
		}
	}
	switch {
	case err != nil:
		return fmt.Errorf("note that a token is given: %w", err)
	case string(first) != mac:
		return refuse("this box host has given the token to the port %s already. If that was another machine, see who is in the boot "+
			"network; otherwise the next start of the server has another token", quoted(string(first)))
	}
	return nil
}

// note makes a file, which has its content from the first moment on. One that exists stays as it is.
func (h *Handler) note(path, text string) (err error) {
	draft, err := os.CreateTemp(h.Claims, "draft-*")
	if err != nil {
		return err //nolint:wrapcheck // by the caller
	}
	defer func() { _ = os.Remove(draft.Name()) }() // forget removes it later
	_, err = draft.WriteString(text)
	if err := errors.Join(err, draft.Sync(), draft.Close()); err != nil {
		return err
	}
	return os.Link(draft.Name(), path) //nolint:wrapcheck // by the caller
}

func (h *Handler) syncClaims() error {
	folder, err := os.Open(h.Claims)
	if err != nil {
		return fmt.Errorf("note that a token is given: %w", err)
	}
	if err := errors.Join(folder.Sync(), folder.Close()); err != nil {
		return fmt.Errorf("note that a token is given: %w", err)
	}
	return nil
}

// forget removes the notes about tokens that ended long ago, and drafts that a process that was killed has left. A note that cannot be
// removed does no harm.
func (h *Handler) forget(file *File) {
	claims, err := os.ReadDir(h.Claims)
	if err != nil {
		return
	}
	for _, claim := range claims {
		info, err := claim.Info()
		if err == nil && file.Find(claim.Name()) == nil && h.Now().Sub(info.ModTime()) > 2*TokenLifetime {
			_ = os.Remove(filepath.Join(h.Claims, claim.Name()))
		}
	}
}

func isTokenID(id string) bool {
	return len(id) == tokenIDLength && !slices.ContainsFunc([]byte(id), func(b byte) bool {
		return (b < 'a' || b > 'z') && (b < '0' || b > '9')
	})
}
