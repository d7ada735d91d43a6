// Package alerts checks the rules and the dashboard of deploy/monitoring with promtool's own packages. It is a module of its own, since
// nothing else needs Prometheus.
package alerts

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const monitoring = "../../deploy/monitoring/"

// documented are the metrics of docs/metrics.md, with their labels.
func documented(t *testing.T) map[string][]string {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	metrics := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(eltrain_[a-z_]+)` \\| [a-z]+ \\| ([a-z_, ]*) \\|").FindAllStringSubmatch(string(page), -1) {
		metrics[row[1]] = strings.Split(row[2], ", ")
	}
	if len(metrics) < 40 {
		t.Fatalf("docs/metrics.md lists %d metrics", len(metrics))
	}
	return metrics
}

// check reports an expression that cannot be parsed, or that selects a metric or a label that there is not.
func check(t *testing.T, where, expr string, metrics map[string][]string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v in %s", where, err, expr)
		return
	}
	selectors := 0
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		selector, is := n.(*parser.VectorSelector)
		if !is {
			return nil
		}
		selectors++
		labels, known := metrics[selector.Name]
		if !known {
			t.Errorf("%s: there is no metric %q", where, selector.Name)
			return nil
		}
		for _, m := range selector.LabelMatchers {
			if m.Name != model.MetricNameLabel && !contains(labels, m.Name) {
				t.Errorf("%s: %s has no label %q", where, selector.Name, m.Name)
			}
		}
		return nil
	})
	if selectors == 0 {
		t.Errorf("%s selects nothing: %s", where, expr)
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

func rules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.ParseFile(monitoring+"alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var all []rulefmt.Rule
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

func TestAlertsAreValid(t *testing.T) {
	metrics := documented(t)
	for _, r := range rules(t) {
		check(t, r.Alert, r.Expr, metrics)
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		for _, label := range regexp.MustCompile(`\$labels\.([a-z_]+)`).FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
			if !strings.Contains(r.Expr, label[1]) && !anyHas(metrics, r.Expr, label[1]) {
				t.Errorf("%s names the label %s, which it does not have", r.Alert, label[1])
			}
		}
	}
}

// anyHas reports whether a metric of an expression has a label.
func anyHas(metrics map[string][]string, expr, label string) bool {
	for name, labels := range metrics {
		if strings.Contains(expr, name) && contains(labels, label) {
			return true
		}
	}
	return false
}

// TestAlertsFire runs testdata/NAME.test for each alert: series with which it fires, and others with which it does not. EXPR is its expression.
func TestAlertsFire(t *testing.T) {
	for _, r := range rules(t) {
		t.Run(r.Alert, func(t *testing.T) {
			script, err := os.ReadFile(filepath.Join("testdata", r.Alert+".test"))
			if err != nil {
				t.Fatal(err)
			}
			text := strings.ReplaceAll(string(script), "EXPR", strings.Join(strings.Fields(r.Expr), " "))
			if !strings.Contains(string(script), "EXPR") {
				t.Fatal("the script does not evaluate the alert")
			}
			engine := promqltest.NewTestEngineWithOpts(t, promql.EngineOpts{MaxSamples: 100000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
			promqltest.RunTest(t, text, engine)
		})
	}
}

func TestDashboardIsValid(t *testing.T) {
	text, err := os.ReadFile(monitoring + "dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		Panels []struct {
			ID      int
			Type    string
			Title   string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct{ List []struct{ Name string } }
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	metrics := documented(t)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	variables := strings.NewReplacer(`=~"$job_name"`, `=~".+"`)
	shown := map[string]bool{}
	for _, p := range board.Panels {
		if ids[p.ID] {
			t.Errorf("%s has the ID of another panel", p.Title)
		}
		ids[p.ID] = true
		for y := range p.GridPos.H {
			for x := range p.GridPos.W {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if taken[at] != "" || at[0] >= 24 {
					t.Errorf("%s is where %s is", p.Title, taken[at])
				}
				taken[at] = p.Title
			}
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s has %d targets", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			expr := variables.Replace(target.Expr)
			check(t, p.Title, expr, metrics)
			if strings.Contains(expr, "$") {
				t.Errorf("%s has a variable that there is not: %s", p.Title, expr)
			}
			for name := range metrics {
				shown[name] = shown[name] || strings.Contains(expr, name)
			}
		}
	}
	if len(shown) == 0 || !shown["eltrain_job_step"] {
		t.Error("it shows nothing")
	}
}
