package lang

import (
	"fmt"
	"maps"
	"net"
	"reflect"
	"regexp"
	"slices"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"

	"github.com/eltrain/eltrain/job"
)

// Settings is the eltrain block.
type Settings struct {
	RequiredVersion string  `hcl:"required_version,optional" doc:"Versions of eltrain that the files are for, as \">= 0.1, < 2.0\"."`
	State           State   `hcl:"state,block" doc:"Where the state is stored."`
	Service         Service `hcl:"service,block" doc:"The elastic training service, which agents connect to."`

	job.Directory `hcl:",inline"`
}

// State says where the state is stored.
type State struct {
	Type string `hcl:"type,label" default:"file" doc:"The kind of store: \"file\", or \"kubernetes\" for a Secret and a Lease in a cluster."`
	// Path is for the type file; the others are for kubernetes.
	Path       string `hcl:"path,optional" default:"eltrain.state" doc:"file: the state file, relative to the job directory."`
	Name       string `hcl:"name,optional" doc:"kubernetes: the unique name of the state in its namespace; required. The Secret and the Lease are named eltrain-state-NAME."`
	Namespace  string `hcl:"namespace,optional" doc:"kubernetes: the namespace. Default: that of the context, or of eltrain's own pod."`
	Kubeconfig string `hcl:"kubeconfig,optional" doc:"kubernetes: the kubeconfig file, relative to the job directory. Default: $KUBECONFIG, ~/.kube/config, or the pod's own ServiceAccount."`
	Context    string `hcl:"context,optional" doc:"kubernetes: the context in that file. Default: its current one."`
}

// Service says how agents reach the master.
type Service struct {
	Listen    string `hcl:"listen,optional" default:"127.0.0.1:0" doc:"Address and port to listen on; port 0 picks a free one."`
	Advertise string `hcl:"advertise,optional" doc:"Address and port that agents dial, if different from listen."`
	TLSCert   string `hcl:"tls_cert,optional" doc:"File with the service's certificate (PEM), relative to the job directory, instead of one under the state's own authority."`
	TLSKey    string `hcl:"tls_key,optional" doc:"File with its key (PEM), readable only by its owner (0600)."`
	// ReconcileTokenFile is for POST /v1/reconcile.
	ReconcileTokenFile string `hcl:"reconcile_token_file,optional" doc:"File with the token for POST /v1/reconcile, readable only by its owner (0600), relative to the job directory. Without it the endpoint is disabled."`
	Metrics            string `hcl:"metrics,optional" doc:"Address and port on which Prometheus can scrape all metrics, without a token: \":9464\". Without it there are only those of the service's own address."`
	MetricsBySlot      bool   `hcl:"metrics_by_slot,optional" doc:"With metrics, also those of each training process."`
}

// The types of state store.
const (
	fileStore       = "file"
	kubernetesStore = "kubernetes"
)

var storeArguments = map[string][]string{
	fileStore:       {"path"},
	kubernetesStore: {"name", "namespace", "kubeconfig", "context"},
}

func (l *loader) settings() {
	blocks := l.blocks["eltrain"]
	if len(blocks) > 1 {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Duplicate eltrain block",
			Detail:   fmt.Sprintf("A directory can have only one; the first block is at %s:%d.", blocks[0].TypeRange.Filename, blocks[0].TypeRange.Start.Line),
			Subject:  blocks[1].DefRange().Ptr(),
		})
	}
	body := &hclsyntax.Body{}
	if len(blocks) > 0 {
		body = blocks[0].Body
	}
	before := len(l.diags)
	t := reflect.TypeFor[Settings]()
	l.checkBody(body, t, scope{vars: true, locals: true, modules: true, where: "the eltrain block"})
	block := &hcl.Block{Type: "eltrain", Body: body}
	if len(blocks) > 0 {
		block.DefRange = blocks[0].DefRange()
	}
	read := l.tree(block, t)
	d := decoder{l: l, eval: l.unsealed("the eltrain block")}
	d.into(reflect.ValueOf(&l.cfg.Settings).Elem(), read)
	l.checkSettings(read)
	l.cfg.StateErrors = stateErrors(body, read.block("state"), l.diags[before:])
}

