package v1alpha1

import (
	"strconv"
	"strings"
	"time"
)

// Conditions of a Store.
const (
	// ConditionAvailable is True while every key of every table can be read, and written unless a master's memory is full.
	ConditionAvailable = "Available"
	// ConditionProgressing is True while the operator moves the Store towards its spec.
	ConditionProgressing = "Progressing"
	// ConditionDegraded is True while something is broken that should not be.
	ConditionDegraded = "Degraded"
	// ConditionDataSafe says what the durability in force promises, and whether something was lost.
	ConditionDataSafe = "DataSafe"
	// ConditionRecovering is True while tablets of a lost master are on their way to others.
	ConditionRecovering = "Recovering"
	// ConditionRecoveryOnTarget is True while the loss of a failure domain would be made up for within recovery.target.
	ConditionRecoveryOnTarget = "RecoveryOnTarget"
	// ConditionNetworkReady is True while every master has the ports and addresses that network.attachments asks for.
	ConditionNetworkReady = "NetworkReady"
	// ConditionReady is True while the Store is Available, everything has the copies that were asked for, and nothing is left to do.
	ConditionReady = "Ready"
	// ConditionStalled is True while nothing goes on without somebody's action.
	ConditionStalled = "Stalled"
)

// Reasons of the conditions; docs/store-reference.md explains each.
const (
	// Available.
	ReasonServing         = "Serving"
	ReasonForming         = "Forming"
	ReasonCoordinatorDown = "CoordinatorDown"
	ReasonMembersDown     = "MembersDown"
	ReasonDeleting        = "Deleting"
	ReasonStateUnusable   = "StateUnusable"
	ReasonRebuilding      = "Rebuilding"
	// Progressing.
	ReasonAsSpecified       = "AsSpecified"
	ReasonCanBeFinalized    = "UpgradeCanBeFinalized"
	ReasonApplying          = "Applying"
	ReasonWaiting           = "Waiting"
	ReasonScaleInBlocked    = "ScaleInBlocked"
	ReasonDraining          = "Draining"
	ReasonEvacuating        = "Evacuating"
	ReasonEvacuationBlocked = "EvacuationBlocked"
	ReasonRolling           = "Rolling"
	ReasonPaused            = "Paused"
	ReasonHibernating       = "Hibernating"
	ReasonHibernated        = "Hibernated"
	ReasonRestartPending    = "RestartPending"
	ReasonNameTaken         = "NameTaken"
	ReasonApplyFailed       = "ApplyFailed"
	ReasonNotAllowed        = "NotAllowed"
	ReasonStateFixed        = "StateFixed"
	ReasonHeldBack          = "HeldBack"
	ReasonPodRefused        = "PodRefused"
	ReasonDrilling          = "Drilling"
	ReasonNoStorageClass    = "NoStorageClass"
	ReasonTooFewNodes       = "TooFewNodes"
	ReasonImageUnusable     = "ImageUnusable"
	// Stalled.
	ReasonNotStalled = "NotStalled"
	// Degraded.
	ReasonAsExpected    = "AsExpected"
	ReasonMemoryFull    = "MemoryFull"
	ReasonBackupsFailed = "BackupsFailed"
	ReasonBackupsSmall  = "BackupsSmall"
	ReasonStateStuck    = "StateStuck"
	ReasonStandbysDown  = "StandbysDown"
	ReasonNodeIsolated  = "NodeIsolated"
	ReasonNodeLost      = "NodeLost"
	ReasonTwoOperators  = "TwoOperators"
	// The label of placement.failureDomain is on no node.
	ReasonNoFailureDomain = "NoFailureDomain"
	// DataSafe.
	ReasonUnreplicated        = "Unreplicated"
	ReasonDataLost            = "DataLost"
	ReasonReplicated          = "Replicated"
	ReasonUnderReplicated     = "UnderReplicated"
	ReasonCoordinatorInMemory = "CoordinatorInMemory"
	// Recovering.
	ReasonNoneUnderWay    = "NoneUnderWay"
	ReasonRecoveryRuns    = "RecoveryRuns"
	ReasonRecoveryBlocked = "RecoveryBlocked"
	// RecoveryOnTarget.
	ReasonOnTarget        = "OnTarget"
	ReasonOnTargetSoFar   = "OnTargetSoFar"
	ReasonTooSlow         = "TooSlow"
	ReasonNoRoomForCopies = "NoRoomForCopies"
	ReasonNoRoomForData   = "NoRoomForData"
	// NetworkReady.
	ReasonPodNetwork         = "PodNetwork"
	ReasonAttached           = "Attached"
	ReasonAddressesLow       = "AddressesLow"
	ReasonAttaching          = "Attaching"
	ReasonNotAttached        = "NotAttached"
	ReasonAddressesExhausted = "AddressesExhausted"
	ReasonAddressConflict    = "AddressConflict"
	ReasonPoolsOverlap       = "PoolsOverlap"
	ReasonDeviceRefused      = "DeviceRefused"
	ReasonNoDevice           = "NoDevice"
	ReasonLinkDown           = "LinkDown"
	ReasonPeersUnreached     = "PeersUnreached"
)

