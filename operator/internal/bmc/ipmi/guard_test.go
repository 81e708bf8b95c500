package ipmi

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/bougou/go-ipmi/pkg/crypto"
	"github.com/bougou/go-ipmi/pkg/protocol"
	"github.com/bougou/go-ipmi/pkg/types"
	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const session = 0xa0a1a2a3

func established() *guard {
	k1, k2 := []byte("0123456789abcdef0123456789abcdef"), []byte("fedcba9876543210")
	return &guard{suite: suites[17], active: true, session: session, k1: k1, k2: k2}
}

// packet is what a controller with the session's keys sends.
func packet(t *testing.T, g *guard, kind types.PayloadType, seq uint32, plain []byte) []byte {
	t.Helper()
	iv := make([]byte, 16)
	_, _ = rand.Read(iv)
	payload, err := crypto.EncryptAESPayload(plain, g.k2, iv)
	if err != nil {
		t.Fatal(err)
	}
	made := protocol.BuildRMCPPlusPacket(uint8(kind), protected, session, seq, payload)
	for (len(made)-offsetFormat+2)%4 != 0 {
		made = append(made, 0xff)
	}
	made = append(made, byte(len(made)-sizeHeader-len(payload)), 0x07)
	code, err := crypto.SessionIntegrityAuthCode(g.suite.integrity, made[offsetFormat:], g.k1, "")
	if err != nil {
		t.Fatal(err)
	}
	return append(made, code...)
}

// TestGuardInSession lets a genuine answer through once, and none of which a byte is changed.
func TestGuardInSession(t *testing.T) {
	g := established()
	message := protocol.BuildIPMIResponse(uint8(types.NetFnChassisRequest), 1, 2, 0, []byte{0, 0, 0})
	genuine := packet(t, g, types.PayloadTypeIPMI, 7, message)
	for at := range genuine {
		changed := append([]byte(nil), genuine...)
		changed[at] ^= 1
		if accepted, _ := g.accept(changed); accepted && at != 1 && at != 2 && at != 3 { // version and class are not signed
			t.Errorf("with byte %d changed it is let through", at)
		}
	}
	g.replays = window{}
	if accepted, err := g.accept(genuine); !accepted || err != nil {
		t.Errorf("the genuine one: %v, %v", accepted, err)
	}
	if accepted, _ := g.accept(genuine); accepted {
		t.Error("a recorded answer is let through")
	}
	for kind, plain := range map[types.PayloadType][]byte{types.PayloadTypeIPMI: message[:7], types.PayloadTypeSOL: {1, 2, 3}, 5: message} {
		if accepted, _ := g.accept(packet(t, g, kind, 9, plain)); accepted {
			t.Errorf("%d bytes of type %d are let through", len(plain), kind)
		}
	}
}

// TestGuardNumbersWhatItSends: a packet that the library repeats unchanged reaches the controller with a new sequence number.
func TestGuardNumbersWhatItSends(t *testing.T) {
	g, other := established(), established()
	plain := []byte{1, 0, 0, 0, 'x'}
	sent := packet(t, g, types.PayloadTypeSOL, 1, plain)
	for i := range 3 {
		out, err := g.numbered(sent)
		if err != nil {
			t.Fatal(err)
		}
		if accepted, _ := other.accept(out); !accepted {
			t.Errorf("datagram %d is no new one, or not genuine", i+1)
		}
		if seq := binary.LittleEndian.Uint32(sent[offsetSeq:]); seq != 1 {
			t.Errorf("the library's own packet was changed to %d", seq)
		}
	}
	g.active = false
	if out, err := g.numbered(sent); err != nil || !slices.Equal(out, sent) {
		t.Errorf("before the session: %x, %v", out, err)
	}
}

