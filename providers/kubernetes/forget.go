package kubernetes

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eltrain/eltrain/job"
)

// forgetPoll is how often Forget looks whether the pods are off the API server.
const forgetPoll = 100 * time.Millisecond

// Forget deletes everything of a job: its pods, with their logs, and what it has beside them. The anchor goes
// last, so that a Forget which was cut short is completed by the next; nothing is left to the garbage collector.
// It refuses while anything of the job runs.
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
	for _, i := range seen.Incarnations {
		if i.UID == uid && i.State != job.Gone {
			return fmt.Errorf("%s incarnation %d still runs (pod %s/%s)", i.Slot, i.Number, p.namespace, i.Name)
		}
	}
	p.jobs.remove(uid)
	if err := p.removePods(ctx, uid); err != nil {
		return err
	}
	for _, o := range p.objects(groupName(uid, name)) {
		if err := o.remove(ctx, uid); err != nil {
			return fmt.Errorf("delete %s %s/%s: %w", o.kind, p.namespace, groupName(uid, name), explain(err))
		}
	}
	p.index.forget(uid)
	return nil
}

// removePods takes the job's pods off the API server. All have ended, or are on nodes that do not answer: those
// are not waited for, and what may still run there is fenced by its number.
func (p *Provider) removePods(ctx context.Context, uid string) error {
	known := p.index.ofJob(uid)
	for _, one := range known {
		p.index.ordered(one.uid)
	}
	pods := p.client.CoreV1().Pods(p.namespace)
	now := int64(0)
	for {
		left, err := pods.List(ctx, metav1.ListOptions{LabelSelector: selectJob(uid), Limit: 1})
		if err != nil {
			return fmt.Errorf("list its pods: %w", explain(err))
		}
		if len(left.Items) == 0 {
			break
		}
		err = pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: selectJob(uid)})
		if err != nil {
			return fmt.Errorf("delete its pods: %w", explain(err))
		}
		select {
		case <-time.After(forgetPoll):
		case <-ctx.Done():
			return fmt.Errorf("pod %s/%s is not gone yet: %w", p.namespace, left.Items[0].Name, ctx.Err())
		}
	}
	for _, one := range known {
		p.index.deleted(one.key, one.uid)
	}
	return nil
}

// object is one of those that a job has beside its pods.
type object struct {
	kind   string
	get    func(context.Context) (metav1.Object, error)
	delete func(context.Context, metav1.DeleteOptions) error
}

// objects lists them, the anchor last.
func (p *Provider) objects(name string) []object {
	core, budgets := p.client.CoreV1(), p.client.PolicyV1().PodDisruptionBudgets(p.namespace)
	get := metav1.GetOptions{}
	return []object{
		{"PodDisruptionBudget",
			func(ctx context.Context) (metav1.Object, error) { return budgets.Get(ctx, name, get) },
			func(ctx context.Context, o metav1.DeleteOptions) error { return budgets.Delete(ctx, name, o) }},
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
		{"ConfigMap",
			func(ctx context.Context) (metav1.Object, error) {
				return core.ConfigMaps(p.namespace).Get(ctx, name, get)
			},
			func(ctx context.Context, o metav1.DeleteOptions) error {
				return core.ConfigMaps(p.namespace).Delete(ctx, name, o)
			}},
	}
}

// remove deletes the object if it is the job's.
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
