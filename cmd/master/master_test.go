package master

import (
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/cmd/view"
	"github.com/eltrain/eltrain/cmd/workspace"
	"github.com/eltrain/eltrain/lang"
	"github.com/eltrain/eltrain/providers"
	"github.com/eltrain/eltrain/providers/local"
	"github.com/eltrain/eltrain/state/memory"
)

// leading is the master of a watch that listens on an address. said gets its diagnostics.
func leading(w *workspace.Workspace, listen string, said *[]view.Diagnostic) *Master {
	d := &workspace.Directory{Path: "."}
	return New(Options{
		Directory: d, Workspace: w, Files: d.Child(nil), Listen: listen, Log: slog.New(slog.DiscardHandler),
		Diagnose: func(diags ...view.Diagnostic) { *said = append(*said, diags...) },
	})
}

// On one machine a standby cannot listen on its leader's address until the leader is gone.
func TestStandbyListensAfterItsLeader(t *testing.T) {
	leader, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &workspace.Workspace{Config: &lang.Config{}, Store: memory.New()}
	m := leading(d, leader.Addr().String(), nil)
	defer m.Close()
	if err := m.Attend(); err != nil || m.server.Addr() != nil {
		t.Fatalf("beside its leader: %v, at %v", err, m.server.Addr())
	}
	if err := m.listen(); err == nil {
		t.Fatal("it has the leader's address")
	}
	leader.Close()
	if err := m.listen(); err != nil {
		t.Fatal(err)
	}
	if at := m.server.Addr(); at == nil || m.listen() != nil || m.server.Addr() != at {
		t.Errorf("it listens at %v, then at %v", at, m.server.Addr())
	}
	wrong := leading(d, "127.0.0.1:nonsense", nil)
	if err := wrong.Attend(); err == nil {
		t.Error("an address that is none is waited for")
	}
}

func TestDoubtfulAddresses(t *testing.T) {
	for _, c := range []struct {
		ip      net.IP
		service lang.Service
		want    string
	}{
		{ip: net.IPv4(127, 0, 0, 1)},
		{ip: net.IPv4(10, 0, 0, 1)},
		{ip: net.IPv6unspecified, service: lang.Service{Advertise: "eltrain.train.svc:7070"}},
		{ip: net.IPv6unspecified, want: "advertise in service"},
	} {
		var said []view.Diagnostic
		m := leading(&workspace.Workspace{Config: &lang.Config{}}, "", &said)
		m.cautionAddress(&net.TCPAddr{IP: c.ip, Port: 7070}, c.service)
		if text := fmt.Sprint(said); !strings.Contains(text, c.want) || c.want == "" && len(said) > 0 {
			t.Errorf("%v with %+v: %q", c.ip, c.service, text)
		}
	}
}

func TestReconfigure(t *testing.T) {
	type block struct{ Namespace string }
	here, err := local.New(local.Options{Dir: t.TempDir(), Agent: []string{"true"}, Config: local.Config{Nodes: []local.Node{{Name: "a"}, {Name: "b"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	nodes := func() (names []string) {
		seen, err := here.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range seen.Nodes {
			names = append(names, n.Name)
		}
		return names
	}
	one := local.Config{Nodes: []local.Node{{Name: "a"}}}
	other := struct{ providers.Provider }{}
	for _, c := range []struct {
		open          map[string]providers.Provider
		before, value any
		want          string
		nodes         []string
	}{
		{map[string]providers.Provider{local.Name: here}, nil, block{"a"}, "cannot be added", []string{"a", "b"}},
		{map[string]providers.Provider{local.Name: here, "other": other}, block{"a"}, block{"b"}, "cannot change", []string{"a", "b"}},
		{map[string]providers.Provider{local.Name: here, "other": other}, block{"a"}, block{"a"}, "", []string{"a"}},
	} {
		err := reconfigure(c.open, map[string]any{"other": c.before}, map[string]any{local.Name: one, "other": c.value})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("want %q: %v", c.want, err)
		}
		if is := nodes(); !slices.Equal(is, c.nodes) {
			t.Errorf("after %v the nodes are %v, want %v", err, is, c.nodes)
		}
	}
}

func TestAdvertised(t *testing.T) {
	for _, c := range [][3]string{
		{"https://127.0.0.1:4000", "", "https://127.0.0.1:4000"},
		{"https://0.0.0.0:4000", "train.example:443", "https://train.example:443"},
	} {
		if got := advertised(c[0], c[1]); got != c[2] {
			t.Errorf("advertised(%q, %q) is %q", c[0], c[1], got)
		}
	}
}
