package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Publish writes the URL into the anchor of every job that this process has prepared, and of those that it will
// prepare. Pods have the anchor mounted: the kubelet brings the news to them, within its sync period of a minute
// or so, and agents read the file again while the service does not answer.
func (p *Provider) Publish(ctx context.Context, serviceURL string) error {
	var errs []error
	for _, j := range p.jobs.publish(serviceURL) {
		if err := p.tell(ctx, j, ""); err != nil {
			errs = append(errs, fmt.Errorf("job.%s: %w", j.group.Name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("publish the service's address: %w", err)
	}
	return nil
}

// tell writes the URL into one anchor, unless it is there already.
func (p *Provider) tell(ctx context.Context, j prepared, there string) error {
	url := p.jobs.serviceURL()
	if url == "" || url == there {
		return nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": j.anchor.uid},
		"data":     map[string]string{serviceKey: url},
	})
	if err != nil {
		return fmt.Errorf("encode the service's address: %w", err)
	}
	return p.write(ctx, j.group, "the service's address known", func(ctx context.Context) error {
		_, err := p.client.CoreV1().ConfigMaps(p.namespace).Patch(ctx, j.anchor.name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
		return err
	})
}