// stateErrors returns the errors of the eltrain block that are about the state, without what only an evaluation has.
func stateErrors(body *hclsyntax.Body, state *tree, diags hcl.Diagnostics) (errs hcl.Diagnostics) {
	for _, d := range diags {
		inState := func(b *hclsyntax.Block) bool {
			return b.Type == "state" && d.Subject != nil && d.Subject.Filename == b.Range().Filename && b.Range().ContainsPos(d.Subject.Start)
		}
		if d.Severity == hcl.DiagError && slices.ContainsFunc(body.Blocks, inState) {
			errs = append(errs, &hcl.Diagnostic{Severity: d.Severity, Summary: d.Summary, Detail: d.Detail, Subject: d.Subject, Context: d.Context})
		}
	}
	if state != nil && errs == nil && slices.ContainsFunc(slices.Sorted(maps.Keys(state.attrs)), func(name string) bool { return !state.sound(name) }) {
		errs = append(errs, &hcl.Diagnostic{
			Severity: hcl.DiagError, Summary: "Unknown state", Subject: state.def.Ptr(),
			Detail: "Where the state is depends on a variable that has no value.",
		})
	}
	return errs
}

func (l *loader) checkSettings(t *tree) {
	s := &l.cfg.Settings
	if t.attrs["required_version"] != nil && t.sound("required_version") {
		l.checkVersion(s.RequiredVersion, t.at("required_version"))
	}
	if b := t.block("state"); b != nil {
		l.checkState(&s.State, b)
	}
	if b := t.block("budget"); b != nil && s.Budget != nil {
		if b.sound("node_hours") && !(s.Budget.NodeHours > 0) {
			l.complain(b.at("node_hours"), b, "Invalid budget", "A budget is above 0 node hours.")
		}
		if b.sound("then") {
			oneOf(l, b, "then", s.Budget.Then, job.BudgetActions)
		}
	}
	if b := t.block("limits"); b != nil && s.Limits != nil {
		l.checkDevices(s.Limits.Devices, b)
	}
	if b := t.block("service"); b != nil && b.sound("metrics", "metrics_by_slot") {
		l.checkMetrics(&s.Service, b)
	}
	if b := t.block("service"); b != nil && (s.Service.TLSCert == "") != (s.Service.TLSKey == "") && b.sound("tls_cert", "tls_key") {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Incomplete TLS configuration",
			Detail:   "Set both tls_cert and tls_key, or neither.",
			Subject:  b.def.Ptr(),
		})
	}
}

// checkMetrics checks the address of the metrics.
func (l *loader) checkMetrics(s *Service, t *tree) {
	switch _, _, err := net.SplitHostPort(s.Metrics); {
	case s.Metrics == "" && s.MetricsBySlot:
		l.complain(t.at("metrics_by_slot"), t, "Metrics without an address", "metrics_by_slot has no effect without metrics, the address on which they can be scraped.")
	case s.Metrics != "" && err != nil:
		l.complain(t.at("metrics"), t, "Invalid address of metrics", "%q is not an address with a port, like \":9464\" or \"127.0.0.1:9464\".", s.Metrics)
	}
}

