package view

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/eltrain/eltrain/state/kubernetes"
)

// What to do about an error is said after it, and copied commands stand alone.
func TestRemedies(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []string
	}{
		{&kubernetes.DamagedError{Namespace: "a", Secret: "s", BackupSerial: 7}, []string{"backup is intact (serial 7). To restore it", "\n  kubectl -n a annotate secret s eltrain.dev/use=backup"}},
		{&kubernetes.DamagedError{Namespace: "a", Secret: "s"}, []string{"There is no backup. To start", "\n  kubectl -n a delete secret s"}},
		{fmt.Errorf("store a request: %w", new(kubernetes.UndefinedError)), []string{"requests.eltrain.dev). An administrator", "kubectl apply -k deploy/requests"}},
		{errors.New("no such file"), []string{"No such file."}},
	} {
		text := Explain(c.err)
		for _, want := range c.want {
			if !strings.Contains(text, want) {
				t.Errorf("%q is not in %q", want, text)
			}
		}
	}
}
