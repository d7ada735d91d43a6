package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// User is a ServiceAccount of a namespace with the permissions of some manifests.
type User struct {
	Namespace string
	Name      string // default: eltrain

	// Roles are the paths of manifests. Each Role in them is created in Namespace and bound to the account, each
	// ClusterRole is created and bound to it in the whole cluster; documents of other kinds are skipped.
	Roles []string

	// Without removes permissions again, to test RBAC that lacks one verb.
	Without []Permission

	// TokenLife is how long the token is valid; zero is a day. The API server caches a token that it has seen for ten
	// seconds more.
	TokenLife time.Duration
}

// Permission is one verb on one resource: {"create", "pods"}.
type Permission struct{ Verb, Resource string }

const (
	defaultUser      = "eltrain"
	defaultTokenLife = 24 * time.Hour
)

// Kubeconfig creates the user and returns the path of its kubeconfig, with its namespace.
func (c *Cluster) Kubeconfig(t T, user User) string {
	t.Helper()
	return c.kubeconfigFor(t, user, "https://"+c.Address())
}

// Token creates the user and returns its token.
func (c *Cluster) Token(t T, user User) string {
	t.Helper()
	var token string
	c.lever(t, "make user", func(ctx context.Context) (err error) {
		token, err = c.token(ctx, user)
		return err
	})
	return token
}

func (c *Cluster) kubeconfigFor(t T, user User, server string) string {
	t.Helper()
	token := c.Token(t, user)
	file, err := os.CreateTemp(c.dir, "user-*.kubeconfig")
	if err != nil {
		t.Fatalf("testbed: %v", err)
	}
	err = errors.Join(file.Close(), c.writeKubeconfig(file.Name(), server, user.Namespace, token))
	if err != nil {
		t.Fatalf("testbed: %v", err)
	}
	return file.Name()
}

func (c *Cluster) token(ctx context.Context, user User) (string, error) {
	if user.Name == "" {
		user.Name = defaultUser
	}
	if user.TokenLife == 0 {
		user.TokenLife = defaultTokenLife
	}
	accounts := c.client.CoreV1().ServiceAccounts(user.Namespace)
	account, err := accounts.Get(ctx, user.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		account, err = accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: user.Name}},
			metav1.CreateOptions{})
	}
	if err != nil {
		return "", err
	}
	for _, path := range user.Roles {
		if err := c.grant(ctx, user, path); err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
	}
	return c.accounts.sign(user.Namespace, user.Name, string(account.UID), time.Now().Add(user.TokenLife))
}

// grant creates and binds the roles of a manifest.
func (c *Cluster) grant(ctx context.Context, user User, path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	const lookAhead = 4096 // bytes, to distinguish YAML from JSON
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), lookAhead)
	granted := 0
	for {
		var role rbacv1.ClusterRole // a Role has the same fields
		err := decoder.Decode(&role)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		rules := without(role.Rules, user.Without)
		switch role.Kind {
		case "Role":
			if err = c.grantRole(ctx, user, role.Name, rules); err == nil {
				err = c.awaitGranted(ctx, user, user.Namespace, rules)
			}
		case "ClusterRole":
			if err = c.grantClusterRole(ctx, user, role.Name, rules); err == nil {
				err = c.awaitGranted(ctx, user, "", rules)
			}
		default:
			continue
		}
		if err != nil {
			return fmt.Errorf("%s %s: %w", role.Kind, role.Name, err)
		}
		granted++
	}
	if granted == 0 {
		return fmt.Errorf("contains no Role or ClusterRole")
	}
	return nil
}

func (c *Cluster) grantRole(ctx context.Context, user User, name string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: user.Name + "-" + name}
	_, err := c.client.RbacV1().Roles(user.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = c.client.RbacV1().Roles(user.Namespace).Update(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules}, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	_, err = c.client.RbacV1().RoleBindings(user.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: user.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
	}, metav1.CreateOptions{})
	return ignoreExisting(err)
}

// grantClusterRole gives the role a name specific to the user: two users of a cluster may have different roles of
// the same name.
func (c *Cluster) grantClusterRole(ctx context.Context, user User, name string, rules []rbacv1.PolicyRule) error {
	meta := metav1.ObjectMeta{Name: user.Namespace + "-" + user.Name + "-" + name}
	_, err := c.client.RbacV1().ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = c.client.RbacV1().ClusterRoles().Update(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules}, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	_, err = c.client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: user.subjects(),
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
	}, metav1.CreateOptions{})
	return ignoreExisting(err)
}

// awaitGranted waits until the API server, which watches roles and bindings, allows the user the first action of the
// rules.
func (c *Cluster) awaitGranted(ctx context.Context, user User, namespace string, rules []rbacv1.PolicyRule) error {
	at := slices.IndexFunc(rules, func(r rbacv1.PolicyRule) bool { return len(r.Resources) > 0 && len(r.Verbs) > 0 })
	if at < 0 {
		return nil
	}
	first := rules[at]
	asked := &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: first.Verbs[0]}
	asked.Resource, asked.Subresource, _ = strings.Cut(first.Resources[0], "/")
	if len(first.APIGroups) > 0 {
		asked.Group = first.APIGroups[0]
	}
	if len(first.ResourceNames) > 0 {
		asked.Name = first.ResourceNames[0]
	}
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "system:serviceaccount:" + user.Namespace + ":" + user.Name, ResourceAttributes: asked,
	}}
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		answer, err := c.client.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return false, err
		}
		return answer.Status.Allowed, nil
	})
}

func (u User) subjects() []rbacv1.Subject {
	return []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: u.Namespace, Name: u.Name}}
}

func ignoreExisting(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// without splits rules until none grants any of the given permissions.
func without(rules []rbacv1.PolicyRule, lacking []Permission) []rbacv1.PolicyRule {
	for _, permission := range lacking {
		var kept []rbacv1.PolicyRule
		for _, rule := range rules {
			if !slices.Contains(rule.Verbs, permission.Verb) || !slices.Contains(rule.Resources, permission.Resource) {
				kept = append(kept, rule)
				continue
			}
			others, here := *rule.DeepCopy(), *rule.DeepCopy()
			others.Resources = slices.DeleteFunc(others.Resources, func(name string) bool { return name == permission.Resource })
			here.Resources = []string{permission.Resource}
			here.Verbs = slices.DeleteFunc(here.Verbs, func(name string) bool { return name == permission.Verb })
			if len(others.Resources) > 0 {
				kept = append(kept, others)
			}
			if len(here.Verbs) > 0 {
				kept = append(kept, here)
			}
		}
		rules = kept
	}
	return rules
}

// Namespace creates a namespace for one test and waits until pods can be created in it. After the test it is deleted,
// without waiting.
func (c *Cluster) Namespace(t T) string {
	t.Helper()
	var name string
	c.lever(t, "make namespace", func(ctx context.Context) error {
		namespace, err := c.client.CoreV1().Namespaces().Create(ctx,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		name = namespace.Name
		return c.awaitNamespace(ctx, name)
	})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leverTimeout)
		defer cancel()
		if err := c.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Logf("testbed: delete namespace %s: %v", name, err)
		}
	})
	return name
}

// awaitNamespace waits for what the controller manager adds to a namespace: the account that pods run as, and the
// certificate by which they trust the API server.
func (c *Cluster) awaitNamespace(ctx context.Context, name string) error {
	return wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		if err == nil {
			_, err = c.client.CoreV1().ConfigMaps(name).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		}
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
