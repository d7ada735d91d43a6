package main

import (
	"runtime/debug"
	"testing"
)

func TestTheUsersGOGCIsObeyed(t *testing.T) {
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
	s.environ = []string{"GOGC=70"}
	defer s.bound(masterGarbage)()
	if is := now(); is != users {
		t.Errorf("with GOGC=70 a heap may grow by %d %%", is)
	}
}