// Labels of everything that the operator makes for a Store.
const (
	LabelName      = "app.kubernetes.io/name"
	LabelInstance  = "app.kubernetes.io/instance"
	LabelComponent = "app.kubernetes.io/component"
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelChassis names the Chassis of a Server, and LabelSlot its slot.
	LabelChassis = "rcbox.dev/chassis"
	LabelSlot    = "rcbox.dev/slot"
	// LabelServer names the Server whose backup partition a PersistentVolume is.
	LabelServer = "rcbox.dev/server"
	// LabelNodeClass says of a Server or a node what kind of machine it is.
	LabelNodeClass = "rcbox.dev/node-class"
	// LabelStore names the Store.
	LabelStore = "rcbox.dev/store"
	// LabelMember names the member that a pod is of.
	LabelMember = "rcbox.dev/member"
	// LabelState on a ConfigMap says that it is a part of a coordinator's state, and which: root or chunk. The coordinator
	// makes them, with LabelStore.
	LabelState = "rcbox.dev/state"
	// LabelAdminClient on a pod of the Store's namespace, with the Store's name as its value, lets that pod reach the
	// coordinator's admin port.
	LabelAdminClient = "rcbox.dev/admin-client"

	// NameValue is the value of LabelName.
	NameValue = "rcbox"
	// ManagedByValue is the value of LabelManagedBy.
	ManagedByValue = "rcbox-operator"
	// ComponentCoordinator and ComponentMaster are values of LabelComponent.
	ComponentCoordinator = "coordinator"
	ComponentMaster      = "master"
)

// Annotations.
const (
	// AnnotationPodNumber on a pod counts the pods that its member has had.
	AnnotationPodNumber = "rcbox.dev/pod-number"
	// AnnotationMadeFrom on a pod holds, as JSON, the fields of the Store's spec that it was made from.
	AnnotationMadeFrom = "rcbox.dev/made-from"
	// AnnotationEndCancelled on a pod cancels a deletion that was planned: setting it changes the pod's resource version, which the
	// deletion has as its precondition. Its value is the resource version that was to be deleted or, after a Store was woken up, the time
	// since which that was hibernated.
	AnnotationEndCancelled = "rcbox.dev/recalled"
	// AnnotationDomain on a pod holds the failure domain of the node that it was scheduled to: the value of the label that
	// placement.failureDomain names. The process takes it from there when it starts.
	AnnotationDomain = "rcbox.dev/domain"
	// AnnotationTouched on a volume claim is when the operator last changed it for no other reason than that the scheduler looks at it.
	AnnotationTouched = "rcbox.dev/touched"
	// AnnotationAcknowledgedLosses on a Store is set by its user to the number of the newest loss that he has taken note
	// of. DataSafe has the reason DataLost while there are newer ones.
	AnnotationAcknowledgedLosses = "rcbox.dev/acknowledged-losses"
	// FormerAnnotationDrained on a Store named members, with commas between them, whose drain was ordered, before there were
	// StoreOperations.
	FormerAnnotationDrained = "rcbox.dev/drained"
	// FormerAnnotationDrill on a Store ordered a drill before there were StoreOperations.
	FormerAnnotationDrill = "rcbox.dev/drill"
)

