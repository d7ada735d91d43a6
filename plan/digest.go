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

// Digests returns a digest of each part of the plan that is not empty, under the part's name in JSON. Two plans have the same
// digests if and only if their JSON is the same, byte for byte.
func (p *Plan) Digests() (map[string]string, error) {
	digests := map[string]string{}
	parts := reflect.ValueOf(p).Elem()
	for i := range parts.NumField() {
		part := parts.Field(i)
		if part.IsZero() || (part.Kind() == reflect.Slice || part.Kind() == reflect.Map) && part.Len() == 0 {
			continue
		}
		name, _, _ := strings.Cut(parts.Type().Field(i).Tag.Get("json"), ",")
		text, err := json.Marshal(part.Interface())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		sum := sha256.Sum256(text)
		digests[name] = hex.EncodeToString(sum[:digestSize])
	}
	return digests, nil
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
