package kubernetes

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
)

// forgetBound is how long Forget waits for the pods to be deleted: ten thousand take half a minute. If it takes longer, the
// error names one that is left, and the caller tries again.
const forgetBound = time.Minute

// Forget deletes everything of a job: its pods, with their logs, and all other objects. The anchor goes last, so that
// the next Forget completes one that was cut short; nothing is left to the garbage collector. It fails while anything
// of the job runs.
func (p *Provider) Forget(ctx context.Context, uid, name string) error {
	if err := p.forget(ctx, uid, name); err != nil {
		return fmt.Errorf("forget job.%s: %w", name, err)
	}
	return nil
}

func (p *Provider) forget(ctx context.Context, uid, name string) error {
	if checkUID(uid) != nil || checkJobName(name) != nil {
		return nil // nothing was ever made under such a name
	}
	seen, err := p.Observe(ctx)
	if err != nil {
		return err
	}
	for i := range seen.Incarnations.All() {
		if i.UID == uid && i.State != job.Gone {
			return fmt.Errorf("%s incarnation %d still runs (pod %s/%s)", i.Slot, i.Number, p.namespace, i.Name)
		}
	}
	p.jobs.remove(uid)
	if err := p.removePods(ctx, uid); err != nil {
		return err
	}
	if err := p.gang.Forget(ctx, jobOf(job.Group{UID: uid, Name: name}, metav1.OwnerReference{})); err != nil {
		return err
	}
	if err := p.removeBudgets(ctx, uid, nil); err != nil {
		return err
	}
	group := groupName(uid, name)
	there, err := p.client.CoreV1().ConfigMaps(p.namespace).Get(ctx, group, metav1.GetOptions{})
	switch {
	case err == nil && there.Labels[labelUID] == uid:
		if err := p.removeSources(ctx, uid, name, listedSources(there)); err != nil {
			return err
		}
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look up its anchor: %w", explain(readError(err)))
	}
	for _, o := range append(p.children(group), p.anchor(group)) {
		err := p.pacer.do(ctx, class{uid, "delete the " + o.kind}, func(ctx context.Context) error { return o.remove(ctx, uid) })
		if err != nil {
			return fmt.Errorf("delete %s %s/%s: %w", o.kind, p.namespace, group, explain(err))
		}
	}
	p.index.forget(uid)
	return nil
}

// removePods deletes the job's pods. All have ended, or are on silent nodes: those are not waited for, and what may
// still run there is fenced by its number. It is one request for all of them; the watch reports when they are gone.
func (p *Provider) removePods(ctx context.Context, uid string) error {
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	var marked []types.UID
	for _, one := range p.index.ofJob(uid) {
		if p.index.markDeletion(one.uid) {
			marked = append(marked, one.uid)
		}
	}
	now := int64(0)
	doubtful := false // as in remove
	err := p.pacer.do(ctx, class{uid, "delete pods"}, func(ctx context.Context) error {
		err := p.client.CoreV1().Pods(p.namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: selectJob(uid)})
		doubtful = doubtful || judge(err).verdict == down
		return err
	})
	if err != nil && !doubtful {
		for _, one := range marked {
			p.index.unmarkDeletion(one)
		}
	}
	if err != nil {
		return fmt.Errorf("delete its pods: %w", explain(err))
	}
	bound := time.NewTimer(forgetBound)
	defer bound.Stop()
	for {
		left := p.index.ofJob(uid)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-changes:
		case <-bound.C:
			return fmt.Errorf("%d of its pods are not gone after %s, for example %s/%s: does it have finalizers?", len(left), forgetBound, p.namespace, left[0].name)
		case <-ctx.Done():
			return fmt.Errorf("%d of its pods are not gone, for example %s/%s: %w", len(left), p.namespace, left[0].name, ctx.Err())
		}
	}
}

// removeBudgets deletes the PodDisruptionBudgets of a job, except those of some roles.
func (p *Provider) removeBudgets(ctx context.Context, uid string, but []string) error {
	selected := selectJob(uid)
	if len(but) > 0 {
		selected += "," + labelRole + " notin (" + strings.Join(but, ",") + ")"
	}
	err := p.pacer.do(ctx, class{uid, "delete PodDisruptionBudgets"}, func(ctx context.Context) error {
		return p.client.PolicyV1().PodDisruptionBudgets(p.namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selected})
	})
	if err != nil {
		return fmt.Errorf("delete its PodDisruptionBudgets: %w", explain(err))
	}
	return nil
}

// object is one of a job's objects other than pods.
type object struct {
	kind   string
	get    func(context.Context) (metav1.Object, error)
	delete func(context.Context, metav1.DeleteOptions) error // nil for those deleted as a collection
}

// children are what an anchor owns besides pods, once per job.
func (p *Provider) children(name string) []object {
	core, get := p.client.CoreV1(), metav1.GetOptions{}
	return []object{
		{"Service",
			func(ctx context.Context) (metav1.Object, error) {
				return core.Services(p.namespace).Get(ctx, name, get)
			},
			func(ctx context.Context, o metav1.DeleteOptions) error {
				return core.Services(p.namespace).Delete(ctx, name, o)
			}},
		{"Secret",
			func(ctx context.Context) (metav1.Object, error) { return core.Secrets(p.namespace).Get(ctx, name, get) },
			func(ctx context.Context, o metav1.DeleteOptions) error {
				return core.Secrets(p.namespace).Delete(ctx, name, o)
			}},
	}
}

func (p *Provider) anchor(name string) object {
	anchors := p.client.CoreV1().ConfigMaps(p.namespace)
	return object{"ConfigMap",
		func(ctx context.Context) (metav1.Object, error) { return anchors.Get(ctx, name, metav1.GetOptions{}) },
		func(ctx context.Context, o metav1.DeleteOptions) error { return anchors.Delete(ctx, name, o) }}
}

// budgets are what an anchor owns once per role.
func (p *Provider) budgets(g job.Group) []object {
	var all []object
	for _, r := range g.Roles {
		all = append(all, object{kind: "PodDisruptionBudget", get: func(ctx context.Context) (metav1.Object, error) {
			return p.client.PolicyV1().PodDisruptionBudgets(p.namespace).Get(ctx, budgetName(g.UID, g.Name, r.Role), metav1.GetOptions{})
		}})
	}
	return all
}

// remove deletes the object if it belongs to the job.
func (o object) remove(ctx context.Context, uid string) error {
	there, err := o.get(ctx)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if there.GetLabels()[labelUID] != uid {
		return nil
	}
	its := there.GetUID()
	err = o.delete(ctx, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &its}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
