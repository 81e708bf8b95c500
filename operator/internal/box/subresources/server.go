// Package subresources serves what is done with a server at once and is no wish in a spec: its console. It is an aggregated API
// (subresources.rcbox.dev): the Kubernetes API server authenticates a user and passes the request on. Whether the user may do it is asked
// by a SubjectAccessReview for each request; no other right implies these.
package subresources

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	ctrl "sigs.k8s.io/controller-runtime"

	"rcbox.dev/rcbox/operator/internal/box/consoles"
	"rcbox.dev/rcbox/operator/internal/box/subresources/protocol"
)

const (
	// Verbs of the rights. A WebSocket begins with a GET, so get is what the Kubernetes API server itself demands of everybody: it must not
	// suffice for typing, because roles that may read everything have it.
	watchVerb = "get"
	useVerb   = "create"

	writeTimeout = 10 * time.Second
	// pingEvery finds users whose connection is gone.
	pingEvery = 15 * time.Second
	// reviewEvery is how often it is asked whether a user may still use the console.
	reviewEvery = time.Minute
	// maxName bounds the name of a user in messages.
	maxName = 128
)

// Server is the handler of the aggregated API.
type Server struct {
	Authenticator authenticator.Request
	Authorizer    authorizer.Authorizer
	Consoles      *consoles.Hub
	// Exists says whether there is a server of that name.
	Exists func(ctx context.Context, name string) (bool, error)
}

// Handler routes requests.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	group, version := "/apis/"+protocol.GroupVersion.Group, "/apis/"+protocol.GroupVersion.String()
	mux.Handle("GET /apis", s.known(answer(groups())))
	mux.Handle("GET "+group, s.known(answer(groups().Groups[0])))
	mux.Handle("GET "+version, s.known(answer(resources())))
	mux.HandleFunc("GET "+version+"/"+protocol.Resource+"/{name}/"+protocol.Console, s.console)
	mux.HandleFunc("/", func(response http.ResponseWriter, request *http.Request) {
		fail(response, http.StatusNotFound, metav1.StatusReasonNotFound, "there is nothing at "+request.URL.Path)
	})
	return mux
}

func groups() *metav1.APIGroupList {
	version := metav1.GroupVersionForDiscovery{GroupVersion: protocol.GroupVersion.String(), Version: protocol.GroupVersion.Version}
	return &metav1.APIGroupList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{{
			TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: protocol.GroupVersion.Group,
			Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
		}},
	}
}

func resources() *metav1.APIResourceList {
	return &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: protocol.GroupVersion.String(),
		APIResources: []metav1.APIResource{{
			Name: protocol.Resource + "/" + protocol.Console, Kind: "Server", Verbs: metav1.Verbs{watchVerb, useVerb},
		}},
	}
}

func answer(object any) http.HandlerFunc {
	return func(response http.ResponseWriter, _ *http.Request) { respond(response, http.StatusOK, object) }
}

func respond(response http.ResponseWriter, code int, object any) {
	response.Header().Set("Content-Type", "application/json")
	response.WriteHeader(code)
	_ = json.NewEncoder(response).Encode(object) //nolint:errchkjson // the client has gone
}

// fail answers in the form of Kubernetes.
func fail(response http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	respond(response, code, &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message, Reason: reason,
		Code: int32(code), //nolint:gosec // of HTTP
	})
}

// who authenticates; without an answer, the request was answered.
func (s *Server) who(response http.ResponseWriter, request *http.Request) user.Info {
	found, ok, err := s.Authenticator.AuthenticateRequest(request)
	if err != nil || !ok {
		fail(response, http.StatusUnauthorized, metav1.StatusReasonUnauthorized,
			"who asks is not known: ask through the Kubernetes API server")
		return nil
	}
	return found.User
}

// known lets through whoever is known.
func (s *Server) known(next http.Handler) http.Handler {
	return http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if s.who(response, request) != nil {
			next.ServeHTTP(response, request)
		}
	})
}