const (
	// AnnotationAddresses on a pod has the addresses of its ports, with commas between them.
	AnnotationAddresses = "rcbox.dev/addresses"
	// AnnotationReleasedAddresses on a Store is somebody's word that pods that were lost send nothing any more: their names, with commas
	// between them. Their addresses may be given to others.
	AnnotationReleasedAddresses = "rcbox.dev/released-addresses"
	// FinalizerAddresses keeps a pod that has addresses of its own until it is known that it sends nothing any more.
	FinalizerAddresses = "rcbox.dev/addresses"
	// GateAddresses keeps a pod that has addresses from being given a node until they are on record as this pod's.
	GateAddresses = "rcbox.dev/addresses"
)

// ReleasedPods are those that AnnotationReleasedAddresses names.
func (s *Store) ReleasedPods() []string {
	return strings.FieldsFunc(s.Annotations[AnnotationReleasedAddresses], func(r rune) bool { return r == ',' || r == ' ' })
}

// FormerAnnotationIsolated on a Store named nodes, with commas between them, that were isolated, before there were StoreOperations.
const FormerAnnotationIsolated = "rcbox.dev/isolated"

// MaxIsolated is how many nodes may be isolated for a Store.
const MaxIsolated = 16

// AnnotationFencedBy on a node, or on a remediation, names the Store by whose word it is there, as namespace/name.
const AnnotationFencedBy = "rcbox.dev/fenced-by"

// FinalizerState keeps the root of a coordinator's state from being deleted in passing.
const FinalizerState = "rcbox.dev/state"

// Finalizer keeps a Store until its pods have ended.
const Finalizer = "rcbox.dev/teardown"

// CoordinatorMember is the name of the coordinator of a store.
func CoordinatorMember(store string) string { return store + "-coordinator" }

// CoordinatorMemberAt is the name of the coordinator with this ordinal, from 0; the first is the only one of most stores.
func CoordinatorMemberAt(store string, ordinal int) string {
	if ordinal == 0 {
		return CoordinatorMember(store)
	}
	return CoordinatorMember(store) + "-" + strconv.Itoa(ordinal)
}

// CoordinatorOrdinal is the inverse of CoordinatorMemberAt; false for any other name.
func CoordinatorOrdinal(store, member string) (int, bool) {
	for ordinal := range MaxCoordinators {
		if member == CoordinatorMemberAt(store, ordinal) {
			return ordinal, true
		}
	}
	return 0, false
}

// StateRoot is the name of the ConfigMap that says which others are the coordinator's state.
func StateRoot(store string) string { return store + "-state-root" }

// MaxCoordinators of a store.
const MaxCoordinators = 3

// MasterMember is the name of the master with this ordinal.
func MasterMember(store string, ordinal int) string {
	return store + "-master-" + strconv.Itoa(ordinal)
}

// MasterOrdinal is the inverse of MasterMember; false for any other name.
func MasterOrdinal(store, member string) (int, bool) {
	digits, found := strings.CutPrefix(member, store+"-master-")
	if !found {
		return 0, false
	}
	ordinal, err := strconv.Atoi(digits)
	if err != nil || ordinal < 0 || MasterMember(store, ordinal) != member {
		return 0, false
	}
	return ordinal, true
}

// LookLease is the name of the Lease in which the operator notes when it looked at a Store last.
func LookLease(store string) string { return store + "-observed" }

// LookInterval is how often it does.
const LookInterval = 15 * time.Second
