package state

import (
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
	"time"
)

// A record is one line of the journal:
//
//	CRC SEQ LENGTH JSON
//
// CRC is the CRC-32C, as 8 hex digits, of everything after its space up to the end of the JSON; LENGTH is the
// length of the JSON in bytes. With the length, a damaged line end costs no second record; with the line ends, a
// damaged length does not either.

const (
	// compressAbove is the size of Data in bytes above which it is deflated, as for decisions over large jobs, whose
	// thousands of similar slots shrink to a twentieth. Notices stay readable.
	compressAbove = 4 << 10
	// maxData bounds the Data of one entry, inflated: at some 250 bytes for the record of a slot, it suffices for a
	// decision over several 100,000 slots.
	maxData = 256 << 20
	// maxJSON bounds the JSON of a record: maxData, deflated and in base64. Data that cannot be compressed grows by less than a
	// thousandth, and base64 adds a third. The rest is for the time and the kind.
	maxJSON = (maxData+maxData/1000)/3*4 + 64<<10
	// maxHeader bounds the length of what precedes the JSON: 8 hex digits, two numbers of up to 20 digits, three spaces.
	maxHeader = 8 + 20 + 20 + 3
	// maxRecord bounds a record with its line end. Readers keep at most as much of a file in memory, and no longer line is a record.
	maxRecord = maxHeader + maxJSON + 1
	// maxSeq is far beyond what can be written; a larger number is damage. It cannot overflow.
	maxSeq = 1 << 62
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// payload is a record's JSON. Data is either plain or deflated.
type payload struct {
	Time    time.Time       `json:"time"`
	Kind    string          `json:"kind"`
	Data    json.RawMessage `json:"data,omitempty"`
	Deflate []byte          `json:"deflate,omitempty"`
}

// appendRecord adds e's line to b.
func appendRecord(b []byte, e Entry) ([]byte, error) {
	p := payload{Time: e.Time, Kind: e.Kind, Data: e.Data}
	switch {
	case len(e.Data) > maxData:
		return nil, fmt.Errorf("%d bytes of data exceed the limit of %d for an entry", len(e.Data), maxData)
	case len(e.Data) > compressAbove:
		if !json.Valid(e.Data) {
			return nil, errors.New("the data is not JSON")
		}
		var z bytes.Buffer
		w, err := flate.NewWriter(&z, flate.BestSpeed)
		if err != nil {
			return nil, err
		}
		if _, err := w.Write(e.Data); err != nil {
			return nil, err
		}
		if err := w.Close(); err != nil {
			return nil, err
		}
		p.Data, p.Deflate = nil, z.Bytes()
	}
	text, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	if len(text) > maxJSON {
		return nil, fmt.Errorf("%d bytes exceed the limit of %d for a record", len(text), maxJSON)
	}
	covered := strconv.AppendUint(nil, e.Seq, 10)
	covered = append(covered, ' ')
	covered = strconv.AppendInt(covered, int64(len(text)), 10)
	covered = append(covered, ' ')
	covered = append(covered, text...)
	b = fmt.Appendf(b, "%08x ", crc32.Checksum(covered, castagnoli))
	b = append(b, covered...)
	return append(b, '\n'), nil
}

// rawRecord is a record with a valid checksum.
type rawRecord struct {
	seq  uint64
	json []byte // valid until the next call of the scanner
}

// entry decodes r.
func (r rawRecord) entry() (Entry, error) {
	var p payload
	if err := json.Unmarshal(r.json, &p); err != nil {
		return Entry{}, err
	}
	e := Entry{Seq: r.seq, Time: p.Time, Kind: p.Kind, Data: p.Data}
	if p.Deflate == nil {
		return e, nil
	}
	data, err := io.ReadAll(io.LimitReader(flate.NewReader(bytes.NewReader(p.Deflate)), maxData+1))
	if err != nil {
		return Entry{}, err
	}
	if len(data) > maxData || !json.Valid(data) {
		return Entry{}, errors.New("the compressed data is not JSON, or too large")
	}
	e.Data = data
	return e, nil
}

// parsing is the result of parsing a record at the beginning of some bytes.
type parsing int

const (
	parsedWhole parsing = iota // a record
	parsedNone                 // not a record, whatever may follow
	parsedCut                  // possibly the beginning of one
)

// parseRecord parses a record at the beginning of b and returns its length including its line end.
func parseRecord(b []byte) (r rawRecord, length int, p parsing) {
	crc, seq, size, header, p := parseHeader(b)
	if p != parsedWhole {
		return r, 0, p
	}
	if size > len(b)-header-1 {
		return r, 0, parsedCut
	}
	end := header + size
	if crc32.Checksum(b[9:end], castagnoli) != crc {
		return r, 0, parsedNone
	}
	// The next byte is a line end or a damaged one: the record itself is valid either way.
	return rawRecord{seq: seq, json: b[header:end]}, end + 1, parsedWhole
}

func parseHeader(b []byte) (crc uint32, seq uint64, size, length int, p parsing) {
	var fields [3][]byte
	at := 0
	for i := range fields {
		n := bytes.IndexByte(b[at:min(len(b), maxHeader)], ' ')
		if n < 0 {
			if len(b) < maxHeader && bytes.IndexByte(b[at:], '\n') < 0 {
				return 0, 0, 0, 0, parsedCut
			}
			return 0, 0, 0, 0, parsedNone
		}
		fields[i] = b[at : at+n]
		at += n + 1
	}
	sum, err1 := strconv.ParseUint(string(fields[0]), 16, 32)
	seq, err2 := strconv.ParseUint(string(fields[1]), 10, 64)
	n, err3 := strconv.ParseUint(string(fields[2]), 10, 64)
	if err1 != nil || err2 != nil || err3 != nil || len(fields[0]) != 8 || seq == 0 || seq > maxSeq || n > maxJSON {
		return 0, 0, 0, 0, parsedNone
	}
	return uint32(sum), seq, int(n), at, parsedWhole
}

// scanner finds the whole records in a file, skipping whatever lies between them.
type scanner struct {
	r     io.Reader
	store []byte // what buf is in
	buf   []byte // read but not yet consumed, at most maxRecord bytes
	at    int64  // offset of buf in the file
	whole int64  // offset of the end of the last whole record
	eof   bool
	err   error // other than io.EOF
}

// newScanner starts at the given offset, which must be that of a record or of damage.
func newScanner(f io.ReaderAt, offset int64) *scanner {
	return &scanner{r: io.NewSectionReader(f, offset, 1<<62), at: offset, whole: offset}
}

// next returns the next whole record and how many bytes it skipped before that. ok is false at the end of the file,
// or if it cannot be read; after s.whole there may then be a torn record.
func (s *scanner) next() (r rawRecord, skipped int64, ok bool) {
	for s.err == nil {
		r, length, p := parseRecord(s.buf)
		switch {
		case p == parsedWhole:
			start := s.at
			s.consume(length)
			skipped, s.whole = start-s.whole, s.at
			return r, skipped, true
		case p == parsedCut && !s.eof:
			s.fill()
		case !s.skipLine():
			return rawRecord{}, 0, false
		}
	}
	return rawRecord{}, 0, false
}

// skipLine moves past the next line end; false if there is none.
func (s *scanner) skipLine() bool {
	for {
		if n := bytes.IndexByte(s.buf, '\n'); n >= 0 {
			s.consume(n + 1)
			return true
		}
		s.consume(len(s.buf)) // it is not kept: the line may be of any length
		if s.eof || s.err != nil {
			return false
		}
		s.fill()
	}
}

func (s *scanner) consume(n int) {
	s.buf = s.buf[n:]
	s.at += int64(n)
}

// fill reads at least as much again as there is, so that the cost of a long record stays linear, up to maxRecord in all.
func (s *scanner) fill() {
	if size := min(max(64<<10, 2*len(s.buf)), maxRecord); size > len(s.store) {
		s.store = make([]byte, size)
	}
	have := copy(s.store, s.buf)
	n, err := io.ReadFull(s.r, s.store[have:])
	s.buf = s.store[:have+n]
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		s.eof = true
	case err != nil:
		s.err = err
	}
}
