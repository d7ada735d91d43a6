package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
)

// digestSize is the length of a digest in bytes. It has to tell two plans apart, not to withstand forgery.
const digestSize = 8

// Digests returns a digest of the JSON of each part of the plan that is not empty, under the part's name in JSON.
func (p *Plan) Digests() (map[string]string, error) {
	digests := map[string]string{}
	parts := reflect.ValueOf(p).Elem()
	for i := range parts.NumField() {
		part := parts.Field(i)
		if part.IsZero() || (part.Kind() == reflect.Slice || part.Kind() == reflect.Map) && part.Len() == 0 {
			continue
		}
		name, _, _ := strings.Cut(parts.Type().Field(i).Tag.Get("json"), ",")
		sum, err := digest(part)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		digests[name] = hex.EncodeToString(sum[:digestSize])
	}
	return digests, nil
}

// digest encodes a list by its elements: 10,000 launches are 20 MB.
func digest(part reflect.Value) ([]byte, error) {
	sum := sha256.New()
	enc := json.NewEncoder(sum)
	if part.Kind() != reflect.Slice {
		err := enc.Encode(part.Interface())
		return sum.Sum(nil), err
	}
	for i := range part.Len() {
		if err := enc.Encode(part.Index(i).Addr().Interface()); err != nil {
			return nil, err
		}
	}
	return sum.Sum(nil), nil
}

// NewUIDs returns the UIDs that a plan gave to new jobs, by name.
func NewUIDs(in *Input, p *Plan) map[string]string {
	uids := map[string]string{}
	for name, rec := range p.Records {
		if before := in.Records[name]; before == nil || before.UID != rec.UID {
			uids[name] = rec.UID
		}
	}
	return uids
}
