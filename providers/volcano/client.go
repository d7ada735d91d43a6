package volcano

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	"volcano.sh/apis/pkg/apis/topology/v1alpha1"

	"github.com/eltrain/eltrain/kube"
)

// client accesses Volcano's objects. Its own clientset would link all of client-go's: see kube.Client.
type client struct{ scheduling, topology kube.Group }

type podGroups = kube.Resource[*v1beta1.PodGroup, *v1beta1.PodGroupList]

// newClient makes a client without connecting.
func newClient(config *rest.Config) (*client, error) {
	scheduling, err := kube.NewGroup(config, v1beta1.SchemeGroupVersion, v1beta1.AddToScheme)
	if err != nil {
		return nil, err
	}
	topology, err := kube.NewGroup(config, v1alpha1.SchemeGroupVersion, v1alpha1.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &client{scheduling, topology}, nil
}

func (c *client) podGroups(namespace string) podGroups {
	return kube.Of[v1beta1.PodGroup, v1beta1.PodGroupList](c.scheduling, "podgroups", namespace)
}

func (c *client) queues() kube.Resource[*v1beta1.Queue, *v1beta1.QueueList] {
	return kube.Of[v1beta1.Queue, v1beta1.QueueList](c.scheduling, "queues", metav1.NamespaceNone)
}

func (c *client) hyperNodes() kube.Resource[*v1alpha1.HyperNode, *v1alpha1.HyperNodeList] {
	return kube.Of[v1alpha1.HyperNode, v1alpha1.HyperNodeList](c.topology, "hypernodes", metav1.NamespaceNone)
}
