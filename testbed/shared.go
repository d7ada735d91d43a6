package testbed

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// SharedEnv names the folder of a cluster that several packages use, one after the other. The program share sets it.
const SharedEnv = "ELTRAIN_TESTBED"

// Shared returns the cluster that several packages use, with the nodes of the options added, or if there is none a new one
// with these options. A package removes what it creates outside of namespaces: Close removes its nodes. The Components of
// a cluster that another process runs are nil.
func Shared(options Options) (*Cluster, error) {
	dir := os.Getenv(SharedEnv)
	if dir == "" {
		return New(options)
	}
	c := &Cluster{dir: dir, options: options}
	if err := c.attach(); err != nil {
		return nil, fmt.Errorf("use the cluster in %s: %w", dir, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := c.populate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, c.Logs()), c.Close())
	}
	return c, nil
}

// Use is to Shared as Start is to New.
func Use(t testing.TB, options Options) *Cluster {
	t.Helper()
	return start(t, Shared, options)
}

// attach reads the files that bringUp has written.
func (c *Cluster) attach() (err error) {
	if c.own, err = os.MkdirTemp(c.dir, "user-"); err != nil {
		return err
	}
	if err := c.makeClients(); err != nil {
		return err
	}
	address, err := url.Parse(c.admin.Host)
	if err != nil {
		return err
	}
	c.address = address.Hostname()
	if c.ca, err = c.readAuthority(); err != nil {
		return err
	}
	accounts, err := readKey(c.path(accountsKey))
	if err != nil {
		return err
	}
	c.accounts = &tokenSigner{key: accounts}
	if _, err := os.Stat(c.volcanoConfigPath()); errors.Is(err, fs.ErrNotExist) {
		c.options.Volcano = nil
		return nil
	}
	if c.options.Volcano == nil {
		c.options.Volcano = &Volcano{}
	}
	c.volcanoDir, err = VolcanoBinaries()
	return err
}

// shared reports whether another process runs the servers.
func (c *Cluster) shared() bool { return c.own != c.dir }

// removeNodes removes the nodes that this process added.
func (c *Cluster) removeNodes() error {
	ctx, cancel := context.WithTimeout(context.Background(), leverTimeout)
	defer cancel()
	names := c.kwokNodes
	for _, node := range c.options.ProcessNodes {
		names = append(names, node.Name)
	}
	var errs []error
	for _, name := range names {
		if err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Cluster) readAuthority() (*authority, error) {
	text, err := os.ReadFile(c.CAFile())
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s contains no certificate", c.CAFile())
	}
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, err
	}
	key, err := readKey(c.path(authorityKey))
	return &authority{certificate: certificate, key: key, pem: text}, err
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("%s contains no key", path)
	}
	return x509.ParseECPrivateKey(block.Bytes)
}
