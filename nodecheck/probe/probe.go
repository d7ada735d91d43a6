// Package probe does the work of a node check: products of matrices, patterns in memory, what the driver of the GPUs says, or a
// user's program in their place. Each ends when its context does. It must not know what follows from the result.
package probe

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/eltrain/eltrain/job"
)

const (
	// side of the matrices, and how many products there are: some tenths of a second on one core.
	side     = 384
	products = 4
	// memorySize is outside of Go's heap.
	memorySize = 64 << 20
	pageWords  = 4096 / 8
)

// fault is why a part has failed.
type fault struct {
	part    job.CheckPart
	message string
}

func (f *fault) Error() string { return string(f.part) + ": " + f.message }

// Patterns checks processors and memory in this process, and writes what it has found for Own.
func Patterns(w io.Writer) error {
	begun := time.Now()
	err := errors.Join(matmul(context.Background()), memory(context.Background()))
	return json.NewEncoder(w).Encode(checked(err, time.Since(begun)))
}

// Own does eltrain's own checks, one after the other: Patterns, which the command own runs in a process of its own, and the driver. If that
// process fails, nothing is known of the node: it may have been chosen when memory ran out.
func (r Runner) Own(ctx context.Context, own []string) job.Checked {
	begun := time.Now()
	out, err := r.run(ctx, own)
	switch start := (*startError)(nil); {
	case errors.As(err, &start):
		return job.Checked{Unknown: true, Message: displayable([]byte(err.Error()))}
	case err != nil:
		return checked(err, time.Since(begun))
	}
	var found job.Checked
	if json.Unmarshal(out.stdout.text, &found) != nil || out.code != 0 {
		return job.Checked{Unknown: true, Message: out.evidence(), Seconds: time.Since(begun).Seconds()}
	}
	if found.Failed == "" { // its time is without that of the driver, which may be slow on any node
		gpus := checked(r.gpus(ctx), 0)
		found.Failed, found.Message = gpus.Failed, gpus.Message
	}
	return found
}

// Exit codes of a user's program, those of node-problem-detector. With any other, or killed by a signal, it could not tell.
const (
	codeGood   = 0
	codeFaulty = 1
)

// Program runs a user's program in their place. An error means that it could not be started.
func (r Runner) Program(ctx context.Context, command []string) (job.Checked, error) {
	begun := time.Now()
	out, err := r.run(ctx, command)
	took := time.Since(begun)
	if start := (*startError)(nil); errors.As(err, &start) {
		return job.Checked{}, start.err
	}
	switch {
	case err != nil:
		return checked(&fault{job.CheckTime, out.first()}, took), nil
	case out.code == codeGood:
		return checked(nil, took), nil
	case out.code == codeFaulty:
		return checked(&fault{job.CheckCommand, out.evidence()}, took), nil
	}
	return job.Checked{Unknown: true, Message: out.evidence(), Seconds: took.Seconds()}, nil
}

// checked is the result of work that ended with err.
func checked(err error, took time.Duration) job.Checked {
	c := job.Checked{Seconds: took.Seconds()}
	var f *fault
	switch {
	case errors.As(err, &f):
		c.Failed, c.Message = f.part, f.message
	case err != nil:
		c.Failed = job.CheckTime
	}
	return c
}

// matmul multiplies matrices of small integers, whose products are exact, and checks each product with a vector.
func matmul(ctx context.Context) error {
	a, b, c := make([]float64, side*side), make([]float64, side*side), make([]float64, side*side)
	for k := range products {
		small := generator(k + 1)
		for i := range a {
			a[i], b[i] = small(), small()
		}
		if err := multiply(ctx, c, a, b); err != nil {
			return err
		}
		if !isProduct(c, a, b) {
			return &fault{job.CheckMatmul, "a product of matrices is wrong"}
		}
	}
	return nil
}

// generator returns numbers from -8 to 7, the same for the same seed.
func generator(seed int) func() float64 {
	x := uint64(seed) * 0x9E3779B97F4A7C15
	return func() float64 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		return float64(x>>60) - 8
	}
}

// multiply sets c to the product of a and b, on all processors that the process uses.
func multiply(ctx context.Context, c, a, b []float64) error {
	workers := runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for w := range workers {
		all.Go(func() {
			for i := w; i < side && ctx.Err() == nil; i += workers {
				row := c[i*side : (i+1)*side]
				clear(row)
				for k, x := range a[i*side : (i+1)*side] {
					for j, y := range b[k*side : (k+1)*side] {
						row[j] += x * y
					}
				}
			}
		})
	}
	all.Wait()
	return ctx.Err()
}

// isProduct compares c·v with a·(b·v), which are exact: a wrong element shows with every vector whose element there is not 0.
func isProduct(c, a, b []float64) bool {
	v := make([]float64, side)
	for i := range v {
		v[i] = float64(i%7 + 1)
	}
	left, right := times(c, v), times(a, times(b, v))
	for i := range left {
		if left[i] != right[i] {
			return false
		}
	}
	return true
}

func times(m, v []float64) []float64 {
	out := make([]float64, side)
	for i := range out {
		for j, x := range v {
			out[i] += m[i*side+j] * x
		}
	}
	return out
}

// patterns are what is written to memory: both values of each bit, and the address of each word.
var patterns = []func(i int) uint64{
	func(int) uint64 { return 0x5555555555555555 },
	func(int) uint64 { return 0xAAAAAAAAAAAAAAAA },
	func(i int) uint64 { return uint64(i) * 0x9E3779B97F4A7C15 },
}

// memory writes patterns and reads them back.
func memory(ctx context.Context) error {
	raw, err := unix.Mmap(-1, 0, memorySize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return nil // a limit, which says nothing about the node
	}
	defer unix.Munmap(raw)
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&raw[0])), len(raw)/8)
	for _, pattern := range patterns {
		if err := write(ctx, words, pattern); err != nil {
			return err
		}
		if err := verify(ctx, words, pattern); err != nil {
			return err
		}
	}
	return nil
}

func write(ctx context.Context, words []uint64, pattern func(int) uint64) error {
	for i := range words {
		if i%pageWords == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		words[i] = pattern(i)
	}
	return nil
}

func verify(ctx context.Context, words []uint64, pattern func(int) uint64) error {
	for i := range words {
		if i%pageWords == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if words[i] != pattern(i) {
			return &fault{job.CheckMemory, "memory has other contents than were written"}
		}
	}
	return nil
}
