package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/eltrain/eltrain/internal/trusting"
)

func keyOf(b byte) func() ([]byte, error) {
	return func() ([]byte, error) { return bytes.Repeat([]byte{b}, 32), nil }
}

// The root is a function of the key alone, in every version: running agents trust the next master by it.
func TestAnAuthoritysRootIsThatOfItsKey(t *testing.T) {
	at := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7070}
	one, same, other := &Authority{Key: keyOf(1)}, &Authority{Key: keyOf(1), Names: []string{"another.example.com"}}, &Authority{Key: keyOf(2)}
	if one.roots() != nil {
		t.Error("there is a root before the start")
	}
	for _, a := range []*Authority{one, same, other} {
		if err := a.start(at); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(one.roots(), same.roots()) || bytes.Equal(one.roots(), other.roots()) {
		t.Errorf("the roots are\n%s%s%s", one.roots(), same.roots(), other.roots())
	}
	block, _ := pem.Decode(one.roots())
	const want = "0c420e99dd7b691935f9d05819d9ae3f47fe11e0cef205381c4fc212965930c6"
	if sum := sha256.Sum256(block.Bytes); hex.EncodeToString(sum[:]) != want {
		t.Errorf("the root's fingerprint is %x: agents of masters of other versions do not trust it", sum)
	}
	broken := errors.New("the state is away")
	if err := (&Authority{Key: func() ([]byte, error) { return nil, broken }}).start(at); !errors.Is(err, broken) {
		t.Errorf("without a key: %v", err)
	}
}

// A certificate has the names by which the service is reached, and the next one is made in time, under the same root.
func TestAnAuthorityRenewsItsCertificates(t *testing.T) {
	a := &Authority{Key: keyOf(1), Names: []string{"eltrain.train.svc:7070", "[fd00::7]:7070", "10.9.9.9", "a host of no name", "", "fd00::7%eth0"}}
	if err := a.start(&net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 7070}); err != nil {
		t.Fatal(err)
	}
	roots := trusting.Pool(t, a.roots())
	now := time.Now()
	serials := map[string]bool{}
	for day := range 100 {
		now := now.AddDate(0, 0, day)
		served, err := a.at(now)
		if err != nil {
			t.Fatal(err)
		}
		leaf := served.Leaf
		serials[leaf.SerialNumber.String()] = true
		for _, name := range []string{"localhost", "127.0.0.1", "::1", "10.1.2.3", "eltrain.train.svc", "fd00::7", "10.9.9.9"} {
			for _, skew := range []time.Duration{-7 * 24 * time.Hour, 0, 7 * 24 * time.Hour} {
				if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Add(skew)}); err != nil {
					t.Fatalf("on day %d, with a clock %v ahead: %v", day, skew, err)
				}
			}
		}
		if len(leaf.DNSNames)+len(leaf.IPAddresses) != 7 {
			t.Fatalf("its names are %q and %v", leaf.DNSNames, leaf.IPAddresses)
		}
	}
	if len(serials) < 4 || len(serials) > 10 {
		t.Errorf("in 100 days it made %d certificates", len(serials))
	}
}

// Clients of one service trust the next one of the same key, and no other.
func TestAServiceIsKnownByItsKey(t *testing.T) {
	start := func(key byte) *Server {
		s := NewServer(ServerOptions{Certificates: &Authority{Key: keyOf(key)}})
		if err := s.Start("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close(context.Background()) })
		s.SetReady()
		s.Set("gpt", desiredOf("gpt", 1, 15*time.Second))
		return s
	}
	first, next, stranger := start(1), start(1), start(2)
	answered := map[string]bool{}
	for name, s := range map[string]*Server{"first": first, "next": next, "stranger": stranger} {
		c, err := NewClient(s.URL(), "secret", trusting.Pool(t, first.Certificates()))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Members(t.Context(), "gpt")
		c.Close()
		if wrong := (x509.UnknownAuthorityError{}); err != nil && !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
		answered[name] = err == nil
	}
	if diff := cmp.Diff(map[string]bool{"first": true, "next": true, "stranger": false}, answered); diff != "" {
		t.Error(diff)
	}
	if slices.Equal(first.Certificates(), stranger.Certificates()) {
		t.Error("services of different keys have the same root")
	}
}
