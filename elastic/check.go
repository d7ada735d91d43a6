package elastic

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/eltrain/eltrain/job"
)

// Limits of what a member may send, far above what is legitimate, and low enough that nothing overflows or grows without bound.
const (
	maxBody      = 64 << 10
	maxSlots     = 1 << 20
	maxHost      = 253 // of a DNS name
	maxPIDs      = 4096
	maxTail      = 50 // lines of an exit's output
	maxText      = 8 << 10
	maxSignal    = 64 // of a signal's name
	maxActs      = 64 // outcomes in a report: several times as many as are told at once
	maxPath      = 1 << 10
	maxName      = 64  // of a recognizer
	maxSymbol    = 512 // KSYM_NAME_LEN of the kernel
	maxExchanges = 16  // of a node check: several times as many as there are rounds
	maxTorn      = 16  // checkpoints: several times as many as are told
)

// errNoBody is an empty body, which some requests may have.
var errNoBody error = &Error{Malformed, "the body is empty"}

// decode parses one JSON value and nothing after it. Unknown fields are ignored: a newer agent may send more.
func decode(raw []byte, into any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		return errNoBody
	}
	if !utf8.Valid(raw) {
		return &Error{Malformed, "the body is not valid UTF-8"}
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(into); err != nil {
		return &Error{Malformed, "the body is not the expected JSON: " + err.Error()}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return &Error{Malformed, "unexpected data after the JSON value"}
	}
	return nil
}

// UnmarshalJSON rejects unknown fields: a misspelled confirmation must not be ignored.
func (r *ReconcileRequest) UnmarshalJSON(raw []byte) error {
	type plain ReconcileRequest
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode((*plain)(r))
}

func (r *RegisterRequest) check() error {
	switch {
	case r.Host == "" || len(r.Host) > maxHost || strings.ContainsFunc(r.Host, notInHost):
		return &Error{Malformed, "host is not a valid address or host name"}
	case len(r.Node) > maxHost:
		return &Error{Malformed, "the name of the node is too long"}
	case r.AgentPID < 0:
		return &Error{Malformed, "agent_pid is negative"}
	case len(r.Can) > maxActs || slices.ContainsFunc(r.Can, func(k job.ActKind) bool { return len(k) > maxHost }):
		return &Error{Malformed, "can is too long"}
	}
	return checkMember(r.Slot, r.Incarnation, &r.Report)
}

func (r *ReconcileRequest) check() error {
	if r.MaxDestroy != nil && (*r.MaxDestroy < 0 || *r.MaxDestroy > maxSlots) {
		return &Error{Malformed, "max_destroy is not a number of slots"}
	}
	return nil
}

func (r *SyncRequest) check() error { return checkMember(r.Slot, r.Incarnation, &r.Report) }

// notInHost reports characters that occur in no host name or address. The host becomes MASTER_ADDR.
func notInHost(c rune) bool {
	return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune(".:-_%[]", c))
}

