package subresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

// exchange carries bytes between a user's connection and a console until one of them ends, or the user may not use it any more.
func exchange(ctx context.Context, connection *websocket.Conn, session *consoles.Session, isAllowed func(context.Context) bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	context.AfterFunc(ctx, func() { _ = connection.Close() }) // which ends the reading below
	written := make(chan struct{})
	go func() {
		defer close(written)
		defer stop()
		show(ctx, connection, session, isAllowed)
	}()
	connection.SetReadLimit(protocol.MaxKeys)
	alive := func(string) error { return connection.SetReadDeadline(time.Now().Add(3 * pingEvery)) }
	connection.SetPongHandler(alive)
	for alive("") == nil {
		kind, keys, err := connection.ReadMessage()
		if err != nil {
			break
		}
		if kind == websocket.BinaryMessage {
			_ = session.Write(ctx, keys) // keys for a server that is not connected are lost; the output says that it is not
		}
	}
	stop()
	<-written
}

// output is a piece of a console's, or why there is no more.
type output struct {
	text []byte
	from consoles.Place
	err  error
}

// show writes what the console prints. It alone writes to the connection.
func show(ctx context.Context, connection *websocket.Conn, session *consoles.Session, isAllowed func(context.Context) bool) {
	printed := make(chan output)
	go func() {
		for {
			text, from, err := session.Read(ctx)
			select {
			case printed <- output{text, from, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	next := first(session)
	if send(connection, &next) != nil {
		return
	}
	ping, review := time.NewTicker(pingEvery), time.NewTicker(reviewEvery)
	defer ping.Stop()
	defer review.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case one := <-printed:
			err = write(connection, &next, one)
		case <-ping.C:
			err = connection.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout))
		case <-review.C:
			if !isAllowed(ctx) {
				err = end(connection, protocol.EndForbidden, "you may not use this console any more")
			}
		}
		if err != nil {
			return
		}
	}
}

// first says where the output begins, and to a user who watches, who has the console.
func first(session *consoles.Session) protocol.Message {
	place, holder := session.Place(), session.Holder()
	message := protocol.Message{Stream: place.Stream, Position: place.Position, Holder: holder.User}
	if holder.User != "" {
		message.Since = &holder.Since
	}
	return message
}

var errEnded = errors.New("the connection was ended")

// write sends a piece of output. The piece that follows is expected where it ends.
func write(connection *websocket.Conn, next *protocol.Message, one output) error {
	if one.err != nil {
		return endWith(connection, one.err)
	}
	if place := (consoles.Place{Stream: next.Stream, Position: next.Position}); place != one.from {
		next.Stream, next.Position = one.from.Stream, one.from.Position
		if err := send(connection, &protocol.Message{Stream: next.Stream, Position: next.Position}); err != nil {
			return err
		}
	}
	next.Position += int64(len(one.text))
	_ = connection.SetWriteDeadline(time.Now().Add(writeTimeout))     // the write says it
	return connection.WriteMessage(websocket.BinaryMessage, one.text) //nolint:wrapcheck // whatever it is, the user is gone
}

// endWith ends a connection for a reason that the session gives.
func endWith(connection *websocket.Conn, why error) error {
	var displaced *consoles.DisplacedError
	switch {
	case errors.As(why, &displaced):
		return end(connection, protocol.EndDisplaced, why.Error())
	case errors.Is(why, consoles.ErrStopped), errors.Is(why, context.Canceled):
		return errEnded // the client connects again
	default:
		return end(connection, protocol.EndFailed, why.Error())
	}
}

func end(connection *websocket.Conn, why protocol.End, text string) error {
	return errors.Join(errEnded, send(connection, &protocol.Message{End: why, EndText: text}))
}

func send(connection *websocket.Conn, message *protocol.Message) error {
	text, err := json.Marshal(message)
	if err != nil {
		return fmt.Errorf("write a message: %w", err)
	}
	_ = connection.SetWriteDeadline(time.Now().Add(writeTimeout)) // the write says it
	return connection.WriteMessage(websocket.TextMessage, text)   //nolint:wrapcheck // likewise
}
