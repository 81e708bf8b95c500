package ipmi

import (
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/types"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// Offsets and sizes of RMCP+ packets: IPMI 2.0, section 13.6.
const (
	offsetFormat  = 4
	offsetType    = 5
	offsetSession = 6
	offsetSeq     = 10
	offsetLength  = 14
	sizeHeader    = 16

	formatRMCPPlus    = 0x06
	flagEncrypted     = 0x80
	flagAuthenticated = 0x40
	protected         = flagEncrypted | flagAuthenticated
	maskType          = 0x3f

	// sizeMessage is the least that a response has: seven bytes and the second checksum.
	sizeMessage = 8
	// sizeStatus is the least that an answer to a message of the login has: its tag and the status.
	sizeStatus = 2
	// sizeConsole is the least that a packet of the console has.
	sizeConsole = 4
	// settle is how much longer than an earlier answer the last one may take.
	settle = 100 * time.Millisecond
)

// errDowngraded means that the controller chose other algorithms than those of the cipher suite that it was asked for.
var errDowngraded = errors.New("the controller chose weaker algorithms than it was asked for")

// guard is the socket of a session, and lets through only datagrams that the controller sent in answer.
//
// go-ipmi 0.9.1 neither verifies the authentication code of what it receives, nor the session, nor the sequence number, accepts an answer
// in plain text in an encrypted session, takes the algorithms that the controller names, takes the first datagram for the answer while a
// session is opened, and panics, in a goroutine of its own, on an encrypted payload of a wrong size. Somebody who can send datagrams with
// the controller's address could say that a server is off, or end the process.
type guard struct {
	net.Conn
	username string
	password bmc.Secret
	suite    suite

	mu       sync.Mutex
	expected types.PayloadType
	active   bool // the session is established
	heard    bool // a datagram was let through since the last one was sent
	session  uint32
	console  [16]byte // random number of RAKP message 1
	role     byte
	tag      byte        // of RAKP message 1
	asked    []time.Time // when RAKP message 1 was sent, and each time that it was repeated
	patient  int         // how many had been sent when the last one was given longer
	k1, k2   []byte
	replays  window
	sent     uint32 // sequence number of the last datagram in the session
}

// suite is a cipher suite of IPMI.
type suite struct {
	id        types.CipherSuiteID
	auth      types.AuthAlg
	integrity types.IntegrityAlg
	crypt     types.CryptAlg
	codeSize  int // of the authentication code at the end of a packet
}

// Write records the request and sends it. The library repeats packets unchanged. In a session each datagram gets a new sequence number, as
// a controller drops one that it has seen before, even if its answer was lost. RAKP message 1 gets a new tag, which its answer has, too.
func (g *guard) Write(packet []byte) (int, error) {
	g.mu.Lock()
	g.sending(packet)
	sent, err := g.numbered(g.tagged(packet))
	g.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if _, err := g.Conn.Write(sent); err != nil {
		return 0, err //nolint:wrapcheck // the library looks for the type of a time-out
	}
	return len(packet), nil
}

// tagged returns RAKP message 1 with the tag of this repetition, and any other packet as it is. No code covers the tag.
func (g *guard) tagged(packet []byte) []byte {
	if g.expected != types.PayloadTypeRAKPMessage2 || len(packet) <= sizeHeader {
		return packet
	}
	packet = slices.Clone(packet)
	packet[sizeHeader] = g.tag + byte((len(g.asked)-1)&0xff)
	return packet
}

// numbered returns the packet with the next sequence number of the session, and with the matching authentication code.
func (g *guard) numbered(packet []byte) ([]byte, error) {
	if !g.active || len(packet) < sizeHeader+g.suite.codeSize || packet[offsetType]&protected != protected {
		return packet, nil
	}
	g.sent++
	packet = slices.Clone(packet)
	binary.LittleEndian.PutUint32(packet[offsetSeq:], g.sent)
	end := len(packet) - g.suite.codeSize
	code, err := crypto.SessionIntegrityAuthCode(g.suite.integrity, packet[offsetFormat:end], g.k1, "")
	if err != nil {
		return nil, errors.New("a packet cannot be authenticated") // the cause could name the key
	}
	copy(packet[end:], code)
	return packet, nil
}

func (g *guard) sending(packet []byte) {
	g.heard = false
	if len(packet) < sizeHeader || packet[offsetFormat] != formatRMCPPlus {
		return
	}
	payload := packet[sizeHeader:]
	switch types.PayloadType(packet[offsetType] & maskType) {
	case types.PayloadTypeRmcpOpenSessionRequest:
		g.active, g.k1, g.k2, g.replays, g.asked, g.patient, g.sent = false, nil, nil, window{}, nil, 0, 0
		g.expected = types.PayloadTypeRmcpOpenSessionResponse
		if len(payload) >= 8 {
			g.session = binary.LittleEndian.Uint32(payload[4:])
		}
	case types.PayloadTypeRAKPMessage1:
		g.expected = types.PayloadTypeRAKPMessage2
		g.asked = append(g.asked, time.Now())
		if len(payload) >= 25 {
			g.tag = payload[0]
			copy(g.console[:], payload[8:24])
			g.role = payload[24]
		}
	case types.PayloadTypeRAKPMessage3:
		g.expected = types.PayloadTypeRAKPMessage4
	default:
		g.active = g.k1 != nil
	}
}

// answered says whether something was let through since the last datagram was sent.
func (g *guard) answered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.heard
}

