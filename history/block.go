package history

import (
	"math"

	"github.com/eltrain/eltrain/job"
)

// block has the figures of consecutive intervals, without pointers, so that the garbage collector does not look at it.
type block struct {
	step                          [cells]uint32 // 0 is unknown
	loss, rss, cpu, read, written [cells]uint16 // codes
	state                         [cells]uint8  // letter
	filled                        uint32        // bits of cells
}

var emptyBlock block

func (b *block) put(i int, p Point) {
	b.filled |= 1 << i
	b.step[i] = uint32(min(max(p.Step, 0), math.MaxUint32))
	b.loss[i] = lossCode(p.Loss)
	b.rss[i], b.cpu[i], b.read[i], b.written[i] = amountCode(p.RSS, 1), amountCode(p.CPU, perCore), amountCode(p.Read, 1), amountCode(p.Written, 1)
	b.state[i] = 0
	if p.State != "" {
		b.state[i] = p.State[0]
	}
}

// get returns a cell without its time; nil if nothing was put there.
func (b *block) get(i int) *Point {
	if b.filled&(1<<i) == 0 {
		return nil
	}
	p := &Point{Step: int64(b.step[i]), Loss: lossOf(b.loss[i]), RSS: amountOf(b.rss[i], 1)}
	p.CPU, p.Read, p.Written = amountOf(b.cpu[i], perCore), amountOf(b.read[i], 1), amountOf(b.written[i], 1)
	if b.state[i] != 0 {
		p.State = job.ThreadState(rune(b.state[i]))
	}
	return p
}

// Amounts are kept as logarithms: 0 is unknown, 1 is less than a unit, and each step more is a 1/1170 of an octave, 0.06 %, up to
// 2^56 units. perCore is how many units a core is.
const (
	amountSteps = 1170
	perCore     = 10000
)

func amountCode(v *float64, units float64) uint16 {
	switch {
	case v == nil || math.IsNaN(*v):
		return 0
	case *v*units < 1:
		return 1
	}
	return uint16(min(2+math.Round(math.Log2(*v*units)*amountSteps), math.MaxUint16))
}

func amountOf(code uint16, units float64) *float64 {
	switch code {
	case 0:
		return nil
	case 1:
		return new(0.0)
	}
	return new(math.Exp2(float64(code-2)/amountSteps) / units)
}

// Losses are kept as logarithms with a sign: from 2^-40 to 2^40, in steps of 1/409 of an octave, 0.17 %.
const (
	lossUnknown = iota
	lossNaN
	lossPlusInf
	lossMinusInf
	lossZero
	lossFirst
	lossSteps = 409
	lossLeast = -40
	lossCodes = (math.MaxUint16 - lossFirst) / 2 // of each sign
)

func lossCode(l *job.Loss) uint16 {
	if l == nil {
		return lossUnknown
	}
	v := float64(*l)
	switch {
	case math.IsNaN(v):
		return lossNaN
	case math.IsInf(v, 1):
		return lossPlusInf
	case math.IsInf(v, -1):
		return lossMinusInf
	}
	size := math.Log2(math.Abs(v)) - lossLeast
	if size < 0 { // also of 0
		return lossZero
	}
	code := uint16(min(math.Round(size*lossSteps), lossCodes-1))
	if v < 0 {
		code += lossCodes
	}
	return lossFirst + code
}

func lossOf(code uint16) *job.Loss {
	var v float64
	switch code {
	case lossUnknown:
		return nil
	case lossNaN:
		v = math.NaN()
	case lossPlusInf:
		v = math.Inf(1)
	case lossMinusInf:
		v = math.Inf(-1)
	case lossZero:
	default:
		code -= lossFirst
		v = math.Exp2(float64(code%lossCodes)/lossSteps + lossLeast)
		if code >= lossCodes {
			v = -v
		}
	}
	return new(job.Loss(v))
}
