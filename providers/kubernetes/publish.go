package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eltrain/eltrain/providers"
)

// configMapDelay is how long a kubelet may take to update a changed ConfigMap in its pods: its sync period of a minute,
// and as long again for its cache.
const configMapDelay = 2 * time.Minute

// Publish writes the URL and its CA certificates into the anchor of every job that this process has prepared or will
// prepare. Pods mount the anchor: their kubelets update the file, and agents reread it while the service does not answer.
func (p *Provider) Publish(ctx context.Context, s providers.Service) error {
	var errs []error
	for _, j := range p.jobs.publish(s) {
		if err := p.publishTo(ctx, j, &corev1.ConfigMap{}); err != nil {
			errs = append(errs, fmt.Errorf("job.%s: %w", j.group.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("publish the service's address: %w", err)
	}
	return nil
}

// publishTo writes how the service is reached into one anchor, unless it is known to be up to date.
func (p *Provider) publishTo(ctx context.Context, j prepared, there *corev1.ConfigMap) error {
	data := p.jobs.serviceData()
	if data == nil || sameService(there.Data, data) {
		return nil
	}
	meta := map[string]any{"uid": j.anchor.uid}
	if moved := p.jobs.noteMove(there, data); moved != "" {
		meta["annotations"] = map[string]string{annotationMoved: moved}
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "data": data})
	if err != nil {
		return fmt.Errorf("encode the service's address: %w", err)
	}
	return p.write(ctx, j.group, "the service's address", func(ctx context.Context) error {
		_, err := p.client.CoreV1().ConfigMaps(p.namespace).Patch(ctx, j.anchor.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
}
