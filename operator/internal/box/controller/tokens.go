package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/box/join"
)

// serviceOfDNS is the Service of CoreDNS, or of what is in its place.
const serviceOfDNS = "kube-dns"

// tokensSecret is the Secret that box hosts mount. Each bootstrap token in kube-system that this controller has made has an entry there: it
// is written before the token is made, and removed after it was deleted. So no right to read Secrets of kube-system is needed.
type tokensSecret struct {
	// secret is nil if there is none.
	secret *corev1.Secret
	file   *join.File
	// isWritten: the first half of carryOut has succeeded.
	isWritten bool
}

func (j *Joins) readTokens(ctx context.Context) (*tokensSecret, error) {
	tokens := &tokensSecret{file: &join.File{}, secret: &corev1.Secret{}}
	err := j.Live.Get(ctx, client.ObjectKey{Namespace: j.Namespace, Name: join.SecretName}, tokens.secret)
	switch {
	case apierrors.IsNotFound(err):
		tokens.secret = nil
		return tokens, nil
	case err != nil:
		return nil, fmt.Errorf("read Secret %s/%s: %w", j.Namespace, join.SecretName, err)
	}
	if text := tokens.secret.Data[join.SecretKey]; len(text) > 0 {
		if tokens.file, err = join.ParseFile(text); err != nil {
			return nil, fmt.Errorf("secret %s/%s: %w; delete its key %s, and start the servers in question again",
				j.Namespace, join.SecretName, err, join.SecretKey)
		}
	}
	return tokens, nil
}

// carryOut takes the steps about tokens: all entries are written at once, before and after the tokens themselves.
func (j *Joins) carryOut(ctx context.Context, tokens *tokensSecret, steps []join.Step) error {
	if tokens.secret == nil {
		return nil
	}
	var errs []error
	if err := j.prepare(ctx, tokens, steps); err != nil {
		return err
	}
	tokens.isWritten = true
	for i := range steps {
		step := &steps[i]
		entry := tokens.file.Find(step.TokenID)
		switch {
		case entry == nil:
		case step.Kind == join.StepDrop:
			if err := j.deleteToken(ctx, step.TokenID); err != nil {
				errs = append(errs, err)
				continue
			}
			id := step.TokenID
			tokens.file.Entries = slices.DeleteFunc(tokens.file.Entries, func(e join.Entry) bool { return e.TokenID == id })
		case step.Kind == join.StepOffer:
			if err := j.createToken(ctx, entry); err != nil {
				errs = append(errs, err)
				continue
			}
			entry.State = join.EntryOffered
		}
	}
	return errors.Join(append(errs, j.writeTokens(ctx, tokens))...)
}

// prepare writes the entries of new tokens, and withholds those that have served.
func (j *Joins) prepare(ctx context.Context, tokens *tokensSecret, steps []join.Step) error {
	for i := range steps {
		step := &steps[i]
		entry := tokens.file.Find(step.TokenID)
		switch {
		case step.Kind == join.StepWithhold && entry != nil:
			entry.State = join.EntryUsed
		case step.Kind == join.StepOffer && entry == nil:
			if err := j.deleteToken(ctx, step.TokenID); err != nil { // one whose entry was lost
				return err
			}
			made := *step.Entry
			made.State, made.Secret = join.EntryPreparing, join.NewTokenSecret()
			tokens.file.Entries = append(tokens.file.Entries, made)
		}
	}
	return j.writeTokens(ctx, tokens)
}

func (j *Joins) writeTokens(ctx context.Context, tokens *tokensSecret) error {
	tokens.file.APIServer, tokens.file.CA = j.APIServer, j.CA
	if len(tokens.file.Entries) > 0 {
		resolvers, err := j.resolvers(ctx)
		if err != nil {
			return err
		}
		tokens.file.ClusterDNS = resolvers
	}
	text, err := tokens.file.Text()
	if err != nil {
		return err
	}
	before := tokens.secret.Data[join.SecretKey]
	if bytes.Equal(text, before) || len(before) == 0 && len(tokens.file.Entries) == 0 {
		return nil
	}
	written := tokens.secret.DeepCopy()
	if written.Data == nil {
		written.Data = map[string][]byte{}
	}
	written.Data[join.SecretKey] = text
	// With the version that was read: another controller may lead by now.
	if err := j.Client.Update(ctx, written, FieldManager); err != nil {
		return fmt.Errorf("write Secret %s/%s: %w", j.Namespace, join.SecretName, err)
	}
	tokens.secret = written
	return nil
}

// resolvers are those of pods: the Service that kubeadm and most installers make. Without resolvers, a pod on a new node would find no
// Service by its name.
func (j *Joins) resolvers(ctx context.Context) ([]string, error) {
	if len(j.ClusterDNS) > 0 {
		return j.ClusterDNS, nil
	}
	service := &corev1.Service{}
	err := j.Live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: serviceOfDNS}, service)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		log.FromContext(ctx).Info("new nodes get no resolver for their pods: set box.join.clusterDNS of the chart", "why", err.Error())
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("find the cluster's DNS: %w", err)
	}
	return slices.DeleteFunc(slices.Clone(service.Spec.ClusterIPs), func(ip string) bool { return ip == corev1.ClusterIPNone }), nil
}

// createToken makes the token that an entry describes. One of this name that is there already was made from the same entry.
func (j *Joins) createToken(ctx context.Context, entry *join.Entry) error {
	token := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: join.SecretPrefix + entry.TokenID, Namespace: metav1.NamespaceSystem,
			Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByValue},
		},
		Type: corev1.SecretTypeBootstrapToken,
		Data: map[string][]byte{
			"token-id": []byte(entry.TokenID), "token-secret": []byte(entry.Secret),
			"expiration":                     []byte(entry.ExpiresAt.UTC().Format(time.RFC3339)),
			"usage-bootstrap-authentication": []byte("true"),
			"auth-extra-groups":              []byte(v1alpha1.GroupBootstrappers),
			"description":                    []byte("Server " + entry.Node + " of rcbox boots from the network"),
		},
	}
	if err := j.Client.Create(ctx, token, FieldManager); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the bootstrap token of Server %s: %w", entry.Node, err)
	}
	return nil
}

func (j *Joins) deleteToken(ctx context.Context, id string) error {
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: join.SecretPrefix + id, Namespace: metav1.NamespaceSystem}}
	if err := j.Client.Delete(ctx, token); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete bootstrap token %s: %w", id, err)
	}
	return nil
}
