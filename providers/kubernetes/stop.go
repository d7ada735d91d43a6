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

// wordMargin is what an agent gets beyond the grace to write its last word: it kills its processes when the grace ends,
// and the kubelet would kill it at the same moment.
const wordMargin = 2 * time.Second

// stopCheckInterval is how often Stop checks a pod without news of it: its node may have become silent.
const stopCheckInterval = time.Second

// Stop deletes the pod of one incarnation and waits until it is gone or has ended. Without a grace it returns once
// the deletion is requested. A pod that has ended by itself stays, for its logs.
func (p *Provider) Stop(ctx context.Context, uid string, slot job.Address, incarnation int, grace time.Duration) error {
	k := key{uid, slot.Role, slot.Index, incarnation}
	changes, unsubscribe := p.index.subscribe()
	defer unsubscribe()
	running, err := p.find(ctx, k, slot)
	if err != nil || running == nil || running.over() {
		return err
	}
	seconds := int64(1) // 0 would remove the pod from the API server while it still runs
	switch {
	case p.index.abandoned(running):
		seconds = 0
	case grace > 0:
		seconds = int64(math.Ceil((grace + wordMargin).Seconds()))
	}
	if err := p.remove(ctx, running, seconds); err != nil || grace <= 0 {
		return err
	}
	check := time.NewTicker(stopCheckInterval)
	defer check.Stop()
	for !p.index.ended(k, running.uid) {
		select {
		case <-changes:
		case <-check.C:
		case <-ctx.Done():
			return fmt.Errorf("pod %s/%s has not ended: %w", p.namespace, running.name, ctx.Err())
		}
	}
	return nil
}

// abandoned reports whether a pod's node was deleted, so that nothing is left to report the pod's end. The cluster removes
// such a pod after a minute (PodGC). Until then it counts against quotas, and a full Volcano queue does not admit the slot's
// next incarnation.
func (x *index) abandoned(p *pod) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return !p.over() && x.cluster.nodes[p.node] == nil && x.cluster.fate(p, p.seen).State == job.Gone
}

// ended reports whether nothing of a pod runs, or nothing can report when it will have ended.
func (x *index) ended(k key, uid types.UID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e := x.find(k)
	return e == nil || e.pod == nil || e.pod.uid != uid || x.cluster.fate(e.pod, e.pod.seen).State == job.Gone
}

// find returns the pod of an incarnation from the index or, if the watch has not delivered it yet, from the API server.
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
		return nil, fmt.Errorf("look up pod %s/%s: %w", p.namespace, name, explain(readError(err)))
	}
	if have, _, ours := identify(there); !ours || have != k {
		return nil, nil
	}
	p.index.put(there)
	return p.index.get(k), nil
}

// remove requests the deletion of one pod, by its UID as the name may be taken again.
func (p *Provider) remove(ctx context.Context, old *pod, seconds int64) error {
	first := p.index.markDeletion(old.uid)
	there := &corev1.Pod{}
	doubtful := false // an attempt may have been carried out, whatever is answered later
	gone, err := p.retryConflicts(ctx, old, func() error {
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
		if first && !doubtful { // refused, or never sent
			p.index.unmarkDeletion(old.uid)
		}
		return fmt.Errorf("delete its pod in namespace %s: %w", p.namespace, explain(err))
	}
	if left := there.DeletionGracePeriodSeconds; left != nil && *left == 0 && len(there.Finalizers) == 0 {
		p.index.deleted(old.key, old.uid) // not bound to a node, or already ended
	} else {
		p.index.put(there)
	}
	return nil
}

// maxConflicts bounds the attempts at a write to one pod that conflicts with others.
const maxConflicts = 5

// retryConflicts retries a write to one pod, by its UID, while it conflicts with other writes. gone: the pod no longer exists, by a
// 404, or by a 409 if another pod has the name by now; simultaneous writes to one pod get a 409 too.
func (p *Provider) retryConflicts(ctx context.Context, one *pod, write func() error) (gone bool, err error) {
	for range maxConflicts {
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
			return false, fmt.Errorf("check whether it still exists: %w", readError(lookErr))
		}
		p.index.put(there)
	}
	return false, err
}
