package kubernetes

import (
	"context"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eltrain/eltrain/kube"
)

// The author of a request is a field that who asks fills in. The policy in deploy/requests makes the API server refuse a request whose
// author is not its user. A request shows no trace of having been checked, so the policy itself is examined: it and its binding must
// be unchanged since before the request was made. Who may edit them is an administrator of the cluster.

const (
	policyName = "eltrain-request-author" // of the policy and of its binding
	authorRule = "object.spec.by == request.userInfo.username"

	// policySettles is how long API servers may take to learn of a policy. They do so by a watch, at the latest within seconds.
	policySettles = 10 * time.Second
)

type authorPolicy struct {
	policies kube.Resource[*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyList]
	bindings kube.Resource[*admissionv1.ValidatingAdmissionPolicyBinding, *admissionv1.ValidatingAdmissionPolicyBindingList]
}

func newAuthorPolicy(config *rest.Config) (*authorPolicy, error) {
	group, err := kube.NewGroup(config, admissionv1.SchemeGroupVersion, admissionv1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &authorPolicy{
		kube.Of[admissionv1.ValidatingAdmissionPolicy, admissionv1.ValidatingAdmissionPolicyList](group, "validatingadmissionpolicies", metav1.NamespaceNone),
		kube.Of[admissionv1.ValidatingAdmissionPolicyBinding, admissionv1.ValidatingAdmissionPolicyBindingList](group, "validatingadmissionpolicybindings", metav1.NamespaceNone),
	}, nil
}

// inForce returns whether the author of a request that was made at some moment was checked. Where the policy cannot be read, none was.
func (p *authorPolicy) inForce(ctx context.Context) (func(time.Time) bool, error) {
	never := func(time.Time) bool { return false }
	unread := func(err error) (func(time.Time) bool, error) {
		if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
			return never, nil
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	policy, err := p.policies.Get(ctx, policyName, metav1.GetOptions{})
	if err != nil {
		return unread(err)
	}
	binding, err := p.bindings.Get(ctx, policyName, metav1.GetOptions{})
	if err != nil {
		return unread(err)
	}
	if !enforces(policy, binding) {
		return never, nil
	}
	since := changed(policy)
	if at := changed(binding); at.After(since) {
		since = at
	}
	return func(made time.Time) bool { return made.Sub(since) >= policySettles }, nil
}

// changed is when an object was made or, other than in its status, last changed.
func changed(o metav1.Object) time.Time {
	at := o.GetCreationTimestamp().Time
	for _, f := range o.GetManagedFields() {
		if f.Subresource == "" && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// enforces reports whether the API server refuses every request with a false author.
func enforces(p *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) bool {
	bound := b.Spec.PolicyName == p.Name && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) && b.Spec.ParamRef == nil && b.Spec.MatchResources == nil
	s, of := p.Spec, p.Spec.MatchConstraints
	return bound && of != nil && len(s.MatchConditions) == 0 && (s.FailurePolicy == nil || *s.FailurePolicy == admissionv1.Fail) &&
		unselective(of.NamespaceSelector) && unselective(of.ObjectSelector) && len(of.ExcludeResourceRules) == 0 &&
		slices.ContainsFunc(of.ResourceRules, coversRequests) &&
		slices.ContainsFunc(s.Validations, func(v admissionv1.Validation) bool { return v.Expression == authorRule })
}

func unselective(s *metav1.LabelSelector) bool {
	return s == nil || len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0
}

func coversRequests(r admissionv1.NamedRuleWithOperations) bool {
	return len(r.ResourceNames) == 0 && slices.Contains(r.Operations, admissionv1.Create) && slices.Contains(r.APIGroups, requestVersion.Group) &&
		slices.Contains(r.APIVersions, "*") && slices.Contains(r.Resources, requestResource) &&
		(r.Scope == nil || *r.Scope == admissionv1.AllScopes || *r.Scope == admissionv1.NamespacedScope)
}
