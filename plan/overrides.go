package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eltrain/eltrain/job"
)

// suspendPath is the attribute that suspend and resume are about; sizePath is that of scale, for a role.
const suspendPath = "suspend"

func sizePath(role string) string { return "role." + role + ".replicas" }

// sizedRole is the role of a sizePath.
func sizedRole(path string) (role string, is bool) {
	role, is = strings.CutPrefix(path, "role.")
	return strings.TrimSuffix(role, ".replicas"), is
}

// attribute is what an override can be about.
type attribute struct {
	declared string   // what the files say
	neutral  string   // the value that leaves the decision to the files
	bounds   []string // arguments of its reason: what the files allow
	// legal reports whether the files allow a value.
	legal func(value string) bool
	// against is what of the files a value takes the place of: an edit of it ends the override.
	against func(value string) string
	// reached reports whether the job is as a value asks.
	reached func(value string) bool
}

// attribute finds one by path. False: the job has no such attribute.
func (w *work) attribute(path string) (attribute, bool) {
	if path == suspendPath {
		declared := strconv.FormatBool(w.spec.Suspend)
		return attribute{
			declared: declared, neutral: declared, legal: func(string) bool { return true }, against: func(string) string { return declared },
			reached: func(value string) bool {
				rests := w.rec.Phase == job.JobSuspended
				return rests == (value != "false") && (value != "true" || !w.live())
			},
		}, true
	}
	for i := range w.spec.Roles {
		if r := &w.spec.Roles[i]; r.Scaling != nil && path == sizePath(r.Name) {
			return w.size(r), true
		}
	}
	return attribute{}, false
}

// size is the attribute of an elastic role's size. Its declared replicas are only where it starts, so every number is an override. While
// scaling is paused, the whole scaling block is.
func (w *work) size(r *job.Role) attribute {
	declared := strconv.Itoa(r.Replicas)
	return attribute{
		declared: declared, neutral: job.AutoSize,
		bounds: []string{"min", strconv.Itoa(r.Scaling.Min), "max", strconv.Itoa(r.Scaling.Max)},
		legal:  func(value string) bool { return value == job.PausedSize || legalSize(r.Sizes(), value) },
		against: func(value string) string {
			if value == job.PausedSize {
				return scalingDigest(r.Scaling)
			}
			return declared
		},
		reached: func(value string) bool { return value == job.AutoSize || value == job.PausedSize || w.has(r, value) },
	}
}

// scalingDigest identifies what a scaling block says.
func scalingDigest(s *job.Scaling) string {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err) // it is plain data
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:digestSize])
}

// sizeNow is how many slots an elastic role has, or starts with.
func (w *work) sizeNow(role string) int {
	r := w.spec.Role(role)
	n := len(w.heldSlots(role))
	if n == 0 {
		n = w.rec.Scaled[role].Size
	}
	if n == 0 {
		n = w.initialSize(r)
	}
	sizes := r.Sizes()
	return max(sizes.Floor(min(n, sizes.Max)), sizes.Least())
}

// legalSize reports whether value is a number of slots that a role with these sizes may have.
func legalSize(sizes job.Sizes, value string) bool {
	n, err := strconv.Atoi(value)
	return err == nil && n > 0 && strconv.Itoa(n) == value && sizes.Floor(n) == n
}

// has reports whether so many slots of a role are up, and the others have stopped. A job without slots has what it will start with.
func (w *work) has(r *job.Role, size string) bool {
	if w.suspended() || !w.admitted() {
		return true
	}
	up := 0
	for _, s := range w.index[r.Name] {
		switch {
		case w.up(s):
			up++
		case s.Phase.Live():
			return false
		}
	}
	return strconv.Itoa(up) == size
}

// value is an attribute's value: as an operator asked, or neutral.
func (w *work) value(path string) string {
	if o := w.rec.Override(path); o != nil {
		return o.Value
	}
	a, _ := w.attribute(path)
	return a.neutral
}

// asks are the attributes of a job that a request is about, by path, with the values that it asks for.
func (w *work) asks(r *job.Request) map[string]string {
	switch r.Verb {
	case job.AskSuspend:
		return map[string]string{suspendPath: cmp.Or(r.Mode, "true")}
	case job.AskResume:
		return map[string]string{suspendPath: "false"}
	}
	all := map[string]string{}
	for i, sel := range r.On {
		if sel.Job == w.name {
			all[sizePath(sel.Role)] = r.ValueOf(i)
		}
	}
	return all
}

// override makes what a request asks for the overrides of its attributes. A neutral value ends the override instead.
func override(_ *pass, w *work, r *job.Request, h *job.Handled) {
	if w.rec.Phase.Ended() { // by a request just before
		return
	}
	h.Asks = w.asks(r)
	for _, path := range slices.Sorted(maps.Keys(h.Asks)) {
		a, _ := w.attribute(path)
		value, size := h.Asks[path], 0
		if value == job.PausedSize {
			role, _ := sizedRole(path)
			size = w.sizeNow(role)
		}
		w.rec.Overrides = slices.DeleteFunc(w.rec.Overrides, func(o job.Override) bool { return o.Path == path })
		if value != a.neutral {
			w.rec.Overrides = job.Overridden(w.rec.Overrides, job.Override{
				Path: path, Value: value, Declared: a.against(value), Request: r.ID, By: r.By, At: r.At, Why: r.Why, Until: r.Until, Size: size,
			})
		}
	}
}