func checkMember(slot string, incarnation int, r *Report) error {
	if _, err := job.ParseShort("x", slot); err != nil {
		return &Error{Malformed, fmt.Sprintf("slot %.80q is not one slot within its job, like worker[3]", slot)}
	}
	switch r.State {
	case job.MemberWaiting, job.MemberRunning, job.MemberFailed, job.MemberSucceeded, job.MemberLeaving:
	default:
		return &Error{Malformed, fmt.Sprintf("state %.20q is none of waiting, running, failed, succeeded, leaving", r.State)}
	}
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"incarnation", incarnation, math.MaxInt}, // these four are compared with what was issued
		{"generation", r.Generation, math.MaxInt},
		{"generation of saved", r.Saved.Generation, math.MaxInt},
		{"in_place", r.InPlace, math.MaxInt},
		{"world_slots", r.WorldSlots, maxSlots},
		{"rank", r.Rank, maxSlots},
		{"port", r.Port, 65535},
		{"number of pids", len(r.PIDs), maxPIDs},
		{"number of acts", len(r.Acts), maxActs},
		{"number of ranks", len(r.Ranks), maxPIDs},
	} {
		if n.value < 0 || n.value > n.max {
			return &Error{Malformed, fmt.Sprintf("%s is %d: it must be between 0 and %d", n.name, n.value, n.max)}
		}
	}
	for _, pid := range r.PIDs {
		if pid <= 0 {
			return &Error{Malformed, fmt.Sprintf("%d in pids is not a process", pid)}
		}
	}
	if r.WorldSlots > 0 && r.Rank >= r.WorldSlots {
		return &Error{Malformed, fmt.Sprintf("rank %d is not below world_slots %d", r.Rank, r.WorldSlots)}
	}
	if r.Step < 0 || r.FirstStep < 0 || r.Saved.Step < 0 || r.StepRate < 0 || r.CPU < 0 || r.Memory < 0 {
		return &Error{Malformed, "step, first_step, saved.step, step_rate, cpu and memory must not be negative"}
	}
	for _, a := range r.Acts {
		if a.Step < 0 || len(a.Path) > maxPath || len(a.ID) > maxHost || len(a.State) > maxHost || len(a.Flaw.Code) > maxName || len(a.Flaw.File) > maxPath {
			return &Error{Malformed, "an outcome in acts has a negative step, or is too long"}
		}
	}
	for i := range r.Ranks {
		if err := checkProgress(r.Ranks[i].Progress); err != nil {
			return &Error{Malformed, fmt.Sprintf("ranks[%d]: progress: %s", i, err)}
		}
		if err := checkProcess(r.Ranks[i].Process); err != nil {
			return &Error{Malformed, fmt.Sprintf("ranks[%d]: %s", i, err)}
		}
	}
	if err := checkSight(r.Checkpoint); err != nil {
		return &Error{Malformed, "checkpoint: " + err.Error()}
	}
	if negative(reflect.ValueOf(r.Figures)) {
		return &Error{Malformed, "figures must not be negative"}
	}
	if r.Figures != nil {
		if err := checkAccelerators(r.Figures.Accelerators); err != nil {
			return &Error{Malformed, "figures: " + err.Error()}
		}
	}
	if c := r.Check; c != nil {
		if c.Number < 0 || !(c.Seconds >= 0) || len(c.Failed) > maxName {
			return &Error{Malformed, "check has a negative number, or a name that is too long"}
		}
		if c.Port < 0 || c.Port > 65535 || len(c.Exchanges) > maxExchanges {
			return &Error{Malformed, "the port of check is none, or it has too many exchanges"}
		}
		for i := range c.Exchanges {
			x := &c.Exchanges[i]
			if x.Round < 0 || !(x.Seconds >= 0) {
				return &Error{Malformed, "an exchange of check has a negative number"}
			}
			x.Failed = lastOf(x.Failed, job.MaxCheckMessage)
		}
		c.Message = lastOf(c.Message, job.MaxCheckMessage)
	}
	if r.Exit != nil {
		trimExit(r.Exit)
	}
	if r.Evidence != nil {
		if len(r.Evidence.Ranks) > maxPIDs {
			return &Error{Malformed, "evidence has too many ranks"}
		}
		trimEvidence(r.Evidence)
	}
	return nil
}

// checkProgress checks what is said of one process.
func checkProgress(p *job.RankProgress) error {
	if p == nil {
		return nil
	}
	if p.By == "" || len(p.By) > maxName || strings.ContainsFunc(p.By, unicode.IsControl) {
		return fmt.Errorf("by must be a name of at most %d bytes", maxName)
	}
	for _, n := range []*int64{p.Step, p.Total, p.FirstStep} {
		if n != nil && *n < 0 {
			return errors.New("step, total and first_step must not be negative")
		}
	}
	if m := p.Mark; m != nil && (m.Step < 0 || len(m.StateHash) > job.MaxStateHash) || len(p.StateHash) > job.MaxStateHash {
		return errors.New("the step of mark must not be negative, and a state_hash not be too long")
	}
	if p.StepRate < 0 || negative(reflect.ValueOf(p.StepAge)) || negative(reflect.ValueOf(p.StepInterval)) {
		return errors.New("step_rate, step_interval_seconds and step_age_seconds must not be negative")
	}
	return nil
}

// checkSight checks what is said of a checkpoint directory.
func checkSight(s *job.CheckpointSight) error {
	if s == nil {
		return nil
	}
	if len(s.Torn) > maxTorn {
		return fmt.Errorf("torn has more than %d entries", maxTorn)
	}
	all := slices.Clone(s.Torn)
	if s.Newest != nil {
		all = append(all, *s.Newest)
	}
	for _, c := range all {
		switch {
		case c.Step < 0 || c.Size < 0:
			return errors.New("step and size_bytes must not be negative")
		case c.Path == "" || len(c.Path) > maxPath || len(c.Layout) > maxName || len(c.Flaw.Code) > maxName || len(c.Flaw.File) > maxPath:
			return errors.New("a path is missing, or something is too long")
		case strings.ContainsFunc(c.Path+c.Layout+string(c.Flaw.Code)+c.Flaw.File, unicode.IsControl):
			return errors.New("a name has control characters")
		}
	}
	return nil
}

