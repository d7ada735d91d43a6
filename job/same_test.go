package job

import (
	"reflect"
	"testing"
	"time"
)

// Same compares every attribute of slots.
func TestSlotsAreComparedWhole(t *testing.T) {
	one := Record{Slots: []Slot{{}}}
	if !one.Same(&Record{Slots: []Slot{{}}}) {
		t.Error("equal records differ")
	}
	for i := range reflect.TypeFor[Slot]().NumField() {
		other := Record{Slots: []Slot{{}}}
		f := reflect.ValueOf(&other.Slots[0]).Elem().Field(i)
		switch v := f.Addr().Interface().(type) {
		case *time.Time:
			*v = time.Unix(1, 0)
		case *Address:
			v.Index = 1
		case *Resources:
			v.CPU = 1
		case **Exit:
			*v = &Exit{}
		case **Reason:
			*v = &Reason{}
		case *Avoided:
			*v = Avoided{"n"}
		default:
			switch f.Kind() {
			case reflect.String:
				f.SetString("x")
			case reflect.Int:
				f.SetInt(1)
			case reflect.Bool:
				f.SetBool(true)
			default:
				t.Fatalf("how does %s change?", reflect.TypeFor[Slot]().Field(i).Name)
			}
		}
		if one.Same(&other) {
			t.Errorf("%s is not compared", reflect.TypeFor[Slot]().Field(i).Name)
		}
	}
	if one.Same(&Record{Slots: []Slot{{}}, Phase: JobRunning}) {
		t.Error("the phase is not compared")
	}
}
