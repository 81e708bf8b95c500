package bundle

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	adminv1 "rcbox.dev/rcbox/api/admin/v1"
	"rcbox.dev/rcbox/api/v1alpha1"
	"rcbox.dev/rcbox/operator/internal/plugin/view"
	"rcbox.dev/rcbox/operator/internal/record"
)

const fileMode = 0o600

// Contents are what was gathered, as it was: the bundle has it redacted.
type Contents struct {
	Snapshot *view.Snapshot
	Events   []corev1.Event
	Claims   []corev1.PersistentVolumeClaim
	// Operations about the Store.
	Operations []v1alpha1.StoreOperation
	// Members of the Store.
	Members []v1alpha1.StoreMember
	Volumes []corev1.PersistentVolume
	// ConfigMaps of the Store's namespace that are its own.
	ConfigMaps []corev1.ConfigMap
	// Logs, Metrics and Reasons (why a pod is not ready) by their path in the bundle.
	Logs, Metrics, Reasons map[string]string
	// LeftOut says what could not be read, or was too much.
	LeftOut []string
	// Version of the plugin.
	Version string
}

// Options say what is in a bundle that is not by default.
type Options struct {
	// State: the contents of the coordinator's ConfigMaps.
	State bool
	// Names of tables as they are.
	Names bool
	// Salt of the hashes of names.
	Salt string
}

// File of a bundle.
type File struct{ Path, Text string }

// Files of the bundle, by path, redacted.
func Files(c *Contents, options Options) ([]File, error) {
	b := &builder{contents: c, options: options, names: NewNames(tableNames(c.Snapshot), options.Salt, options.Names)}
	b.kubernetes()
	b.cluster()
	for _, texts := range []map[string]string{c.Logs, c.Metrics, c.Reasons} {
		for path, text := range texts {
			b.text(path, text)
		}
	}
	if b.err != nil {
		return nil, b.err
	}
	slices.SortFunc(b.files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	readme := File{Path: "README.txt", Text: b.readme()}
	return append([]File{readme}, b.files...), nil
}

// Write packs files into a .tar.gz, under one folder.
func Write(out io.Writer, folder string, files []File, now time.Time) error {
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	for _, file := range files {
		header := &tar.Header{
			Name: folder + "/" + file.Path, Mode: fileMode, Size: int64(len(file.Text)), ModTime: now, Typeflag: tar.TypeReg,
		}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("write %s: %w", file.Path, err)
		}
		if _, err := io.WriteString(archive, file.Text); err != nil {
			return fmt.Errorf("write %s: %w", file.Path, err)
		}
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	if err := zip.Close(); err != nil {
		return fmt.Errorf("end the archive: %w", err)
	}
	return nil
}

// tableNames are all that are known, those of lost and moved ones included.
func tableNames(s *view.Snapshot) []string {
	var names []string
	for _, table := range s.Tables {
		names = append(names, table.GetName())
	}
	for _, loss := range s.Cluster.GetLosses() {
		names = append(names, loss.GetTables()...)
	}
	for _, migration := range s.Cluster.GetMigrations() {
		names = append(names, migration.GetTable())
	}
	for i := range s.Store.Status.Losses {
		names = append(names, s.Store.Status.Losses[i].Tables...)
	}
	return names
}

type builder struct {
	contents *Contents
	options  Options
	names    *Names
	files    []File
	err      error
}

// text is redacted here: nothing gets into the bundle by another way.
func (b *builder) text(path, text string) {
	b.files = append(b.files, File{Path: path, Text: b.names.Within(Text(text))})
}

func (b *builder) yaml(path string, document any) {
	text, err := yaml.Marshal(document)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("encode %s: %w", path, err)
	}
	b.text(path, string(text))
}

func (b *builder) json(path string, document any) {
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("encode %s: %w", path, err)
	}
	b.text(path, string(text)+"\n")
}

func (b *builder) message(path string, message proto.Message) {
	text, err := protojson.MarshalOptions{Multiline: true, EmitUnpopulated: true}.Marshal(message)
	if err != nil && b.err == nil {
		b.err = fmt.Errorf("encode %s: %w", path, err)
	}
	b.text(path, string(text)+"\n")
}

func (b *builder) kubernetes() {
	c := b.contents
	store := c.Snapshot.Store.DeepCopy()
	store.ObjectMeta = object(store.ObjectMeta)
	for i := range store.Status.Losses {
		for j, name := range store.Status.Losses[i].Tables {
			store.Status.Losses[i].Tables[j] = b.names.Hide(name)
		}
	}
	own := store.DeepCopy()
	record.Part(&own.Status) // members.yaml has the rest
	b.yaml("store.yaml", own)
	hidden := *c.Snapshot
	hidden.Store = store
	b.text("status.txt", hidden.Picture(view.Style{}, false))
	b.json("status.json", hidden.Document())

	pods := make([]*corev1.Pod, 0, len(c.Snapshot.Pods))
	for i := range c.Snapshot.Pods {
		pods = append(pods, pod(&c.Snapshot.Pods[i]))
	}
	b.yaml("pods.yaml", pods)
	events := slices.Clone(c.Events)
	for i := range events {
		events[i].ObjectMeta = object(events[i].ObjectMeta)
	}
	b.yaml("events.yaml", events)
	operations := slices.Clone(c.Operations)
	for i := range operations {
		operations[i].ObjectMeta = object(operations[i].ObjectMeta)
	}
	b.yaml("operations.yaml", operations)
	members := slices.Clone(c.Members)
	for i := range members {
		members[i].ObjectMeta = object(members[i].ObjectMeta)
	}
	b.yaml("members.yaml", members)
	claims := slices.Clone(c.Claims)
	for i := range claims {
		claims[i].ObjectMeta = object(claims[i].ObjectMeta)
	}
	b.yaml("claims.yaml", claims)
	volumes := slices.Clone(c.Volumes)
	for i := range volumes {
		volumes[i].ObjectMeta = object(volumes[i].ObjectMeta)
		if volumes[i].Spec.CSI != nil {
			source := volumes[i].Spec.CSI.DeepCopy()
			source.VolumeAttributes = nil // a driver's own, whatever it has put there
			volumes[i].Spec.CSI = source
		}
	}
	b.yaml("volumes.yaml", volumes)
	b.nodes()
	b.configMaps()
}

