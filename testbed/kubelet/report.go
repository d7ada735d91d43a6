package kubelet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// firstRetry and lastRetry bound the pause before a failed report is retried; it doubles.
const (
	firstRetry = 100 * time.Millisecond
	lastRetry  = 2 * time.Second
)

// reporter writes the latest status of a pod to the API server, retrying until it succeeds; if the pod is being deleted
// and has ended, it then removes the pod's object.
type reporter struct {
	pod  *pod
	wake chan struct{}

	mu     sync.Mutex
	status *corev1.PodStatus
	delete bool
}

func newReporter(p *pod) *reporter { return &reporter{pod: p, wake: make(chan struct{}, 1)} }

// set sets what to report. A nil status leaves the present one.
func (r *reporter) set(status *corev1.PodStatus, remove bool) {
	r.mu.Lock()
	r.status, r.delete = status, remove
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reporter) newest() (*corev1.PodStatus, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status, r.delete
}

func (r *reporter) run(ctx context.Context) {
	var written *corev1.PodStatus
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-r.pod.connection():
			}
			status, remove := r.newest()
			err := r.report(ctx, status, written, remove)
			if errors.Is(err, errDisconnected) {
				continue
			}
			if err == nil {
				written, retry = status, firstRetry
				break
			}
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				break // it is gone, or another pod has its name: the watch reports it
			}
			if ctx.Err() == nil {
				r.pod.log.Warn("cannot write the pod status", "err", err)
			}
			if !sleep(ctx, retry) {
				return
			}
			retry = min(2*retry, lastRetry)
		}
	}
}

// statusPatch encodes a status as a strategic merge patch, which preserves other writers' conditions. Because of its UID
// it fails for another pod of the same name.
func statusPatch(uid types.UID, status *corev1.PodStatus) ([]byte, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, err
	}
	// Addresses would be merged with those set by an earlier Kubelet.
	for _, list := range []string{"podIPs", "hostIPs"} {
		if addresses, ok := fields[list].([]any); ok {
			fields[list] = append(addresses, map[string]any{"$patch": "replace"})
		}
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{"uid": uid}, "status": fields})
}

// errDisconnected: the node was disconnected before the report.
var errDisconnected = errors.New("the node is disconnected")

// report writes while holding off a disconnection.
func (r *reporter) report(ctx context.Context, status, written *corev1.PodStatus, remove bool) error {
	r.pod.reports.RLock()
	defer r.pod.reports.RUnlock()
	if !r.pod.connected() {
		return errDisconnected
	}
	return r.write(ctx, status, written, remove)
}

func (r *reporter) write(ctx context.Context, status, written *corev1.PodStatus, remove bool) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object := r.pod.object()
	pods := r.pod.client.CoreV1().Pods(object.Namespace)
	if status != nil && !equality.Semantic.DeepEqual(status, written) {
		patch, err := statusPatch(object.UID, status)
		if err != nil {
			return err
		}
		if _, err := pods.Patch(ctx, object.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
	}
	if !remove {
		return nil
	}
	now := int64(0)
	return pods.Delete(ctx, object.Name, metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &object.UID}})
}
