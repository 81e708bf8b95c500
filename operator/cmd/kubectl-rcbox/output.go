package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

// output is how a command writes: for people, or as JSON.
type output struct{ format string }

func (o *output) bind(command *cobra.Command) {
	command.Flags().StringVarP(&o.format, "output", "o", "", "json: for scripts")
}

func (o *output) check(command *cobra.Command) error {
	if o.format != "" && o.format != "json" {
		return usage(command, fmt.Errorf("--output is %q: json is all that there is", o.format))
	}
	return nil
}

func (o *output) isJSON() bool { return o.format == "json" }

func writeJSON(out io.Writer, document any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(document); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

func writeText(out io.Writer, text string) error {
	if _, err := io.WriteString(out, text); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return nil
}

// jsonLine is a document in one line.
func jsonLine(document any) (string, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return "", fmt.Errorf("encode: %w", err)
	}
	return string(text) + "\n", nil
}
