package model

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// columns of a CSV of measured scaling; others are ignored.
var columns = [...]string{"num_nodes", "num_replicas", "local_bsz", "step_time"}

// ReadCSV reads measured scaling: a line with the names of the columns, in any order, then one line for each measurement: the number of nodes and
// of replicas, the batch size of a replica, and the time of a step in seconds. Errors name the line and the column.
func ReadCSV(r io.Reader) ([]Observation, error) {
	in := csv.NewReader(r)
	in.ReuseRecord = true
	header, err := in.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("line 1: the header is missing")
	}
	if err != nil {
		return nil, err
	}
	var at [len(columns)]int
	for i, name := range columns {
		same := func(s string) bool { return strings.TrimSpace(strings.TrimPrefix(s, "\ufeff")) == name }
		if at[i] = slices.IndexFunc(header, same); at[i] < 0 {
			return nil, fmt.Errorf("line 1: column %s is missing", name)
		}
	}
	var found []Observation
	for {
		record, err := in.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		var values [len(columns)]float64
		for i, column := range at {
			line, _ := in.FieldPos(column)
			text := strings.TrimSpace(record[column])
			values[i], err = strconv.ParseFloat(text, 64)
			switch whole := i < 2; {
			case err != nil:
				return nil, fmt.Errorf("line %d, column %s: %q is not a number", line, columns[i], text)
			case !(values[i] > 0 && values[i] <= 1e9) || whole && values[i] != math.Trunc(values[i]):
				return nil, fmt.Errorf("line %d, column %s: %s is not a positive%s number", line, columns[i], text, map[bool]string{true: " whole"}[whole])
			}
		}
		o := Observation{Size: Size{Nodes: int(values[0]), Replicas: int(values[1]), LocalBatch: values[2]}, Count: 1, StepTime: values[3]}
		line, _ := in.FieldPos(at[0])
		switch {
		case o.Nodes > o.Replicas:
			return nil, fmt.Errorf("line %d, column num_nodes: %d nodes have only %d replicas", line, o.Nodes, o.Replicas)
		case !possible(o.StepTime):
			return nil, fmt.Errorf("line %d, column step_time: a step of %g s is not possible", line, o.StepTime)
		}
		found = append(found, o)
	}
	if len(found) == 0 {
		return nil, errors.New("line 2: no measurements")
	}
	return found, nil
}
