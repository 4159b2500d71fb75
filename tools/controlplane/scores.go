// The program `scores`: computes with kube-scheduler's own code which nodes are feasible for a pod and which is best.
//
// It reads cases as JSON lines from its standard input and prints one JSON line for each. A case is a small cluster in
// plain manifests. Each is defaulted and validated as in the API server, so that there are no answers about objects
// that cannot exist; then the default profile's plugins are run over a snapshot of the cluster, on all nodes. It must
// not depend on its caller, nor decide anything of its own: every number is a plugin's.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	"k8s.io/kubernetes/pkg/registry/core/node"
	"k8s.io/kubernetes/pkg/registry/core/pod"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

func init() {
	applets["scores"] = applet{about: "the nodes that kube-scheduler rejects, and its scores, for cases as JSON lines", run: asApplet(scores)}
}

// scoresCase is a small cluster and a pod to schedule.
type scoresCase struct {
	Namespaces []*v1.Namespace `json:"namespaces"`
	Nodes      []*v1.Node      `json:"nodes"`
	// Objects that select pods: for the default spreading constraints.
	Services               []*v1.Service               `json:"services"`
	ReplicationControllers []*v1.ReplicationController `json:"replicationControllers"`
	ReplicaSets            []*appsv1.ReplicaSet        `json:"replicaSets"`
	StatefulSets           []*appsv1.StatefulSet       `json:"statefulSets"`
	scoresStorage
	// Pods that are on nodes, and pods that are nominated to a node.
	Pods []*v1.Pod `json:"pods"`
	Pod  *v1.Pod   `json:"pod"`
	// Configuration is a KubeSchedulerConfiguration whose first profile is used; the default profile if there is none.
	Configuration json.RawMessage `json:"configuration"`
	// Plugins are the score plugins that count in the totals; all of them if there are none here.
	Plugins []string `json:"plugins"`
}

// scoresAnswer has the result for every node, in the order of the case.
type scoresAnswer struct {
	Nodes []nodeAnswer `json:"nodes"`
	// Best are the nodes with the highest total.
	Best []string `json:"best"`
	// Volumes is what would be written for the claims of the pod, for each of the best nodes.
	Volumes map[string]volumeWrites `json:"volumes,omitempty"`
	// Error is set if there is no answer: the case is invalid, or a plugin failed.
	Error string `json:"error,omitempty"`
}

// nodeAnswer is the result for a node: rejected, or scored by each plugin, normalised and weighted.
type nodeAnswer struct {
	Name    string           `json:"name"`
	Refused *rejection       `json:"refused,omitempty"`
	Scores  map[string]int64 `json:"scores,omitempty"`
	Total   int64            `json:"total"`
}

// rejection is the rejecting plugin and its reasons. A PreFilter plugin rejects all nodes at once, and is reported even
// where an earlier filter would have rejected.
type rejection struct {
	Plugin  string   `json:"plugin"`
	Before  bool     `json:"beforeFilters,omitempty"`
	Reasons []string `json:"reasons"`
}

// scores answers cases until the input ends.
func scores(args []string) error {
	flags := flag.NewFlagSet("scores", flag.ContinueOnError)
	counted := flags.String("plugins", "", "the score plugins that count in totals, by comma; a case's own list goes before")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("scores takes cases on its standard input and no arguments, not %q", flags.Arg(0))
	}
	reference, err := newReferenceScheduler()
	if err != nil {
		return err
	}
	in, out := bufio.NewReader(os.Stdin), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			answer := answerLine(reference, line, *counted)
			if err := json.NewEncoder(out).Encode(answer); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func answerLine(reference *referenceScheduler, line []byte, counted string) scoresAnswer {
	var one scoresCase
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&one); err != nil {
		return scoresAnswer{Error: fmt.Sprintf("the case cannot be read: %v", err)}
	}
	if one.Plugins == nil && counted != "" {
		one.Plugins = strings.Split(counted, ",")
	}
	if err := one.complete(); err != nil {
		return scoresAnswer{Error: err.Error()}
	}
	// Background work of the plugins ends with the case.
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	answer, err := reference.measure(ctx, &one)
	if err != nil {
		return scoresAnswer{Error: err.Error()}
	}
	return answer
}

// complete applies the API server's defaults and validation.
func (one *scoresCase) complete() error {
	if one.Pod == nil {
		return errors.New("the case has no pod")
	}
	for _, object := range one.Nodes {
		if err := asCreated(object, &core.Node{}, node.Strategy); err != nil {
			return fmt.Errorf("Node %s %w", object.Name, err)
		}
		if err := asRead(object); err != nil {
			return err
		}
	}
	for _, object := range append([]*v1.Pod{one.Pod}, one.Pods...) {
		// A pod that is created has no status yet.
		status := object.Status
		if err := asCreated(object, &core.Pod{}, pod.Strategy); err != nil {
			return fmt.Errorf("Pod %s %w", object.Name, err)
		}
		object.Status = status
		if err := asRead(object); err != nil {
			return err
		}
	}
	return nil
}

// creation is the API server's strategy for a new object.
type creation interface {
	PrepareForCreate(ctx context.Context, internal runtime.Object)
	Validate(ctx context.Context, internal runtime.Object) field.ErrorList
}

