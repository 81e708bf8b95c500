package wire_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"rcbox.dev/rcbox/operator/proxy/wire"
)

// Answers captured between RAMCloud's own programs (images/store/crates/wire/testdata/captured.txt has them, too).
const (
	tableConfig = "000000003f0000000a3d0801100018ffffffffffffffffff012000290100000000000000" +
		"321d7463703a686f73743d3132372e302e302e312c706f72743d313131303140004800"
	tableConfigWithIndex = "00000000750000000a3d0801100018ffffffffffffffffff012000290100000000000000" +
		"321d7463703a686f73743d3132372e302e302e312c706f72743d313131303140004800" +
		"1234080110001a2e0a010012017f190100000000000000221d7463703a686f73743d3132372e302e302e312c706f72743d3131313031"
	serverList = "000000004d0000000a400d090000001101000000000000001a1d7463703a686f73743d3132372e302e302e312c706f72743d3131313031" +
		"2d0000000035000000003900000000000000001101000000000000001800"
	noTable = "0000000000000000"
)

func decode(t *testing.T, text string) []byte {
	t.Helper()
	decoded, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestCapturedAnswersAreRewritten(t *testing.T) {
	// The locator of the captures, and one that is longer by two bytes, with the lengths around it.
	const before, after = "tcp:host=127.0.0.1,port=11101", "tcp:host=192.168.1.9,port=31101"
	for name, test := range map[string]struct {
		asked           wire.Operation
		answer, lengths string
	}{
		"a table": {wire.GetTableConfig, tableConfig, "3f0000000a3d>410000000a3f 321d>321f"},
		"a table with an index": {
			wire.GetTableConfig, tableConfigWithIndex,
			"750000000a3d>790000000a3f 321d>321f 12340801>12360801 1a2e>1a30 221d>221f",
		},
		"servers":  {wire.GetServerList, serverList, "4d0000000a40>4f0000000a42 1a1d>1a1f"},
		"no table": {wire.GetTableConfig, noTable, ""},
	} {
		want := strings.ReplaceAll(test.answer, hex.EncodeToString([]byte(before)), hex.EncodeToString([]byte(after)))
		for change := range strings.FieldsSeq(test.lengths) {
			from, to, _ := strings.Cut(change, ">")
			if !strings.Contains(want, from) {
				t.Fatalf("%s: %s is not there to be changed", name, from)
			}
			want = strings.Replace(want, from, to, 1)
		}
		var seen []string
		got, err := wire.Rewrite(test.asked, decode(t, test.answer), func(locators string) string {
			seen = append(seen, locators)
			return after
		})
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%s: %v\n%x, not\n%s", name, err, got, want)
		}
		locators := strings.Count(test.answer, hex.EncodeToString([]byte(before)))
		if len(seen) != locators || strings.Join(seen, "") != strings.Repeat(before, locators) {
			t.Errorf("%s: asked for %q", name, seen)
		}
	}
}

func TestOtherAnswersStay(t *testing.T) {
	never := func(string) string { t.Error("nothing is to be rewritten"); return "" }
	for _, test := range []struct {
		asked  wire.Operation
		answer string
	}{
		{wire.Ping, "00000000"},
		{wire.Operation{Opcode: 13}, "0000000001000000000000000500000068656c6c6f"}, // a read
		{wire.GetTableConfig, "11000000e803000060ea000000000000"},                  // RETRY
		{wire.GetTableConfig, "08000000"},                                          // an error without more
	} {
		got, err := wire.Rewrite(test.asked, decode(t, test.answer), never)
		if err != nil || hex.EncodeToString(got) != test.answer {
			t.Errorf("%+v: %x, %v", test.asked, got, err)
		}
	}
	for _, broken := range []string{
		"", "0000", "00000000", "0000000005000000", "00000000010000000a", "00000000020000000a05", "0000000001000000ff",
	} {
		if got, err := wire.Rewrite(wire.GetTableConfig, decode(t, broken), never); err == nil {
			t.Errorf("%q became %x", broken, got)
		}
	}
}

