// Package escape finds the keys with which the user of a console speaks to the program in front of it: those of ssh and ipmitool. It
// touches no terminal.
package escape

// Action is what the user asks the program for.
type Action int

const (
	// None means that everything goes to the console.
	None Action = iota
	// Quit ends the program: it is ~. at the beginning of a line.
	Quit
	// Suspend stops the program until the shell goes on with it: it is ~^Z at the beginning of a line.
	Suspend
	// Help shows what these keys are: it is ~? at the beginning of a line.
	Help
)

const ctrlZ = 0x1a

// Keys is where in a line the user is. The zero value is the beginning of one.
type Keys struct {
	isInLine, isEscaped bool
}

// Feed takes what was typed. It gives what goes to the console before the first action, that action, and what was typed after it. ~~ at
// the beginning of a line is one ~ for the console; so ~~. is for a program that runs there.
func (k *Keys) Feed(typed []byte) (send []byte, action Action, rest []byte) {
	for i, key := range typed {
		if k.isEscaped {
			k.isEscaped = false
			switch key {
			case '.':
				return send, Quit, typed[i+1:]
			case ctrlZ:
				return send, Suspend, typed[i+1:]
			case '?':
				return send, Help, typed[i+1:]
			case '~':
				k.isInLine = true
				send = append(send, '~')
				continue
			}
			send = append(send, '~')
		} else if key == '~' && !k.isInLine {
			k.isEscaped = true
			continue
		}
		k.isInLine = key != '\r' && key != '\n'
		send = append(send, key)
	}
	return send, None, nil
}
