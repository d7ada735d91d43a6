package model

import (
	"strings"
	"testing"
)

func TestReadCSV(t *testing.T) {
	got, err := ReadCSV(strings.NewReader("step_time,note,local_bsz, num_replicas,num_nodes\n0.5,x,32,8,2\n"))
	want := Observation{Size: Size{Nodes: 2, Replicas: 8, LocalBatch: 32}, Count: 1, StepTime: 0.5}
	if err != nil || len(got) != 1 || got[0] != want {
		t.Errorf("%+v, %v", got, err)
	}

	const header = "num_nodes,num_replicas,local_bsz,step_time,sync_time\n"
	for _, test := range []struct{ text, error string }{
		{"", "line 1: the header is missing"},
		{header, "line 2: no measurements"},
		{"num_nodes,num_replicas,local_bsz\n1,1,1\n", "line 1: column step_time is missing"},
		{header + "1,1,1,1,0\n1,x,1,1,0\n", `line 3, column num_replicas: "x" is not a number`},
		{header + "1,1.5,1,1,0\n", "line 2, column num_replicas: 1.5 is not a positive whole number"},
		{header + "1,1,1,0,0\n", "line 2, column step_time: 0 is not a positive number"},
		{header + "1,1,1,-2,0\n", "line 2, column step_time: -2 is not a positive number"},
		{header + "1,1,1,NaN,0\n", "line 2, column step_time: NaN is not a positive number"},
		{header + "1,1,Inf,1,0\n", "line 2, column local_bsz: Inf is not a positive number"},
		{header + "1,1,1,1e8,0\n", "line 2, column step_time: a step of 1e+08 s is not possible"},
		{header + "4,2,1,1,0\n", "line 2, column num_nodes: 4 nodes have only 2 replicas"},
		{header + "1,1,1\n", "record on line 2: wrong number of fields"},
	} {
		if _, err := ReadCSV(strings.NewReader(test.text)); err == nil || err.Error() != test.error {
			t.Errorf("%q: %v and not %s", test.text, err, test.error)
		}
	}
}
