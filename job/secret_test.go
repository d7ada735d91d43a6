package job

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func keyed(word string) *Sealer {
	s := new(Sealer)
	s.SetKey([]byte(word))
	return s
}

func TestSecretsAreFoundInTexts(t *testing.T) {
	var s Secrets
	s.Add("s3cret", "s3cret-and-more", "7", "ab", "line-one\nand-line-two", `quote"d`, "p@ss w/rd", "garçon é😀", " ", "")
	for text, want := range map[string]string{
		"token s3cret!":            "token #!",
		"s3cret-and-more":          "#",
		"xs3cretx":                 "x#x",
		"17 of 70":                 "17 of 70", // a short one counts only as a whole word
		"x = 7.":                   "x = #.",
		"7":                        "#",
		"--n=7 --m=77":             "--n=# --m=77",
		"ab,abc,cab,ab":            "#,abc,cab,#",
		"it printed and-line-two!": "it printed #!",
		`a = "quote\"d"`:           `a = "#"`,
		"https://u:p%40ss%20w%2Frd@h/?p=p%40ss+w%2Frd":                "https://u:#@h/?p=#",
		`{"p": "p\u0040ss\u0020w\/rd"}`:                               `{"p": "#"}`,
		`"gar\u00e7on \u00E9\ud83d\ude00"`:                            `"#"`,                       // as json.dumps writes it, with either case
		`b'gar\xc3\xa7on \xc3\xa9'`:                                   `b'gar\xc3\xa7on \xc3\xa9'`, // without the last character it is none
		`b'gar\xc3\xa7on \xc3\xa9\xf0\x9f\x98\x80'`:                   `b'#'`,
		`{"log": "{\"p\": \"gar\\u00e7on \\u00e9\\ud83d\\ude00\"}"}`:  `{"log": "{\"p\": \"#\"}"}`,
		`h(ascii) gar\xe7on \xe9\U0001f600`:                           `h(ascii) #`, // as Python's ascii writes it
		`'gar\xe7on \xe9😀' b'gar\xc3\xa7on \xc3\xa9\xf0\x9f\x98\x80'`: `'#' b'#'`,
		`{"log": "'gar\\xe7on \\xe9\\U0001f600'"}`:                    `{"log": "'#'"}`,
		"p%40ss%20w/rd p%40ss+w/rd p@ss%20w%2frd p%40ss w%2Frd":       "# # # #", // what is escaped differs between programs
		"gar%C3%A7on%20é%f0%9f%98%80":                                 "#",
		`{"url": "http:\/\/h\/?p=p%40ss+w\/rd"}`:                      `{"url": "http:\/\/h\/?p=#"}`,
		"?u=%2Fq%3Fp%3Dp%2540ss%2Bw%252Frd":                           "?u=%2Fq%3Fp%3D#", // a URL in a URL
		"100% 7%3B 17%20%3D 1+1":                                      "100% #%3B 17%20%3D 1+1",
		`line-one\nand-line-two`:                                      "#",
		`\n7\n`:                                                       `\n#\n`,
		`\`:                                                           `\`,
		"nothing":                                                     "nothing",
		"":                                                            "",
		"(sensitive value 0123456789abcdef0123456789abcdef)s3cret":    "##",
		"(sensitive value)":                                           "(sensitive value)",
	} {
		if got := s.Replace(text, func(string) string { return "#" }); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if s.In(text) != (text != want) {
			t.Errorf("In(%q) is %t", text, s.In(text))
		}
	}
}

// Overlapping secrets are one stretch: no part of either remains.
func TestOverlappingSecretsLeaveNoRest(t *testing.T) {
	var s Secrets
	s.Add("abcdef", "defghi")
	if got := s.Replace("x abcdefghi y", func(string) string { return "#" }); got != "x # y" {
		t.Error(got)
	}
}

// secretJob uses a secret in every string that something is started with.
func secretJob(secret string) Job {
	program := Program{Image: "reg/" + secret, Command: []string{"train", "--token=" + secret}, WorkingDir: "d-" + secret, Env: map[string]string{"T": secret, "PLAIN": "x"}}
	return Job{Name: "gpt", Provider: "local", Secrets: []string{secret},
		Roles: []Role{{Name: "worker", Replicas: 2, Processes: 1, Program: program, PerSlot: []Program{program, program}, DependsOn: []string{secret},
			Accelerators: &Accelerators{Command: []string{"gpus", secret}, DCGM: "http://" + secret},
			Pod:          map[string]any{"spec": map[string]any{"hostname": secret, "list": []any{"a " + secret, 3.5, map[string]any{"k": secret}}}}}},
		Checkpoint: &Checkpoint{Dir: "ckpt-" + secret, Signal: "SIGUSR1", Pattern: "saved (?P<step>\\d+) " + secret}, Progress: &Progress{Pattern: "step (?P<step>\\d+) " + secret},
		Heal: Heal{Signatures: "[" + secret + "]"}}
}

func TestASealedJobHasNoSecretAndIsLaunchedWithIt(t *testing.T) {
	const secret = "hunter2hunter2"
	s, plain := keyed("k"), secretJob(secret)
	before := fmt.Sprintf("%#v", plain)
	sealed := s.Jobs([]Job{plain})[0]
	if after := fmt.Sprintf("%#v", plain); after != before {
		t.Fatal("the argument was modified")
	}
	sealed.Roles[0].DependsOn = nil // names are not sealed
	sealed.Secrets = nil            // never in JSON
	if text := fmt.Sprintf("%+v %+v %+v %+v", sealed, *sealed.Checkpoint, *sealed.Progress, *sealed.Roles[0].Accelerators); strings.Contains(text, secret) {
		t.Fatalf("the secret is in %s", text)
	}
	r := &sealed.Roles[0]
	opened, err := s.Launch(Launch{Program: r.For(1), Pod: r.Pod, Checkpoint: sealed.Checkpoint, Accelerators: r.Accelerators})
	if err != nil {
		t.Fatal(err)
	}
	want := Launch{Program: plain.Roles[0].Program, Pod: plain.Roles[0].Pod, Checkpoint: plain.Checkpoint, Accelerators: plain.Roles[0].Accelerators}
	if diff := cmp.Diff(want, opened); diff != "" {
		t.Errorf("the launch differs from the declaration (-declared +launched):\n%s", diff)
	}
	if progress, err := s.Progress(sealed.Progress); err != nil || *progress != *plain.Progress {
		t.Errorf("members are told %+v (%v)", progress, err)
	}
	if _, err := keyed("other").Progress(sealed.Progress); err != ErrSealed {
		t.Errorf("of an unknown value members are told anything: %v", err)
	}
	if role := s.Role(r); !reflect.DeepEqual(role.Pod, plain.Roles[0].Pod) {
		t.Errorf("the provider is asked about %v", role.Pod)
	}
	// Another process does not know the value, and must not start anything with its seal.
	for _, other := range []*Sealer{nil, keyed("k")} {
		if _, err := other.Launch(Launch{Program: r.Program}); !errors.Is(err, ErrSealed) {
			t.Errorf("launched without knowing the value: %v", err)
		}
		if other.Knows(&sealed) {
			t.Error("it claims to know the value")
		}
	}
	if !s.Knows(&sealed) {
		t.Error("it does not know its own value")
	}
}

// A changed secret is a change and an unchanged one is not, even in another process with the same key.
func TestAChangedSecretIsSeen(t *testing.T) {
	jobOf := func(key, secret string) Job { return keyed(key).Jobs([]Job{secretJob(secret)})[0] }
	print := func(j Job) string { return Fingerprints(&j, &j.Roles[0])(0) }
	a, same, other, rekeyed := jobOf("k", "hunter2"), jobOf("k", "hunter2"), jobOf("k", "hunter3"), jobOf("l", "hunter2")
	if diff := Diff(a, same); len(diff) > 0 || print(a) != print(same) {
		t.Errorf("the same value differs: %v", diff)
	}
	if len(Diff(a, other)) == 0 || print(a) == print(other) {
		t.Error("another value is not a change")
	}
	if a.Roles[0].Env["T"] == rekeyed.Roles[0].Env["T"] {
		t.Error("the digest does not depend on the key: anybody can try values")
	}
}

func TestSealingTwiceIsSealingOnce(t *testing.T) {
	s := keyed("k")
	once := s.Jobs([]Job{secretJob("value")}) // a word that seals contain
	if diff := cmp.Diff(once, s.Jobs(once)); diff != "" {
		t.Error(diff)
	}
}

func TestWhatProcessesWroteIsSealed(t *testing.T) {
	s := keyed("k")
	s.Jobs([]Job{secretJob("hunter2")})
	exit := &Exit{Code: 1, Message: "bad token hunter2", Tail: []string{"x", "GET /?t=hunter2"}, NotStarted: "no hunter2"}
	records := Records{"gpt": {Spec: secretJob("hunter2"), Slots: []Slot{{Exit: exit}}, Incidents: []Incident{{Evidence: []Reason{Because("output", "message", "hunter2")}}}}}
	records["gpt"].Spec.Secrets, records["gpt"].Spec.Roles[0].DependsOn = nil, nil
	got := s.Records(records)["gpt"]
	for what, text := range map[string]string{
		"exit": fmt.Sprintf("%+v", *s.Exit(exit)), "text": s.Text("a hunter2"), "texts": fmt.Sprint(s.Texts([]string{"hunter2"})),
		"drift":  fmt.Sprint(s.Changes([]FieldChange{{Before: `"hunter2"`, After: "x hunter2"}})),
		"record": fmt.Sprintf("%+v %+v %+v", got.Spec, *got.Slots[0].Exit, got.Incidents),
	} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", what, text)
		}
	}
	if exit.Message != "bad token hunter2" {
		t.Error("the argument was modified")
	}
}

func TestASealerWithoutSecretsTouchesNothing(t *testing.T) {
	for _, s := range []*Sealer{nil, new(Sealer)} {
		jobs := []Job{{Name: "a", Roles: []Role{{Name: "w"}}}}
		if got := s.Jobs(jobs); &got[0] != &jobs[0] {
			t.Error("the jobs were copied")
		}
		e := &Exit{Message: "x"}
		if s.Exit(e) != e || s.Text("x") != "x" {
			t.Error("a text was copied")
		}
		if _, err := s.Launch(Launch{Program: Program{Command: []string{"true"}}}); err != nil {
			t.Error(err)
		}
	}
}

// For any secrets and texts, opening a sealed text restores it, and a sealed text contains no secret that is not short.
func TestSealingLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		part := rapid.StringOfN(rapid.RuneFrom([]rune("ab7 (\"\n-é\\u0x2%+")), 1, 12, -1)
		secrets := rapid.SliceOfN(part, 1, 4).Draw(t, "secrets")
		text := strings.Join(rapid.SliceOf(rapid.OneOf(part, rapid.SampledFrom(secrets))).Draw(t, "text"), "")
		s := keyed("k")
		s.Jobs([]Job{{Secrets: secrets}})
		sealed := s.Text(text)
		opened, err := s.Launch(Launch{Program: Program{Command: []string{sealed}}})
		if err != nil || opened.Program.Command[0] != text {
			t.Fatalf("%q became %q and then %q (%v)", text, sealed, opened.Program.Command[0], err)
		}
		if s.Text(sealed) != sealed {
			t.Fatalf("sealed again it is %q, and was %q", s.Text(sealed), sealed)
		}
		rest := seal.ReplaceAllString(sealed, "\x00")
		for _, secret := range secrets {
			if len(secret) >= shortSecret && strings.TrimSpace(secret) != "" && strings.Contains(rest, secret) {
				t.Fatalf("%q is still in %q", secret, sealed)
			}
		}
	})
}

func TestKeysAreTheirOwn(t *testing.T) {
	key := []byte("abc")
	s := new(Sealer)
	if s.Keyed() {
		t.Error("a new sealer has a key")
	}
	s.SetKey(key)
	key[0] = 'x'
	if !s.Keyed() || !bytes.Equal(s.key, []byte("abc")) {
		t.Error("the key is shared")
	}
}

// Values that are sensitive by place are sealed only there, and launched with their original type.
func TestPlacesAreSealedWhateverIsThere(t *testing.T) {
	const truth = "true"
	program := Program{Command: []string{"sleep", "7", "7"}, Env: map[string]string{"ON": truth, "PLAIN": truth}}
	plain := Job{Name: "gpt", Roles: []Role{{Name: "worker", Program: program, PerSlot: []Program{program, program},
		Pod: map[string]any{"spec": map[string]any{"hostNetwork": true, "list": []any{int64(30), 1.5, map[string]any{"port": int64(80), "plain": int64(80)}}}}}},
		Places: []Place{
			{"worker", "command", []string{"1"}}, {"worker", "env", []string{"ON"}}, {"worker", "pod", []string{"spec", "hostNetwork"}},
			{"worker", "pod", []string{"spec", "list", "0"}}, {"worker", "pod", []string{"spec", "list", "2", "port"}},
			{"worker", "command", []string{"9"}}, {"worker", "env", []string{"GONE"}}, {"worker", "pod", []string{"gone", "x"}}, {"other", "env", []string{"ON"}},
		}}
	if !plain.Sensitive() {
		t.Fatal("the job does not count as sensitive, so no key would be required")
	}
	s := keyed("k")
	sealed := s.Jobs([]Job{plain})[0]
	r := &sealed.Roles[0]
	var hidden Secrets
	for _, p := range append([]Program{r.Program}, r.PerSlot...) {
		if !hidden.In(p.Command[1]) || p.Command[2] != "7" || !hidden.In(p.Env["ON"]) || p.Env["PLAIN"] != truth {
			t.Errorf("sealed as %+v", p)
		}
	}
	spec := r.Pod["spec"].(map[string]any)
	list := spec["list"].([]any)
	inner := list[2].(map[string]any)
	for _, v := range []any{spec["hostNetwork"], list[0], inner["port"]} {
		if text, is := v.(string); !is || !hidden.In(text) {
			t.Errorf("%v is not sealed", v)
		}
	}
	if list[1] != 1.5 || inner["plain"] != int64(80) {
		t.Errorf("the list with values that are not sensitive is %v", list)
	}
	if diff := cmp.Diff(sealed, s.Jobs([]Job{sealed})[0]); diff != "" {
		t.Errorf("sealed twice:\n%s", diff)
	}
	opened, err := s.Launch(Launch{Program: r.For(1), Pod: r.Pod})
	if diff := cmp.Diff(Launch{Program: program, Pod: plain.Roles[0].Pod}, opened); err != nil || diff != "" {
		t.Errorf("the launch differs from the declaration, %v:\n%s", err, diff)
	}
	if !s.Knows(&sealed) || !reflect.DeepEqual(s.Role(r).Pod, plain.Roles[0].Pod) {
		t.Error("it does not know its own values")
	}
	if other := keyed("k"); other.Knows(&sealed) {
		t.Error("another process claims to know them")
	}
	if _, err := keyed("k").Launch(Launch{Pod: r.Pod}); !errors.Is(err, ErrSealed) {
		t.Errorf("launched without knowing the values: %v", err)
	}
}
