package main

import (
	"runtime/debug"
	"testing"
)

func TestWhatTheUserSaysOfGarbageIsObeyed(t *testing.T) {
	const users = 70
	before := debug.SetGCPercent(users)
	defer debug.SetGCPercent(before)
	now := func() int {
		percent := debug.SetGCPercent(users)
		debug.SetGCPercent(percent)
		return percent
	}
	s := &session{}
	release := s.bound(masterGarbage)
	if is := now(); is != masterGarbage.percent {
		t.Errorf("a heap may grow by %d %%", is)
	}
	release()
	for _, said := range []string{"GOGC=70", "GOMEMLIMIT=1GiB"} {
		s.environ = []string{said}
		release := s.bound(masterGarbage)
		if is := now(); is != users {
			t.Errorf("with %s a heap may grow by %d %%", said, is)
		}
		release()
	}
}