func asCreated(object, internal runtime.Object, creation creation) error {
	scheme := legacyscheme.Scheme
	scheme.Default(object)
	if err := scheme.Convert(object, internal, nil); err != nil {
		return err
	}
	creation.PrepareForCreate(context.Background(), internal)
	if errs := creation.Validate(context.Background(), internal); len(errs) > 0 {
		return fmt.Errorf("is not valid: %w", errs.ToAggregate())
	}
	return scheme.Convert(internal, object, nil)
}

// asRead converts the object to what clients of the API server read: quantities are serialized again in their canonical
// form. Others are not safe in the scheduler, which may modify the object's own quantities.
func asRead[T any](object *T) error {
	text, err := json.Marshal(object)
	if err != nil {
		return err
	}
	var read T
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*object = read
	return nil
}

// measure runs the plugins on every node.
func (reference *referenceScheduler) measure(ctx context.Context, one *scoresCase) (scoresAnswer, error) {
	cluster, err := reference.cluster(ctx, one)
	if err != nil {
		return scoresAnswer{}, err
	}
	state := framework.NewCycleState()
	refused, err := cluster.filter(ctx, state, one)
	if err != nil {
		return scoresAnswer{}, err
	}
	answer := scoresAnswer{Nodes: []nodeAnswer{}, Best: []string{}}
	feasible := []fwk.NodeInfo{}
	for _, node := range one.Nodes {
		answer.Nodes = append(answer.Nodes, nodeAnswer{Name: node.Name, Refused: refused[node.Name]})
		if refused[node.Name] == nil {
			info, err := cluster.nodes.Get(node.Name)
			if err != nil {
				return scoresAnswer{}, err
			}
			feasible = append(feasible, info)
		}
	}
	if len(feasible) == 0 {
		return answer, nil
	}
	scored, err := cluster.score(ctx, state, one.Pod, feasible)
	if err != nil {
		return scoresAnswer{}, err
	}
	answer.enter(scored, one.Plugins)
	for _, node := range answer.Best {
		writes, err := cluster.bindVolumes(ctx, state, one.Pod, node)
		if err != nil {
			return scoresAnswer{}, err
		}
		if writes != nil {
			if answer.Volumes == nil {
				answer.Volumes = map[string]volumeWrites{}
			}
			answer.Volumes[node] = *writes
		}
	}
	return answer, nil
}

// filter returns the rejection of each node.
func (cluster *cluster) filter(ctx context.Context, state fwk.CycleState, one *scoresCase) (map[string]*rejection, error) {
	refused := map[string]*rejection{}
	offered, status, by := cluster.plugins.RunPreFilterPlugins(ctx, state, one.Pod)
	if !status.IsSuccess() && !status.IsRejected() {
		return nil, status.AsError()
	}
	for _, node := range one.Nodes {
		switch {
		case !status.IsSuccess():
			refused[node.Name] = preFilterRejection(status.Plugin(), by, status.Reasons())
			continue
		case !offered.AllNodes() && !offered.NodeNames.Has(node.Name):
			refused[node.Name] = preFilterRejection("", by, nil)
			continue
		}
		info, err := cluster.nodes.Get(node.Name)
		if err != nil {
			return nil, err
		}
		verdict := cluster.plugins.RunFilterPluginsWithNominatedPods(ctx, state, one.Pod, info)
		if verdict.IsRejected() {
			refused[node.Name] = &rejection{Plugin: verdict.Plugin(), Reasons: verdict.Reasons()}
		} else if !verdict.IsSuccess() {
			return nil, verdict.AsError()
		}
	}
	return refused, nil
}

// preFilterRejection is the rejection by a PreFilter plugin.
func preFilterRejection(plugin string, by sets.Set[string], reasons []string) *rejection {
	if plugin == "" {
		plugin = strings.Join(sets.List(by), ",")
	}
	if reasons == nil {
		reasons = []string{}
	}
	return &rejection{Plugin: plugin, Before: true, Reasons: reasons}
}

func (cluster *cluster) score(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, feasible []fwk.NodeInfo,
) ([]fwk.NodePluginScores, error) {
	if status := cluster.plugins.RunPreScorePlugins(ctx, state, pod, feasible); !status.IsSuccess() {
		return nil, status.AsError()
	}
	scored, status := cluster.plugins.RunScorePlugins(ctx, state, pod, feasible)
	if !status.IsSuccess() {
		return nil, status.AsError()
	}
	return scored, nil
}

// enter records the scores of the nodes, and which of them are best by the plugins that count.
func (answer *scoresAnswer) enter(scored []fwk.NodePluginScores, counted []string) {
	best := int64(math.MinInt64)
	for _, node := range scored {
		position := slices.IndexFunc(answer.Nodes, func(one nodeAnswer) bool { return one.Name == node.Name })
		entry := &answer.Nodes[position]
		entry.Scores = map[string]int64{}
		for _, score := range node.Scores {
			entry.Scores[score.Name] = score.Score
			if counted == nil || slices.Contains(counted, score.Name) {
				entry.Total += score.Score
			}
		}
		best = max(best, entry.Total)
	}
	for _, node := range answer.Nodes {
		if node.Refused == nil && node.Total == best {
			answer.Best = append(answer.Best, node.Name)
		}
	}
}