// Read returns the next datagram that answers. The read deadline bounds how many others it skips.
func (g *guard) Read(buffer []byte) (int, error) {
	for {
		n, err := g.Conn.Read(buffer)
		if err != nil {
			return n, err //nolint:wrapcheck // the library looks for the type of a time-out
		}
		g.mu.Lock()
		accepted, err := g.accept(buffer[:n])
		g.heard = g.heard || accepted
		g.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if accepted {
			return n, nil
		}
	}
}

func (g *guard) accept(packet []byte) (bool, error) {
	if len(packet) < sizeHeader || packet[0] != 0x06 || packet[3]&0x1f != 0x07 || packet[offsetFormat] != formatRMCPPlus {
		return false, nil
	}
	length := int(binary.LittleEndian.Uint16(packet[offsetLength:]))
	if len(packet) < sizeHeader+length {
		return false, nil
	}
	kind := types.PayloadType(packet[offsetType] & maskType)
	session := binary.LittleEndian.Uint32(packet[offsetSession:])
	payload := packet[sizeHeader : sizeHeader+length]
	if g.active {
		return g.acceptInSession(packet, payload, kind, session), nil
	}
	if kind != g.expected || session != 0 || packet[offsetType]&protected != 0 || len(payload) < sizeStatus {
		return false, nil
	}
	if kind == types.PayloadTypeRAKPMessage2 && !g.isNewest(payload) {
		return false, nil
	}
	if status := types.RmcpStatusCode(payload[1]); status != types.RmcpStatusCodeNoErrors {
		return false, types.NewRmcpStatusError(status) // some controllers send less after it than the library decodes
	}
	switch kind {
	case types.PayloadTypeRmcpOpenSessionResponse:
		return g.acceptOpened(payload)
	case types.PayloadTypeRAKPMessage2:
		return g.acceptKeys(payload)
	default: // RAKP message 4: the library verifies its code
		return true, nil
	}
}

// isNewest says whether RAKP message 2 answers the last repetition of RAKP message 1. A controller draws another random number for each
// repetition, and knows the last one alone: a login with an earlier one looks to it like a wrong password, and may lock the account. Where
// an earlier repetition is answered, the last one is waited for as long as that took; once, as anybody can make up such an answer.
func (g *guard) isNewest(payload []byte) bool {
	repetition, last := int(payload[0]-g.tag), len(g.asked)-1
	if repetition < last && g.patient < len(g.asked) {
		g.patient = len(g.asked)
		// A socket that was closed says so to the next Read.
		_ = g.SetReadDeadline(g.asked[last].Add(time.Since(g.asked[repetition]) + settle))
	}
	payload[0] = g.tag // the library's own
	return repetition == last
}

// acceptOpened verifies that the controller took the algorithms of the cipher suite.
func (g *guard) acceptOpened(payload []byte) (bool, error) {
	if len(payload) < 36 || binary.LittleEndian.Uint32(payload[4:]) != g.session {
		return false, nil
	}
	if types.AuthAlg(payload[16]&maskType) != g.suite.auth || types.IntegrityAlg(payload[24]&maskType) != g.suite.integrity ||
		types.CryptAlg(payload[32]&maskType) != g.suite.crypt {
		return false, errDowngraded
	}
	return true, nil
}

// acceptKeys derives the session's keys from both random numbers. The library verifies the message itself.
func (g *guard) acceptKeys(payload []byte) (bool, error) {
	if len(payload) < 40 || binary.LittleEndian.Uint32(payload[4:]) != g.session {
		return false, nil
	}
	user := crypto.PadPassword20([]byte(g.password.Reveal()))
	_, k1, k2, err := crypto.DeriveSessionKeys(g.suite.auth, g.console[:], payload[8:24], g.role, g.username, user)
	if err != nil {
		return false, errors.New("the session's keys cannot be derived") // the cause could name what they are made from
	}
	g.k1, g.k2 = k1, k2
	return true, nil
}

// acceptInSession verifies who sent a packet, that it is new, and that the library can decode it.
func (g *guard) acceptInSession(packet, payload []byte, kind types.PayloadType, session uint32) bool {
	if packet[offsetType]&protected != protected || session != g.session || len(packet) < sizeHeader+len(payload)+g.suite.codeSize {
		return false
	}
	signed, code := packet[offsetFormat:len(packet)-g.suite.codeSize], packet[len(packet)-g.suite.codeSize:]
	want, err := crypto.SessionIntegrityAuthCode(g.suite.integrity, signed, g.k1, "")
	if err != nil || subtle.ConstantTimeCompare(want, code) != 1 {
		return false
	}
	plain, err := crypto.DecryptAESPayload(payload, g.k2)
	if err != nil {
		return false
	}
	switch kind {
	case types.PayloadTypeIPMI:
		if len(plain) < sizeMessage {
			return false
		}
	case types.PayloadTypeSOL:
		if len(plain) < sizeConsole {
			return false
		}
	default:
		return false
	}
	return g.replays.fresh(binary.LittleEndian.Uint32(packet[offsetSeq:]))
}

// window knows which of the last sequence numbers were seen, so that a recorded answer is of no use.
type window struct {
	highest uint32
	seen    uint64 // bit n: highest-n was seen
}

func (w *window) fresh(seq uint32) bool {
	switch {
	case seq == 0:
		return false
	case seq > w.highest:
		if shift := seq - w.highest; shift < 64 {
			w.seen <<= shift
		} else {
			w.seen = 0
		}
		w.highest, w.seen = seq, w.seen|1
		return true
	case w.highest-seq >= 64:
		return false
	default:
		bit := uint64(1) << (w.highest - seq)
		known := w.seen&bit != 0
		w.seen |= bit
		return !known
	}
}
