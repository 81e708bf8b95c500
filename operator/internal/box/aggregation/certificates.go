package aggregation

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"sync"
	"time"
)

const (
	// servesFor is how long a certificate serves until the next one does.
	servesFor = 24 * time.Hour
	// skew is how far clocks may be apart.
	skew = time.Hour
)

// Certificates are those that this process serves with. Their keys are in memory alone. The certificate that serves next is announced
// together with the one that serves now, so that the Kubernetes API server knows it long before it is used.
type Certificates struct {
	host string

	mutex     sync.Mutex
	now, next *certificate
	rotateAt  time.Time
}

type certificate struct {
	tls  tls.Certificate
	text []byte // in PEM
}

// NewCertificates makes the first two for a host.
func NewCertificates(host string, at time.Time) (*Certificates, error) {
	c := &Certificates{host: host, rotateAt: at.Add(servesFor)}
	var err error
	if c.now, err = newCertificate(host, at); err != nil {
		return nil, err
	}
	if c.next, err = newCertificate(host, at); err != nil {
		return nil, err
	}
	return c, nil
}

// newCertificate makes a certificate that vouches for itself alone.
func newCertificate(host string, at time.Time) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	const serialBits = 127
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), serialBits))
	if err != nil {
		return nil, fmt.Errorf("make a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: host}, DNSNames: []string{host},
		// It is announced for one period, serves for the second, and a rotation may be late.
		NotBefore: at.Add(-skew), NotAfter: at.Add(3*servesFor + skew),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("make a certificate for %s: %w", host, err)
	}
	return &certificate{
		tls:  tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key},
		text: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw}),
	}, nil
}

// Bundle is what the Kubernetes API server must trust, in PEM.
func (c *Certificates) Bundle() []byte {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return append(append([]byte{}, c.now.text...), c.next.text...)
}

// Serving is the certificate of new connections.
func (c *Certificates) Serving() *tls.Certificate {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return &c.now.tls
}

// Rotate has the next certificate serve, and makes another next one, once it is time.
func (c *Certificates) Rotate(at time.Time) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if at.Before(c.rotateAt) {
		return nil
	}
	next, err := newCertificate(c.host, at)
	if err != nil {
		return err
	}
	c.now, c.next, c.rotateAt = c.next, next, at.Add(servesFor)
	return nil
}
