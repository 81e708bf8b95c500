package boxhost

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"time"
)

const (
	// MaxStrangers bounds how many machines one box host reports that are known by no Server.
	MaxStrangers = 64
	// ReportEvery is how often a box host writes its report, though nothing has changed.
	ReportEvery = 30 * time.Second
	// maxReport bounds a report as JSON.
	maxReport = 32 << 10
	// MaxImage bounds the version of a boot image.
	MaxImage = 63
	// MaxMessage bounds a report's message.
	MaxMessage = 512
)

// Report is what a box host says of itself, in StatusConfigMap.
type Report struct {
	// Network is the one that it serves.
	Network netip.Prefix `json:"network"`
	// Address is its own there.
	Address netip.Addr `json:"address"`
	// Rendering is the Version of the Rendering that it serves.
	Rendering string `json:"rendering"`
	// Ready: all of its services answer, by what was last rendered.
	Ready bool `json:"ready"`
	// Refused: it serves an earlier configuration, because it refuses the newest.
	Refused bool `json:"refused,omitempty"`
	// Message says why it is not ready, or what it refuses.
	Message string `json:"message,omitempty"`
	// Image is the version of the boot image that it serves; empty: there is none, or none that can be read.
	Image string `json:"image,omitempty"`
	// At is when it was made, to ReportEvery: a report that stays the same for longer is of a box host that has gone.
	At time.Time `json:"at,omitzero"`
	// Strangers asked for addresses, and are known by no Server; ordered by MAC.
	Strangers []Stranger `json:"strangers,omitempty"`
}

// Stranger is a machine that asked for an address, and is known by no Server.
type Stranger struct {
	MAC string `json:"mac"`
	// Since is when it was first seen.
	Since time.Time `json:"since"`
}

// DecodeReport reads a report, which a box host that somebody has taken over may have written.
func DecodeReport(data []byte) (*Report, error) {
	if len(data) > maxReport {
		return nil, fmt.Errorf("a report has %d bytes, and at most %d are read", len(data), maxReport)
	}
	report := &Report{}
	if err := strictly(data, report); err != nil {
		return nil, fmt.Errorf("a report cannot be read: %w", err)
	}
	if len(report.Strangers) > MaxStrangers || len(report.Message) > MaxMessage {
		return nil, fmt.Errorf("a report has %d strangers and a message of %d bytes, and at most %d and %d are read",
			len(report.Strangers), len(report.Message), MaxStrangers, MaxMessage)
	}
	if len(report.Image) > MaxImage {
		return nil, fmt.Errorf("a report names an image of %d bytes, and at most %d are read", len(report.Image), MaxImage)
	}
	for _, stranger := range report.Strangers {
		if !IsMAC(stranger.MAC) {
			return nil, fmt.Errorf("a report names the stranger %.20q, which is no MAC", stranger.MAC)
		}
	}
	return report, nil
}

// Encode writes a report.
func (r *Report) Encode() ([]byte, error) {
	data, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return data, nil
}
