//go:build !unix

package terminal

import (
	"errors"
	"os"
)

func notifyContinued(chan<- os.Signal) {}

func stop() error { return errors.New("programs cannot be stopped on this system") }
