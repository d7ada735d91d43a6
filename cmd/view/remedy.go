package view

import (
	"errors"
	"fmt"

	"github.com/eltrain/eltrain/state/kubernetes"
)

// remedy says what to do about an error whose own text does not; "" if nothing is known.
func remedy(err error) string {
	if damage := (*kubernetes.DamagedError)(nil); errors.As(err, &damage) {
		if damage.BackupSerial > 0 {
			key, value := damage.UseBackup()
			return fmt.Sprintf("To restore it, which loses history but no running job:\n  kubectl -n %s annotate secret %s %s=%s", damage.Namespace, damage.Secret, key, value)
		}
		return fmt.Sprintf("To start with an empty state, remove it: running jobs are found and adopted again.\n  kubectl -n %s delete secret %s", damage.Namespace, damage.Secret)
	}
	if errors.As(err, new(*kubernetes.UndefinedError)) {
		return "An administrator installs them with kubectl apply -k deploy/requests. Or run this command where the master runs, for example with kubectl exec in its pod."
	}
	return ""
}
