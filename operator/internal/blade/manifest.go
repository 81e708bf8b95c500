package blade

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"regexp"
)

// Errors that say why an image is not taken.
var (
	ErrSignature = errors.New("the image's signature is wrong")
	ErrManifest  = errors.New("the image's manifest is wrong")
	ErrCorrupt   = errors.New("the image is damaged")
)

// Bounds of a manifest.
const (
	maxManifestBytes = 64 << 10
	maxPieceBytes    = 8 << 30
	maxRawBytes      = 64 << 30
	pemPublic        = "PUBLIC KEY"
	pemPrivate       = "PRIVATE KEY"
)

// Piece is one file of an image.
type Piece struct {
	SHA256 string `json:"sha256"`
	Size   int64  `json:"size"`
	// RawSize is the size of the disk's first bytes that the piece `disk` is, before compression.
	RawSize int64 `json:"rawSize,omitempty"`
}

// Manifest names the pieces of an image. Its signature is over its bytes as they are served.
type Manifest struct {
	Version string `json:"version"`
	Kernel  Piece  `json:"kernel"`
	Initrd  Piece  `json:"initrd"`
	Disk    Piece  `json:"disk"`
}

var versionPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$`)

// OpenManifest verifies the signature of a manifest, and only then decodes it.
func OpenManifest(key ed25519.PublicKey, text, signature []byte) (Manifest, error) {
	if len(text) > maxManifestBytes {
		return Manifest{}, fmt.Errorf("%w: it has %d bytes, more than %d", ErrManifest, len(text), maxManifestBytes)
	}
	if len(key) != ed25519.PublicKeySize {
		return Manifest{}, fmt.Errorf("%w: the key has %d bytes, not %d", ErrSignature, len(key), ed25519.PublicKeySize)
	}
	if len(signature) != ed25519.SignatureSize || !ed25519.Verify(key, text, signature) {
		return Manifest{}, fmt.Errorf("%w: manifest.sig is not a signature of manifest.json by the key that this initrd carries; "+
			"sign the image with that key, or build initrd and image anew", ErrSignature)
	}
	return decodeManifest(text)
}

func decodeManifest(text []byte) (Manifest, error) {
	var manifest Manifest
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&manifest); err != nil {
		return Manifest{}, fmt.Errorf("%w: %w", ErrManifest, err)
	}
	if !versionPattern.MatchString(manifest.Version) {
		return Manifest{}, fmt.Errorf("%w: its version is not of the form %s", ErrManifest, versionPattern)
	}
	for _, named := range []struct {
		name  string
		piece Piece
	}{{"kernel", manifest.Kernel}, {"initrd", manifest.Initrd}, {"disk", manifest.Disk}} {
		sum, err := hex.DecodeString(named.piece.SHA256)
		if err != nil || len(sum) != sha256.Size {
			return Manifest{}, fmt.Errorf("%w: %s.sha256 is not %d hexadecimal digits", ErrManifest, named.name, 2*sha256.Size)
		}
		if named.piece.Size <= 0 || named.piece.Size > maxPieceBytes {
			return Manifest{}, fmt.Errorf("%w: %s.size is %d, not 1 to %d", ErrManifest, named.name, named.piece.Size, int64(maxPieceBytes))
		}
	}
	if raw := manifest.Disk.RawSize; raw <= bootAreaBytes || raw > maxRawBytes || raw%sectorBytes != 0 {
		return Manifest{}, fmt.Errorf("%w: disk.rawSize is %d, not a number of whole sectors beyond the boot area", ErrManifest, raw)
	}
	return manifest, nil
}

// Check compares the content of a piece with the manifest.
func (p Piece) Check(name string, content []byte) error {
	if int64(len(content)) != p.Size {
		return fmt.Errorf("%w: %s has %d bytes, and its manifest says %d", ErrCorrupt, name, len(content), p.Size)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.SHA256 {
		return fmt.Errorf("%w: %s has SHA-256 %x, and its manifest says %s", ErrCorrupt, name, sum, p.SHA256)
	}
	return nil
}

// Measure makes the entry of a piece.
func Measure(content io.Reader) (Piece, error) {
	sum := sha256.New()
	size, err := io.Copy(sum, content)
	if err != nil {
		return Piece{}, fmt.Errorf("measure a piece of the image: %w", err)
	}
	return Piece{SHA256: hex.EncodeToString(sum.Sum(nil)), Size: size}, nil
}

// Sign prints a manifest and signs what it prints. A manifest that a blade would refuse is not signed.
func Sign(key ed25519.PrivateKey, manifest Manifest) (text, signature []byte, err error) {
	text, err = json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return nil, nil, fmt.Errorf("print the manifest: %w", err)
	}
	text = append(text, '\n')
	if _, err := decodeManifest(text); err != nil {
		return nil, nil, err
	}
	return text, ed25519.Sign(key, text), nil
}

// GenerateKey makes a pair of keys, as PEM that OpenSSL understands, too.
func GenerateKey(random io.Reader) (private, public []byte, err error) {
	publicKey, privateKey, err := ed25519.GenerateKey(random)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	privateDER, err := x509.MarshalPKCS8PrivateKey(privateKey)
	if err != nil {
		return nil, nil, fmt.Errorf("print the private key: %w", err)
	}
	publicDER, err := x509.MarshalPKIXPublicKey(publicKey)
	if err != nil {
		return nil, nil, fmt.Errorf("print the public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: pemPrivate, Bytes: privateDER}),
		pem.EncodeToMemory(&pem.Block{Type: pemPublic, Bytes: publicDER}), nil
}

// ParsePublicKey reads one from PEM.
func ParsePublicKey(text []byte) (ed25519.PublicKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemPublic {
		return nil, fmt.Errorf("%w: there is no PEM block %q", ErrSignature, pemPublic)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("%w: read the public key: %w", ErrSignature, err)
	}
	key, isOne := parsed.(ed25519.PublicKey)
	if !isOne {
		return nil, fmt.Errorf("%w: the public key is none of Ed25519", ErrSignature)
	}
	return key, nil
}

// ParsePrivateKey reads one from PEM.
func ParsePrivateKey(text []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != pemPrivate {
		return nil, fmt.Errorf("there is no PEM block %q in the file of the private key", pemPrivate)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("read the private key: %w", err)
	}
	key, isOne := parsed.(ed25519.PrivateKey)
	if !isOne {
		return nil, errors.New("the private key is none of Ed25519")
	}
	return key, nil
}

// readAtMost reads all that there is, or fails if there is more than limit.
func readAtMost(from io.Reader, limit int64) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	if int64(len(content)) > limit {
		return nil, fmt.Errorf("there are more than %d bytes", limit)
	}
	return content, nil
}