// node is what of a node is in the bundle.
type node struct {
	Name          string                 `json:"name"`
	Labels        map[string]string      `json:"labels"`
	Taints        []corev1.Taint         `json:"taints"`
	Unschedulable bool                   `json:"unschedulable"`
	Capacity      corev1.ResourceList    `json:"capacity"`
	Allocatable   corev1.ResourceList    `json:"allocatable"`
	Conditions    []corev1.NodeCondition `json:"conditions"`
	Kubelet       string                 `json:"kubelet"`
	Kernel        string                 `json:"kernel"`
	Runtime       string                 `json:"runtime"`
}

func (b *builder) nodes() {
	list := []node{}
	for name, from := range b.contents.Snapshot.Nodes {
		list = append(list, node{
			Name: name, Labels: from.Labels, Taints: from.Spec.Taints, Unschedulable: from.Spec.Unschedulable,
			Capacity: from.Status.Capacity, Allocatable: from.Status.Allocatable, Conditions: from.Status.Conditions,
			Kubelet: from.Status.NodeInfo.KubeletVersion, Kernel: from.Status.NodeInfo.KernelVersion,
			Runtime: from.Status.NodeInfo.ContainerRuntimeVersion,
		})
	}
	slices.SortFunc(list, func(a, b node) int { return strings.Compare(a.Name, b.Name) })
	b.yaml("nodes.yaml", list)
}

func (b *builder) configMaps() {
	lines := &strings.Builder{}
	for i := range b.contents.ConfigMaps {
		configMap := &b.contents.ConfigMaps[i]
		bytes := 0
		for _, text := range configMap.Data {
			bytes += len(text)
		}
		for _, data := range configMap.BinaryData {
			bytes += len(data)
		}
		fmt.Fprintf(lines, "%s  %d keys, %d bytes, made %s\n", configMap.Name, len(configMap.Data)+len(configMap.BinaryData), bytes,
			configMap.CreationTimestamp.UTC().Format(time.RFC3339))
		if b.options.State {
			kept := configMap.DeepCopy()
			kept.ObjectMeta = object(kept.ObjectMeta)
			b.yaml("state/"+configMap.Name+".yaml", kept)
		}
	}
	b.text("configmaps.txt", lines.String())
}

func (b *builder) cluster() {
	s := b.contents.Snapshot
	if s.Cluster == nil {
		return
	}
	status := proto.CloneOf(s.Cluster)
	for _, loss := range status.GetLosses() {
		for i, name := range loss.GetTables() {
			loss.Tables[i] = b.names.Hide(name)
		}
	}
	for _, migration := range status.GetMigrations() {
		migration.Table = b.names.Hide(migration.GetTable())
	}
	b.message("cluster-status.json", status)
	tables := &adminv1.ListTablesResponse{}
	for _, table := range s.Tables {
		hidden := proto.CloneOf(table)
		hidden.Name = b.names.Hide(table.GetName())
		tables.Tables = append(tables.Tables, hidden)
	}
	b.message("tables.json", tables)
}

func (b *builder) readme() string {
	out := &strings.Builder{}
	store := b.contents.Snapshot.Store
	fmt.Fprintf(out, "Report of Store %s/%s, made %s by kubectl-rcbox %s.\n\nWhat is in here:\n", store.Namespace, store.Name,
		b.contents.Snapshot.Now.UTC().Format(time.RFC3339), b.contents.Version)
	for _, file := range b.files {
		fmt.Fprintf(out, "  %s  %d bytes\n", file.Path, len(file.Text))
	}
	out.WriteString(`
What was left out on purpose:
  Secrets: none was read. Image pull secrets are there by name.
  Keys and values of objects: none was read.
  Values of pods' environments, but those of RCBOX_... variables; annotations that are neither rcbox's nor Kubernetes';
  attributes of volumes' drivers; of nodes all but labels, taints, room, conditions and versions.
  Texts that look like secrets (passwords, tokens, private keys, credentials in addresses) in logs and everywhere else.
  What does not look like one cannot be found: have a look before you give this away.
`)
	if b.options.State {
		out.WriteString("  Of ConfigMaps nothing: --state was given, and the coordinator's state has the names of tables.\n")
	} else {
		out.WriteString("  Contents of ConfigMaps, the coordinator's state among them (--state has them in).\n")
	}
	if b.options.Names {
		out.WriteString("  Of tables' names nothing: --names was given.\n")
	} else {
		fmt.Fprintf(out, "  Names of tables: table-... stands for each, the same one everywhere in this report. Names below %d letters,\n"+
			"  and those of tables that were dropped, can still be in logs (--names has all as they are).\n", shortestName)
	}
	if len(b.contents.LeftOut) > 0 {
		out.WriteString("\nWhat could not be had, or was too much:\n")
		for _, text := range b.contents.LeftOut {
			out.WriteString("  " + Text(text) + "\n")
		}
	}
	return out.String()
}
