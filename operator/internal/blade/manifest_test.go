package blade

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestKeysAsPEM(t *testing.T) {
	t.Parallel()
	private, public, err := GenerateKey(rand.NewChaCha8([32]byte{1}))
	if err != nil {
		t.Fatal(err)
	}
	key, err := ParsePrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ParsePublicKey(public)
	if err != nil || !other.Equal(key.Public()) {
		t.Fatalf("%v", err)
	}
	for _, text := range [][]byte{nil, []byte("x"), private, public[:40], bytes.Replace(public, []byte("MCo"), []byte("MCp"), 1)} {
		if _, err := ParsePublicKey(text); !errors.Is(err, ErrSignature) {
			t.Errorf("%q as a public key: %v", text, err)
		}
	}
	for _, text := range [][]byte{nil, public, private[:40]} {
		if _, err := ParsePrivateKey(text); err == nil {
			t.Error("a broken private key was taken")
		}
	}
}

func TestManifestsThatAreRefused(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("ab", 32)
	text := func(version, kernel string, size, raw int64) string {
		return fmt.Sprintf(`{"version":%q,"kernel":{"sha256":%q,"size":1},"initrd":{"sha256":%q,"size":1},`+
			`"disk":{"sha256":%q,"size":%d,"rawSize":%d}}`,
			version, kernel, sum, sum, size, raw)
	}
	public, private := keys()
	open := func(text string) error {
		_, err := OpenManifest(public, []byte(text), ed25519.Sign(private, []byte(text)))
		return err
	}
	if err := open(text("v1", sum, 1, 2<<20)); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"no JSON": "x", "nothing": "{}", "no version": text("", sum, 1, 2<<20), "a path": text("../v1", sum, 1, 2<<20),
		"short sum": text("v1", "ab", 1, 2<<20), "no hex": text("v1", strings.Repeat("xy", 32), 1, 2<<20),
		"no size": text("v1", sum, 0, 2<<20), "negative size": text("v1", sum, -1, 2<<20), "huge": text("v1", sum, 1<<50, 2<<20),
		"half a sector": text("v1", sum, 1, 2<<20+1), "huge when unpacked": text("v1", sum, 1, 1<<50), "no raw size": text("v1", sum, 1, 0),
		"something unknown": strings.Replace(text("v1", sum, 1, 2<<20), `{"version"`, `{"new":1,"version"`, 1),
		"long":              text("v1", sum, 1, 2<<20) + strings.Repeat(" ", maxManifestBytes),
	} {
		if err := open(content); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := Sign(private, Manifest{Version: "v1"}); !errors.Is(err, ErrManifest) {
		t.Errorf("a manifest that no blade takes was signed: %v", err)
	}
	if _, err := OpenManifest(nil, []byte("{}"), make([]byte, ed25519.SignatureSize)); !errors.Is(err, ErrSignature) {
		t.Errorf("no key: %v", err)
	}
}