// Whatever comes, nothing but locators changes: with the same locators, a rewritten answer is the answer, but for how lengths are written.
func TestRewritingKeepsTheRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		answer := decodeRapid(t, rapid.SampledFrom([]string{tableConfig, tableConfigWithIndex, serverList}).Draw(t, "answer"))
		asked := rapid.SampledFrom([]wire.Operation{wire.GetTableConfig, wire.GetServerList, wire.GetServerConfig}).Draw(t, "asked")
		for range rapid.IntRange(0, 3).Draw(t, "changes") {
			answer[rapid.IntRange(0, len(answer)-1).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		}
		answer = append(answer, rapid.SliceOfN(rapid.Byte(), 0, 8).Draw(t, "behind")...)
		same, err := wire.Rewrite(asked, bytes.Clone(answer), func(locators string) string { return locators })
		if err != nil {
			return
		}
		again, err := wire.Rewrite(asked, bytes.Clone(same), func(locators string) string { return locators })
		if err != nil || !bytes.Equal(again, same) || len(same) > len(answer) {
			t.Fatalf("%x became %x and then %x, %v", answer, same, again, err)
		}
	})
}

func decodeRapid(t *rapid.T, text string) []byte {
	decoded, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return decoded
}

func TestLocators(t *testing.T) {
	spaced := " tcp : host = 10.0.0.2 , port = 12100 "
	for text, want := range map[string]wire.Address{
		spaced:                         {Host: "10.0.0.2", Port: 12100},
		"tcp:host=10.0.0.2,port=12100": {Host: "10.0.0.2", Port: 12100},
		"fast+udp:host=1.1.1.1,port=1;tcp:host=10.0.0.2,port=12100":       {Host: "10.0.0.2", Port: 12100},
		"tcp:host=10.0.0.2,port=12100;fast+udp:host=10.0.0.2,port=1":      {Host: "10.0.0.2", Port: 12100},
		`mock:;tcp:host="box.team.svc",port="7"`:                          {Host: "box.team.svc", Port: 7},
		`infud:a="x;tcp:host=no,port=1,",b=\;;tcp:port=1,host=yes,port=2`: {Host: "yes", Port: 2},
		"mock:":                        {},
		"fast+udp:host=1.1.1.1,port=1": {},
	} {
		if got, err := wire.ParseLocators(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "tcp", "tcp:host", "tcp:host=a", "tcp:port=1", "tcp:host=a,port=65536", "tcp:host=a,port=-1", "t-p:a=1",
		`tcp:host="a`, `tcp:host="a"b,port=1`, `tcp:host=a\`, "tcp:host=a,port=1,", `tcp:host=a"b,port=1`,
	} {
		if got, err := wire.ParseLocators(text); err == nil {
			t.Errorf("%q is taken for %+v", text, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		want := wire.Address{Host: rapid.StringMatching(`[a-z0-9.-]{1,20}`).Draw(t, "host"), Port: rapid.Uint16().Draw(t, "port")}
		if got, err := wire.ParseLocators(want.Locator()); err != nil || got != want {
			t.Fatalf("%s: %+v, %v", want.Locator(), got, err)
		}
		_, _ = wire.ParseLocators(rapid.String().Draw(t, "anything")) // must return
	})
}

func TestHeaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := wire.Header{Nonce: rapid.Uint64().Draw(t, "nonce"), Length: rapid.Uint32().Draw(t, "length")}
		encoded := want.Append(nil)
		if got, err := wire.ReadHeader(bytes.NewReader(encoded)); err != nil || got != want || len(encoded) != wire.HeaderBytes {
			t.Fatalf("%x: %+v, %v", encoded, got, err)
		}
		short := encoded[:rapid.IntRange(0, wire.HeaderBytes-1).Draw(t, "short")]
		if _, err := wire.ReadHeader(bytes.NewReader(short)); err == nil || (len(short) == 0) != errors.Is(err, io.EOF) {
			t.Fatalf("%x: %v", short, err)
		}
	})
	// A captured request, READ.
	if got := wire.OperationOf(decode(t, "0d0000000100")); got != (wire.Operation{Opcode: 13}) {
		t.Errorf("READ is %+v", got)
	}
}
