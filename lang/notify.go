package lang

import (
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/eltrain/eltrain/job"
)

// Notify is a notify block.
type Notify struct {
	job.Notify
	Hook    job.Hook
	Secrets []string `json:"-"` // the sensitive values in Hook
}

// notifyBlock is a notify block as written.
type notifyBlock struct {
	Name    string            `hcl:"name,label" doc:"The block's name."`
	On      []string          `hcl:"on,required" doc:"What to notify of: \"failed\", \"succeeded\", \"waiting\", \"incident\", \"recovered\"."`
	Jobs    hcl.Expression    `hcl:"jobs,optional" doc:"The jobs that it is about, as [job.NAME, module.NAME]. Default: all."`
	For     job.Duration      `hcl:"for,optional" default:"0s" doc:"How long it has to hold before somebody is notified."`
	URL     string            `hcl:"url,optional" doc:"Where to POST a message as JSON, with http:// or https://. Either url or command is required."`
	Headers map[string]string `hcl:"headers,optional" doc:"Further headers of the request."`
	Command []string          `hcl:"command,optional" doc:"A command that gets the message as JSON on its standard input. It runs where eltrain runs, in the job directory."`
	Text    string            `hcl:"text,optional" default:"{job} {event}: {message}" doc:"The message's text. {notify}, {event}, {job}, {address}, {message}, {code}, {since} and {time} are replaced."`
}

// placeholders are what the text of a message may contain in braces.
var placeholders = []string{"notify", "event", "job", "address", "message", "code", "since", "time"}

var (
	inBraces   = regexp.MustCompile(`\{([a-z_]*)\}`)
	headerName = regexp.MustCompile("^[-!#$%&'*+.^_`|~0-9A-Za-z]+$") // a token of RFC 9110
)

// notifies reads the notify blocks.
func (l *loader) notifies() {
	inside := scope{vars: true, locals: true, modules: true, where: "a notify block"}
	seen := map[string]hcl.Range{}
	l.cfg.Notify = []Notify{}
	for _, b := range l.blocks["notify"] {
		block := b.AsHCLBlock()
		l.checkLabel("notify", block, seen)
		t := reflect.TypeFor[notifyBlock]()
		l.checkBody(b.Body, t, inside)
		read := l.tree(block, t)
		var decl notifyBlock
		n := Notify{}
		secret := map[string]bool{"url": true, "headers": true, "command": true}
		inClear := l.unsealed(inside.where)
		d := decoder{l: l, eval: func(attr *hcl.Attribute) (cty.Value, *hcl.EvalContext, hcl.Diagnostics) {
			if secret[attr.Name] {
				return l.plain(attr)
			}
			return inClear(attr)
		}, sensitive: func(_ *tree, _ job.Field, v cty.Value) { n.Secrets = appendSecrets(n.Secrets, v) }}
		d.into(reflect.ValueOf(&decl).Elem(), read)
		l.checkNotify(&decl, read)
		n.Notify = job.Notify{Name: decl.Name, On: l.notifyEvents(&decl, read), For: decl.For}
		n.Jobs, n.All = l.notifyJobs(decl.Jobs, read, inside)
		n.Hook = job.Hook{URL: decl.URL, Headers: decl.Headers, Command: decl.Command, Text: decl.Text}
		l.cfg.Notify = append(l.cfg.Notify, n)
	}
}

// notifyEvents checks what a block notifies of.
func (l *loader) notifyEvents(decl *notifyBlock, t *tree) (on []job.NotifyEvent) {
	if !t.sound("on") {
		return nil
	}
	known := make([]string, 0, len(job.NotifyEvents))
	for _, e := range job.NotifyEvents {
		known = append(known, string(e))
	}
	for _, e := range decl.On {
		switch {
		case !slices.Contains(known, e):
			l.complain(t.at("on"), t, "Unknown event", "There is no event %q, only %s.%s", e, list(known), suggest(e, known))
		case slices.Contains(on, job.NotifyEvent(e)):
			l.complain(t.at("on"), t, "Duplicate event", "%q is in the list twice.", e)
		default:
			on = append(on, job.NotifyEvent(e))
		}
	}
	switch {
	case len(decl.On) == 0:
		l.complain(t.at("on"), t, "Nothing to notify of", "on is empty: name at least one of %s.", list(known))
	case slices.Equal(on, []job.NotifyEvent{job.NotifyRecovered}), len(on) == 2 && slices.Contains(on, job.NotifyRecovered) && slices.Contains(on, job.NotifySucceeded):
		l.complain(t.at("on"), t, "Nothing to recover from",
			"\"recovered\" says that what was notified of is over: add \"failed\", \"waiting\" or \"incident\".")
	}
	return on
}

