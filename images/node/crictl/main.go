// Command crictl stands in for cri-tools' crictl inside the node image. kind
// calls `crictl inspecti`; `images` and `ps` serve people who look into a node.
// It is no full crictl and takes no options.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	endpoint = "unix:///run/containerd/containerd.sock"
	timeout  = 20 * time.Second
	usage    = `usage: crictl inspecti IMAGE | images | ps
(a stand-in for cri-tools' crictl with the calls that kind makes)`
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "crictl (stand-in):", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16<<20)))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()

	switch {
	case len(args) == 2 && args[0] == "inspecti":
		return inspectImage(ctx, cri.NewImageServiceClient(connection), args[1])
	case len(args) == 1 && args[0] == "images":
		return listImages(ctx, cri.NewImageServiceClient(connection))
	case len(args) == 1 && args[0] == "ps":
		return listContainers(ctx, cri.NewRuntimeServiceClient(connection))
	}
	return fmt.Errorf("%q is not known\n%s", args, usage)
}

// inspectImage prints what kind reads (id and repoTags), in crictl's JSON.
func inspectImage(ctx context.Context, client cri.ImageServiceClient, name string) error {
	reply, err := client.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
	if err != nil {
		return err
	}
	if reply.Image == nil {
		return fmt.Errorf("no such image %q present", name)
	}
	out := json.NewEncoder(os.Stdout)
	out.SetIndent("", "  ")
	return out.Encode(map[string]any{"status": map[string]any{
		"id":          reply.Image.Id,
		"repoTags":    reply.Image.RepoTags,
		"repoDigests": reply.Image.RepoDigests,
		"size":        fmt.Sprint(reply.Image.Size),
	}})
}

func listImages(ctx context.Context, client cri.ImageServiceClient) error {
	reply, err := client.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "IMAGE\tBYTES\tID")
	for _, image := range reply.Images {
		for _, tag := range image.RepoTags {
			fmt.Fprintf(table, "%s\t%d\t%s\n", tag, image.Size, image.Id)
		}
	}
	return table.Flush()
}

func listContainers(ctx context.Context, client cri.RuntimeServiceClient) error {
	reply, err := client.ListContainers(ctx, &cri.ListContainersRequest{})
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tPOD\tCONTAINER\tSTATE\tID")
	for _, c := range reply.Containers {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", c.Labels["io.kubernetes.pod.namespace"],
			c.Labels["io.kubernetes.pod.name"], c.Metadata.GetName(), c.State, c.Id)
	}
	return table.Flush()
}
