// Storage of a case, and what kube-scheduler would write for the claims of its pod.
package main

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
)

// selectedNode is the annotation of a claim with the node for which its volume is provisioned.
const selectedNode = "volume.kubernetes.io/selected-node"

// scoresStorage are the objects of storage in a case.
type scoresStorage struct {
	Claims      []*v1.PersistentVolumeClaim     `json:"persistentVolumeClaims"`
	Volumes     []*v1.PersistentVolume          `json:"persistentVolumes"`
	Classes     []*storagev1.StorageClass       `json:"storageClasses"`
	NodeDrivers []*storagev1.CSINode            `json:"csiNodes"`
	Drivers     []*storagev1.CSIDriver          `json:"csiDrivers"`
	Capacities  []*storagev1.CSIStorageCapacity `json:"csiStorageCapacities"`
	Attachments []*storagev1.VolumeAttachment   `json:"volumeAttachments"`
}

// volumeWrites is what is written for the claims of a pod before it is bound to a node.
type volumeWrites struct {
	// Reserved are the volumes that are reserved, by claim.
	Reserved map[string]string `json:"reserved"`
	// Provisioned are the claims for which the node is selected.
	Provisioned []string `json:"provisioned"`
}

// list adds the objects to the informers.
func (storage *scoresStorage) list(factory informers.SharedInformerFactory) error {
	core, kinds := factory.Core().V1(), factory.Storage().V1()
	return errors.Join(
		enter(core.PersistentVolumeClaims().Informer(), storage.Claims),
		enter(core.PersistentVolumes().Informer(), storage.Volumes),
		enter(kinds.StorageClasses().Informer(), storage.Classes),
		enter(kinds.CSINodes().Informer(), storage.NodeDrivers),
		enter(kinds.CSIDrivers().Informer(), storage.Drivers),
		enter(kinds.CSIStorageCapacities().Informer(), storage.Capacities),
		enter(kinds.VolumeAttachments().Informer(), storage.Attachments),
	)
}

// bindVolumes reserves the volumes of a pod on a node and returns what the plugins write, or nil if they write nothing. The
// writes go nowhere, and nothing waits for volumes: the context of the plugins has ended.
func (cluster *cluster) bindVolumes(
	ctx context.Context, state fwk.CycleState, pod *v1.Pod, node string,
) (*volumeWrites, error) {
	if status := cluster.plugins.RunReservePluginsReserve(ctx, state, pod, node); !status.IsSuccess() {
		return nil, status.AsError()
	}
	defer cluster.plugins.RunReservePluginsUnreserve(ctx, state, pod, node)
	writes := volumeWrites{Reserved: map[string]string{}, Provisioned: []string{}}
	record := func(action clienttesting.Action) (bool, runtime.Object, error) {
		object := action.(clienttesting.UpdateAction).GetObject()
		switch written := object.(type) {
		case *v1.PersistentVolume:
			writes.Reserved[written.Spec.ClaimRef.Name] = written.Name
		case *v1.PersistentVolumeClaim:
			if written.Annotations[selectedNode] == node {
				writes.Provisioned = append(writes.Provisioned, written.Name)
			}
		}
		return true, object, nil
	}
	cluster.client.PrependReactor("update", "*", record)
	ended, end := context.WithCancel(ctx)
	end()
	cluster.plugins.RunPreBindPlugins(ended, state, pod, node)
	if len(writes.Reserved) == 0 && len(writes.Provisioned) == 0 {
		return nil, nil
	}
	return &writes, nil
}
