// Command standinplugin is a device plugin that stands in for the SR-IOV network device plugin where there is no NIC to share: it makes a few ports
// on its node (package ports), offers them to the kubelet as the resource stand-in.rcbox.dev/port, and lets a port whose cable is pulled count as
// unhealthy. Pods get the ports by the CNI plugin standinport.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	kubelet "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"rcbox.dev/rcbox/images/network/ports"
)

const (
	resourceName = "stand-in.rcbox.dev/port"
	socketName   = "stand-in.sock"
	// interval in which ports are looked at: a pod may end with its port, and a cable may be pulled.
	interval = time.Second
	// registerTimeout is for one call to the kubelet on the same machine.
	registerTimeout = 10 * time.Second
)

func main() {
	over := flag.String("over", "", "interface of the node to the other nodes (default: where its default route leads)")
	install := flag.String("install", "", "copy the CNI plugins of -plugins to this folder, and end")
	plugins := flag.String("plugins", "/cni", "folder with CNI plugins")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if *install != "" {
		err = copyAll(*plugins, *install)
	} else {
		err = run(ctx, *over)
	}
	if err != nil && ctx.Err() == nil {
		slog.Error("standinplugin stopped", "error", err)
		os.Exit(1)
	}
}

// run serves until the context ends. The kubelet forgets its plugins when it starts anew: then it makes its socket again.
func run(ctx context.Context, over string) error {
	if err := ports.Ensure(over); err != nil {
		return err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for the kubelet: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(kubelet.DevicePluginPath); err != nil {
		return fmt.Errorf("watch for the kubelet: %w", err)
	}
	for ctx.Err() == nil {
		if err := serveUntil(ctx, over, watcher.Events); err != nil {
			return err
		}
	}
	return nil
}

// serveUntil serves one kubelet, until the next one.
func serveUntil(ctx context.Context, over string, events <-chan fsnotify.Event) error {
	path := filepath.Join(kubelet.DevicePluginPath, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the socket of the one before: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer()
	defer server.Stop()
	kubelet.RegisterDevicePluginServer(server, &plugin{ended: ctx, over: over})
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	if err := register(ctx); err != nil {
		return err
	}
	slog.Info("the kubelet knows the ports", "resource", resourceName, "count", ports.Count)
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return fmt.Errorf("serve at %s: %w", path, err)
		case event := <-events:
			if event.Name == kubelet.KubeletSocket && event.Has(fsnotify.Create) {
				slog.Info("the kubelet has started anew")
				return nil
			}
		}
	}
}

func register(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+kubelet.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to the kubelet: %w", err)
	}
	defer connection.Close()
	_, err = kubelet.NewRegistrationClient(connection).Register(ctx, &kubelet.RegisterRequest{
		Version: kubelet.Version, Endpoint: socketName, ResourceName: resourceName,
	}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("register with the kubelet: %w", err)
	}
	return nil
}

// plugin is what the kubelet calls.
type plugin struct {
	kubelet.UnimplementedDevicePluginServer
	ended context.Context //nolint:containedctx // of the server as a whole; gRPC makes one for each call
	over  string
}

func (p *plugin) GetDevicePluginOptions(context.Context, *kubelet.Empty) (*kubelet.DevicePluginOptions, error) {
	return &kubelet.DevicePluginOptions{}, nil
}

// ListAndWatch tells of all ports at once, and again whenever something about them has changed.
func (p *plugin) ListAndWatch(_ *kubelet.Empty, stream kubelet.DevicePlugin_ListAndWatchServer) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var told [ports.Count]bool
	for first := true; ; first = false {
		if err := ports.Ensure(p.over); err != nil {
			slog.Warn("a port cannot be made", "error", err)
		}
		var healthy [ports.Count]bool
		for port := range healthy {
			healthy[port] = ports.HasLink(port)
		}
		if first || healthy != told {
			slog.Info("tell of ports", "healthy", healthy)
			if err := stream.Send(answer(healthy)); err != nil {
				return fmt.Errorf("tell the kubelet of ports: %w", err)
			}
			told = healthy
		}
		select {
		case <-p.ended.Done():
			return nil
		case <-stream.Context().Done():
			return nil
		case <-tick.C:
		}
	}
}

func answer(healthy [ports.Count]bool) *kubelet.ListAndWatchResponse {
	list := &kubelet.ListAndWatchResponse{}
	for port, isHealthy := range healthy {
		health := kubelet.Unhealthy
		if isHealthy {
			health = kubelet.Healthy
		}
		list.Devices = append(list.Devices, &kubelet.Device{ID: ports.Device(port), Health: health})
	}
	return list
}

// Allocate gives nothing but the port itself, which comes by CNI: there is no device file that a container would need.
func (p *plugin) Allocate(_ context.Context, request *kubelet.AllocateRequest) (*kubelet.AllocateResponse, error) {
	response := &kubelet.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		for _, device := range container.DevicesIDs {
			if _, err := ports.OfDevice(device); err != nil {
				return nil, err
			}
		}
		response.ContainerResponses = append(response.ContainerResponses, &kubelet.ContainerAllocateResponse{})
	}
	return response, nil
}

// copyAll installs programs so that nobody runs half of one.
func copyAll(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("read %s: %w", from, err)
	}
	for _, entry := range entries {
		if err := copyProgram(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyProgram(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	defer source.Close()
	part, err := os.OpenFile(to+".part", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755)
	if err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	_, err = io.Copy(part, source)
	if err := errors.Join(err, part.Close()); err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	if err := os.Rename(to+".part", to); err != nil {
		return fmt.Errorf("install %s: %w", to, err)
	}
	return nil
}
