// Package volcano runs agents as pods in gangs of the Volcano scheduler.
package volcano

import (
	_ "volcano.sh/apis/pkg/apis/scheduling/v1beta1"
	_ "volcano.sh/apis/pkg/client/clientset/versioned"
)
