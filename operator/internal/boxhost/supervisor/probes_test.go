package supervisor

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// nfsServer answers one lookup with a status, or with what another protocol would say.
func nfsServer(t *testing.T, answer []byte) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		defer connection.Close()
		head := make([]byte, 4)
		if _, err := io.ReadFull(connection, head); err != nil {
			return
		}
		if _, err := io.ReadFull(connection, make([]byte, binary.BigEndian.Uint32(head)&^lastFragment)); err != nil {
			return
		}
		_, _ = connection.Write(answer)
	}()
	return listener.Addr().String()
}

// A server that answers, and has not exported the folder, is not ready.
func TestNFSIsAskedForFolders(t *testing.T) {
	t.Parallel()
	with := func(words ...uint32) []byte {
		var answer []byte
		for _, word := range words {
			answer = binary.BigEndian.AppendUint32(answer, word)
		}
		return answer
	}
	const id, noEntry = 0x72636278, 2
	for _, of := range []struct {
		what   string
		answer []byte
		says   string
	}{
		{"exported", with(lastFragment|44, id, 1, 0, 0, 0, 0, 0, 0, 2, putRoot, 0), ""},
		{"not exported", with(lastFragment|44, id, 1, 0, 0, 0, 0, noEntry, 0, 2, putRoot, 0), "word 6 of the answer is 2"},
		{"refused", with(lastFragment|44, id, 1, 1, 1, 2, 0, 0, 0, 0, 0, 0), "word 2 of the answer is 1"},
		{"cut", with(lastFragment|44, id, 1, 0), "unexpected EOF"},
		{"nothing", nil, "EOF"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		err := nfsAnswers(ctx, nfsServer(t, of.answer), "/home")
		cancel()
		if (err == nil) != (of.says == "") || err != nil && !strings.Contains(err.Error(), of.says) {
			t.Errorf("%s: %v", of.what, err)
		}
	}
}
