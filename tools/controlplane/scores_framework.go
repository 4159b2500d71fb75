// kube-scheduler's default profile over a given cluster, without a scheduler.
//
// The plugins, their order, weights and arguments are those of the default configuration; the snapshot is built by the
// scheduler's cache package. Listers of other kinds contain the objects of the case.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	configv1 "k8s.io/kube-scheduler/config/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	snapshots "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// referenceScheduler evaluates clusters as kube-scheduler would.
type referenceScheduler struct {
	profile  *config.KubeSchedulerProfile
	registry frameworkruntime.Registry
}

// cluster is a case with the plugins that evaluate it.
type cluster struct {
	plugins framework.Framework
	nodes   fwk.NodeInfoLister
	client  *fake.Clientset
}

func newReferenceScheduler() (*referenceScheduler, error) {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	metrics.Register()
	defaults := &configv1.KubeSchedulerConfiguration{}
	scheme.Scheme.Default(defaults)
	configuration := &config.KubeSchedulerConfiguration{}
	if err := scheme.Scheme.Convert(defaults, configuration, nil); err != nil {
		return nil, err
	}
	if len(configuration.Profiles) != 1 {
		return nil, fmt.Errorf("the default configuration has %d profiles", len(configuration.Profiles))
	}
	return &referenceScheduler{profile: &configuration.Profiles[0], registry: plugins.NewInTreeRegistry()}, nil
}

func (reference *referenceScheduler) cluster(ctx context.Context, one *scoresCase) (*cluster, error) {
	client := fake.NewClientset()
	snapshot := snapshots.NewSnapshot(placed(one), one.Nodes)
	nominated := nominations{byNode: map[string][]fwk.PodInfo{}}
	for _, pod := range one.Pods {
		if pod.Spec.NodeName == "" && pod.Status.NominatedNodeName != "" {
			if err := nominated.add(pod); err != nil {
				return nil, err
			}
		}
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	claims, err := resourceClaims(ctx, factory)
	if err != nil {
		return nil, err
	}
	profile, err := reference.profileOf(one)
	if err != nil {
		return nil, err
	}
	plugins, err := frameworkruntime.NewFramework(ctx, reference.registry, profile,
		frameworkruntime.WithClientSet(client),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(claims),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithPodNominator(nominated),
	)
	if err != nil {
		return nil, err
	}
	if err := one.list(factory); err != nil {
		return nil, err
	}
	return &cluster{plugins: plugins, nodes: snapshot.NodeInfos(), client: client}, nil
}

// profileOf returns the profile of a case.
func (reference *referenceScheduler) profileOf(one *scoresCase) (*config.KubeSchedulerProfile, error) {
	if len(one.Configuration) == 0 {
		return reference.profile, nil
	}
	object, _, err := scheme.Codecs.UniversalDecoder().Decode(one.Configuration, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("the configuration is not valid: %w", err)
	}
	configuration, ok := object.(*config.KubeSchedulerConfiguration)
	if !ok || len(configuration.Profiles) == 0 {
		return nil, errors.New("the configuration is not valid: it has no profile")
	}
	return &configuration.Profiles[0], nil
}

// list adds the objects of the case that are neither nodes nor pods to the informers.
func (one *scoresCase) list(factory informers.SharedInformerFactory) error {
	core, apps := factory.Core().V1(), factory.Apps().V1()
	return errors.Join(
		enter(core.Namespaces().Informer(), one.Namespaces),
		one.scoresStorage.list(factory),
		enter(core.Services().Informer(), one.Services),
		enter(core.ReplicationControllers().Informer(), one.ReplicationControllers),
		enter(apps.ReplicaSets().Informer(), one.ReplicaSets),
		enter(apps.StatefulSets().Informer(), one.StatefulSets),
	)
}

func enter[T any](informer cache.SharedIndexInformer, objects []T) error {
	for _, object := range objects {
		if err := informer.GetIndexer().Add(object); err != nil {
			return err
		}
	}
	return nil
}

// resourceClaims are the devices that pods may claim: none, but the plugins query them.
func resourceClaims(ctx context.Context, factory informers.SharedInformerFactory) (fwk.SharedDRAManager, error) {
	kinds := factory.Resource().V1()
	slices, err := tracker.StartTracker(ctx, tracker.Options{SliceInformer: kinds.ResourceSlices()})
	if err != nil {
		return nil, err
	}
	claims := assumecache.NewAssumeCache(klog.FromContext(ctx), kinds.ResourceClaims().Informer(), "ResourceClaim", "", nil)
	return dynamicresources.NewDRAManager(ctx, claims, slices, factory), nil
}

// placed returns the pods that occupy nodes: the scheduler does not watch finished ones, and forgets deleted nodes.
func placed(one *scoresCase) []*v1.Pod {
	there := map[string]bool{}
	for _, node := range one.Nodes {
		there[node.Name] = true
	}
	pods := []*v1.Pod{}
	for _, pod := range one.Pods {
		finished := pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed
		if !finished && there[pod.Spec.NodeName] {
			pods = append(pods, pod)
		}
	}
	return pods
}

// nominations are pods nominated to a node. They do not change: filters only list those of a node.
type nominations struct {
	fwk.PodNominator
	byNode map[string][]fwk.PodInfo
}

func (nominated nominations) add(pod *v1.Pod) error {
	info, err := framework.NewPodInfo(pod)
	if err != nil {
		return err
	}
	node := pod.Status.NominatedNodeName
	nominated.byNode[node] = append(nominated.byNode[node], info)
	return nil
}

// NominatedPodsForNode returns the pods that are nominated to this node.
func (nominated nominations) NominatedPodsForNode(node string) []fwk.PodInfo {
	return nominated.byNode[node]
}