// notifyJobs returns the names of the jobs that a block is about.
func (l *loader) notifyJobs(expr hcl.Expression, t *tree, s scope) (names []string, all bool) {
	if expr == nil {
		return nil, true
	}
	tuple, is := plainExpr(expr).(*hclsyntax.TupleConsExpr)
	if !is {
		l.complain(expr.Range().Ptr(), t, "Invalid list of jobs", "Write the addresses of jobs as a list without quotes: jobs = [job.NAME, module.NAME].")
		return nil, false
	}
	for _, one := range tuple.Exprs {
		if !l.checkKeys(one, s) {
			continue
		}
		to, ok := l.target(one, l.ctx, jobsAndModules)
		if !ok {
			continue
		}
		found := false
		for name, p := range l.names {
			if p.address == to.text || (job.Selector{Declared: to.text}).Covers(p.address) || to.module && (strings.HasPrefix(p.address, to.text+".") || strings.HasPrefix(p.address, to.text+"[")) {
				found = true
				names = append(names, name)
			}
		}
		if !found && !l.anyIncomplete() && !l.unsettled(to.text) {
			l.complain(one.Range().Ptr(), t, "Notification about an undeclared job", "%s is not declared.%s", to.text, suggest(to.text, l.addresses()))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), false
}

// addresses returns those of the declared jobs, for suggestions.
func (l *loader) addresses() (all []string) {
	if len(l.names) > maxKnown {
		return nil
	}
	for _, p := range l.names {
		all = append(all, p.address)
	}
	slices.Sort(all)
	return all
}

// checkNotify checks where the messages go, and their text.
func (l *loader) checkNotify(decl *notifyBlock, t *tree) {
	byURL, byCommand := t.attrs["url"] != nil, t.attrs["command"] != nil
	switch {
	case byURL && byCommand:
		l.complain(t.at("command"), t, "Contradicting arguments", "A notify block has either url or command. Write two blocks to use both.")
	case !byURL && !byCommand:
		l.complain(t.def.Ptr(), t, "Notification to nobody", "A notify block needs url, where messages are posted, or command, which gets them.")
	case byURL && t.sound("url"):
		// The address may be sensitive, so it is not quoted.
		u, err := url.Parse(decl.URL)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			l.complain(t.at("url"), t, "Invalid URL", "url has to begin with http:// or https:// and a host.")
		}
	case byCommand && t.sound("command") && (len(decl.Command) == 0 || decl.Command[0] == ""):
		l.complain(t.at("command"), t, "Invalid command", "command is empty: write the program, then its arguments, as [\"./page.sh\", \"ops\"].")
	}
	if t.attrs["headers"] != nil && byCommand && !byURL {
		l.complain(t.at("headers"), t, "Headers without a URL", "headers belong to url: a command has none.")
	}
	for name, value := range decl.Headers {
		if !headerName.MatchString(name) || strings.ContainsAny(value, "\r\n\x00") {
			l.complain(t.at("headers"), t, "Invalid header", "A name of headers is not one in HTTP, or its value has more than one line.")
			break
		}
	}
	if !t.sound("text") {
		return
	}
	for _, found := range inBraces.FindAllStringSubmatch(decl.Text, -1) {
		if !slices.Contains(placeholders, found[1]) {
			l.complain(t.at("text"), t, "Unknown placeholder", "There is no placeholder %s, only %s.%s", found[0], list(placeholders), suggest(found[1], placeholders))
		}
	}
}

// HookOf returns the hook of a notify block; false if there is none of the name.
func (c *Config) HookOf(name string) (job.Hook, bool) {
	i := slices.IndexFunc(c.Notify, func(n Notify) bool { return n.Name == name })
	if i < 0 {
		return job.Hook{}, false
	}
	return c.Notify[i].Hook, true
}

// Notified returns the notify blocks without their hooks; nil for a Config that was not read from files.
func (c *Config) Notified() []job.Notify {
	if c.Notify == nil {
		return nil
	}
	all := make([]job.Notify, 0, len(c.Notify))
	for i := range c.Notify {
		all = append(all, c.Notify[i].Notify)
	}
	return all
}
