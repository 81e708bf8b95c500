package redfish

import (
	"bytes"
	"encoding/json"
	"slices"

	"rcbox.dev/rcbox/operator/internal/bmc"
)

// list is one of at most maxMembers. They are counted while they are decoded: {} is two bytes in an answer, and many times that in memory.
type list[T any] []T

// pageOfLog has the first and the last entries of a page of a log, or references to them. It needs both, because some controllers begin
// with the newest entry.
type pageOfLog []event

// UnmarshalJSON implements json.Unmarshaler.
func (p *pageOfLog) UnmarshalJSON(text []byte) error {
	*p = nil
	if string(text) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errMalformed
	}
	for decoder.More() {
		var member event
		if err := decoder.Decode(&member); err != nil {
			return errMalformed
		}
		if *p = append(*p, member); len(*p) > 2*bmc.MaxLog {
			*p = slices.Delete(*p, bmc.MaxLog, bmc.MaxLog+1)
		}
	}
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *list[T]) UnmarshalJSON(text []byte) error {
	*l = nil
	if string(text) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errMalformed
	}
	for decoder.More() {
		if len(*l) == maxMembers {
			return errMalformed
		}
		var member T
		if err := decoder.Decode(&member); err != nil {
			return errMalformed
		}
		*l = append(*l, member)
	}
	return nil
}
