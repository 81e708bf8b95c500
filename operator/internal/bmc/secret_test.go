package bmc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

const canary = "canary-7fQ2"

// TestSecretIsNeverPrinted prints a password in each way that we know, inside of other values too.
func TestSecretIsNeverPrinted(t *testing.T) {
	secret := bmc.NewSecret(canary)
	type hidden struct{ secret bmc.Secret }
	type deep struct {
		inner *hidden
		list  []bmc.Secret
		by    map[string]bmc.Secret
		any   any
	}
	values := map[string]any{
		"secret":  secret,
		"pointer": &secret,
		"access":  bmc.Access{Address: netip.MustParseAddrPort("192.0.2.1:623"), Username: "admin", Password: secret},
		"hidden":  hidden{secret: secret},
		"deep":    &deep{inner: &hidden{secret}, list: []bmc.Secret{secret}, by: map[string]bmc.Secret{"p": secret}, any: secret},
	}
	for name, value := range values {
		printed := new(bytes.Buffer)
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c", "%U", "%t", "%08b", "% x", "%T", "%p"} {
			fmt.Fprintf(printed, verb+"\n", value)
		}
		fmt.Fprintln(printed, fmt.Errorf("login failed: %v", value))
		for _, handler := range []slog.Handler{slog.NewTextHandler(printed, nil), slog.NewJSONHandler(printed, nil)} {
			slog.New(handler).Info("login", "with", value)
		}
		for _, encode := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal, xml.Marshal} {
			encoded, _ := encode(value) // not every encoder takes every value
			printed.Write(encoded)
		}
		mustNotShow(t, name, printed.String())
	}
}

func mustNotShow(t *testing.T, name, printed string) {
	t.Helper()
	for _, form := range []string{canary, hex.EncodeToString([]byte(canary)), base64.StdEncoding.EncodeToString([]byte(canary))} {
		if strings.Contains(strings.ToLower(printed), strings.ToLower(form)) {
			t.Errorf("%s shows the password:\n%s", name, printed)
		}
	}
}

func TestSecretReveals(t *testing.T) {
	if got := bmc.NewSecret(canary).Reveal(); got != canary {
		t.Errorf("got %q", got)
	}
	var none bmc.Secret
	if none.Reveal() != "" || !none.Equal(bmc.NewSecret("")) || none.Equal(bmc.NewSecret(canary)) {
		t.Error("the zero Secret is not the empty one")
	}
}

func TestWords(t *testing.T) {
	var unknown bmc.Power
	if unknown != bmc.PowerUnknown || unknown.String() != "Unknown" {
		t.Error("the zero value is not unknown")
	}
	if bmc.PowerOff.String() != "Off" || bmc.Power(9).String() != "Power(9)" {
		t.Error("words of Power")
	}
	if bmc.ActionSoft.String() != "Soft" || bmc.Action(0).String() != "Action(0)" {
		t.Error("words of Action")
	}
}