// overrideOutcome is done once the job is as all values ask.
func overrideOutcome(_ *pass, w *work, r *job.Request, h *job.Handled) (job.ReplyState, job.Reason) {
	if h.Asks == nil { // the job had ended
		return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
	}
	outcome := job.Done
	for _, path := range slices.Sorted(maps.Keys(h.Asks)) {
		value := h.Asks[path]
		a, known := w.attribute(path)
		kept := known && w.value(path) == value
		later := w.askedLater(h, path)
		switch {
		case !kept && later != "":
			return job.Undone, job.Because(RequestSuperseded, "request", later)
		case w.rec.Phase.Ended() && value != "false" && value != job.AutoSize:
			return job.Undone, job.Because(HasEnded, "job", w.name, "phase", string(w.rec.Phase))
		case path == suspendPath && a.reached(value), kept && a.reached(value):
		case !kept: // its time is over, or the attribute was edited
			return job.Undone, job.Because(OverrideExpired, "path", path, "value", value, "by", r.By)
		default:
			outcome = job.Accepted
		}
	}
	return outcome, job.Reason{}
}

// askedLater is the last of the requests after h that ask for another value of an attribute; "" if there is none.
func (w *work) askedLater(h *job.Handled, path string) (id string) {
	after := false
	for i := range w.rec.Handled {
		other := &w.rec.Handled[i]
		if value, asks := other.Asks[path]; after && asks && value != h.Asks[path] {
			id = other.ID
		}
		after = after || other.ID == h.ID
	}
	return id
}

// checkSize says why a role cannot be given a size.
func checkSize(p *pass, r *job.Request, i int) job.Reason {
	sel, value := r.On[i], r.ValueOf(i)
	old, spec := p.in.Records[sel.Job], p.byName[sel.Job].spec
	switch {
	case spec == nil:
		spec = &old.Spec
	case old != nil:
		spec = p.settled(spec, old)
	}
	role := spec.Role(sel.Role)
	switch {
	case role == nil:
		return job.Because(NothingThere, "address", sel.String())
	case role.Scaling == nil:
		return job.Because(SizeFixed, "address", sel.String(), "replicas", strconv.Itoa(role.Replicas))
	case old != nil && slices.ContainsFunc(old.Slots, func(s job.Slot) bool { return s.Address.Role == sel.Role && s.Phase == job.Succeeded }):
		return job.Because(RoleSucceeded)
	case value != job.AutoSize && value != job.PausedSize && !legalSize(role.Sizes(), value):
		return sizeNotLegal(sel, role.Sizes(), value)
	}
	return job.Reason{}
}

// sizeNotLegal says which sizes a role may have, and the nearest ones.
func sizeNotLegal(sel job.Selector, sizes job.Sizes, value string) job.Reason {
	args := []string{"address", sel.String(), "size", value, "min", strconv.Itoa(sizes.Min), "max", strconv.Itoa(sizes.Max)}
	if sizes.Step > 1 {
		args = append(args, "step", strconv.Itoa(sizes.Step))
	}
	if len(sizes.List) > 0 {
		var list []string
		for _, n := range sizes.List {
			list = append(list, strconv.Itoa(n))
		}
		args = append(args, "sizes", strings.Join(list, ", "))
	}
	if n, err := strconv.Atoi(value); err == nil {
		var near []string
		for _, legal := range []int{sizes.Floor(n), sizes.Ceil(n)} {
			if legal > 0 {
				near = append(near, strconv.Itoa(legal))
			}
		}
		args = append(args, "nearest", strings.Join(near, " or "))
	}
	return job.Because(SizeNotLegal, args...)
}

// endOverrides ends those whose time is over, whose attribute was edited in the files, or that the files no longer allow.
func (p *pass) endOverrides(w *work) {
	if w.frozen || !w.declared {
		return
	}
	w.rec.Overrides = slices.DeleteFunc(w.rec.Overrides, func(o job.Override) bool {
		a, known := w.attribute(o.Path)
		code := job.Code("")
		switch {
		case known && o.Declared != a.against(o.Value):
			code = OverrideEdited
		case !known || !a.legal(o.Value):
			code = OverrideIllegal
		case !o.Until.IsZero() && !p.in.Now.Before(o.Until):
			code = OverrideExpired
		default:
			if !o.Until.IsZero() {
				p.wakeAt(o.Until)
			}
			return false
		}
		p.note("job."+w.name, "override", job.Because(code, "path", o.Path, "by", o.By, "value", o.Value))
		p.out.Dirty = true
		return true
	})
}

// overridden says what of the job is not as the files say because an operator asked for it.
func (p *pass) overridden(w *work) {
	if !w.declared || w.rec.Phase.Ended() {
		return
	}
	for _, o := range w.rec.Overrides {
		a, _ := w.attribute(o.Path)
		p.overriddenBy(w.name, o, append([]string{"declared", a.declared}, a.bounds...)...)
	}
}

func (p *pass) overriddenBy(name string, o job.Override, files ...string) {
	args := append([]string{"job", name, "path", o.Path, "value", o.Value, "by", o.By, "at", o.At.UTC().Format(time.RFC3339), "why", o.Why, "request", o.Request}, files...)
	if o.Size > 0 {
		args = append(args, "size", strconv.Itoa(o.Size))
	}
	if !o.Until.IsZero() {
		args = append(args, "until", o.Until.UTC().Format(time.RFC3339))
	}
	p.out.Waits = append(p.out.Waits, Wait{Job: name, Reasons: []job.Reason{job.Because(Overridden, args...)}})
}

// suspension is whether the job is to be suspended, by the files or an operator: "true", "false", or job.Keep.
func (w *work) suspension() string { return w.value(suspendPath) }

// whySuspended is why the job's slots stop.
func (w *work) whySuspended() job.Reason {
	if o := w.rec.Override(suspendPath); o != nil {
		return job.Because(SuspendAsked, "by", o.By, "why", o.Why)
	}
	if w.unfunded && w.suspension() == "false" {
		return job.Because(BudgetSuspends)
	}
	return job.Because(SuspendRequested)
}