// console connects a user with a console until one of them leaves.
func (s *Server) console(response http.ResponseWriter, request *http.Request) {
	who, name := s.who(response, request), request.PathValue("name")
	if who == nil {
		return
	}
	asked, err := protocol.ParseQuery(request.URL.Query())
	if err != nil {
		fail(response, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	verb := useVerb
	if asked.Mode == consoles.Watch {
		verb = watchVerb
	}
	if !s.allow(response, request, who, verb, name) {
		return
	}
	if !websocket.IsWebSocketUpgrade(request) {
		fail(response, http.StatusBadRequest, metav1.StatusReasonBadRequest, "a console takes a WebSocket: kubectl rcbox console "+name)
		return
	}
	log := ctrl.Log.WithName("consoles").WithValues("server", name, "user", who.GetName(), "mode", request.URL.Query().Get("mode"))
	asked.User = brief(who.GetName())
	session, err := s.Consoles.Attach(name, asked) //nolint:contextcheck // a console outlives the request that opens it
	if err != nil {
		log.Info("console refused", "why", err.Error())
		refuse(response, err)
		return
	}
	defer session.Close()
	upgrader := websocket.Upgrader{
		Subprotocols: []string{protocol.ConsoleProtocol},
		// A browser that has a client certificate shows it also for pages of others: no page is let in.
		CheckOrigin: func(request *http.Request) bool { return request.Header.Get("Origin") == "" },
	}
	connection, err := upgrader.Upgrade(response, request, nil)
	if err != nil {
		return // it was answered
	}
	log.Info("console opened")
	exchange(request.Context(), connection, session, func(ctx context.Context) bool {
		decision, _, err := s.review(ctx, who, verb, name)
		return err != nil || decision == authorizer.DecisionAllow // without an answer, the last one holds
	})
	log.Info("console closed")
}

// brief is a name that fits in messages. The whole name is what is reviewed and logged.
func brief(name string) string {
	if len(name) > maxName {
		return name[:maxName] + "..."
	}
	return name
}

// review asks whether a user may use the console of a server.
func (s *Server) review(ctx context.Context, who user.Info, verb, name string) (authorizer.Decision, string, error) {
	return s.Authorizer.Authorize(ctx, authorizer.AttributesRecord{ //nolint:wrapcheck // whoever asks says what for
		User: who, Verb: verb, APIGroup: protocol.GroupVersion.Group, APIVersion: protocol.GroupVersion.Version,
		Resource: protocol.Resource, Subresource: protocol.Console, Name: name, ResourceRequest: true, Path: protocol.Path(name),
	})
}

// allow says whether a user may use the console of a server that is there. If not, the request was answered.
func (s *Server) allow(response http.ResponseWriter, request *http.Request, who user.Info, verb, name string) bool {
	decision, why, err := s.review(request.Context(), who, verb, name)
	if err != nil {
		fail(response, http.StatusInternalServerError, metav1.StatusReasonInternalError,
			fmt.Sprintf("whether you may use the console of %s could not be found out: %v", name, err))
		return false
	}
	if decision != authorizer.DecisionAllow {
		hint := ""
		if verb == useVerb {
			hint = "; --watch takes " + watchVerb + " alone"
		}
		ctrl.Log.WithName("consoles").Info("console forbidden", "server", name, "user", who.GetName(), "verb", verb)
		fail(response, http.StatusForbidden, metav1.StatusReasonForbidden, strings.TrimSpace(fmt.Sprintf(
			"user %q may not use the console of %s: that takes %s on %s/%s in the API group %s%s %s",
			brief(who.GetName()), name, verb, protocol.Resource, protocol.Console, protocol.GroupVersion.Group, hint, why)))
		return false
	}
	switch exists, err := s.Exists(request.Context(), name); {
	case err != nil:
		fail(response, http.StatusInternalServerError, metav1.StatusReasonInternalError, fmt.Sprintf("read Server %s: %v", name, err))
		return false
	case !exists:
		fail(response, http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no Server %q: kubectl get servers", name))
		return false
	}
	return true
}

// refuse answers a user who does not get a console.
func refuse(response http.ResponseWriter, why error) {
	var taken *consoles.TakenError
	var limit *consoles.LimitError
	switch {
	case errors.As(why, &taken):
		fail(response, http.StatusConflict, metav1.StatusReasonConflict, why.Error())
	case errors.As(why, &limit):
		fail(response, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, why.Error())
	default:
		fail(response, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, why.Error())
	}
}