// TestGuardTakesTheLastAnswer: the library repeats RAKP message 1 unchanged, and a controller knows the last repetition alone.
func TestGuardTakesTheLastAnswer(t *testing.T) {
	here, there := net.Pipe()
	t.Cleanup(func() { _, _ = here.Close(), there.Close() })
	g := &guard{Conn: here, suite: suites[17], session: session, username: "admin", password: bmc.NewSecret("a-password")}
	const tag = 254 // it begins anew behind 255
	question := protocol.BuildRMCPPlusPacket(uint8(types.PayloadTypeRAKPMessage1), 0, 0, 0, append([]byte{tag}, make([]byte, 32)...))
	answerTo := func(tag, status byte) []byte {
		payload := make([]byte, 60)
		payload[0], payload[1] = tag, status
		binary.LittleEndian.PutUint32(payload[4:], session)
		return protocol.BuildRMCPPlusPacket(uint8(types.PayloadTypeRAKPMessage2), 0, 0, 0, payload)
	}
	for _, want := range []byte{254, 255, 0} {
		sent := make(chan byte)
		go func() {
			datagram := make([]byte, 100)
			_, _ = there.Read(datagram)
			sent <- datagram[sizeHeader]
		}()
		if _, err := g.Write(question); err != nil {
			t.Fatal(err)
		}
		if got := <-sent; got != want || question[sizeHeader] != tag {
			t.Errorf("tag %d was sent and not %d; the library's own is %d", got, want, question[sizeHeader])
		}
	}
	wrongName := byte(types.RmcpStatusCodeUnauthorizedName)
	for _, old := range [][]byte{answerTo(254, 0), answerTo(255, 0), answerTo(255, wrongName), answerTo(1, 0), answerTo(253, wrongName)} {
		if accepted, err := g.accept(old); accepted || err != nil {
			t.Errorf("tag %d: %v, %v", old[sizeHeader], accepted, err)
		}
	}
	newest := answerTo(0, 0)
	if accepted, err := g.accept(newest); !accepted || err != nil || newest[sizeHeader] != tag {
		t.Errorf("the last answer, with tag %d for the library: %v, %v", newest[sizeHeader], accepted, err)
	}
	if accepted, err := g.accept(answerTo(0, wrongName)); accepted || err == nil {
		t.Errorf("a refusal: %v, %v", accepted, err)
	}
}

// TestWindow compares with a set of all numbers that were seen.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w window
		seen := make(map[uint32]bool)
		var highest uint32
		for _, seq := range rapid.SliceOfN(rapid.Uint32Range(0, 200), 1, 400).Draw(t, "sequence") {
			highest = max(highest, seq)
			want := seq != 0 && !seen[seq] && highest-seq < 64
			if got := w.fresh(seq); got != want {
				t.Fatalf("%d: got %v, want %v", seq, got, want)
			}
			seen[seq] = true
		}
	})
}

// FuzzGuard feeds the guard in each state. It lets nothing through in a session, and never panics.
func FuzzGuard(f *testing.F) {
	for kind := range byte(0x20) {
		f.Add(kind, protocol.BuildRMCPPlusPacket(kind, protected, session, 1, make([]byte, 48)))
		f.Add(kind, protocol.BuildRMCPPlusPacket(kind, 0, 0, 0, binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 0}, session)))
	}
	f.Fuzz(func(t *testing.T, expected byte, data []byte) {
		if accepted, _ := established().accept(data); accepted {
			t.Error("a forged datagram is let through in a session")
		}
		g := &guard{suite: suites[3], session: session, expected: types.PayloadType(expected & maskType)}
		g.sending(data)
		_, _ = g.accept(data)
	})
}

// TestShortStatus takes a refusal that ends after its status, as ipmi_sim sends it.
func TestShortStatus(t *testing.T) {
	g := &guard{suite: suites[17], session: session, expected: types.PayloadTypeRmcpOpenSessionResponse}
	kind := uint8(types.PayloadTypeRmcpOpenSessionResponse)
	accepted, err := g.accept(protocol.BuildRMCPPlusPacket(kind, 0, 0, 0, []byte{0, byte(types.RmcpStatusCodeInvalidAuthAlg)}))
	status, is := errors.AsType[*types.RmcpStatusError](err)
	if accepted || !is || status.StatusCode() != types.RmcpStatusCodeInvalidAuthAlg {
		t.Errorf("got %v, %v", accepted, err)
	}
	if accepted, err = g.accept(protocol.BuildRMCPPlusPacket(kind, 0, 0, 0, []byte{0})); accepted || err != nil {
		t.Errorf("half a status: %v, %v", accepted, err)
	}
}

// TestOwnSensors keeps sensors of the controller itself, whatever its address is on its bus.
func TestOwnSensors(t *testing.T) {
	for _, test := range []struct{ owners, kept []uint8 }{
		{[]uint8{0x20, 0x20}, []uint8{0x20, 0x20}},
		{[]uint8{0x20, 0x42}, []uint8{0x20}},
		{[]uint8{0x42, 0x42}, []uint8{0x42, 0x42}}, // a blade on the bus of its chassis
		{[]uint8{0x42, 0x44}, nil},                 // nobody knows which
		{nil, nil},
	} {
		r := &repository{}
		for _, owner := range test.owners {
			r.sensors = append(r.sensors, &record{owner: owner})
		}
		r.keepOwn()
		var kept []uint8
		for _, sensor := range r.sensors {
			kept = append(kept, sensor.owner)
		}
		if !slices.Equal(kept, test.kept) {
			t.Errorf("of %#x: got %#x, want %#x", test.owners, kept, test.kept)
		}
	}
}
