package kubernetes

import (
	"context"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/job"
	"github.com/eltrain/eltrain/providers"
)

// wordMargin is what an agent gets beyond the grace to say its last word: it ends its processes by force when the
// grace is over, and the kubelet would end it at the same moment.
const wordMargin = 2 * time.Second

// stopLook is how often Stop looks at a pod of which it hears nothing: its node may have fallen silent.
const stopLook = time.Second

// Stop deletes the pod of one incarnation and waits until it is gone or has ended. Without a grace it returns once
// the deletion is ordered. A pod that has ended by itself stays, for its logs.
func (p *Provider) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	k := key{uid, slot.Role, slot.Index, incarnation}
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	running, err := p.find(ctx, k, slot)
	if err != nil || running == nil || running.over() {
		return err
	}
	seconds := int64(1) // 0 would take the pod off the API server while it still runs
	switch {
	case p.index.abandoned(running):
		seconds = 0
	case grace > 0:
		seconds = int64(math.Ceil((grace + wordMargin).Seconds()))
	}
	if err := p.remove(ctx, running, seconds); err != nil || grace <= 0 {
		return err
	}
	look := time.NewTicker(stopLook)
	defer look.Stop()
	for !p.index.ended(k, running.uid) {
		select {
		case <-changes:
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("pod %s/%s has not ended: %w", p.namespace, running.name, ctx.Err())
		}
	}
	return nil
}

// abandoned reports whether a pod's node was deleted under it: nobody is left to say that it has ended. The cluster itself
// takes it away after a minute (PodGC). Until then it counts against quotas, and a Volcano queue that is full does not take
// in the slot's next incarnation.
func (x *index) abandoned(p *pod) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !p.over() && x.cluster.nodes[p.node] == nil && x.cluster.fate(p, p.seen).State == job.Gone
}

// ended reports whether nothing of a pod runs, or nobody can say when it will have ended.
func (x *index) ended(k key, uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.find(k)
	return e == nil || e.pod == nil || e.pod.uid != uid || x.cluster.fate(e.pod, e.pod.seen).State == job.Gone
}

// find is the pod of an incarnation: from the index, or from the API server where the watch has not brought it yet.
func (p *Provider) find(ctx context.Context, k key, slot job.Address) (*pod, error) {
	if there := p.index.get(k); there != nil {
		return there, nil
	}
	if checkUID(k.uid) != nil || checkNames(slot) != nil {
		return nil, nil // nothing was ever launched under such a name
	}
	name := podName(k.uid, slot, k.number)
	there, err := p.client.CoreV1().Pods(p.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look up pod %s/%s: %w", p.namespace, name, explain(ofRead(err)))
	}
	if have, _, ours := identify(there); !ours || have != k {
		return nil, nil
	}
	p.index.put(there)
	return p.index.get(k), nil
}

// remove orders the deletion of one pod, of no other that has taken its name.
func (p *Provider) remove(ctx context.Context, old *pod, seconds int64) error {
	first := p.index.ordered(old.uid)
	there := &corev1.Pod{}
	doubtful := false // it may have been carried out, whatever is heard later
	gone, err := p.insist(ctx, old, func() error {
		return p.pacer.do(ctx, class{old.key.uid, "delete pods"}, func(ctx context.Context) error {
			err := p.client.CoreV1().Delete().Namespace(p.namespace).Resource("pods").Name(old.name).
				Body(&metav1.DeleteOptions{GracePeriodSeconds: &seconds, Preconditions: &metav1.Preconditions{UID: &old.uid}}).
				Do(ctx).Into(there)
			doubtful = doubtful || judge(err).verdict == down
			return err
		})
	})
	switch {
	case gone:
		p.index.deleted(old.key, old.uid)
		return nil
	case err != nil:
		if first && !doubtful { // it was refused, or never sent
			p.index.unordered(old.uid)
		}
		return fmt.Errorf("delete its pod in namespace %s: %w", p.namespace, explain(err))
	}
	if left := there.DeletionGracePeriodSeconds; left != nil && *left == 0 && len(there.Finalizers) == 0 {
		p.index.deleted(old.key, old.uid) // it was bound to no node, or had ended
	} else {
		p.index.put(there)
	}
	return nil
}

// mostConflicts is how often a write to one pod is tried that meets another's.
const mostConflicts = 5

// insist repeats a write to one pod, under its UID, for as long as it conflicts with others'. gone: there is no such pod
// anymore. 404 says so; 409 says it only if another pod has the name by now, since two writes to one pod that come
// together are answered with it too.
func (p *Provider) insist(ctx context.Context, one *pod, write func() error) (gone bool, err error) {
	for range mostConflicts {
		if err = write(); apierrors.IsNotFound(err) {
			return true, nil
		}
		if !apierrors.IsConflict(err) || providers.MayPass(err) {
			return false, err
		}
		there, lookErr := p.client.CoreV1().Pods(p.namespace).Get(ctx, one.name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(lookErr), lookErr == nil && there.UID != one.uid:
			return true, nil
		case lookErr != nil:
			return false, fmt.Errorf("check whether it still exists: %w", ofRead(lookErr))
		}
		p.index.put(there)
	}
	return false, err
}