// checkProcess checks the figures of one process.
func checkProcess(p *job.ProcessFigures) error {
	switch {
	case p == nil:
		return nil
	case p.PID <= 0:
		return fmt.Errorf("%d is not a process", p.PID)
	case !slices.Contains(job.ThreadStates, p.State):
		return fmt.Errorf("state %.20q is none of %s", p.State, job.ThreadStates)
	case len(p.WaitChannel) > maxSymbol:
		return errors.New("wait_channel is too long")
	case negative(reflect.ValueOf(p)):
		return errors.New("figures must not be negative")
	case p.Looks != nil && (len(p.Looks.Waits) > maxActs || slices.ContainsFunc(slices.Collect(maps.Keys(p.Looks.Waits)), longSymbol)):
		return errors.New("looks have too many functions, or one that is too long")
	}
	return nil
}

// checkAccelerators checks the figures of a slot's accelerators. Their numbers become labels of metrics.
func checkAccelerators(all []job.AcceleratorFigures) error {
	if len(all) > job.MaxAccelerators {
		return fmt.Errorf("accelerators has more than %d devices", job.MaxAccelerators)
	}
	for i := range all {
		a := &all[i]
		switch {
		case a.Device >= job.MaxDevice || i > 0 && a.Device <= all[i-1].Device:
			return fmt.Errorf("accelerators[%d]: device must be below %d and above the one before", i, job.MaxDevice)
		case !job.ValidDeviceID(a.UUID):
			return fmt.Errorf("accelerators[%d]: uuid is too long, or has characters other than letters, digits and -._:/", i)
		case a.Utilization != nil && *a.Utilization > 1:
			return fmt.Errorf("accelerators[%d]: utilization must not be above 1", i)
		case negative(reflect.ValueOf(a)):
			return fmt.Errorf("accelerators[%d]: figures must not be negative", i)
		}
	}
	return nil
}

func longSymbol(name string) bool { return len(name) > maxSymbol }

// trimEvidence keeps of evidence what ends up in records and on screens.
func trimEvidence(e *job.Evidence) {
	for i := range e.Ranks {
		r := &e.Ranks[i]
		r.State, r.WaitChannel, r.Waits = job.ThreadState(lastOf(string(r.State), maxSignal)), lastOf(r.WaitChannel, maxSymbol), lastOf(r.Waits, maxSymbol)
		r.Source = job.StackSource(lastOf(string(r.Source), maxSignal))
		for _, lines := range []*[]string{&r.Frames, &r.Output} {
			*lines = (*lines)[:min(len(*lines), maxTail)]
			for i := range *lines {
				(*lines)[i] = lastOf((*lines)[i], maxText/8)
			}
		}
		r.Collectives = r.Collectives[:min(len(r.Collectives), job.MaxCollectives)]
		for i := range r.Collectives {
			c := &r.Collectives[i]
			for _, text := range []*string{&c.Group, &c.Title, &c.Op, &c.Sizes, &c.Peer} {
				*text = lastOf(*text, maxSymbol)
			}
		}
	}
}

// negative reports whether any number in a structure of figures is below 0, or no number. What is not there is not.
func negative(v reflect.Value) bool {
	if v.Kind() == reflect.Pointer {
		v = v.Elem() // the zero Value if nil
	}
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		return v.Int() < 0
	case reflect.Float64:
		return !(v.Float() >= 0)
	case reflect.Map:
		for _, key := range v.MapKeys() {
			if negative(v.MapIndex(key)) {
				return true
			}
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && negative(v.Field(i)) {
				return true
			}
		}
	}
	return false
}

// trimExit keeps the last part of a process's output: it ends up in records and on screens.
func trimExit(e *job.Exit) {
	e.Tail = e.Tail[max(0, len(e.Tail)-maxTail):]
	for i := range e.Tail {
		e.Tail[i] = lastOf(e.Tail[i], maxText/8)
	}
	e.Message = lastOf(e.Message, maxText)
	e.NotStarted, e.Signal = lastOf(e.NotStarted, maxText), lastOf(e.Signal, maxSignal)
}

// lastOf keeps the last n bytes of s, without a partial character.
func lastOf(s string, n int) string {
	if len(s) <= n {
		return s
	}
	s = s[len(s)-n:]
	for len(s) > 0 && !utf8.RuneStart(s[0]) {
		s = s[1:]
	}
	return s
}
