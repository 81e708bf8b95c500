// Package console keeps its user at the console of a server: it connects again when the connection is lost, and shows what was missed. It
// does not know where keys come from.
package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

const (
	// firstPause and maxPause are those before the connection is made again.
	firstPause = 500 * time.Millisecond
	maxPause   = 5 * time.Second
	// silence of the other side after which the connection is lost. It pings every 15 s.
	silence      = 45 * time.Second
	writeTimeout = 10 * time.Second
)

// OccupiedError means that somebody else has the console, or took it over.
type OccupiedError struct{ text string }

// Error says who.
func (e *OccupiedError) Error() string { return e.text }

// Client is a user at the console of a server.
type Client struct {
	// Dial connects. Where the API server refuses, its error is an apierrors.APIStatus.
	Dial func(ctx context.Context, request consoles.Request) (*websocket.Conn, error)
	// Request is what is asked for first.
	Request consoles.Request
	// Out gets what the console prints, as it comes.
	Out io.Writer
	// Say shows a line of our own.
	Say func(text string)
	// For is how long the console stays open after the first connection; 0: until the context ends.
	For time.Duration

	mutex      sync.Mutex
	connection *websocket.Conn
	// early is what was typed before there was a connection. isConnected: there was one.
	early       []byte
	isConnected bool
}

// Run shows the console until the context ends or the time in For is over. It returns an error if somebody else has the console, or if the
// console cannot be opened.
func (c *Client) Run(ctx context.Context) error {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	request := c.Request
	pause, isLost := firstPause, false
	for {
		connection, err := c.Dial(ctx, request)
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = connection.Close()
			}
			return nil // the user has ended it
		case err == nil:
			if isLost {
				c.Say("connected again")
			}
			if c.For > 0 && request.From.Stream == "" {
				defer time.AfterFunc(c.For, leave).Stop()
			}
			// The user has it, or is told by whom it was taken over.
			pause, isLost = firstPause, false
			if request.Mode == consoles.TakeOver {
				request.Mode = consoles.Use
			}
			err = c.serve(ctx, connection, &request.From)
			if ctx.Err() != nil {
				return nil
			}
		case !isLost && request.From.Stream == "":
			return explain(err) // it never was connected
		}
		if final := isFinal(err); final != nil {
			return final
		}
		if !isLost {
			c.Say(fmt.Sprintf("the connection is lost, and made again: %v", err))
			isLost = true
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// endError is what the other side said at the end.
type endError struct{ message protocol.Message }

func (e *endError) Error() string { return e.message.EndText }

// isFinal gives the error of a user who need not connect again.
func isFinal(err error) error {
	if end, isEnd := errors.AsType[*endError](err); isEnd {
		if end.message.End == protocol.EndDisplaced {
			return &OccupiedError{end.message.EndText}
		}
		return err
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	code := int(status.Status().Code)
	// 404 is also said of the whole API while the API server has just started.
	if code < http.StatusBadRequest || code >= http.StatusInternalServerError || code == http.StatusTooManyRequests {
		return nil
	}
	return explain(err)
}

// explain tells a refusal from a failure.
func explain(err error) error {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Code == http.StatusConflict {
		return &OccupiedError{status.Status().Message}
	}
	return err
}

// serve shows what comes over one connection, until it ends.
func (c *Client) serve(ctx context.Context, connection *websocket.Conn, place *consoles.Place) error {
	stop := context.AfterFunc(ctx, func() { c.leave(connection) }) // which ends the reading
	defer stop()
	defer func() { _ = connection.Close() }()
	c.use(connection)
	defer c.use(nil)
	alive := func() { _ = connection.SetReadDeadline(time.Now().Add(silence)) }
	connection.SetPingHandler(func(text string) error {
		alive()
		return connection.WriteControl(websocket.PongMessage, []byte(text), time.Now().Add(writeTimeout))
	})
	for {
		alive()
		kind, text, err := connection.ReadMessage()
		if err != nil {
			return fmt.Errorf("read: %w", err)
		}
		switch kind {
		case websocket.TextMessage:
			if err := c.obey(text, place); err != nil {
				return err
			}
		case websocket.BinaryMessage:
			place.Position += int64(len(text))
			if _, err := c.Out.Write(text); err != nil {
				return &endError{protocol.Message{End: protocol.EndFailed, EndText: fmt.Sprintf("show the output: %v", err)}}
			}
		}
	}
}

// leave says that the user leaves, rather than that the connection is lost.
func (c *Client) leave(connection *websocket.Conn) {
	text := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = connection.WriteControl(websocket.CloseMessage, text, time.Now().Add(time.Second)) // it may be lost
	_ = connection.Close()
}

// obey takes a message about the output that follows.
func (c *Client) obey(text []byte, place *consoles.Place) error {
	message := protocol.Message{}
	if err := json.Unmarshal(text, &message); err != nil {
		return fmt.Errorf("a message of the server: %w", err)
	}
	if message.End != "" {
		return &endError{message}
	}
	switch {
	case place.Stream == "":
		if message.Since != nil && c.Request.Mode == consoles.Watch {
			c.Say(fmt.Sprintf("%s has the console since %s; you watch", message.Holder, message.Since.UTC().Format(time.RFC3339)))
		}
	case place.Stream != message.Stream:
		c.Say("the box controller opened the console anew: output in between may be missing")
	case place.Position < message.Position:
		c.Say(fmt.Sprintf("%d bytes of output were not kept", message.Position-place.Position))
	}
	*place = consoles.Place{Stream: message.Stream, Position: message.Position}
	return nil
}

func (c *Client) use(connection *websocket.Conn) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.connection = connection
	if !c.isConnected {
		c.isConnected = true
		c.write(c.early)
		c.early = nil
	}
}

// Type sends keys. Before the first connection the first of them wait; while a connection is made again they are lost, as everybody sees
// who types them.
func (c *Client) Type(keys []byte) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if !c.isConnected {
		c.early = append(c.early, keys[:min(len(keys), protocol.MaxKeys-len(c.early))]...)
		return
	}
	c.write(keys)
}

func (c *Client) write(keys []byte) {
	for len(keys) > 0 && c.connection != nil {
		n := min(len(keys), protocol.MaxKeys)
		_ = c.connection.SetWriteDeadline(time.Now().Add(writeTimeout)) // the write says it
		if err := c.connection.WriteMessage(websocket.BinaryMessage, keys[:n]); err != nil {
			_ = c.connection.Close() // the reading finds out
			return
		}
		keys = keys[n:]
	}
}
