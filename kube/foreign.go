package kube

import (
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
)

// Foreign returns what a use of the kubeconfig at path runs, the commands of its plugins, and which files it reads, by absolute
// paths. Other contexts than the current one count, too.
func Foreign(path string) (commands, files []string, err error) {
	config, err := clientcmd.LoadFromFile(path)
	if err == nil {
		err = clientcmd.ResolveLocalPaths(config)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	for _, user := range config.AuthInfos {
		if user.Exec != nil {
			commands = append(commands, user.Exec.Command)
		}
		if user.AuthProvider != nil {
			commands = append(commands, user.AuthProvider.Name)
		}
		files = append(files, user.TokenFile, user.ClientCertificate, user.ClientKey)
	}
	for _, cluster := range config.Clusters {
		files = append(files, cluster.CertificateAuthority)
	}
	slices.Sort(commands)
	slices.Sort(files)
	return commands, slices.DeleteFunc(slices.Compact(files), func(f string) bool { return f == "" }), nil
}
