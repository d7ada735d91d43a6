//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
)

// bareProgram is the argument that makes this program the bare client of the figure create: like eltrain, a process that
// starts, connects and creates pods.
const bareProgram = "bare-client"

// task is the input of the bare client, from its standard input.
type task struct {
	Kubeconfig string
	Namespace  string
	Template   *corev1.Pod
	Writers    int
	Pods       int
}

// runBareClient carries out a task.
func runBareClient(ctx context.Context, in io.Reader) error {
	var o task
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := unlimited(config, runtime.ContentTypeProtobuf)
	if err != nil {
		return err
	}
	c := &bareClient{client: client, namespace: o.Namespace, template: o.Template, writers: o.Writers}
	return c.each(ctx, 0, o.Pods, c.create)
}

// program returns a function that creates n pods with the bare client in a new process.
func (c *bareClient) program(kubeconfig string, n int) (func(context.Context) error, error) {
	text, err := json.Marshal(task{Kubeconfig: kubeconfig, Namespace: c.namespace, Template: c.template, Writers: c.writers, Pods: n})
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		var said bytes.Buffer
		cmd := exec.CommandContext(ctx, self, bareProgram)
		cmd.Stdin, cmd.Stderr = bytes.NewReader(text), &said
		if err := cmd.Run(); err != nil {
			return errors.Join(ctx.Err(), fmt.Errorf("the bare client: %w\n%s", err, said.String()))
		}
		return nil
	}, nil
}