func (l *loader) checkState(s *State, t *tree) {
	kinds := slices.Sorted(maps.Keys(storeArguments))
	if !slices.Contains(kinds, s.Type) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Unknown kind of state store",
			Detail:   fmt.Sprintf("There is no state store %q, only %s.%s", s.Type, list(kinds), suggest(s.Type, kinds)),
			Subject:  t.labelRanges[0].Ptr(),
		})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(t.attrs)) {
		if !slices.Contains(storeArguments[s.Type], name) {
			l.complain(t.attrs[name].NameRange.Ptr(), t, "Unsupported argument of the state store",
				"%q is not an argument of the state store %q, which has %s.", name, s.Type, list(storeArguments[s.Type]))
		}
	}
	if s.Type != kubernetesStore || !t.sound("name", "namespace") {
		return
	}
	if s.Name == "" {
		l.complain(t.at("name"), t, "State without a name",
			"A state in Kubernetes needs a name that is unique in the namespace: name = \"training\". Two job directories with the same name would end each other's jobs.")
	} else if !dnsLabel.MatchString(s.Name) {
		l.complain(t.at("name"), t, "Invalid name of a state", "%q cannot be a name in Kubernetes: %s.", s.Name, dnsLabelRule)
	}
	if s.Namespace != "" && !dnsLabel.MatchString(s.Namespace) {
		l.complain(t.at("namespace"), t, "Invalid namespace", "%q cannot be a namespace: %s.", s.Namespace, dnsLabelRule)
	}
}

// dnsLabel matches what Kubernetes accepts as a namespace and in a label (RFC 1123).
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)

const dnsLabelRule = "use lower case letters, digits and \"-\", at most 63, beginning and ending with a letter or digit"

func (l *loader) checkVersion(required string, at *hcl.Range) {
	constraint, err := version.NewConstraint(required)
	if err != nil {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Invalid version constraint",
			Detail:   fmt.Sprintf("%q is not a constraint: write one like \">= 0.1\" or \"~> 1.2\", several separated by commas.", required),
			Subject:  at,
		})
		return
	}
	have, err := version.NewVersion(l.opts.Version)
	if err != nil {
		return // a build without a version cannot be checked
	}
	// A pre-release counts as its release, so that people can test it.
	if !constraint.Check(have.Core()) {
		l.report(&hcl.Diagnostic{
			Severity: hcl.DiagError,
			Summary:  "Unsupported version of eltrain",
			Detail:   fmt.Sprintf("These files need eltrain %s, and this is %s. Use a matching version, or change required_version.", required, have),
			Subject:  at,
		})
	}
}

func (l *loader) providers() {
	known := slices.Sorted(maps.Keys(l.opts.Providers))
	seen := map[string]hcl.Range{}
	for _, b := range l.blocks["provider"] {
		block := b.AsHCLBlock()
		l.checkLabel("provider", block, seen)
		name := b.Labels[0]
		t := l.opts.Providers[name]
		if t == nil {
			l.report(&hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Unknown provider",
				Detail:   fmt.Sprintf("There is no provider %q, only %s.%s", name, list(known), suggest(name, known)),
				Subject:  b.LabelRanges[0].Ptr(),
			})
			continue
		}
		inside := scope{vars: true, locals: true, modules: true, where: "a provider block"}
		l.checkExpansion(b.Body, t, inside)
		l.checkBody(b.Body, t, inside)
		block.Body = l.expand(b.Body, l.ctx)
		block.Labels = nil // the provider's name, which is not in its schema
		read := l.tree(block, t)
		config := reflect.New(t).Elem()
		d := decoder{l: l, eval: l.unsealed(inside.where)}
		d.into(config, read)
		l.cfg.Providers = append(l.cfg.Providers, ProviderConfig{
			Name: name, Value: config.Interface(), Source: sourceOf(b.DefRange()), Unknown: len(read.unknown()) > 0,
		})
	}
}

// usable returns the names of the providers that a job may use.
func (l *loader) usable() []string {
	names := []string{localProvider}
	for _, p := range l.root().blocks["provider"] {
		if l.opts.Providers[p.Labels[0]] != nil && !slices.Contains(names, p.Labels[0]) {
			names = append(names, p.Labels[0])
		}
	}
	return names
}

// localProvider needs no block: without one it is this machine, as detected.
const localProvider = "local"
