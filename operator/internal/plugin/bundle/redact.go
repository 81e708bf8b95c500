// Package bundle makes a support bundle: files of what was seen of a Store, without what nobody else should see. It is pure.
package bundle

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// redacted stands where something was.
const redacted = "REDACTED"

// named is a name that tells of a secret, with what stands before its value in JSON, YAML, environments and options.
const named = `(?i)([\w.-]*(?:password|passwd|secret|token|credential|api[_-]?key|access[_-]?key)[\w.-]*\\?["']?[ \t]*[:=][ \t]*)`

// secretLike are texts that are likely to be secrets, wherever they are.
var secretLike = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), redacted},
	{regexp.MustCompile(`eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*`), redacted},
	{regexp.MustCompile(`(?i)(\b(?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]+`), "${1}" + redacted},
	{regexp.MustCompile(`(://[^/\s:@]*:)[^/\s@]+@`), "${1}" + redacted + "@"},
	{regexp.MustCompile(named + `(\\?")[^"\\\n]+`), "${1}${2}" + redacted},
	{regexp.MustCompile(named + `(')[^'\n]+`), "${1}${2}" + redacted},
	{regexp.MustCompile(named + `[^\s"',;\\]+`), "${1}" + redacted},
}

// Text without what is likely to be a secret.
func Text(text string) string {
	for _, known := range secretLike {
		text = known.pattern.ReplaceAllString(text, known.with)
	}
	return text
}

// object removes what an object's metadata may carry of others.
func object(meta metav1.ObjectMeta) metav1.ObjectMeta {
	meta.ManagedFields = nil
	meta.Annotations = annotations(meta.Annotations)
	return meta
}

// annotations of the project and of Kubernetes stay, but what was applied last, which is anybody's text.
func annotations(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	for name := range kept {
		domain, _, _ := strings.Cut(name, "/")
		known := domain == "rcbox.dev" || domain == "kubernetes.io" || strings.HasSuffix(domain, ".kubernetes.io")
		if !known || name == corev1.LastAppliedConfigAnnotation {
			kept[name] = redacted
		}
	}
	return kept
}

// pod without the values of its environment but the project's own, and with arguments that carry no secret.
func pod(from *corev1.Pod) *corev1.Pod {
	to := from.DeepCopy()
	to.ObjectMeta = object(to.ObjectMeta)
	for _, containers := range [][]corev1.Container{to.Spec.InitContainers, to.Spec.Containers} {
		for i := range containers {
			container := &containers[i]
			for j := range container.Env {
				env := &container.Env[j]
				if env.Value != "" && (!strings.HasPrefix(env.Name, "RCBOX_") || looksSecret(env.Name, env.Value)) {
					env.Value = redacted
				}
			}
			container.Args, container.Command = arguments(container.Args), arguments(container.Command)
		}
	}
	return to
}

// looksSecret says whether a value of this name is likely to be a secret.
func looksSecret(name, value string) bool {
	text := name + "=" + value
	return Text(text) != text
}

// arguments with what follows an option such as --token redacted, be it in the same word or in the next.
func arguments(list []string) []string {
	clean := make([]string, 0, len(list))
	for i, word := range list {
		if i > 0 && strings.HasPrefix(list[i-1], "-") && looksSecret(list[i-1], word) {
			word = redacted
		}
		clean = append(clean, Text(word))
	}
	return clean
}

// shortestName that is looked for in texts: shorter ones would be found everywhere.
const shortestName = 3

// Names hides names of tables.
type Names struct {
	salt  string
	known []string
	// Shown: names are not hidden.
	shown bool
}

// NewNames hides these names, by hashes that only mean something within the bundle, unless they are to be shown.
func NewNames(names []string, salt string, shown bool) *Names {
	sorted := slices.Clone(names)
	// The longest first, for one may be a part of another.
	slices.SortFunc(sorted, func(a, b string) int {
		if len(a) != len(b) {
			return len(b) - len(a)
		}
		return strings.Compare(a, b)
	})
	return &Names{salt: salt, known: slices.Compact(sorted), shown: shown}
}

// Hide gives what stands for a name.
func (n *Names) Hide(name string) string {
	const digits = 8
	if n.shown || name == "" {
		return name
	}
	sum := sha256.Sum256([]byte(n.salt + name))
	return "table-" + hex.EncodeToString(sum[:])[:digits]
}

// Within hides the names in a text, where they are words of their own.
func (n *Names) Within(text string) string {
	if n.shown {
		return text
	}
	for _, name := range n.known {
		if len(name) >= shortestName {
			text = replaceWord(text, name, n.Hide(name))
		}
	}
	return text
}

func replaceWord(text, word, with string) string {
	out := strings.Builder{}
	for {
		at := strings.Index(text, word)
		if at < 0 {
			out.WriteString(text)
			return out.String()
		}
		end := at + len(word)
		if isWordByte(text, at-1) || isWordByte(text, end) {
			out.WriteString(text[:end])
		} else {
			out.WriteString(text[:at] + with)
		}
		text = text[end:]
	}
}

func isWordByte(text string, at int) bool {
	if at < 0 || at >= len(text) {
		return false
	}
	r := rune(text[at])
	return unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-'
}
