package kubernetes

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/state"
)

// A request is an object of the kind Request, which deploy/requests defines. Its name is its ID in lower case. The API server lets
// nobody change its spec, nor a final reply, which is in its status. When it was asked is the object's creation.

var requestVersion = schema.GroupVersion{Group: "eltrain.dev", Version: "v1"}

const (
	requestKind     = "Request"
	requestResource = "requests"

	kindRequest = "request" // the value of labelKind
)

type request struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   requestSpec    `json:"spec"`
	Status *requestStatus `json:"status,omitempty"`
}

// requestSpec is what is asked. Its times are relative to the object's creation, so that only the API server's clock matters.
type requestSpec struct {
	State     string           `json:"state"` // the name of the state that its jobs are in
	By        string           `json:"by"`    // the API server's name for who asks, if the policy on authors is in force
	Verb      job.Verb         `json:"verb"`
	Addresses []string         `json:"addresses"`
	Value     string           `json:"value,omitempty"`
	Mode      string           `json:"mode,omitempty"`
	Why       string           `json:"why,omitempty"`
	Expires   metav1.Duration  `json:"expires"`
	Until     *metav1.Duration `json:"until,omitempty"`
	Files     string           `json:"files,omitempty"`
	Commit    string           `json:"commit,omitempty"`
}

// requestStatus is the reply.
type requestStatus struct {
	State   job.ReplyState `json:"state"`
	Reason  *job.Reason    `json:"reason,omitempty"`
	Results []job.Reason   `json:"results,omitempty"`
	By      string         `json:"by"` // who asked, as far as the leader could tell
	Time    metav1.Time    `json:"time"`
}

type requestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []request `json:"items"`
}

func (r *request) copy() *request {
	c := *r
	r.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Addresses = slices.Clone(r.Spec.Addresses)
	if r.Spec.Until != nil {
		c.Spec.Until = new(*r.Spec.Until)
	}
	if r.Status != nil {
		c.Status = new(*r.Status) // a Reason is immutable
	}
	return &c
}

// DeepCopyObject implements runtime.Object.
func (r *request) DeepCopyObject() runtime.Object { return r.copy() }

// DeepCopyObject implements runtime.Object.
func (l *requestList) DeepCopyObject() runtime.Object {
	c := *l
	l.ListMeta.DeepCopyInto(&c.ListMeta)
	c.Items = make([]request, len(l.Items))
	for i := range l.Items {
		c.Items[i] = *l.Items[i].copy()
	}
	return &c
}

func addRequests(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(requestVersion.WithKind(requestKind), &request{})
	s.AddKnownTypeWithName(requestVersion.WithKind(requestKind+"List"), &requestList{})
	metav1.AddToGroupVersion(s, requestVersion)
	return nil
}

func objectName(id string) string { return strings.ToLower(id) }

// id is the inverse of objectName: only the random part at the end has lower case letters.
func (r *request) id() string {
	stamp, random, _ := strings.Cut(r.Name, "-")
	return strings.ToUpper(stamp) + "-" + random
}

func (r *request) reply() job.Reply {
	if r.Status == nil {
		return job.Reply{}
	}
	reply := job.Reply{ID: r.id(), State: r.Status.State, Results: r.Status.Results}
	if r.Status.Reason != nil {
		reply.Reason = *r.Status.Reason
	}
	return reply
}

func (r *request) finished() bool { return r.reply().State.Final() }

// repliedAt is when a request had its newest reply.
func (r *request) repliedAt() time.Time {
	if r.Status == nil {
		return time.Time{}
	}
	return r.Status.Time.Time
}

// read returns what is asked, by whom it was found to be asked. After an error it asks for nothing that there is.
func (r *request) read(by string) (job.Request, error) {
	at := r.CreationTimestamp.Time
	asked := job.Request{ID: r.id(), By: by, At: at, Expires: at.Add(r.Spec.Expires.Duration), Value: r.Spec.Value, Mode: r.Spec.Mode, Why: r.Spec.Why, Files: r.Spec.Files, Commit: r.Spec.Commit}
	var on []job.Selector
	var nodes []string
	for _, address := range r.Spec.Addresses {
		if node, is := strings.CutPrefix(address, job.NodePrefix); is {
			nodes = append(nodes, node)
			continue
		}
		sel, err := job.ParseSelector(address)
		if err != nil {
			return asked, fmt.Errorf("request %s: %w", r.id(), err)
		}
		on = append(on, sel)
	}
	asked.Verb, asked.On, asked.Nodes = r.Spec.Verb, on, nodes
	if r.Spec.Until != nil {
		asked.Until = at.Add(r.Spec.Until.Duration)
	}
	return asked, nil
}

// object returns the object of a request, without its author.
func (s *Store) requestObject(r job.Request) *request {
	o := &request{
		ObjectMeta: metav1.ObjectMeta{Name: objectName(r.ID), Namespace: s.namespace, Labels: s.labels(kindRequest)},
		Spec: requestSpec{
			State: s.name, Verb: r.Verb, Addresses: r.Addresses(), Value: r.Value, Mode: r.Mode, Why: r.Why, Expires: metav1.Duration{Duration: r.Expires.Sub(r.At)}, Files: r.Files, Commit: r.Commit,
		},
	}
	if !r.Until.IsZero() {
		o.Spec.Until = &metav1.Duration{Duration: r.Until.Sub(r.At)}
	}
	return o
}

// claimed is the author that a request names, as long as no leader has found whether the API server has checked it.
func (r *request) claimed() string { return r.Spec.By + " (unverified)" }

// author is who asked, as the leader that replied found.
func (r *request) author() string {
	if r.Status != nil && r.Status.By != "" {
		return r.Status.By
	}
	return r.claimed()
}

func (r *request) asked() (state.Asked, error) {
	asked, err := r.read(r.author())
	return state.Asked{Request: asked, Reply: r.reply()}, err
}
