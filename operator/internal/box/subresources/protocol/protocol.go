// Package protocol is what the aggregated API subresources.rcbox.dev and its clients agree on. It has no code that sends anything.
package protocol

import (
	"fmt"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
)

// GroupVersion of the aggregated API.
var GroupVersion = schema.GroupVersion{Group: "subresources.rcbox.dev", Version: "v1alpha1"}

// Resource and subresources of the rights. Only the console is served; a right on the others is asked for where they are used.
const (
	Resource = "servers"
	Console  = "console"
	Power    = "power"
	IPMI     = "ipmi"
)

// ConsoleProtocol is the WebSocket's. Binary messages are bytes of the console, in both directions. Text messages are a Message in JSON,
// and come from the server alone.
const ConsoleProtocol = "console.subresources.rcbox.dev"

// MaxKeys of one message: more than a user pastes at once, less than what would wait for long for a serial line.
const MaxKeys = 16 << 10

// maxWord bounds the parameters of a request that are random names.
const maxWord = 64

// Message says where in the output the next binary message begins, or that the connection ends.
type Message struct {
	// Stream and Position are the place of the next byte.
	Stream   string `json:"stream"`
	Position int64  `json:"position"`
	// Holder is who has the console, in the first message. Empty: nobody.
	Holder string     `json:"holder,omitempty"`
	Since  *time.Time `json:"since,omitempty"`
	// End is why the connection ends, and EndText says it.
	End     End    `json:"end,omitempty"`
	EndText string `json:"endText,omitempty"`
}

// End is why the server ends a connection.
type End string

// Reasons. After any other end of the connection the client may connect again.
const (
	// EndDisplaced: another user took the console over.
	EndDisplaced End = "Displaced"
	// EndForbidden: the user's right was taken away.
	EndForbidden End = "Forbidden"
	// EndFailed: the console cannot be opened, now or later.
	EndFailed End = "Failed"
)

// Modes of a console, by the words of the parameter "mode".
var modes = map[string]consoles.Mode{"": consoles.Use, "watch": consoles.Watch, "takeOver": consoles.TakeOver}

// Path of a server's console.
func Path(server string) string {
	return fmt.Sprintf("/apis/%s/%s/%s/%s/%s", GroupVersion.Group, GroupVersion.Version, Resource, server, Console)
}

// Query of a request for a console. The user is not part of it.
func Query(request consoles.Request) url.Values {
	query := url.Values{}
	for word, mode := range modes {
		if mode == request.Mode && word != "" {
			query.Set("mode", word)
		}
	}
	if request.Client != "" {
		query.Set("client", request.Client)
	}
	if request.From.Stream != "" {
		query.Set("stream", request.From.Stream)
		query.Set("position", strconv.FormatInt(request.From.Position, 10))
	}
	return query
}

// ParseQuery is the inverse of Query.
func ParseQuery(query url.Values) (consoles.Request, error) {
	mode, isMode := modes[query.Get("mode")]
	if !isMode {
		return consoles.Request{}, fmt.Errorf("the parameter mode is %q: watch, takeOver, or left out", query.Get("mode"))
	}
	request := consoles.Request{Mode: mode, Client: query.Get("client"), From: consoles.Place{Stream: query.Get("stream")}}
	if len(request.Client) > maxWord || len(request.From.Stream) > maxWord {
		return consoles.Request{}, fmt.Errorf("the parameters client and stream have at most %d bytes", maxWord)
	}
	if request.From.Stream == "" {
		return request, nil
	}
	position, err := strconv.ParseInt(query.Get("position"), 10, 64)
	if err != nil || position < 0 {
		return consoles.Request{}, fmt.Errorf("the parameter position is %q: a number of bytes", query.Get("position"))
	}
	request.From.Position = position
	return request, nil
}
